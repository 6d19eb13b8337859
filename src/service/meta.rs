//! The meta-tools: find tools by what they do.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::domain::tool::Tool;
use crate::service::current::CurrentCatalog;
use crate::service::execute::Caller;
use crate::service::meters::SearchKind;
use crate::service::record::Recorder;
use crate::service::retrieve::Retrieve;

/// Tools that one search returns at most.
pub const MAX_LIMIT: usize = 100;

/// How much of each tool a search returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    Names,
    #[default]
    Summary,
    Full,
}

/// A search over everything that the caller may use.
#[derive(Clone, Debug)]
pub struct FindTools {
    pub queries: Vec<String>,
    pub limit: usize,
    pub detail: Detail,
}

/// One found tool.
#[derive(Clone, Debug, Serialize)]
pub struct FoundTool {
    pub name: String,
    pub server: String,
    pub tool: String,
    /// 0 to 1.
    pub score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Arc<Value>>,
}

/// What a search found.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    pub tools: Vec<FoundTool>,
    /// What to do now, for the model.
    pub next: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

pub struct Meta {
    pub current: Arc<CurrentCatalog>,
    pub retrieve: Arc<Retrieve>,
    pub recorder: Recorder,
}

impl Meta {
    /// The best tools for the queries, merged, best first: exactly `limit` when there are that many.
    pub async fn find(&self, request: &FindTools, caller: &Caller) -> Found {
        let visibility = self.current.visibility(&caller.principal);
        let catalog = self.current.snapshot();
        let (ranked, vector, warnings) = self.retrieve.search_with_vector(&request.queries, &visibility, &catalog, request.limit).await;
        let tools = ranked.iter().map(|(tool, _)| tool.id.clone()).collect();
        let message = self.recorder.message(self.retrieve.model(), vector, &request.queries.join("\n"));
        self.recorder.searched(SearchKind::FindTools, caller, message, tools);
        let tools: Vec<FoundTool> = ranked.into_iter().map(|(tool, score)| found(&tool, score, request.detail)).collect();
        let next = match (tools.is_empty(), request.detail) {
            (true, _) => "Nothing was found. Try other words for what the tool should do.".to_owned(),
            (false, Detail::Full) => "Call a tool directly if it is among your tools, otherwise through run_tool.".to_owned(),
            (false, _) => "Call a tool directly if it is among your tools; otherwise search again with detail \"full\" for its parameters \
                 and call it through run_tool."
                .to_owned(),
        };
        Found { tools, next, warnings }
    }
}

fn found(tool: &Tool, score: f32, detail: Detail) -> FoundTool {
    FoundTool {
        name: tool.operation_id.to_string(),
        server: tool.id.server.to_string(),
        tool: tool.label.to_string(),
        score,
        summary: (detail == Detail::Summary).then(|| tool.summary().to_owned()),
        description: (detail == Detail::Full).then(|| tool.description.clone()),
        parameters: (detail == Detail::Full).then(|| Arc::clone(&tool.input.published)),
    }
}

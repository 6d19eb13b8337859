//! The meta-tools: find tools by what they do, and describe them.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::domain::principal::Principal;
use crate::domain::tool::Tool;
use crate::service::current::CurrentCatalog;
use crate::service::execute::{Caller, Execute, ExecuteError};
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

/// The whole definition of one tool.
#[derive(Clone, Debug, Serialize)]
pub struct DescribedTool {
    pub name: String,
    pub server: String,
    pub tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub description: String,
    /// JSON Schema of the arguments, as it is published.
    pub parameters: Arc<Value>,
    /// JSON Schema of the result, where the server promises one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returns: Option<Arc<Value>>,
}

/// A name that is not that of a tool.
#[derive(Clone, Debug, Serialize)]
pub struct UnknownTool {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub did_you_mean: Option<String>,
}

/// Definitions, in the order of the names.
#[derive(Clone, Debug, Serialize)]
pub struct Described {
    pub tools: Vec<DescribedTool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<UnknownTool>,
    /// What to do now, for the model.
    pub next: String,
}

pub struct Meta {
    pub execute: Arc<Execute>,
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
            (false, _) => "Call a tool directly if it is among your tools; otherwise get its parameters (describe_tools, or this search \
                 again with detail \"full\") and call it through run_tool."
                .to_owned(),
        };
        Found { tools, next, warnings }
    }
}

impl Meta {
    /// The definitions of these tools, by their published names. What the caller may not use is unknown.
    #[must_use]
    pub fn describe(&self, names: &[String], principal: &Principal) -> Described {
        let (mut tools, mut unknown) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for name in names.iter().filter(|name| seen.insert(name.as_str())) {
            match self.execute.by_name(name, principal) {
                Ok(tool) => tools.push(described(&tool)),
                Err(ExecuteError::NotFound { did_you_mean }) => unknown.push(UnknownTool { name: name.clone(), did_you_mean }),
                Err(_) => unknown.push(UnknownTool { name: name.clone(), did_you_mean: None }),
            }
        }
        let next = match (tools.is_empty(), unknown.is_empty()) {
            (true, _) => "There are no such tools. Use find_tools for the names of tools.",
            (false, true) => "Call a tool directly if it is among your tools, otherwise through run_tool.",
            (false, false) => "Some names are unknown. Use find_tools for those; call the others directly or through run_tool.",
        };
        Described { tools, unknown, next: next.to_owned() }
    }
}

fn described(tool: &Tool) -> DescribedTool {
    DescribedTool {
        name: tool.operation_id.to_string(),
        server: tool.id.server.to_string(),
        tool: tool.id.name.to_string(),
        title: tool.title.clone(),
        description: tool.description.clone(),
        parameters: Arc::clone(&tool.input.published),
        returns: tool.output.clone(),
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

//! Describes tools to a model, by their published names.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;

use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::Tool;
use crate::domain::publishing::meta_tools::MetaTool;
use crate::domain::text::json_text::JsonText;
use crate::service::execution::execute::{Execute, ExecuteError};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct DescribedTool {
    pub name: String,
    pub server: String,
    pub tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub description: String,
    /// JSON Schema of the arguments, in its published form.
    pub parameters: JsonText,
    /// JSON Schema of the result, if the server declares one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returns: Option<JsonText>,
}

/// A requested name that matches no visible tool or server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UnknownName {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub did_you_mean: Option<String>,
}

/// The definitions of the requested tools, in the order of their names in the request.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Described {
    pub tools: Vec<DescribedTool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<UnknownName>,
    /// A hint to the model about the next step.
    pub next: String,
}

pub(crate) struct Describe {
    pub execute: Arc<Execute>,
}

impl Describe {
    /// The definitions of the tools with these published names. Tools that the caller may not use are reported as unknown.
    pub(crate) fn describe(&self, names: &[String], principal: &Principal) -> Described {
        let (mut tools, mut unknown) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for name in names.iter().filter(|name| seen.insert(name.as_str())) {
            match self.execute.by_name(name, principal) {
                Ok(tool) => tools.push(described(&tool)),
                Err(ExecuteError::NotFound { did_you_mean }) => unknown.push(UnknownName { name: name.clone(), did_you_mean }),
                Err(_) => unknown.push(UnknownName { name: name.clone(), did_you_mean: None }),
            }
        }
        let own: Vec<MetaTool> = unknown.iter().filter_map(|unknown| MetaTool::of_name(&unknown.name)).collect();
        let next = match (tools.is_empty(), unknown.len() == own.len()) {
            (true, true) if !own.is_empty() => None,
            (true, _) => Some("There are no such tools. Use find_tools for the names of tools."),
            (false, true) => Some("Call a tool directly if it is among your tools, otherwise through run_tool."),
            (false, false) => Some("Some names are unknown. Use find_tools for those; call the others directly or through run_tool."),
        };
        let sentences: Vec<String> = next.map(str::to_owned).into_iter().chain(own.into_iter().map(MetaTool::call_directly)).collect();
        Described { tools, unknown, next: sentences.join(" ") }
    }
}

fn described(tool: &Tool) -> DescribedTool {
    DescribedTool {
        name: tool.operation_id.to_string(),
        server: tool.id.server.to_string(),
        tool: tool.label.to_string(),
        title: tool.title.clone(),
        description: tool.description.clone(),
        parameters: tool.input.published.clone(),
        returns: tool.output.clone(),
    }
}

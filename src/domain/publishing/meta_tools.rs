//! The meta-tools, in one table for names, routes, documents, lists and limits.

use std::fmt;

use serde_json::{Value, json};

use self::MetaTool::{FindTools, LoadToolset, RunTool};
use crate::domain::catalog::catalog::CatalogServer;
use crate::domain::catalog::naming::RUN_TOOL;
use crate::domain::publishing::document::{CONTENT, operation, path_item, title_case};
use crate::domain::text::short::short;
use crate::domain::toolsets::loading::Group;
use crate::domain::toolsets::mode::Mode;

/// Maximum number of queries per search.
pub const MAX_QUERIES: usize = 16;
/// Maximum number of servers named in a search.
pub const MAX_SERVERS: usize = 20;
/// Maximum number of tools per search.
pub const MAX_FOUND: usize = 100;
/// Default number of tools per search.
pub const DEFAULT_FOUND: usize = 10;
/// Maximum number of tools described per request.
pub const MAX_DESCRIBED: usize = 20;
/// Maximum number of groups loaded per request.
pub const MAX_GROUPS: usize = 20;
/// Bounds on the number of tools selected for a task.
pub const MIN_SELECTED: usize = 5;
pub const MAX_SELECTED: usize = 10;
pub const DEFAULT_SELECTED: usize = 8;
/// Maximum number of servers or toolsets named in a description.
const NAMED: usize = 15;
/// Maximum length of their names there, in characters.
const LONGEST: usize = 40;

/// The purpose for which a model uses a meta-tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Search,
    Load,
    Run,
}

/// One row of the table.
struct Row {
    name: &'static str,
    path: &'static str,
    purpose: Purpose,
    reads_only: bool,
    modes: &'static [Mode],
    /// Builds the description. It mentions the reachable servers and toolsets, because models ignore generic descriptions.
    description: fn(servers: &str, toolsets: &str) -> String,
    parameters: fn() -> Value,
}

/// Declares the enum of meta-tools, with a table row for each.
macro_rules! meta_tools {
    ($($tool:ident { $($columns:tt)* })*) => {
        /// A tool of the service itself.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum MetaTool { $($tool,)* }

        impl MetaTool {
            /// All meta-tools, in the order of documents and lists.
            pub const ALL: &'static [Self] = &[$(Self::$tool,)*];

            fn row(self) -> &'static Row {
                static ROWS: &[Row] = &[$(Row { $($columns)* },)*];
                &ROWS[self as usize]
            }
        }
    };
}

meta_tools! {
    FindTools {
        name: "find_tools",
        path: "/v1/tools/search",
        purpose: Purpose::Search,
        reads_only: true,
        modes: &Mode::ALL,
        description: |servers, _| format!(
            "Find further tools by what they do: {servers}. Use it whenever the task needs something that your other tools can't do, \
             before you say that it can't be done. Returns names with a summary; call a found tool directly when it is among your \
             tools, otherwise through {RunTool}."
        ),
        parameters: || json!({
            "type": "object",
            "properties": {
                "queries": texts(MAX_QUERIES, "What the tools shall do, one short phrase for each need, e.g. [\"send an email\", \"read a calendar\"]"),
                "servers": {"type": "array", "items": {"type": "string"}, "maxItems": MAX_SERVERS, "description": "Search only these servers"},
                "limit": number(1, MAX_FOUND, DEFAULT_FOUND, "How many tools to return"),
                "detail": {
                    "type": "string",
                    "enum": ["names", "summary", "full"],
                    "default": "summary",
                    "description": "How much of each tool: its name, one sentence, or the whole definition with its parameters"
                },
                "intent": {"type": "string", "description": "A kind of tools that goes first, by tag, toolset or server, e.g. \"databases\" or \"read-only\""}
            },
            "required": ["queries"]
        }),
    }
    // Full documents omit it, because their tools are bound already and it would only cost tokens.
    DescribeTools {
        name: "describe_tools",
        path: "/v1/tools/describe",
        purpose: Purpose::Run,
        reads_only: true,
        modes: &[Mode::Meta, Mode::Smart],
        description: |_, _| format!(
            "Get the description and the parameters of tools that {FindTools} found, several at once, before you call them through \
             {RunTool}."
        ),
        parameters: || json!({
            "type": "object",
            "properties": {
                "names": texts(MAX_DESCRIBED, "The tools' names as they were found, e.g. [\"github__create_issue\"]")
            },
            "required": ["names"]
        }),
    }
    LoadToolset {
        name: "load_toolset",
        path: "/v1/toolsets/load",
        purpose: Purpose::Load,
        reads_only: false,
        modes: &[Mode::Dynamic],
        description: |_, toolsets| format!(
            "Load a toolset, so that its tools become yours and you call them directly: {toolsets}. {FindTools} says which toolset \
             has the tool that you need: load that one before you use it. Returns the names of its tools. If they do not appear \
             among your tools, call them through {RunTool}."
        ),
        parameters: || json!({
            "type": "object",
            "properties": {
                "toolset": {"type": "string", "description": "Its name, as find_tools or list_available_toolsets gave it"},
                "toolsets": texts(MAX_GROUPS, "Or several names")
            }
        }),
    }
    UnloadToolset {
        name: "unload_toolset",
        path: "/v1/toolsets/unload",
        purpose: Purpose::Load,
        reads_only: false,
        modes: &[Mode::Dynamic],
        description: |_, _| format!("Take back a toolset that {LoadToolset} loaded, when its tools are not needed any more."),
        parameters: || one_name("toolset", "The name under which it was loaded"),
    }
    ListAvailableToolsets {
        name: "list_available_toolsets",
        path: "/v1/toolsets/available",
        purpose: Purpose::Load,
        reads_only: true,
        modes: &[Mode::Dynamic],
        description: |_, _| format!(
            "List the toolsets that can be loaded, with the number of their tools and whether they are loaded. To look for a tool by \
             what it does, {FindTools} is better."
        ),
        parameters: || json!({"type": "object", "properties": {}}),
    }
    EnableToolGroup {
        name: "enable_tool_group",
        path: "/v1/toolsets/enable",
        purpose: Purpose::Load,
        reads_only: false,
        modes: &[Mode::Dynamic],
        description: |_, _| format!(
            "Load all tools of a kind, without knowing their names: a toolset, a server or a tag. As {LoadToolset}, which takes no tags."
        ),
        parameters: || one_name("group", "The name of a toolset, of a server, or a tag of tools"),
    }
    RunTool {
        name: RUN_TOOL,
        path: "/v1/tools/call",
        purpose: Purpose::Run,
        reads_only: false,
        modes: &Mode::ALL,
        description: |_, _| format!(
            "Run a tool that {FindTools} found and that is not among your own tools. Ask {FindTools} with detail \"full\" for its \
             parameters first."
        ),
        parameters: || json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The tool's name as it was found, e.g. \"github__create_issue\""},
                "arguments": {"type": "object", "description": "The tool's arguments", "additionalProperties": true}
            },
            "required": ["name"]
        }),
    }
    // Only documents without other tools contain it. Next to the filter, it would only cost tokens.
    SmartSelectTools {
        name: "smart_select_tools",
        path: "/v1/tools/smart_select",
        purpose: Purpose::Search,
        reads_only: true,
        modes: &[Mode::Smart],
        description: |servers, _| format!(
            "Choose the tools for a whole task out of {servers}: describe the task, get the best tools with the reason for each. \
             Call them through {RunTool}. To look for one single thing, {FindTools} is quicker."
        ),
        parameters: || json!({
            "type": "object",
            "properties": {
                "task": {"type": "string", "description": "The task with all its steps, in a sentence or a few"},
                "limit": number(MIN_SELECTED, MAX_SELECTED, DEFAULT_SELECTED, "At most this many tools")
            },
            "required": ["task"]
        }),
    }
}

impl MetaTool {
    /// The published name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    pub fn path(self) -> &'static str {
        self.row().path
    }

    /// Whether the meta-tool is read-only.
    pub fn reads_only(self) -> bool {
        self.row().reads_only
    }

    /// Whether documents in this mode contain the meta-tool.
    pub fn is_in(self, mode: Mode) -> bool {
        self.row().modes.contains(&mode)
    }

    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|tool| tool.name() == name)
    }

    /// The meta-tool at this path, which has no leading slash.
    pub fn of_path(path: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|tool| &tool.path()[1..] == path)
    }

    /// The meta-tools with this purpose, in table order.
    pub fn of_purpose(purpose: Purpose) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |tool| tool.row().purpose == purpose)
    }

    /// What a model should do that asks another meta-tool to run or describe this one.
    pub fn call_directly(self) -> String {
        format!("{self} is a tool of this service itself: call it directly, if it is among your tools.")
    }

    /// The definition, whose description mentions the results of [`summarize_servers`] and [`summarize_toolsets`].
    pub fn definition(self, servers: &str, toolsets: &str) -> MetaToolDefinition {
        let row = self.row();
        MetaToolDefinition { tool: self, description: (row.description)(servers, toolsets), parameters: (row.parameters)() }
    }
}

impl fmt::Display for MetaTool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A meta-tool as models see it.
#[derive(Clone, Debug, PartialEq)]
pub struct MetaToolDefinition {
    pub tool: MetaTool,
    pub description: String,
    pub parameters: Value,
}

impl MetaToolDefinition {
    /// The display title: `find_tools` becomes `Find Tools`.
    pub fn title(&self) -> String {
        title_case(self.tool.name())
    }

    pub fn path_item(&self) -> String {
        let result = json!({"$ref": CONTENT});
        let operation = operation(self.tool.name(), &self.title(), &self.description, "toolsieve", &self.parameters, &result);
        path_item(self.tool.path(), &operation)
    }

    /// The function definition for a model.
    pub fn function(&self) -> Value {
        json!({"name": self.tool.name(), "description": self.description, "parameters": self.parameters})
    }
}

/// A short definition of `describe_tools`, for lists that omit the parameters of tools.
pub fn describe_listed() -> MetaToolDefinition {
    let mut parameters = (MetaTool::DescribeTools.row().parameters)();
    if let Some(names) = parameters["properties"]["names"].as_object_mut() {
        names.remove("description");
    }
    let description = "Get the parameters of tools, several at once, before you call them.".to_owned();
    MetaToolDefinition { tool: MetaTool::DescribeTools, description, parameters }
}

fn texts(most: usize, description: &str) -> Value {
    json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": most, "description": description})
}

fn number(least: usize, most: usize, default: usize, description: &str) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most, "default": default, "description": description})
}

fn one_name(property: &str, description: &str) -> Value {
    json!({"type": "object", "properties": {property: {"type": "string", "description": description}}, "required": [property]})
}

/// Summarizes servers with their numbers of tools: "214 tools of GitHub, Jira and 7 other servers".
pub fn summarize_servers<'a>(servers: impl Iterator<Item = (&'a CatalogServer, usize)>) -> String {
    let servers: Vec<(&CatalogServer, usize)> = servers.filter(|(_, tools)| *tools > 0).collect();
    let tools: usize = servers.iter().map(|(_, tools)| tools).sum();
    // Names the servers with the most tools, in order of name.
    let mut largest: Vec<usize> = (0..servers.len()).collect();
    largest.sort_by_key(|&place| (std::cmp::Reverse(servers[place].1), place));
    largest.truncate(NAMED);
    largest.sort_unstable();
    let names = largest.iter().map(|&place| short(servers[place].0.name.as_str(), LONGEST).into_owned()).collect();
    let counted = if tools == 1 { "1 tool".to_owned() } else { format!("{tools} tools") };
    let listed = listed(names, servers.len(), "server");
    if listed.is_empty() { counted } else { format!("{counted} of {listed}") }
}

/// Summarizes toolsets: "GitHub, Jira and 7 other toolsets".
pub fn summarize_toolsets(groups: &[Group]) -> String {
    let names = groups.iter().take(NAMED).map(|group| short(group.name(), LONGEST).into_owned()).collect();
    let listed = listed(names, groups.len(), "toolset");
    if listed.is_empty() { "none is there yet".to_owned() } else { listed }
}

/// Joins the names and adds the number of those omitted.
fn listed(mut names: Vec<String>, all: usize, of_what: &str) -> String {
    match all - names.len() {
        0 => {}
        1 => names.push(format!("1 other {of_what}")),
        more => names.push(format!("{more} other {of_what}s")),
    }
    match names.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

//! OpenAPI 3.1 documents, composed of prebuilt operations.
//!
//! Everything is `serde_json::Value` or text, because typed OpenAPI libraries lose keywords of tool schemas.

pub mod loading;

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::domain::catalog::catalog::CatalogServer;
use crate::domain::catalog::naming::{
    DESCRIBE_TOOLS, ENABLE_TOOL_GROUP, FIND_TOOLS, LIST_AVAILABLE_TOOLSETS, LOAD_TOOLSET, RUN_TOOL, SMART_SELECT_TOOLS, UNLOAD_TOOLSET,
};
use crate::domain::catalog::tool::{Tool, summary};
use crate::domain::toolsets::mode::Mode;

/// The schema of any result.
const CONTENT: &str = "#/components/schemas/Content";
/// Most queries per search.
pub const MAX_QUERIES: usize = 16;
/// Most tools per search.
pub const MAX_FOUND: usize = 100;
/// Most tools per describe request.
pub const MAX_DESCRIBED: usize = 20;

/// The fixed parts of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading<'a> {
    pub title: &'a str,
    pub version: &'a str,
    pub description: &'a str,
    /// Whether calls need a key.
    pub secured: bool,
    /// The base path of the document's paths; `None` for the root of the document's host.
    pub base: Option<&'a str>,
}

/// One path with its operation, as JSON text: `"/path":{"post":{…}}`.
#[must_use]
pub fn path_item(path: &str, operation: &Value) -> String {
    format!("{}:{{\"post\":{operation}}}", Value::from(path))
}

/// The path of a tool below the service's root.
#[must_use]
pub fn tool_path(tool: &Tool) -> String {
    format!("/{}/{}", encoded(tool.id.server.as_str()), encoded(&tool.id.name))
}

/// The path of a tool below its server.
#[must_use]
pub fn tool_path_on_server(tool: &Tool) -> String {
    format!("/{}", encoded(&tool.id.name))
}

/// The operation of a tool.
#[must_use]
pub fn tool_operation(tool: &Tool) -> Value {
    let title = tool.title.clone().unwrap_or_else(|| title_case(&tool.label));
    let result = match &tool.output {
        // A tool may also return an image next to the declared output, or text instead of it. The document must stay true.
        Some(output) => json!({"anyOf": [output, {"$ref": CONTENT}]}),
        None => json!({"$ref": CONTENT}),
    };
    operation(tool.operation_id.as_str(), &title, &tool.description, tool.id.server.as_str(), &tool.input.published, &result)
}

fn operation(id: &str, title: &str, description: &str, tag: &str, schema: &Value, result: &Value) -> Value {
    json!({
        "operationId": id,
        "summary": title,
        "description": description,
        "tags": [tag],
        "requestBody": {"required": true, "content": {"application/json": {"schema": schema}}},
        "responses": {
            "200": {"description": "The tool's result", "content": {"application/json": {"schema": result}}},
            "422": {"$ref": "#/components/responses/InvalidArguments"},
            "502": {"$ref": "#/components/responses/ToolError"},
            "default": {"$ref": "#/components/responses/Problem"}
        }
    })
}

/// A meta-tool as models see it, and its route.
#[derive(Clone, Debug, PartialEq)]
pub struct MetaTool {
    pub name: &'static str,
    pub path: &'static str,
    pub title: &'static str,
    pub description: String,
    pub parameters: Value,
    /// Whether it never changes anything.
    pub reads_only: bool,
}

impl MetaTool {
    #[must_use]
    pub fn path_item(&self) -> String {
        path_item(self.path, &operation(self.name, self.title, &self.description, "toolsieve", &self.parameters, &json!({"$ref": CONTENT})))
    }

    /// The function definition that a model gets.
    #[must_use]
    pub fn function(&self) -> Value {
        json!({"name": self.name, "description": self.description, "parameters": self.parameters})
    }
}

/// The meta-tools of a caller. Their descriptions name the servers behind them, because models ignore generic ones.
#[must_use]
pub fn meta_tools<'a>(servers: impl Iterator<Item = (&'a CatalogServer, usize)>) -> Vec<MetaTool> {
    let overview = overview(servers);
    vec![
        MetaTool {
            name: FIND_TOOLS,
            path: "/v1/tools/search",
            title: "Find Tools",
            description: format!(
                "Find further tools by what they do: {overview}. Use it whenever the task needs something that your other tools \
                 can't do, before you say that it can't be done. Returns names with a summary; call a found tool \
                 directly when it is among your tools, otherwise through {RUN_TOOL}."
            ),
            parameters: json!({
                "type": "object",
                "properties": {
                    "queries": {
                        "type": "array",
                        "items": {"type": "string"},
                        "minItems": 1,
                        "maxItems": MAX_QUERIES,
                        "description": "What the tools shall do, one short phrase for each need, e.g. [\"send an email\", \"read a calendar\"]"
                    },
                    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": 10, "description": "How many tools to return"},
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
            reads_only: true,
        },
        MetaTool {
            name: RUN_TOOL,
            path: "/v1/tools/call",
            title: "Run Tool",
            description: format!(
                "Run a tool that {FIND_TOOLS} found and that is not among your own tools. Ask {FIND_TOOLS} with detail \"full\" \
                 for its parameters first."
            ),
            parameters: json!({
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "The tool's name as it was found, e.g. \"github__create_issue\""},
                    "arguments": {"type": "object", "description": "The tool's arguments", "additionalProperties": true}
                },
                "required": ["name"]
            }),
            reads_only: false,
        },
    ]
}

/// The meta-tool for definitions. Where all tools are bound already, it would only cost tokens.
#[must_use]
pub fn describe() -> MetaTool {
    let description = format!(
        "Get the description and the parameters of tools that {FIND_TOOLS} found, several at once, before you call them through \
         {RUN_TOOL}."
    );
    let mut tool = described_as(description);
    tool.parameters["properties"]["names"]["description"] = "The tools' names as they were found, e.g. [\"github__create_issue\"]".into();
    tool
}

/// The same for tools that are listed without parameters, in as few words as possible.
#[must_use]
pub fn describe_listed() -> MetaTool {
    described_as("Get the parameters of tools, several at once, before you call them.".to_owned())
}

fn described_as(description: String) -> MetaTool {
    MetaTool {
        name: DESCRIBE_TOOLS,
        path: "/v1/tools/describe",
        title: "Describe Tools",
        description,
        parameters: json!({
            "type": "object",
            "properties": {"names": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_DESCRIBED}},
            "required": ["names"]
        }),
        reads_only: true,
    }
}

/// The meta-tool that chooses tools for a whole task. Only documents without other tools have it: where the filter chooses
/// for every message, it would cost tokens and do the same.
#[must_use]
pub fn smart_select<'a>(servers: impl Iterator<Item = (&'a CatalogServer, usize)>) -> MetaTool {
    let overview = overview(servers);
    MetaTool {
        name: SMART_SELECT_TOOLS,
        path: "/v1/tools/smart_select",
        title: "Smart Select Tools",
        description: format!(
            "Choose the tools for a whole task out of {overview}: describe the task, get the best tools with the reason for each. \
             Call them through {RUN_TOOL}. To look for one single thing, {FIND_TOOLS} is quicker."
        ),
        parameters: json!({
            "type": "object",
            "properties": {
                "task": {"type": "string", "description": "The task with all its steps, in a sentence or a few"},
                "limit": {"type": "integer", "minimum": 5, "maximum": 10, "default": 8, "description": "At most this many tools"}
            },
            "required": ["task"]
        }),
        reads_only: true,
    }
}

/// "214 tools of GitHub, Jira and 7 other servers".
#[must_use]
pub fn overview<'a>(servers: impl Iterator<Item = (&'a CatalogServer, usize)>) -> String {
    const NAMED: usize = 15;
    let servers: Vec<(&CatalogServer, usize)> = servers.filter(|(_, tools)| *tools > 0).collect();
    let tools: usize = servers.iter().map(|(_, tools)| tools).sum();
    // The servers with the most tools, ordered by name.
    let mut largest: Vec<usize> = (0..servers.len()).collect();
    largest.sort_by_key(|&place| (std::cmp::Reverse(servers[place].1), place));
    largest.truncate(NAMED);
    largest.sort_unstable();
    let names = largest.iter().map(|&place| short(servers[place].0.name.as_str())).collect();
    let counted = if tools == 1 { "1 tool".to_owned() } else { format!("{tools} tools") };
    let listed = listed(names, servers.len(), "server");
    if listed.is_empty() { counted } else { format!("{counted} of {listed}") }
}

/// "GitHub, Jira and 7 other servers": names some and counts the rest.
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

/// Shortens a name to a few words.
fn short(name: &str) -> String {
    const LONGEST: usize = 40;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Joins path items to a document. Deterministic.
#[must_use]
pub fn compose<'a>(heading: &Heading<'_>, path_items: impl Iterator<Item = &'a str>) -> String {
    let info = json!({"title": heading.title, "version": heading.version, "description": heading.description});
    let mut components = components();
    let mut out = String::with_capacity(1 << 16);
    let _ = write!(out, "{{\"openapi\":\"3.1.0\",\"info\":{info}");
    if let Some(base) = heading.base {
        let _ = write!(out, ",\"servers\":{}", json!([{"url": base}]));
    }
    out.push_str(",\"paths\":{");
    for (position, item) in path_items.enumerate() {
        if position > 0 {
            out.push(',');
        }
        out.push_str(item);
    }
    out.push('}');
    if heading.secured {
        if let Some(map) = components.as_object_mut() {
            let scheme: Map<String, Value> = [("bearer".to_owned(), json!({"type": "http", "scheme": "bearer"}))].into_iter().collect();
            map.insert("securitySchemes".into(), Value::Object(scheme));
        }
        out.push_str(",\"security\":[{\"bearer\":[]}]");
    }
    let _ = write!(out, ",\"components\":{components}}}");
    out
}

/// The shared components of all operations.
fn components() -> Value {
    let problem = |description: &str| {
        json!({
            "description": description,
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
        })
    };
    json!({
        "schemas": {
            "Content": {
                "title": "Content",
                "description": "What a tool returned: a text as a string; JSON as it is; an image as a data URI; a file as an \
                                object with its type, size and, where the service has a public address, a link; several of \
                                these as an array."
            },
            "Problem": {
                "type": "object",
                "description": "RFC 9457",
                "properties": {
                    "detail": {"type": "string", "description": "What happened and what to do next; for `tool_error`, the tool's own words"},
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "code": {"type": "string", "description": "Stable, for programs"},
                    "request_id": {"type": "string"},
                    "errors": {
                        "type": "array",
                        "description": "What is wrong with each argument",
                        "items": {
                            "type": "object",
                            "properties": {
                                "pointer": {"type": "string", "description": "JSON Pointer (RFC 6901) to the argument"},
                                "message": {"type": "string"},
                                "expected": {"type": "string"},
                                "did_you_mean": {"type": "string"}
                            },
                            "required": ["pointer", "message"]
                        }
                    }
                },
                "required": ["title", "status", "code"]
            }
        },
        "responses": {
            "InvalidArguments": problem("The arguments do not fit the tool's schema"),
            "ToolError": problem("The tool reported an error, or its server did"),
            "Problem": problem("Any other problem")
        }
    })
}

/// Encodes a path segment: everything except unreserved characters (RFC 3986, section 2.3), in particular `{`, which
/// OpenAPI reads as a parameter.
pub fn encoded(segment: &str) -> String {
    let mut out = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// `create_issue` → `Create Issue`.
fn title_case(name: &str) -> String {
    let words = name.split(['_', '-', ' ', '.']).filter(|word| !word.is_empty()).map(|word| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    });
    words.collect::<Vec<String>>().join(" ")
}

/// The first sentence of a server's instructions, as the description of its document.
#[must_use]
pub fn server_description(server: &CatalogServer) -> String {
    server
        .instructions
        .as_deref()
        .map(summary)
        .filter(|text| !text.is_empty())
        .map_or_else(|| format!("The tools of the MCP server {}", server.name), str::to_owned)
}

impl Mode {
    /// Whether documents of this mode contain this meta-tool.
    #[must_use]
    pub fn has(self, meta_tool: &str) -> bool {
        match meta_tool {
            FIND_TOOLS | RUN_TOOL => true,
            DESCRIBE_TOOLS => matches!(self, Self::Meta | Self::Smart),
            LOAD_TOOLSET | UNLOAD_TOOLSET | LIST_AVAILABLE_TOOLSETS | ENABLE_TOOL_GROUP => self == Self::Dynamic,
            SMART_SELECT_TOOLS => self == Self::Smart,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::{Heading, compose, meta_tools, path_item, tool_operation, tool_path};
    use crate::domain::catalog::catalog::{self, CatalogServer};
    use crate::domain::catalog::tool::ServerName;

    #[test]
    fn a_document_is_valid_json_with_one_operation_a_tool() {
        let server = ServerName::from("odd server");
        let tool = catalog::tool(&server, &Arc::new(json!({"name": "{brace}/x", "inputSchema": {"type": "object"}}))).unwrap();
        assert_eq!(tool_path(&tool), "/odd%20server/%7Bbrace%7D%2Fx");
        let servers = [CatalogServer { name: server, title: None, program: None, version: None, instructions: None, tools: vec![] }];
        let mut items: Vec<String> = meta_tools(servers.iter().map(|server| (server, 1))).iter().map(super::MetaTool::path_item).collect();
        items.push(path_item(&tool_path(&tool), &tool_operation(&tool)));
        let heading = Heading { title: "T", version: "1", description: "d", secured: true, base: Some("/odd%20server") };
        let text = compose(&heading, items.iter().map(String::as_str));
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        assert_eq!(document["servers"], json!([{"url": "/odd%20server"}]));
        assert_eq!(document["paths"].as_object().unwrap().len(), 3);
        assert_eq!(document["paths"]["/odd%20server/%7Bbrace%7D%2Fx"]["post"]["operationId"], tool.operation_id.as_str());
        assert!(document["paths"]["/v1/tools/search"]["post"]["description"].as_str().unwrap().contains("1 tool of odd server"));
    }
}

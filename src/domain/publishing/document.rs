//! Composes OpenAPI 3.1 documents from prebuilt operations.
//!
//! All parts are `serde_json::Value` or text, because typed OpenAPI libraries lose keywords of tool schemas.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::domain::catalog::catalog::CatalogServer;
use crate::domain::catalog::texts::summary;
use crate::domain::catalog::tool::Tool;

/// Reference to the schema of any result.
pub(super) const CONTENT: &str = "#/components/schemas/Content";

/// The parts of a document around its paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading<'a> {
    pub title: &'a str,
    pub version: &'a str,
    pub description: &'a str,
    /// Whether calls need a key.
    pub secured: bool,
    /// The base path of all paths in the document; `None` for the root of its host.
    pub base: Option<&'a str>,
}

/// The JSON text of one path item: `"/path":{"post":{…}}`.
pub fn path_item(path: &str, operation: &Value) -> String {
    format!("{}:{{\"post\":{operation}}}", Value::from(path))
}

/// The path of a tool, relative to the root of the service.
pub fn tool_path(tool: &Tool) -> String {
    format!("/{}/{}", encoded(tool.id.server.as_str()), encoded(&tool.id.name))
}

/// The path of a tool, relative to its server's path.
pub fn tool_path_on_server(tool: &Tool) -> String {
    format!("/{}", encoded(&tool.id.name))
}

/// The OpenAPI operation of a tool.
pub fn tool_operation(tool: &Tool) -> Value {
    let title = tool.title.clone().unwrap_or_else(|| title_case(&tool.label));
    let result = match &tool.output {
        // Next to or instead of the declared output, a tool may return images or text. The document must allow both.
        Some(output) => json!({"anyOf": [output, {"$ref": CONTENT}]}),
        None => json!({"$ref": CONTENT}),
    };
    operation(tool.operation_id.as_str(), &title, &tool.description, tool.id.server.as_str(), &tool.input.published.value(), &result)
}

pub(super) fn operation(id: &str, title: &str, description: &str, tag: &str, schema: &Value, result: &Value) -> Value {
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

/// Joins path items into a document. Equal inputs give equal documents.
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

/// The components that all operations share.
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
                "description": "What a tool returned: a text as a string; JSON as it is or, with `calls.compact_results`, as a \
                                string without whitespace; an image as a data URI; a file as an object with its type, \
                                size and, where the service has a public address, a link; several of these as an array."
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

/// Percent-encodes a path segment, except unreserved characters (RFC 3986, section 2.3). OpenAPI would read a `{` as a parameter.
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

/// Converts a name to title case: `create_issue` becomes `Create Issue`.
pub(super) fn title_case(name: &str) -> String {
    let words = name.split(['_', '-', ' ', '.']).filter(|word| !word.is_empty()).map(|word| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    });
    words.collect::<Vec<String>>().join(" ")
}

/// The description of a server's document: the first sentence of the server's instructions.
pub fn server_description(server: &CatalogServer) -> String {
    server
        .instructions
        .as_deref()
        .map(summary)
        .filter(|text| !text.is_empty())
        .map_or_else(|| format!("The tools of the MCP server {}", server.name), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Heading, compose, path_item, tool_operation, tool_path};
    use crate::domain::catalog::catalog::{self, CatalogServer};
    use crate::domain::catalog::tool::ServerName;
    use crate::domain::publishing::meta_tools::{MetaTool, summarize_servers};

    #[test]
    fn a_document_is_valid_json_with_one_operation_a_tool() {
        let server = ServerName::from("odd server");
        let tool = catalog::tool(&server, &json!({"name": "{brace}/x", "inputSchema": {"type": "object"}})).unwrap();
        assert_eq!(tool_path(&tool), "/odd%20server/%7Bbrace%7D%2Fx");
        let servers = [CatalogServer {
            name: server,
            title: None,
            program: None,
            version: None,
            instructions: None,
            tools: vec![],
            disabled: Vec::new(),
        }];
        let servers = summarize_servers(servers.iter().map(|server| (server, 1)));
        let mut items = [MetaTool::FindTools, MetaTool::RunTool].map(|tool| tool.definition(&servers, "").path_item()).to_vec();
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

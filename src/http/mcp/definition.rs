//! Converts tools and results to the types of the MCP SDK.

use std::sync::Arc;

use http::HeaderMap;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, MetaObject, Tool as McpTool, ToolAnnotations};
use serde_json::{Value, json};

use super::passthrough::{is_public, prefixed_uri};
use crate::domain::catalog::hidden_text;
use crate::domain::catalog::tool::{ServerName, Tool};
use crate::domain::publishing::meta_tools::MetaToolDefinition;
use crate::domain::text::json::{self, Edit};
use crate::http::problem::Problem;

/// The member of a result's `_meta` that names a meta-tool's invalid argument, like `parameter` in an HTTP error.
const PARAMETER: &str = "toolsieve/parameter";
/// The member of an argument's schema that names the header in which clients repeat the argument (protocol 2026-07-28).
const HEADER_ANNOTATION: &str = "x-mcp-header";

/// The server's complete definition of a tool, under the tool's public name.
pub(super) fn of(tool: &Tool) -> McpTool {
    named(tool, tool.operation_id.as_str())
}

/// The server's complete definition of a tool, under this name, with the parameters that callers may send. The URI of a user interface
/// (`_meta.ui.resourceUri`) keeps its own scheme, because clients accept no other one than `ui:`.
pub(super) fn named(tool: &Tool, name: &str) -> McpTool {
    let raw = tool.raw.value();
    let shown = if tool.hidden.is_empty() { None } else { hidden_text::clean(&raw).value };
    let Value::Object(mut raw) = shown.unwrap_or(raw) else { return plain(tool, name) };
    raw.insert("name".into(), name.into());
    raw.insert("description".into(), tool.description.as_str().into());
    for schema in ["inputSchema", "outputSchema"] {
        if let Some(properties) = raw.get_mut(schema).and_then(|schema| schema.get_mut("properties")).and_then(Value::as_object_mut) {
            properties.values_mut().for_each(spell_out);
        }
    }
    // A shape makes the server's own schema wrong. Free-form arguments have the wrapper that the meta-tools describe and that every call
    // removes, so that an argument of the name `arguments` is not taken for it.
    if tool.shape.changes_parameters() || tool.input.wrapped || !is_accepted(raw.get("inputSchema")) {
        raw.insert("inputSchema".into(), tool.input.published.value());
    }
    if raw.contains_key("outputSchema") && !is_accepted(raw.get("outputSchema")) {
        raw.remove("outputSchema");
    }
    serde_json::from_value(Value::Object(raw)).unwrap_or_else(|_| plain(tool, name))
}

/// A definition with only the required members, for a tool whose definition has a malformed member.
fn plain(tool: &Tool, name: &str) -> McpTool {
    let Value::Object(schema) = tool.input.published.value() else { return McpTool::default() };
    McpTool::new(name.to_owned(), tool.description.clone(), schema)
}

/// Replaces a boolean schema with an object of the same meaning.
fn spell_out(schema: &mut Value) {
    match schema {
        Value::Bool(true) => *schema = json!({}),
        Value::Bool(false) => *schema = json!({"not": {}}),
        _ => {}
    }
}

/// Whether MCP clients accept a schema: its type is `object`, each property is an object, and `required` contains names. For any other
/// schema, clients such as those of the TypeScript SDK refuse the whole list of tools.
fn is_accepted(schema: Option<&Value>) -> bool {
    let Some(schema) = schema else { return false };
    let has_objects = |properties: &Value| properties.as_object().is_some_and(|properties| properties.values().all(Value::is_object));
    let has_names = |required: &Value| required.as_array().is_some_and(|names| names.iter().all(Value::is_string));
    schema.get("type").is_some_and(|kind| kind == "object")
        && schema.get("properties").is_none_or(has_objects)
        && schema.get("required").is_none_or(has_names)
}

/// A definition with only the tool's name and first sentence.
pub(super) fn stub(tool: &Tool) -> McpTool {
    let any = JsonObject::from_iter([("type".to_owned(), json!("object"))]);
    McpTool::new(tool.operation_id.to_string(), tool.summary().to_owned(), any)
}

/// The definition without the annotations (`x-mcp-header`) of arguments that no header of the request repeats.
pub(super) fn with_headers_among(mut definition: McpTool, headers: &HeaderMap) -> McpTool {
    if let Some(properties) = Arc::make_mut(&mut definition.input_schema).get_mut("properties") {
        keep_annotations(properties, headers);
    }
    definition
}

fn keep_annotations(properties: &mut Value, headers: &HeaderMap) {
    for property in properties.as_object_mut().into_iter().flat_map(|properties| properties.values_mut()) {
        let Some(property) = property.as_object_mut() else { continue };
        let header = property.get(HEADER_ANNOTATION).and_then(Value::as_str);
        if header.is_some_and(|header| !headers.contains_key(format!("mcp-param-{header}"))) {
            property.remove(HEADER_ANNOTATION);
        }
        if let Some(properties) = property.get_mut("properties") {
            keep_annotations(properties, headers);
        }
    }
}

pub(super) fn of_meta(meta: &MetaToolDefinition) -> McpTool {
    let schema = meta.parameters.as_object().cloned().unwrap_or_default();
    let annotations = if meta.tool.reads_only() { ToolAnnotations::new().read_only(true) } else { ToolAnnotations::new() };
    let mut definition = McpTool::new(meta.tool.name(), meta.description.clone(), Arc::new(schema));
    definition.title = Some(meta.title());
    definition.annotations = Some(annotations);
    definition
}

/// An error result that the model can react to. If an argument is invalid, `_meta` names it for programs.
pub(super) fn failed(problem: &Problem) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(problem.detail.clone())]);
    let named = problem.parameter.as_deref().map(|parameter| JsonObject::from_iter([(PARAMETER.to_owned(), parameter.into())]));
    result.meta = named.map(MetaObject);
    result
}

/// Adds the server's name to the resource URIs in a result, for addresses that serve many servers. Public `http` and
/// `https` URIs remain unchanged.
pub(super) fn with_prefixed_uris(server: &ServerName, mut result: String) -> String {
    let prefixed: Vec<(usize, String)> = json::member(&result, "content")
        .and_then(|content| json::items(content.get()))
        .into_iter()
        .flatten()
        .enumerate()
        .filter_map(|(number, item)| Some((number, own_link(item.get())?)))
        .map(|(number, uri)| (number, prefixed_uri(server, &uri)))
        .collect();
    for (number, uri) in prefixed {
        result = json::edit(&result, &format!("/content/{number}/uri"), &Edit::Replace(json::quoted(&uri))).unwrap_or(result);
    }
    result
}

/// The URI in a content item that links to a resource of the server.
fn own_link(item: &str) -> Option<String> {
    let uri = json::member(item, "uri").and_then(|uri| json::text(uri.get()))?;
    let kind = json::member(item, "type").and_then(|kind| json::text(kind.get()))?;
    (kind == "resource_link" && !is_public(&uri)).then_some(uri)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{is_accepted, of, with_prefixed_uris};
    use crate::domain::catalog::catalog;
    use crate::domain::catalog::tool::ServerName;

    #[test]
    fn links_to_resources_say_whose_they_are() {
        let prefixed = |items: &str| with_prefixed_uris(&ServerName::from("one"), format!(r#"{{"content": [{items}], "x": 1e2}}"#));
        let as_written = |items: &str| format!(r#"{{"content": [{items}], "x": 1e2}}"#);
        // Items that the SDK can't read come before a link that it can't read either.
        let others = r#"{"type": "video", "uri": "file:///v"}, 7, {"type": "resource_link", "uri": "https://example.org/a"}"#;
        assert_eq!(
            prefixed(&format!(r#"{others}, {{"type": "resource_link", "n": 1.50, "uri": "file:///x"}}"#)),
            as_written(&format!(r#"{others}, {{"type": "resource_link", "n": 1.50, "uri": "toolsieve://one/file:///x"}}"#))
        );
        assert_eq!(prefixed(others), as_written(others));
    }

    /// The schema that MCP clients get is the one by which calls read their arguments.
    #[test]
    fn free_form_arguments_have_their_wrapper_here_too() {
        let listed = |schema: Value| {
            let tool = catalog::tool(&ServerName::from("one"), &json!({"name": "any", "inputSchema": schema})).unwrap();
            (Value::Object((*of(&tool).input_schema).clone()), tool.input.published.value())
        };
        for schema in [
            json!({"type": "object", "additionalProperties": true}),
            json!({"type": "object", "patternProperties": {"^a": {"type": "object"}}}),
            json!({"type": "string"}),
        ] {
            let (shown, published) = listed(schema);
            assert_eq!(shown, published);
            assert!(shown["properties"]["arguments"].is_object(), "{shown}");
        }
        // A parameter that has this name itself, and nothing to wrap.
        let own = json!({"type": "object", "properties": {"arguments": {"type": "object"}}, "additionalProperties": true});
        for schema in [own, json!({"type": "object"})] {
            assert_eq!(listed(schema.clone()).0, schema);
        }
    }
    /// Regression test: one such schema made the clients of the TypeScript SDK refuse the list of all tools.
    #[test]
    fn clients_get_no_schema_that_costs_them_the_list() {
        let listed = |schema: &Value| {
            let definition = json!({"name": "odd", "inputSchema": schema, "outputSchema": schema});
            let tool = catalog::tool(&ServerName::from("one"), &definition).unwrap();
            let shown = of(&tool);
            (Value::Object((*shown.input_schema).clone()), shown.output_schema.map(|schema| Value::Object((*schema).clone())))
        };
        let kept =
            json!({"type": "object", "properties": {"any": {}, "none": {"not": {}}, "n": {"minimum": 1}}, "if": {"required": ["n"]}});
        let mut sent = kept.clone();
        (sent["properties"]["any"], sent["properties"]["none"]) = (json!(true), json!(false));
        assert_eq!(listed(&sent), (kept.clone(), Some(kept)), "the rest of the server's schema stays");
        for (keyword, value) in [
            ("properties", json!(null)),
            ("properties", json!([])),
            ("properties", json!({"a": null})),
            ("properties", json!({"a": 7, "b": {"type": "string"}})),
            ("required", json!(null)),
            ("required", json!("a")),
            ("required", json!([1, "a"])),
            ("type", json!(["object", "null"])),
        ] {
            let mut schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
            schema[keyword] = value;
            let (input, output) = listed(&schema);
            assert!(is_accepted(Some(&input)) && output.is_none(), "{schema}: {input}, {output:?}");
        }
    }
}

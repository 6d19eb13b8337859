//! Invariants over arbitrary server input.
//!
//! Functions that panic on a violation, for the fuzz targets and for `tests/it/fuzz.rs`, which feeds a corpus and mutations
//! of it. `domain` is a module beside this one.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::domain::catalog::schema::InputSchema;
use super::domain::catalog::tool::{OperationId, ServerName, Tool, ToolId};
use super::domain::catalog::{catalog, hidden_text};
use super::domain::execution::arguments::{ArgumentsValidator, ArgumentsVerdict, object};
use super::domain::execution::outcome::{self, Part, StructuredContent, TextLimit, ToolAnswer};
use super::domain::text::json;
use super::domain::text::json_text::JsonText;

/// Largest published schema as JSON text.
const MAX_PUBLISHED: usize = 1_000_000;
/// Longest published name.
const MAX_NAME: usize = 64;
/// Longest tool error, including the truncation note.
const MAX_ERROR_CHARACTERS: usize = 4_100;
/// Allowance for a truncated body beyond its texts: the notice, brackets and commas.
const NOTICE: usize = 1_000;

/// An input schema compiles to a valid one of bounded size, and compiling that one changes nothing.
pub(crate) fn schema(bytes: &[u8]) {
    let Ok(source) = serde_json::from_slice::<Value>(bytes) else { return };
    compiled(&InputSchema::compile(&source));
}

/// `{"tools": […], "arguments": […]}`, as in `tools/list` and in calls: every accepted tool has a publishable name, text
/// and schema, and the published schema accepts arguments that its server accepts.
pub(crate) fn tools(bytes: &[u8]) {
    let Ok(mut list) = serde_json::from_slice::<Value>(bytes) else { return };
    let Some(Value::Array(raw)) = list.get_mut("tools").map(Value::take) else { return };
    let arguments: Vec<Value> = list.get("arguments").and_then(Value::as_array).cloned().unwrap_or_default();
    let server = ServerName::from("server");
    let mut names: HashMap<OperationId, ToolId> = HashMap::new();
    for raw in raw {
        match catalog::tool(&server, &raw) {
            Ok(tool) => {
                let id = names.entry(tool.operation_id.clone()).or_insert_with(|| tool.id.clone());
                assert_eq!(*id, tool.id, "two tools are published as {}", tool.operation_id.as_str());
                published(&tool);
                for arguments in &arguments {
                    allowed(&tool, arguments);
                }
            }
            Err(skipped) => assert!(!skipped.tool.is_empty() && !skipped.reason.is_empty()),
        }
    }
}

/// A `tools/call` result: its body is JSON, also with a limit, and then of bounded size; an error is a bounded text.
pub(crate) fn result(bytes: &[u8]) {
    let Ok(result) = serde_json::from_slice::<&RawValue>(bytes) else { return };
    for returned in [StructuredContent::Preferred, StructuredContent::Added, StructuredContent::Fallback] {
        let parts = match outcome::answer(result, returned) {
            ToolAnswer::Error(text) => {
                assert!(outcome::is_error(result.get()));
                assert!(!text.is_empty() && text.chars().count() <= MAX_ERROR_CHARACTERS);
                continue;
            }
            ToolAnswer::Result(parts) => parts,
        };
        assert!(!outcome::is_error(result.get()) && !parts.is_empty());
        is_json(&outcome::body(parts, None));
        for bytes in [0, 7, 256] {
            let (parts, images) = answered(result, returned);
            let body = outcome::body(parts, Some(TextLimit { bytes, setting: "max_text_bytes" }));
            is_json(&body);
            // Text is cut before it is escaped, and each byte becomes at most six.
            assert!(body.len() <= 6 * bytes + images + NOTICE, "{} bytes of a limit of {bytes}", body.len());
        }
        let (parts, _) = answered(result, returned);
        is_json(&outcome::body(outcome::compact(parts), None));
    }
    let text = result.get();
    let minified = json::minified(text);
    assert_eq!(json::minified(&minified), minified);
    assert_eq!(json::replace_texts(text, |_, _| None), text);
    if json::survives_reading(text) {
        let read = |text: &str| serde_json::from_str::<Value>(text).ok();
        assert_eq!(read(&minified), read(text));
    }
}

/// Two lines, a schema and arguments: repaired arguments are valid, and repairing them again changes nothing.
pub(crate) fn arguments(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Some((schema, sent)) = text.split_once('\n') else { return };
    let Ok(schema) = serde_json::from_str::<Value>(schema) else { return };
    if serde_json::from_str::<&RawValue>(sent.trim()).is_err() {
        return;
    }
    let Ok((arguments, _)) = object(sent) else { return };
    let (validator, schema) = (ArgumentsValidator::default(), JsonText::of(&schema));
    match validator.check(&schema, &arguments) {
        ArgumentsVerdict::Repaired { arguments, repairs } => {
            assert!(!repairs.is_empty());
            assert_eq!(validator.check(&schema, &arguments), ArgumentsVerdict::Valid, "{arguments}");
        }
        ArgumentsVerdict::Invalid(problems) => assert!(!problems.is_empty() && problems.len() <= 20),
        ArgumentsVerdict::Valid | ArgumentsVerdict::Unchecked { .. } => {}
    }
}

fn compiled(schema: &InputSchema) {
    let published = &schema.published.value();
    assert_eq!(published["type"], "object");
    assert!(published["properties"].is_object());
    assert!(published.to_string().len() < MAX_PUBLISHED);
    assert!(jsonschema::draft202012::meta::is_valid(published), "{published}");
    assert_eq!(InputSchema::compile(published).published.value(), *published);
}

fn published(tool: &Tool) {
    let name = tool.operation_id.as_str();
    let mut characters = name.chars();
    assert!(name.len() <= MAX_NAME && characters.next().is_some_and(|first| first.is_ascii_alphabetic()), "{name}");
    assert!(characters.all(|character| character.is_ascii_alphanumeric() || matches!(character, '_' | '-')), "{name}");
    assert_eq!(OperationId::of(&tool.id), tool.operation_id);
    for text in [Some(&tool.description), tool.title.as_ref()].into_iter().flatten() {
        assert!(hidden_text::strip(text).is_none(), "hidden characters are shown: {text:?}");
    }
    compiled(&tool.input);
    let function = tool.function();
    assert_eq!(function["parameters"], tool.input.published.value());
}

/// The published schema is never stricter, for schemas with an unambiguous meaning. `tests/it/conformance` covers the
/// others (for example `items` without a type).
fn allowed(tool: &Tool, arguments: &Value) {
    let source = &tool.input.source.value();
    if !arguments.is_object() || !is_plain(source) {
        return;
    }
    let (Ok(own), Ok(published)) = (jsonschema::validator_for(source), jsonschema::validator_for(&tool.input.published.value())) else {
        return;
    };
    if own.is_valid(arguments) {
        let sent = if tool.input.wrapped { Cow::Owned(json!({"arguments": arguments})) } else { Cow::Borrowed(arguments) };
        let problems: Vec<String> = published.iter_errors(&sent).map(|error| error.to_string()).collect();
        assert!(problems.is_empty(), "{problems:?} of {sent}\nsource {source}\npublished {}", tool.input.published);
    }
}

/// An object schema with one type per property and no ambiguity.
fn is_plain(source: &Value) -> bool {
    const OF_ROOT: [&str; 5] = ["type", "properties", "required", "description", "title"];
    const OF_PROPERTY: [&str; 3] = ["type", "description", "title"];
    const TYPES: [&str; 6] = ["string", "number", "integer", "boolean", "object", "array"];
    let only =
        |value: &Value, known: &[&str]| value.as_object().is_some_and(|members| members.keys().all(|name| known.contains(&name.as_str())));
    let has_type = |value: &Value| value.get("type").and_then(Value::as_str).is_some_and(|kind| TYPES.contains(&kind));
    let Some(properties) = source.get("properties").and_then(Value::as_object) else { return false };
    source.get("type") == Some(&json!("object"))
        && only(source, &OF_ROOT)
        && properties.values().all(|property| only(property, &OF_PROPERTY) && has_type(property))
}

/// The parts, and the size of the images and links among them, which are never cut.
fn answered(result: &RawValue, returned: StructuredContent) -> (Vec<Part<'_>>, usize) {
    let ToolAnswer::Result(parts) = outcome::answer(result, returned) else { return (Vec::new(), 0) };
    let size = |part: &Part<'_>| match part {
        Part::Image(text) => text.len() + 1,
        Part::File(text) => text.len() + 1,
        Part::Json(_) | Part::Binary(_) => 1,
    };
    let images = parts.iter().map(size).sum();
    (parts, images)
}

fn is_json(body: &str) {
    assert!(serde_json::from_str::<&RawValue>(body).is_ok(), "not JSON: {body}");
}

//! Describes constraints in words that a published schema can't express.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::domain::catalog::schema::budget::is_small;
use crate::domain::text::short::short;

/// Maximum length of the description of one constraint, in characters.
const MAX_CHARACTERS: usize = 400;
/// Maximum number of names and values in a list.
const MAX_LISTED: usize = 12;
/// Maximum depth described in words. Deeper schemas are written as JSON.
const MAX_DEPTH: usize = 3;
/// Maximum size of a described value, in bytes of JSON.
const MAX_BYTES: usize = 4_000;

/// Describes a keyword in a sentence; `None` if it adds nothing.
pub(super) fn sentence(keyword: &str, value: &Value) -> Option<String> {
    if !is_small(value, MAX_BYTES) {
        return Some(format!("More is required of it (`{keyword}`) than can be said here."));
    }
    let text = match (keyword, value) {
        ("not", value) => format!("Not allowed: {}.", phrase(value)),
        ("dependentRequired", Value::Object(needs)) => sentences(needs, |name, names| {
            let names = names.as_array().filter(|names| !names.is_empty())?;
            Some(format!("`{name}` needs {} too.", listed(names.iter().filter_map(Value::as_str).map(quoted))))
        })?,
        ("dependentSchemas", Value::Object(needs)) => sentences(needs, |name, schema| match schema {
            Value::Array(names) => Some(format!("`{name}` needs {} too.", listed(names.iter().filter_map(Value::as_str).map(quoted)))),
            schema => Some(format!("With `{name}`: {}.", phrase(schema))),
        })?,
        ("patternProperties", Value::Object(patterns)) => {
            sentences(patterns, |pattern, schema| Some(format!("Each name that matches {pattern} is {}.", phrase(schema))))?
        }
        ("propertyNames", Value::Object(names)) if names.len() == 1 && names.get("type").is_some_and(|kind| kind == "string") => {
            return None;
        }
        ("propertyNames", schema) => format!("Each name is {}.", phrase(schema)),
        ("additionalProperties" | "unevaluatedProperties", Value::Bool(false)) => "No other names are allowed.".to_owned(),
        ("additionalProperties" | "unevaluatedProperties", Value::Object(schema)) if !schema.is_empty() => {
            format!("Every other value is {}.", phrase(value))
        }
        ("unevaluatedItems", Value::Bool(false)) => "No further items are allowed.".to_owned(),
        ("additionalProperties" | "unevaluatedProperties" | "unevaluatedItems", _) => return None,
        ("minProperties", Value::Number(count)) => format!("Give at least {count} of them."),
        ("maxProperties", Value::Number(count)) => format!("Give at most {count} of them."),
        ("contains", value) => format!("At least one item is {}.", phrase(value)),
        ("contentSchema", value) => format!("The content is {}.", phrase(value)),
        ("examples", Value::Array(examples)) => format!("Examples: {}.", listed_with("; ", examples.iter().map(Value::to_string))),
        ("default", value) => format!("Default: {value}."),
        ("enum", Value::Array(_)) => format!("One of {}.", values(value)),
        (keyword, value) => format!("And `{keyword}` is {value}."),
    };
    Some(cut(&text))
}

/// Describes an additional list of alternatives in a sentence.
pub(super) fn alternatives(parts: &[Value]) -> String {
    let text = |part: &Value| if is_small(part, MAX_BYTES) { phrase(part) } else { "more than can be said here".to_owned() };
    cut(&format!("And one of these holds: {}.", listed_with("; or ", parts.iter().map(text))))
}

/// Describes `if` with `then` and `else` in a sentence; `None` without either.
pub(super) fn condition(condition: &Value, then: Option<&Value>, otherwise: Option<&Value>) -> Option<String> {
    let clause = |value: Option<&Value>, word: &str| {
        value.filter(|value| is_small(value, MAX_BYTES)).map(|value| format!("{word} {}", phrase(value)))
    };
    let parts: Vec<String> = [clause(then, "then"), clause(otherwise, "otherwise")].into_iter().flatten().collect();
    (!parts.is_empty() && is_small(condition, MAX_BYTES)).then(|| cut(&format!("If {}, {}.", phrase(condition), parts.join(", "))))
}

/// Describes a schema in words that complete the sentence "the value is …".
pub(super) fn phrase(schema: &Value) -> String {
    cut(&nested(schema, MAX_DEPTH))
}

fn nested(schema: &Value, depth: usize) -> String {
    let object = match schema {
        Value::Bool(true) => return "anything".to_owned(),
        Value::Bool(false) => return "never".to_owned(),
        Value::Object(object) => object,
        other => return other.to_string(),
    };
    if let Some(constant) = object.get("const") {
        return constant.to_string();
    }
    if let Some(listed) = object.get("enum").filter(|listed| listed.is_array()) {
        return format!("one of {}", values(listed));
    }
    // Use words only if they can describe every keyword; otherwise JSON is clearer.
    let known = ["type", "properties", "required", "description", "title", "additionalProperties"];
    if depth == 0 || !object.keys().all(|keyword| known.contains(&keyword.as_str())) {
        return format!("valid for {schema}");
    }
    let mut parts = Vec::new();
    if let Some(names) = object.get("required").and_then(Value::as_array).filter(|names| !names.is_empty()) {
        parts.push(format!("{} given", listed(names.iter().filter_map(Value::as_str).map(quoted))));
    }
    for (name, inner) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
        parts.push(format!("`{name}` is {}", nested(inner, depth - 1)));
    }
    if parts.is_empty() {
        return match object.get("type") {
            Some(Value::String(kind)) => article(kind),
            Some(Value::Array(kinds)) => listed_with(" or ", kinds.iter().filter_map(Value::as_str).map(article)),
            _ => object.get("description").and_then(Value::as_str).map_or_else(|| "anything".to_owned(), str::to_owned),
        };
    }
    listed_with(" and ", parts.into_iter())
}

/// Appends a sentence to a description that does not contain it yet.
pub(super) fn append(description: &mut String, sentence: &str) {
    if description.contains(sentence) {
        return;
    }
    let ends = description.trim_end().len();
    description.truncate(ends);
    if !description.is_empty() {
        if !description.ends_with(['.', '!', '?', ':', ';', ',', '。', ')']) {
            description.push('.');
        }
        description.push(' ');
    }
    description.push_str(sentence);
}

pub(super) fn values(listed: &Value) -> String {
    let items = listed.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut text = items.iter().take(MAX_LISTED).map(Value::to_string).collect::<Vec<_>>().join(", ");
    if items.len() > MAX_LISTED {
        let _ = write!(text, " and {} more", items.len() - MAX_LISTED);
    }
    text
}

pub(super) fn quoted(name: &str) -> String {
    format!("`{name}`")
}

/// Joins names as in "`a`, `b` and `c`".
fn listed(names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = names.collect();
    let more = names.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        names.truncate(MAX_LISTED);
        names.push(format!("{more} more"));
    }
    match names.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}

fn listed_with(between: &str, parts: impl Iterator<Item = String>) -> String {
    let mut parts: Vec<String> = parts.take(MAX_LISTED + 1).collect();
    if parts.len() > MAX_LISTED {
        parts.truncate(MAX_LISTED);
        parts.push("…".to_owned());
    }
    parts.join(between)
}

fn sentences(object: &Map<String, Value>, sentence: impl Fn(&str, &Value) -> Option<String>) -> Option<String> {
    let sentences: Vec<String> = object.iter().filter_map(|(name, value)| sentence(name, value)).take(MAX_LISTED).collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

fn article(kind: &str) -> String {
    match kind {
        "array" | "integer" | "object" => format!("an {kind}"),
        "null" => "null".to_owned(),
        kind => format!("a {kind}"),
    }
}

fn cut(text: &str) -> String {
    short(text, MAX_CHARACTERS).into_owned()
}

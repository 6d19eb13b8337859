//! Builds schemas for sets of values: any value, null, or an enum.

use serde_json::{Map, Value, json};

use crate::domain::catalog::schema::keywords::{ANNOTATIONS, is};

/// Removes duplicate enum values, and those that the type forbids.
pub(super) fn tidy_enum(schema: &mut Map<String, Value>) {
    let nullable = is(schema, "null");
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        let mut seen = std::collections::HashSet::new();
        values.retain(|value| (nullable || !value.is_null()) && seen.insert(value.to_string()));
        if values.is_empty() {
            schema.remove("enum");
        }
    }
}

/// Adds null to the types and the enum. Open WebUI would collapse a separate alternative for null.
pub(super) fn allow_null(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(variants)) = schema.get_mut("anyOf") {
        if variants.iter().any(allows_null) {
            return;
        }
        let takes_null = |variant: &Value| variant.get("type").is_some() && variant.get("not").is_none() && variant.get("if").is_none();
        let simple = |variant: &Value| variant.as_object().is_some_and(|it| takes_null(variant) && !is(it, "object") && !is(it, "array"));
        let position = variants.iter().position(simple).or_else(|| variants.iter().position(takes_null));
        match position.and_then(|position| variants[position].as_object_mut()) {
            Some(variant) => allow_null(variant),
            // A one-element list, because Open WebUI removes an alternative with `"type": "null"`.
            None => variants.push(json!({"type": ["null"]})),
        }
        return;
    }
    match schema.get_mut("type") {
        Some(Value::Array(kinds)) if !kinds.iter().any(|kind| kind == "null") => kinds.push("null".into()),
        Some(Value::String(kind)) if kind != "null" => {
            let kinds = json!([kind, "null"]);
            schema.insert("type".into(), kinds);
        }
        _ => {}
    }
    if let Some(constant) = schema.remove("const") {
        schema.insert("enum".into(), json!([constant]));
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    if is_only_null(schema) {
        // What it excludes doesn't count: null is allowed, and nothing else is.
        for keyword in ["not", "if", "then", "else"] {
            schema.remove(keyword);
        }
    }
    if schema.contains_key("not") || schema.contains_key("if") {
        let mut outer: Map<String, Value> = Map::new();
        for keyword in ANNOTATIONS {
            outer.extend(schema.remove(keyword).map(|value| (keyword.to_owned(), value)));
        }
        outer.insert("anyOf".into(), json!([schema, {"type": ["null"]}]));
        *schema = outer;
    }
}

/// Whether the type allows only null.
pub(super) fn is_only_null(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == "null",
        Some(Value::Array(kinds)) => kinds.len() == 1 && kinds[0] == "null",
        _ => false,
    }
}

fn allows_null(schema: &Value) -> bool {
    let Some(object) = schema.as_object().filter(|object| is(object, "null")) else { return false };
    let listed = object.get("enum").and_then(Value::as_array).is_none_or(|values| values.contains(&Value::Null));
    listed && !["const", "not", "if"].iter().any(|keyword| object.contains_key(*keyword))
}

/// A schema that restricts only the type.
pub(super) fn free_form(kind: Option<Value>) -> Map<String, Value> {
    let Some(kind) = kind else { return any_value() };
    let mut out = Map::new();
    out.insert("type".into(), kind);
    if is(&out, "array") {
        out.insert("items".into(), Value::Object(any_value()));
    }
    if is(&out, "object") {
        out.insert("additionalProperties".into(), Value::Bool(true));
    }
    out
}

/// A schema for any JSON value. It lists all types, because every converter preserves this form.
pub(super) fn any_value() -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("type".into(), json!(["string", "number", "boolean", "object", "array", "null"]));
    out.insert("items".into(), any_item());
    out
}

/// Any JSON value as an item of a nested array: the only schema without a type that Open WebUI leaves unchanged (it turns
/// `{}` into a string).
pub(super) fn any_item() -> Value {
    json!({"properties": {}})
}

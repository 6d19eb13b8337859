//! Reads `nullable: true` of OpenAPI 3.0 as null among the allowed types. Validators ignore it, but models are told that null is allowed.

use serde_json::{Map, Value, json};

use crate::domain::execution::arguments::ignores_siblings;

/// Keywords whose members are schemas, not keywords.
pub(super) const NAMED: [&str; 6] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
/// Keywords that contain data.
pub(super) const DATA: [&str; 8] = ["enum", "const", "default", "examples", "example", "required", "dependentRequired", "$vocabulary"];
/// Keywords that may forbid null wherever they stand. They become one alternative to null.
const CONDITIONS: [&str; 8] = ["$ref", "$dynamicRef", "$recursiveRef", "oneOf", "not", "if", "then", "else"];

/// The schema with null allowed wherever it says `nullable: true`; `None` if it says so nowhere. Pointers to its types, properties, `anyOf`
/// and `allOf` stay valid.
pub(super) fn with_null(schema: &Value) -> Option<Value> {
    let ignores_siblings = ignores_siblings(schema);
    says_nullable(schema).then(|| {
        let mut schema = schema.clone();
        allow_where_said(&mut schema, ignores_siblings);
        schema
    })
}

fn says_nullable(value: &Value) -> bool {
    match value {
        Value::Object(members) => is_nullable(members) || members.values().any(says_nullable),
        Value::Array(items) => items.iter().any(says_nullable),
        _ => false,
    }
}

fn is_nullable(members: &Map<String, Value>) -> bool {
    members.get("nullable") == Some(&Value::Bool(true))
}

/// Visits what may be a schema, or a list of schemas, directly inside a schema, with the keyword to which it belongs.
pub(super) fn each_inside(schema: &mut Map<String, Value>, mut visit: impl FnMut(&str, &mut Value)) {
    for (keyword, inner) in schema {
        match inner {
            Value::Object(named) if NAMED.contains(&keyword.as_str()) => named.values_mut().for_each(|inner| visit(keyword, inner)),
            _ if DATA.contains(&keyword.as_str()) => {}
            _ => visit(keyword, inner),
        }
    }
}

/// Changes a schema, or each schema in a list.
fn allow_where_said(schema: &mut Value, ignores_siblings: bool) {
    let members = match schema {
        Value::Object(members) => members,
        Value::Array(items) => return items.iter_mut().for_each(|item| allow_where_said(item, ignores_siblings)),
        _ => return,
    };
    each_inside(members, |_, inner| allow_where_said(inner, ignores_siblings));
    // Drafts up to 7 ignore what stands beside a reference.
    if is_nullable(members) && !(ignores_siblings && members.contains_key("$ref")) {
        allow_null(members);
    }
}

fn allow_null(schema: &mut Map<String, Value>) {
    match schema.get_mut("type") {
        Some(Value::Array(kinds)) if !kinds.iter().any(|kind| kind == "null") => kinds.push("null".into()),
        Some(kind) if kind.is_string() && *kind != "null" => *kind = json!([kind, "null"]),
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
    if let Some(Value::Array(alternatives)) = schema.get_mut("anyOf") {
        alternatives.push(json!({"type": "null"}));
    }
    if let Some(Value::Array(parts)) = schema.get_mut("allOf") {
        parts.iter_mut().filter_map(Value::as_object_mut).for_each(allow_null);
    }
    let conditions: Map<String, Value> =
        CONDITIONS.iter().filter_map(|keyword| Some(((*keyword).to_owned(), schema.remove(*keyword)?))).collect();
    if conditions.is_empty() {
        return;
    }
    let alternatives = json!([conditions, {"type": "null"}]);
    if !schema.contains_key("anyOf") {
        schema.insert("anyOf".into(), alternatives);
    } else if let Value::Array(parts) = schema.entry("allOf").or_insert_with(|| json!([])) {
        parts.push(json!({"anyOf": alternatives}));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::with_null;

    #[test]
    fn null_is_allowed_where_a_schema_says_so_and_nowhere_else() {
        let nothing = json!({"type": "null"});
        let refers = json!({"$ref": "#/$defs/A"});
        for (schema, expected) in [
            (json!({"type": "string"}), json!({"type": ["string", "null"]})),
            (json!({"type": ["string", "integer"]}), json!({"type": ["string", "integer", "null"]})),
            (json!({"enum": ["a"]}), json!({"enum": ["a", null]})),
            (json!({"const": "a"}), json!({"enum": ["a", null]})),
            (refers.clone(), json!({"anyOf": [refers, nothing]})),
            (json!({"not": {"type": "null"}}), json!({"anyOf": [{"not": {"type": "null"}}, nothing]})),
            (json!({"anyOf": [{"type": "string"}]}), json!({"anyOf": [{"type": "string"}, nothing]})),
            (
                json!({"allOf": [{"type": "string"}, refers]}),
                json!({"allOf": [{"type": ["string", "null"]}, {"anyOf": [refers, nothing]}]}),
            ),
            (
                json!({"anyOf": [{"minimum": 1}], "oneOf": [{"type": "integer"}]}),
                json!({"anyOf": [{"minimum": 1}, nothing], "allOf": [{"anyOf": [{"oneOf": [{"type": "integer"}]}, nothing]}]}),
            ),
        ] {
            let said = |mut schema: serde_json::Value| {
                schema["nullable"] = true.into();
                json!({"properties": {"nullable": {"items": schema}}, "default": {"type": "string", "nullable": true}})
            };
            assert_eq!(with_null(&said(schema)), Some(said(expected)));
        }
        let old = json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": {"$ref": "#/definitions/A", "nullable": true}});
        assert_eq!(with_null(&old), Some(old.clone()), "what stands beside a reference doesn't count there");
        for schema in [json!({"type": "string", "nullable": false}), json!({"properties": {"nullable": {"type": "boolean"}}})] {
            assert_eq!(with_null(&schema), None);
        }
    }
}

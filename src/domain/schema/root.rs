//! The root is one object with properties: alternatives are united and free-form input is wrapped.

use std::collections::HashSet;

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use crate::domain::schema::translation::is;

/// Forms that a hint lists.
const MAX_FORMS: usize = 20;

/// What becomes of a translated root.
pub(super) struct Root {
    pub(super) published: Value,
    pub(super) wrapped: bool,
    pub(super) hint: Option<String>,
}

impl Root {
    pub(super) fn new(translated: Map<String, Value>) -> Self {
        let (mut schema, hint) = united(translated);
        let free_form = schema.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty)
            && (accepts_more(&schema) || !is_only_an_object(&schema));
        if free_form {
            return Self { published: wrap(schema.get("description").and_then(Value::as_str)), wrapped: true, hint: None };
        }
        if !is_only_an_object(&schema) {
            schema.retain(|keyword, _| !matches!(keyword.as_str(), "items" | "enum"));
        }
        schema.insert("type".into(), "object".into());
        schema.entry("properties").or_insert_with(|| json!({}));
        Self { published: Value::Object(schema), wrapped: false, hint }
    }
}

/// A root of alternatives becomes one object that has the properties of all; only what all require is required.
fn united(mut root: Map<String, Value>) -> (Map<String, Value>, Option<String>) {
    let Some(Value::Array(alternatives)) = root.remove("anyOf") else { return (root, None) };
    let mut variants = Vec::new();
    collect(alternatives, &mut variants);
    let open = variants.iter().any(|variant| accepts_more(variant) || !is_only_an_object(variant));
    let closed = variants.iter().all(|variant| variant.get("additionalProperties") == Some(&Value::Bool(false)));
    let mut properties: IndexMap<String, Vec<Value>> = IndexMap::new();
    let mut common: Option<Vec<Value>> = None;
    let mut forms: Vec<String> = Vec::new();
    for mut variant in variants {
        if let Some(Value::Object(own)) = variant.remove("properties") {
            for (name, schema) in own {
                properties.entry(name).or_default().push(schema);
            }
        }
        let required = match variant.remove("required") {
            Some(Value::Array(required)) => required,
            _ => Vec::new(),
        };
        let names: Vec<&str> = required.iter().filter_map(Value::as_str).collect();
        let form = format!("({})", names.join(", "));
        if !names.is_empty() && forms.len() < MAX_FORMS && !forms.contains(&form) {
            forms.push(form);
        }
        common = Some(match common {
            None => required,
            Some(known) => {
                let required: HashSet<&str> = required.iter().filter_map(Value::as_str).collect();
                known.into_iter().filter(|name| name.as_str().is_some_and(|name| required.contains(name))).collect()
            }
        });
    }
    root.insert("type".into(), "object".into());
    root.insert("properties".into(), properties.into_iter().map(|(name, schemas)| (name, either(schemas))).collect());
    if let Some(required) = common.filter(|required| !required.is_empty()) {
        root.insert("required".into(), Value::Array(required));
    }
    if open || closed {
        root.insert("additionalProperties".into(), Value::Bool(open));
    }
    (root, (forms.len() > 1).then(|| format!("Give one of these: {}.", forms.join(" or "))))
}

/// The variants, those of nested alternatives among them.
fn collect(alternatives: Vec<Value>, variants: &mut Vec<Map<String, Value>>) {
    for alternative in alternatives {
        let Value::Object(mut variant) = alternative else { continue };
        match variant.remove("anyOf") {
            Some(Value::Array(nested)) => collect(nested, variants),
            _ => variants.push(variant),
        }
    }
}

/// What satisfies one of the schemas: lists of values become one list, the rest stays side by side.
fn either(schemas: Vec<Value>) -> Value {
    let mut outer = Map::new();
    let mut members: Vec<Map<String, Value>> = Vec::new();
    let mut seen: HashSet<String> = HashSet::new();
    let mut listed: Option<(usize, HashSet<String>)> = None;
    for schema in schemas {
        let Value::Object(mut schema) = schema else { continue };
        let nested = match schema.remove("anyOf") {
            Some(Value::Array(nested)) => {
                for (keyword, value) in schema {
                    outer.entry(keyword).or_insert(value);
                }
                nested
            }
            _ => vec![Value::Object(schema)],
        };
        for member in nested {
            if !seen.insert(member.to_string()) {
                continue;
            }
            let Value::Object(member) = member else { continue };
            let values = member.get("enum").and_then(Value::as_array);
            match (values, &mut listed) {
                (Some(_), Some((position, known))) => join_lists(&mut members[*position], known, member),
                (Some(values), None) => {
                    listed = Some((members.len(), values.iter().map(Value::to_string).collect()));
                    members.push(member);
                }
                (None, _) => members.push(member),
            }
        }
    }
    if members.len() == 1 {
        for (keyword, value) in members.remove(0) {
            outer.entry(keyword).or_insert(value);
        }
    } else {
        outer.insert("anyOf".into(), members.into_iter().map(Value::Object).collect());
    }
    Value::Object(outer)
}

/// Adds the values and types of another list of values; what else the two disagree about goes.
fn join_lists(list: &mut Map<String, Value>, known: &mut HashSet<String>, mut more: Map<String, Value>) {
    if let (Some(Value::Array(values)), Some(Value::Array(new))) = (list.get_mut("enum"), more.remove("enum")) {
        values.extend(new.into_iter().filter(|value| known.insert(value.to_string())));
    }
    let mut kinds: Vec<Value> = Vec::new();
    for kind in [list.get("type").cloned(), more.remove("type")].into_iter().flatten() {
        let different = match kind {
            Value::Array(kinds) => kinds,
            kind => vec![kind],
        };
        kinds.extend(different.into_iter().filter(|kind| !kinds.contains(kind)).collect::<Vec<_>>());
    }
    let kind = if kinds.len() == 1 { kinds.remove(0) } else { Value::Array(kinds) };
    list.insert("type".into(), kind);
    for (keyword, value) in more {
        match (keyword.as_str(), list.get(&keyword)) {
            (_, None) => {
                list.insert(keyword, value);
            }
            ("description", Some(Value::String(known))) => {
                if let Value::String(new) = value
                    && !known.split(" / ").any(|part| part == new)
                {
                    let both = format!("{known} / {new}");
                    list.insert(keyword, both.into());
                }
            }
            // Types may have brought these along for both: an array needs its items.
            ("items" | "properties", _) => {}
            (_, Some(known)) => {
                if *known != value {
                    list.remove(&keyword);
                }
            }
        }
    }
}

fn accepts_more(schema: &Map<String, Value>) -> bool {
    schema.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false))
}

/// Whether an object is the only value it allows, null aside.
fn is_only_an_object(schema: &Map<String, Value>) -> bool {
    is(schema, "object")
        && schema.get("type").and_then(Value::as_array).is_none_or(|kinds| kinds.iter().all(|kind| kind == "object" || kind == "null"))
}

fn wrap(description: Option<&str>) -> Value {
    json!({
        "type": "object",
        "properties": {
            "arguments": {
                "type": "object",
                "description": description.unwrap_or("The tool's arguments, as an object."),
                "additionalProperties": true
            }
        }
    })
}

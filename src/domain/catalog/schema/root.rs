//! Turns the root into one object with properties: merges alternatives and wraps free-form input.
//!
//! Open WebUI reads only `properties` and `required` of the root. Other keywords stay in the document for other clients and are
//! described in words in the tool's description.

use std::collections::HashSet;

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use crate::domain::catalog::naming::RUN_TOOL;
use crate::domain::catalog::schema::alternatives::take_null;
use crate::domain::catalog::schema::keywords::is;
use crate::domain::catalog::schema::loss::{LossReason, SchemaLoss};
use crate::domain::catalog::schema::values::{allow_null, any_item};
use crate::domain::catalog::schema::words;
use crate::domain::text::canonical::{Fingerprint, fingerprint};

/// Maximum number of described alternatives.
const MAX_FORMS: usize = 20;
/// Maximum number of names in the description of one alternative.
const MAX_NAMES: usize = 16;

/// Root keywords that are described in words.
const SPOKEN: [&str; 10] = [
    "enum",
    "const",
    "dependentRequired",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "examples",
    "default",
    "additionalProperties",
];

/// The translated root and a sentence about its constraints.
pub(super) struct Root {
    pub(super) published: Value,
    pub(super) wrapped: bool,
    pub(super) hint: Option<String>,
    pub(super) losses: Vec<SchemaLoss>,
}

impl Root {
    pub(super) fn new(translated: Map<String, Value>) -> Self {
        let (mut schema, forms) = united(translated);
        let free_form = schema.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty)
            && (accepts_more(&schema) || !is_only_an_object(&schema));
        if free_form {
            return Self { published: wrap(schema), wrapped: true, hint: None, losses: Vec::new() };
        }
        let mut losses = Vec::new();
        let mut hint = String::new();
        if let Some(Value::String(description)) = schema.shift_remove("description") {
            hint = description;
        }
        let mut say = |keyword: &str, sentence: &str| {
            words::append(&mut hint, sentence);
            losses.push(SchemaLoss { pointer: String::new(), keyword: keyword.to_owned(), reason: LossReason::AtRoot, described: true });
        };
        if let Some(forms) = forms {
            say("anyOf", &forms);
        }
        for keyword in SPOKEN {
            // A plain "no other arguments" is the default expectation and needs no words.
            let constraint = schema.get(keyword).filter(|value| keyword != "additionalProperties" || value.is_object());
            if let Some(sentence) = constraint.and_then(|value| words::sentence(keyword, value)) {
                say(keyword, &sentence);
            }
        }
        if accepts_more(&schema) {
            say("additionalProperties", &format!("Takes arguments of other names as well, through {RUN_TOOL}."));
        }
        if !is_only_an_object(&schema) {
            schema.retain(|keyword, _| !matches!(keyword.as_str(), "items" | "prefixItems"));
        }
        schema.insert("type".into(), "object".into());
        schema.entry("properties").or_insert_with(|| json!({}));
        for keyword in ["title", "examples", "default", "enum", "const"] {
            schema.shift_remove(keyword);
        }
        Self { published: Value::Object(schema), wrapped: false, hint: Some(hint).filter(|hint| !hint.is_empty()), losses }
    }
}

/// Merges alternatives into one object with all their properties. It requires only what every alternative requires. Also returns
/// a description of the alternatives.
fn united(mut root: Map<String, Value>) -> (Map<String, Value>, Option<String>) {
    let Some(Value::Array(alternatives)) = root.remove("anyOf") else { return (root, None) };
    let mut variants = Vec::new();
    collect(alternatives, &mut variants);
    let open = variants.iter().any(|variant| accepts_more(variant) || !is_only_an_object(variant));
    let closed = variants.iter().all(|variant| variant.get("additionalProperties") == Some(&Value::Bool(false)));
    let forms = described(&variants);
    let mut properties: IndexMap<String, Vec<Value>> = IndexMap::new();
    let mut common: Option<Vec<Value>> = None;
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
    (root, forms)
}

/// Collects the variants, including those of nested alternatives.
fn collect(alternatives: Vec<Value>, variants: &mut Vec<Map<String, Value>>) {
    for alternative in alternatives {
        let Value::Object(mut variant) = alternative else { continue };
        match variant.remove("anyOf") {
            Some(Value::Array(nested)) => collect(nested, variants),
            _ => variants.push(variant),
        }
    }
}

/// Describes the variants: "Give one of these: (action = "create", title, body?) or (action = "delete", id)."
fn described(variants: &[Map<String, Value>]) -> Option<String> {
    let objects: Vec<&Map<String, Value>> = variants.iter().filter(|variant| is(variant, "object")).collect();
    let mut forms: Vec<String> = Vec::new();
    for variant in objects.iter().take(MAX_FORMS * 2) {
        let form = form(variant, &objects);
        if !form.is_empty() && !forms.contains(&form) {
            forms.push(form);
        }
    }
    if forms.len() > MAX_FORMS {
        forms.truncate(MAX_FORMS);
        forms.push("…".to_owned());
    }
    (forms.len() > 1).then(|| format!("Give one of these: {}.", forms.join(" or ")))
}

/// Lists the required names of a variant, and its optional names that other variants lack.
fn form(variant: &Map<String, Value>, all: &[&Map<String, Value>]) -> String {
    let empty = Map::new();
    let properties = variant.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let required: Vec<&str> = variant.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let everywhere = |name: &str| all.iter().all(|variant| variant.get("properties").and_then(|it| it.get(name)).is_some());
    let constant = |name: &str| {
        let schema = properties.get(name)?;
        let only = || schema.get("enum")?.as_array().filter(|values| values.len() == 1)?.first();
        schema.get("const").or_else(only).map(|value| format!(" = {value}"))
    };
    let mut names: Vec<String> = required.iter().map(|name| format!("{name}{}", constant(name).unwrap_or_default())).collect();
    for name in properties.keys().filter(|name| !required.contains(&name.as_str())) {
        let constant = constant(name);
        if constant.is_some() || !everywhere(name) {
            names.push(format!("{name}?{}", constant.unwrap_or_default()));
        }
    }
    if names.len() > MAX_NAMES {
        names.truncate(MAX_NAMES);
        names.push("…".to_owned());
    }
    let mut sentences = Vec::new();
    for keyword in ["description", "dependentRequired", "minProperties", "maxProperties", "patternProperties", "propertyNames"] {
        match variant.get(keyword) {
            Some(Value::String(description)) => sentences.push(description.trim_end_matches('.').to_owned()),
            Some(value) => sentences.extend(words::sentence(keyword, value).map(|sentence| sentence.trim_end_matches('.').to_owned())),
            None => {}
        }
    }
    let text: String = sentences.join(". ").chars().take(200).collect();
    match (names.is_empty(), text.is_empty()) {
        (true, true) => String::new(),
        (true, false) => format!("({text})"),
        (false, true) => format!("({})", names.join(", ")),
        (false, false) => format!("({}: {text})", names.join(", ")),
    }
}

/// A schema that accepts what any of the given schemas accepts: enums are merged, other schemas become alternatives.
fn either(mut schemas: Vec<Value>) -> Value {
    let mut seen: HashSet<Fingerprint> = HashSet::new();
    schemas.retain(|schema| seen.insert(fingerprint(schema)));
    if schemas.len() == 1 {
        return schemas.remove(0);
    }
    seen.clear();
    let mut outer = Map::new();
    let mut members: Vec<Map<String, Value>> = Vec::new();
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
            let Value::Object(mut member) = member else { continue };
            if let Some(constant) = member.remove("const") {
                member.insert("enum".into(), json!([constant]));
            }
            if !seen.insert(fingerprint(&Value::Object(member.clone()))) {
                continue;
            }
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
        if take_null(&mut outer) {
            allow_null(&mut outer);
        }
    }
    Value::Object(outer)
}

/// Merges the values and types of another enum. Contradicting keywords are dropped.
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
    if let (Some(known), Some(new)) = (text(list, "description"), text(&more, "description"))
        && !known.split(" / ").any(|part| part == new)
    {
        list.insert("description".into(), format!("{known} / {new}").into());
    }
    // Only keywords that both enums share apply to every value.
    list.retain(|keyword, value| match keyword.as_str() {
        "enum" | "type" | "description" | "title" => true,
        keyword => more.get(keyword) == Some(value),
    });
    // The properties allowed for each value may depend on other keywords.
    if !list.contains_key("properties") {
        for keyword in ["required", "additionalProperties", "patternProperties", "dependentRequired"] {
            list.shift_remove(keyword);
        }
    }
    if is(list, "array") {
        list.entry("items").or_insert_with(any_item);
    }
    if let Some(description) = text(&more, "description") {
        list.entry("description").or_insert_with(|| description.into());
    }
}

fn text(schema: &Map<String, Value>, keyword: &str) -> Option<String> {
    schema.get(keyword).and_then(Value::as_str).map(str::to_owned)
}

fn accepts_more(schema: &Map<String, Value>) -> bool {
    schema.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false))
        || schema.get("patternProperties").and_then(Value::as_object).is_some_and(|patterns| !patterns.is_empty())
}

/// Whether a schema allows only objects, or objects and null.
fn is_only_an_object(schema: &Map<String, Value>) -> bool {
    is(schema, "object")
        && schema.get("type").and_then(Value::as_array).is_none_or(|kinds| kinds.iter().all(|kind| kind == "object" || kind == "null"))
}

/// Wraps free-form arguments into a single argument, with the known keywords of the schema.
fn wrap(mut schema: Map<String, Value>) -> Value {
    if !is_only_an_object(&schema) {
        schema.retain(|keyword, _| keyword == "description");
        schema.insert("additionalProperties".into(), Value::Bool(true));
    }
    for keyword in ["title", "properties", "enum", "const"] {
        schema.shift_remove(keyword);
    }
    schema.insert("type".into(), "object".into());
    schema.entry("description").or_insert_with(|| "The tool's arguments, as an object.".into());
    json!({"type": "object", "properties": {"arguments": schema}})
}

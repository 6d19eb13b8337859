//! A tool's input schema → what OpenAPI 3.1 and Open WebUI's converter both keep.
//!
//! The published form is self-contained: every reference is inlined, every cycle is cut, every schema is an object
//! with a `type` (or an `anyOf` of such), every array has `items`. There are no boolean schemas and no nulls, because
//! one of them in one tool makes Open WebUI drop all tool servers of the installation. The server's own schema is
//! kept beside it: arguments are validated against that one.

use std::sync::Arc;

use serde_json::{Map, Value, json};

/// Levels of nesting that are published; what lies deeper becomes a free-form object.
const MAX_DEPTH: usize = 24;
/// Schemas that one tool may inline, a guard against references that multiply each other.
const MAX_SCHEMAS: usize = 5_000;

/// Keywords that are kept as they are when their value has the right kind.
const KEPT: [(&str, Kind); 22] = [
    ("title", Kind::Text),
    ("description", Kind::Text),
    ("enum", Kind::List),
    ("default", Kind::Any),
    ("examples", Kind::List),
    ("format", Kind::Text),
    ("pattern", Kind::Text),
    ("minimum", Kind::Number),
    ("maximum", Kind::Number),
    ("exclusiveMinimum", Kind::Number),
    ("exclusiveMaximum", Kind::Number),
    ("multipleOf", Kind::Number),
    ("minLength", Kind::Number),
    ("maxLength", Kind::Number),
    ("minItems", Kind::Number),
    ("maxItems", Kind::Number),
    ("uniqueItems", Kind::Flag),
    ("minProperties", Kind::Number),
    ("maxProperties", Kind::Number),
    ("deprecated", Kind::Flag),
    ("contentEncoding", Kind::Text),
    ("contentMediaType", Kind::Text),
];

/// Keywords that have no published form yet.
const DROPPED: [&str; 12] = [
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependentRequired",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contains",
    "prefixItems",
];

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    Flag,
    List,
    Any,
}

impl Kind {
    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Number => value.is_number(),
            Self::Flag => value.is_boolean(),
            Self::List => value.as_array().is_some_and(|items| !items.is_empty()),
            Self::Any => !value.is_null(),
        }
    }
}

/// The input of a tool: as the server wrote it and as it is published.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSchema {
    /// The server's own `inputSchema`: arguments are validated against it.
    pub source: Arc<Value>,
    /// An object schema with `properties`.
    pub published: Arc<Value>,
    /// Whether the published form wraps the arguments as `{"arguments": {…}}`, because free-form input at the top
    /// would reach the model as "no parameters".
    pub wrapped: bool,
    /// What the published form could not express, for `toolsieve check`.
    pub losses: Vec<String>,
}

impl InputSchema {
    /// Translates an `inputSchema`. Never fails: what can't be expressed is named in [`InputSchema::losses`].
    #[must_use]
    pub fn compile(source: Arc<Value>) -> Self {
        let mut translation = Translation { root: &source, references: Vec::new(), schemas: 0, losses: Vec::new() };
        let (published, wrapped) = translation.root_schema();
        let mut losses = translation.losses;
        losses.sort();
        losses.dedup();
        Self { published: Arc::new(published), wrapped, losses, source }
    }

    /// The names and descriptions of the top-level parameters.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let properties = self.source.get("properties").or_else(|| self.published.get("properties"));
        properties
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.as_str(), schema.get("description").and_then(Value::as_str).unwrap_or_default()))
    }
}

struct Translation<'a> {
    root: &'a Value,
    /// The references being followed, outermost first: one that is met again is a cycle.
    references: Vec<String>,
    schemas: usize,
    losses: Vec<String>,
}

impl Translation<'_> {
    fn root_schema(&mut self) -> (Value, bool) {
        let translated = self.schema(&self.root.clone(), 0);
        let Value::Object(mut schema) = flatten_alternatives(translated) else {
            return (wrap(None), true);
        };
        let free_form = schema.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty)
            && (accepts_more(self.root) || schema.get("type").is_some_and(|kind| kind != "object"));
        if free_form {
            return (wrap(schema.get("description").and_then(Value::as_str)), true);
        }
        schema.insert("type".into(), "object".into());
        schema.entry("properties").or_insert_with(|| json!({}));
        (Value::Object(schema), false)
    }

    fn schema(&mut self, schema: &Value, depth: usize) -> Value {
        self.schemas += 1;
        let Value::Object(object) = schema else { return any_value() };
        if depth > MAX_DEPTH || self.schemas > MAX_SCHEMAS {
            self.lose("nesting beyond what is published");
            return json!({"type": "object"});
        }
        if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
            return self.reference(reference, object, depth);
        }
        if let Some(parts) = object.get("allOf").and_then(Value::as_array) {
            let merged = self.merge(object, parts);
            return self.schema(&merged, depth + 1);
        }
        let mut out = Map::new();
        for (keyword, kind) in KEPT {
            if let Some(value) = object.get(keyword).filter(|value| kind.fits(value)) {
                out.insert(keyword.into(), value.clone());
            }
        }
        exclusive_bounds_of_draft_4(object, &mut out);
        for keyword in DROPPED {
            if object.contains_key(keyword) {
                self.lose(keyword);
            }
        }
        if let Some(constant) = object.get("const").filter(|value| !value.is_null()) {
            out.insert("enum".into(), json!([constant]));
        }
        let alternatives = ["anyOf", "oneOf"].iter().find_map(|keyword| object.get(*keyword)?.as_array());
        if let Some(alternatives) = alternatives {
            self.alternatives(alternatives, &mut out, object, depth);
        }
        self.typed(object, &mut out, depth);
        Value::Object(out)
    }

    /// Follows a local reference. Keywords beside `$ref` count (2020-12, section 7.7.1.1) and win.
    fn reference(&mut self, reference: &str, object: &Map<String, Value>, depth: usize) -> Value {
        let target = reference
            .strip_prefix('#')
            .and_then(|pointer| if pointer.is_empty() { Some(self.root) } else { self.root.pointer(&percent_decoded(pointer)) });
        let Some(target) = target else {
            self.lose("a reference that leads outside the schema");
            return json!({"type": "object"});
        };
        if self.references.iter().any(|open| open == reference) {
            self.lose("recursion");
            let description = "the same structure again, nested";
            return json!({"type": "object", "description": description, "additionalProperties": true});
        }
        let mut merged = target.as_object().cloned().unwrap_or_default();
        for (keyword, value) in object.iter().filter(|(keyword, _)| *keyword != "$ref") {
            merged.insert(keyword.clone(), value.clone());
        }
        self.references.push(reference.to_owned());
        let out = self.schema(&Value::Object(merged), depth + 1);
        self.references.pop();
        out
    }

    /// One schema out of `allOf`: properties and requirements are united, other keywords are taken from the first
    /// part that has them.
    fn merge(&mut self, object: &Map<String, Value>, parts: &[Value]) -> Value {
        let mut merged: Map<String, Value> = object.clone();
        merged.remove("allOf");
        for part in parts {
            let mut part = part.clone();
            let mut hops = 0;
            while let Some(reference) = part.get("$ref").and_then(Value::as_str) {
                hops += 1;
                let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(&percent_decoded(pointer)));
                match target {
                    Some(target) if hops < MAX_DEPTH => part = target.clone(),
                    _ => {
                        self.lose("a reference inside allOf");
                        break;
                    }
                }
            }
            let Value::Object(part) = part else { continue };
            for (keyword, value) in part {
                match (keyword.as_str(), merged.get_mut(&keyword), value) {
                    ("properties", Some(Value::Object(known)), Value::Object(more)) => {
                        for (name, schema) in more {
                            known.entry(name).or_insert(schema);
                        }
                    }
                    ("required" | "allOf", Some(Value::Array(known)), Value::Array(more)) => {
                        let new: Vec<Value> = more.into_iter().filter(|value| !known.contains(value)).collect();
                        known.extend(new);
                    }
                    (_, Some(_), _) => {}
                    (_, None, value) => {
                        merged.insert(keyword, value);
                    }
                }
            }
        }
        Value::Object(merged)
    }

    fn alternatives(&mut self, alternatives: &[Value], out: &mut Map<String, Value>, object: &Map<String, Value>, depth: usize) {
        let is_null = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "null") || schema.get("const") == Some(&Value::Null);
        let nullable = alternatives.iter().any(is_null);
        let base: Map<String, Value> = object
            .iter()
            .filter(|(keyword, _)| matches!(keyword.as_str(), "type" | "properties" | "required" | "additionalProperties" | "items"))
            .map(|(keyword, value)| (keyword.clone(), value.clone()))
            .collect();
        let mut variants: Vec<Value> = Vec::new();
        for alternative in alternatives.iter().filter(|alternative| !is_null(alternative) && **alternative != Value::Bool(false)) {
            let alternative = match alternative {
                Value::Object(own) if !base.is_empty() => self.merge(&base, &[Value::Object(own.clone())]),
                other => other.clone(),
            };
            let variant = self.schema(&alternative, depth + 1);
            if !variants.contains(&variant) {
                variants.push(variant);
            }
        }
        if variants.len() == 1 {
            if let Some(Value::Object(variant)) = variants.pop() {
                for (keyword, value) in variant {
                    out.entry(keyword).or_insert(value);
                }
                if nullable && let Some(Value::String(kind)) = out.get("type").cloned() {
                    out.insert("type".into(), json!([kind, "null"]));
                }
            }
        } else if !variants.is_empty() {
            out.insert("anyOf".into(), Value::Array(variants));
        }
    }

    /// Gives every schema a type and what the type asks for.
    fn typed(&mut self, object: &Map<String, Value>, out: &mut Map<String, Value>, depth: usize) {
        if out.contains_key("anyOf") {
            out.retain(|keyword, _| matches!(keyword.as_str(), "anyOf" | "title" | "description" | "default" | "examples"));
            return;
        }
        if !out.contains_key("type") {
            let Some(kind) = type_of(object, out) else {
                for (keyword, value) in any_value().as_object().cloned().unwrap_or_default() {
                    out.entry(keyword).or_insert(value);
                }
                return;
            };
            out.insert("type".into(), kind);
        }
        let is = |out: &Map<String, Value>, name: &str| match out.get("type") {
            Some(Value::String(kind)) => kind == name,
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == name),
            _ => false,
        };
        if is(out, "array") && !out.contains_key("items") {
            let items = match object.get("items") {
                Some(items @ Value::Object(_)) => self.schema(items, depth + 1),
                Some(Value::Array(_)) => {
                    self.lose("items as a list");
                    any_value()
                }
                _ => any_value(),
            };
            out.insert("items".into(), items);
        }
        if is(out, "object") {
            self.object(object, out, depth);
        }
        if !is(out, "null")
            && let Some(Value::Array(values)) = out.get_mut("enum")
        {
            values.retain(|value| !value.is_null());
            if values.is_empty() {
                out.remove("enum");
            }
        }
    }

    fn object(&mut self, object: &Map<String, Value>, out: &mut Map<String, Value>, depth: usize) {
        if let Some(properties) = object.get("properties").and_then(Value::as_object) {
            let mut published = Map::new();
            for (name, schema) in properties.iter().filter(|(_, schema)| **schema != Value::Bool(false)) {
                published.insert(name.clone(), self.schema(schema, depth + 1));
            }
            let required: Vec<Value> = object
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter(|name| name.as_str().is_some_and(|name| published.contains_key(name)))
                .cloned()
                .collect();
            out.insert("properties".into(), Value::Object(published));
            if !required.is_empty() {
                out.insert("required".into(), Value::Array(required));
            }
        }
        match object.get("additionalProperties") {
            Some(Value::Bool(allowed)) => {
                out.insert("additionalProperties".into(), Value::Bool(*allowed));
            }
            Some(schema @ Value::Object(_)) => {
                let values = self.schema(schema, depth + 1);
                out.insert("additionalProperties".into(), values);
            }
            _ => {}
        }
    }

    fn lose(&mut self, what: &str) {
        self.losses.push(what.to_owned());
    }
}

/// A root of alternatives becomes one object that has the properties of all; only what all require is required.
fn flatten_alternatives(schema: Value) -> Value {
    let Value::Object(mut root) = schema else { return schema };
    let Some(Value::Array(variants)) = root.remove("anyOf") else { return Value::Object(root) };
    let mut properties = Map::new();
    let mut common: Option<Vec<Value>> = None;
    let mut forms = Vec::new();
    for variant in variants.iter().filter_map(Value::as_object) {
        for (name, schema) in variant.get("properties").and_then(Value::as_object).into_iter().flatten() {
            properties.entry(name.clone()).or_insert_with(|| schema.clone());
        }
        let required: Vec<Value> = variant.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        forms.push(required.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "));
        common = Some(match common {
            None => required,
            Some(known) => known.into_iter().filter(|name| required.contains(name)).collect(),
        });
    }
    let forms: Vec<String> = forms.into_iter().filter(|form| !form.is_empty()).map(|form| format!("({form})")).collect();
    if forms.len() > 1 {
        let own = root.get("description").and_then(Value::as_str).unwrap_or_default();
        let text = format!("{own} Give one of these: {}.", forms.join(" or "));
        root.insert("description".into(), text.trim().into());
    }
    root.insert("type".into(), "object".into());
    root.insert("properties".into(), Value::Object(properties));
    if let Some(required) = common.filter(|required| !required.is_empty()) {
        root.insert("required".into(), Value::Array(required));
    }
    Value::Object(root)
}

fn accepts_more(root: &Value) -> bool {
    root.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false)) || root.get("patternProperties").is_some()
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

/// Any JSON value but null, as a list of types that every converter keeps.
fn any_value() -> Value {
    json!({"type": ["string", "number", "boolean", "object", "array"], "items": {"type": "string"}})
}

/// Draft 4 wrote `exclusiveMinimum: true` beside `minimum`.
fn exclusive_bounds_of_draft_4(object: &Map<String, Value>, out: &mut Map<String, Value>) {
    for (flag, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if object.get(flag) == Some(&Value::Bool(true))
            && let Some(limit) = out.remove(bound)
        {
            out.insert(flag.into(), limit);
        }
    }
}

/// The type as written, or what the other keywords say.
fn type_of(object: &Map<String, Value>, out: &Map<String, Value>) -> Option<Value> {
    const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];
    let known = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
    match object.get("type") {
        Some(kind) if known(kind) => return Some(kind.clone()),
        Some(Value::Array(kinds)) => {
            let mut kinds: Vec<Value> = kinds.iter().filter(|kind| known(kind)).cloned().collect();
            kinds.dedup();
            match kinds.len() {
                0 => {}
                1 => return kinds.pop(),
                _ => return Some(Value::Array(kinds)),
            }
        }
        _ => {}
    }
    if let Some(values) = out.get("enum").and_then(Value::as_array) {
        let mut kinds: Vec<&str> = values.iter().map(kind_of).collect();
        kinds.sort_unstable();
        kinds.dedup();
        return Some(if kinds.len() == 1 { kinds[0].into() } else { kinds.into() });
    }
    let has = |keywords: &[&str]| keywords.iter().any(|keyword| object.contains_key(*keyword));
    if has(&["properties", "additionalProperties", "patternProperties", "required", "minProperties", "maxProperties"]) {
        Some("object".into())
    } else if has(&["items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"]) {
        Some("array".into())
    } else if has(&["pattern", "format", "minLength", "maxLength", "contentEncoding", "contentMediaType"]) {
        Some("string".into())
    } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
        Some("number".into())
    } else {
        object.get("default").filter(|value| !value.is_null()).map(|value| kind_of(value).into())
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A reference is a URI fragment: `%7B` in it means `{`.
fn percent_decoded(pointer: &str) -> String {
    url::form_urlencoded::parse(format!("x={}", pointer.replace('+', "%2B").replace('&', "%26")).as_bytes())
        .next()
        .map_or_else(|| pointer.to_owned(), |(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::InputSchema;

    fn compile(source: Value) -> InputSchema {
        InputSchema::compile(Arc::new(source))
    }

    /// What must hold of every schema that is published.
    fn assert_sound(schema: &Value) {
        let object = schema.as_object().expect("a schema is an object");
        assert!(object.contains_key("type") || object.contains_key("anyOf"), "no type: {schema}");
        assert!(!object.contains_key("$ref") && !object.contains_key("allOf") && !object.contains_key("oneOf"), "{schema}");
        assert!(object.values().all(|value| !value.is_null()), "null in {schema}");
        let array = match &schema["type"] {
            Value::String(kind) => kind == "array",
            Value::Array(kinds) => kinds.iter().any(|kind| kind == "array"),
            _ => false,
        };
        assert!(!array || schema["items"].is_object(), "array without items: {schema}");
        if let Some(items) = object.get("items") {
            assert_sound(items);
        }
        for variant in object.get("anyOf").and_then(Value::as_array).into_iter().flatten() {
            assert_sound(variant);
        }
        for property in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
            assert_sound(property.1);
        }
    }

    #[test]
    fn references_are_inlined_and_siblings_win() {
        let schema = compile(json!({
            "type": "object",
            "properties": {"p": {"$ref": "#/$defs/P", "description": "the person"}, "q": {"$ref": "#/properties/p"}},
            "required": ["p"],
            "$defs": {"P": {"type": "object", "description": "x", "properties": {"age": {"type": "integer", "minimum": 0}}}}
        }));
        assert_sound(&schema.published);
        assert_eq!(schema.published["properties"]["p"]["description"], "the person");
        assert_eq!(schema.published["properties"]["q"]["properties"]["age"]["minimum"], 0);
        assert_eq!(schema.published["required"], json!(["p"]));
    }

    #[test]
    fn cycles_are_cut() {
        let schema = compile(json!({
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/Node"}, "self": {"$ref": "#"}},
            "$defs": {"Node": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}}
        }));
        assert_sound(&schema.published);
        assert_eq!(schema.published["properties"]["tree"]["properties"]["children"]["items"]["type"], "object");
        assert_eq!(schema.losses, ["recursion"]);
    }

    #[test]
    fn what_freezes_open_webui_is_gone() {
        for nasty in [
            json!({"type": "object", "properties": {"a": true, "b": {"items": true, "type": "array"}, "c": {"anyOf": [true, {"type": "string"}]}}}),
            json!({"type": "object", "properties": null, "required": null}),
            json!({"type": "object", "properties": {"a": {"type": "string", "default": null, "description": null, "enum": ["x", null]}}}),
            json!({"type": "object", "properties": {"a": null, "b": 3, "c": {"type": "wrong"}, "d": {"type": []}}}),
            json!({"type": "object", "properties": {"a": {"allOf": [{"$ref": "#/properties/a"}]}}}),
            json!({}),
        ] {
            assert_sound(&compile(nasty).published);
        }
    }

    #[test]
    fn alternatives_keep_what_they_can() {
        let schema = compile(json!({"type": "object", "properties": {
            "nullable": {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]},
            "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "constant": {"const": "z"},
            "mixed": {"enum": [1, "a"]}
        }}));
        assert_sound(&schema.published);
        let properties = &schema.published["properties"];
        assert_eq!(properties["nullable"], json!({"enum": ["a"], "type": ["string", "null"]}));
        assert_eq!(properties["either"], json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}));
        assert_eq!(properties["constant"], json!({"enum": ["z"], "type": "string"}));
        assert_eq!(properties["mixed"]["type"], json!(["integer", "string"]));
    }

    #[test]
    fn a_root_of_alternatives_becomes_one_object() {
        let schema = compile(json!({"type": "object", "oneOf": [
            {"properties": {"id": {"type": "string"}, "dry": {"type": "boolean"}}, "required": ["id", "dry"]},
            {"properties": {"name": {"type": "string"}, "dry": {"type": "boolean"}}, "required": ["name", "dry"]}
        ]}));
        assert_sound(&schema.published);
        assert_eq!(schema.published["required"], json!(["dry"]));
        assert_eq!(schema.published["properties"].as_object().unwrap().len(), 3);
        assert_eq!(schema.published["description"], "Give one of these: (id, dry) or (name, dry).");
    }

    #[test]
    fn free_form_input_is_wrapped_and_no_input_is_not() {
        assert!(compile(json!({"type": "object", "additionalProperties": true})).wrapped);
        assert!(compile(json!({"type": "string"})).wrapped);
        let none = compile(json!({"type": "object", "properties": {}}));
        assert!(!none.wrapped);
        assert_eq!(none.published["properties"], json!({}));
        assert!(!compile(json!({"type": "object"})).wrapped);
    }

    #[test]
    fn references_that_multiply_each_other_stay_bounded() {
        let mut definitions = serde_json::Map::new();
        for level in 0..20 {
            let next = format!("#/$defs/l{}", level + 1);
            definitions.insert(format!("l{level}"), json!({"type": "object", "properties": {"a": {"$ref": next}, "b": {"$ref": next}}}));
        }
        definitions.insert("l20".into(), json!({"type": "string"}));
        let schema = compile(json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/l0"}}, "$defs": definitions}));
        assert_sound(&schema.published);
        assert!(schema.published.to_string().len() < 1_000_000);
    }
}

//! What a schema says once its references are followed and its `allOf` parts are one, borrowed from the source.

use indexmap::IndexMap;
use serde_json::Value;

/// Keywords that describe a value and don't restrict it.
pub(super) const ANNOTATIONS: [&str; 5] = ["title", "description", "default", "examples", "deprecated"];

/// Nothing is copied here: a text that a thousand references lead to exists once.
#[derive(Clone, Default)]
pub(super) struct Form<'a> {
    /// Every keyword but `$ref`, `allOf`, `anyOf` and `oneOf`; the first part that has one wins.
    pub(super) keywords: IndexMap<&'a str, &'a Value>,
    /// Each property with all schemas that it has to satisfy, the one that wins first.
    pub(super) properties: IndexMap<&'a str, Vec<&'a Value>>,
    pub(super) required: Vec<&'a str>,
    /// All schemas that an item has to satisfy, the one that wins first.
    pub(super) items: Vec<&'a Value>,
    /// The lists of `anyOf` and `oneOf`, none of them empty.
    pub(super) alternatives: Vec<&'a [Value]>,
    /// What the references led to.
    pub(super) targets: Vec<&'a Value>,
    /// What a reference led to that closes a cycle, so that it was not followed.
    pub(super) cycle: Option<&'a Value>,
}

impl<'a> Form<'a> {
    /// Whether null is all that it allows.
    pub(super) fn is_null(&self) -> bool {
        let null = |value: &Value| value.is_null();
        let only_null = |value: &Value| *value == "null" || value.as_array().is_some_and(|kinds| kinds.len() == 1 && kinds[0] == "null");
        self.keywords.get("type").is_some_and(|kind| only_null(kind))
            || self.keywords.get("const").is_some_and(|value| null(value))
            || self
                .keywords
                .get("enum")
                .and_then(|values| values.as_array())
                .is_some_and(|values| !values.is_empty() && values.iter().all(null))
    }

    /// Whether anything but annotations is said.
    pub(super) fn is_structured(&self) -> bool {
        self.type_of().is_some_and(|_| self.keywords.keys().any(|keyword| !ANNOTATIONS.contains(keyword))) || !self.alternatives.is_empty()
    }

    /// The keywords that describe the value.
    pub(super) fn annotations(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.keywords.iter().filter(|(keyword, _)| ANNOTATIONS.contains(keyword)).map(|(keyword, value)| (*keyword, *value))
    }

    /// What every alternative shares: all that is neither an annotation nor an alternative.
    pub(super) fn base(&self) -> Self {
        let mut base = self.clone();
        base.keywords.retain(|keyword, _| !ANNOTATIONS.contains(keyword));
        base
    }

    /// One alternative together with what all alternatives share. Its own keywords win; the shared properties come
    /// first.
    pub(super) fn over(mut self, base: &Self) -> Self {
        for (keyword, value) in &base.keywords {
            self.keywords.entry(keyword).or_insert(value);
        }
        let mut properties: IndexMap<&str, Vec<&Value>> = base.properties.keys().map(|name| (*name, Vec::new())).collect();
        for (name, parts) in self.properties.iter().chain(&base.properties) {
            properties.entry(name).or_default().extend(parts);
        }
        self.properties = properties;
        self.required.splice(0..0, base.required.iter().copied());
        self.items.extend(&base.items);
        self
    }

    /// How many entries [`Form::over`] reads.
    pub(super) fn len(&self) -> usize {
        self.keywords.len() + self.properties.len() + self.required.len() + self.items.len()
    }

    pub(super) fn type_of(&self) -> Option<Value> {
        type_of(|keyword| self.keywords.get(keyword).copied())
    }
}

/// The type as written, or what the other keywords say.
pub(super) fn type_of<'v>(get: impl Fn(&str) -> Option<&'v Value>) -> Option<Value> {
    const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];
    let known = |kind: &Value| kind.as_str().and_then(|kind| TYPES.into_iter().find(|known| *known == kind));
    match get("type") {
        Some(Value::Array(kinds)) => {
            if let Some(kind) = one_or_list(kinds.iter().filter_map(known)) {
                return Some(kind);
            }
        }
        Some(kind) => {
            if let Some(kind) = known(kind) {
                return Some(kind.into());
            }
        }
        None => {}
    }
    if let Some(constant) = get("const") {
        return Some(kind_of(constant).into());
    }
    if let Some(kind) = get("enum").and_then(Value::as_array).and_then(|values| one_or_list(values.iter().map(kind_of))) {
        return Some(kind);
    }
    let has = |keywords: &[&str]| keywords.iter().any(|keyword| get(keyword).is_some());
    if has(&["properties", "additionalProperties", "patternProperties", "minProperties", "maxProperties"])
        || get("required").is_some_and(Value::is_array)
    {
        Some("object".into())
    } else if has(&["items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"]) {
        Some("array".into())
    } else if has(&["pattern", "format", "minLength", "maxLength", "contentEncoding", "contentMediaType"]) {
        Some("string".into())
    } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
        Some("number".into())
    } else {
        get("default").filter(|value| !value.is_null()).map(|value| kind_of(value).into())
    }
}

fn one_or_list<'k>(kinds: impl Iterator<Item = &'k str>) -> Option<Value> {
    let mut different: Vec<&str> = Vec::new();
    for kind in kinds {
        if !different.contains(&kind) {
            different.push(kind);
        }
    }
    match different.as_slice() {
        [] => None,
        [kind] => Some((*kind).into()),
        kinds => Some(kinds.into()),
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

//! A schema with references resolved and `allOf` parts merged, borrowed from the source.

use indexmap::IndexMap;
use serde_json::Value;

use crate::domain::catalog::schema::keywords::{ANNOTATIONS, LOWER_BOUNDS, UPPER_BOUNDS, known_type};

/// Maximum number of recorded contradictions.
const MAX_CONFLICTS: usize = 8;

/// A schema with its references and `allOf` parts merged. It borrows all values, so a text behind many references exists once.
#[derive(Clone, Default)]
pub(super) struct Form<'a> {
    /// Every keyword without its own field. If two parts contradict, the first value wins, or the stricter one if that is
    /// obvious.
    pub(super) keywords: IndexMap<&'a str, &'a Value>,
    /// Contradicting values that lost. They are described in words only.
    pub(super) conflicts: Vec<(&'a str, &'a Value)>,
    /// For each property, all schemas that it must satisfy, with the winning one first.
    pub(super) properties: IndexMap<&'a str, Vec<&'a Value>>,
    pub(super) required: Vec<&'a str>,
    /// The schemas of the first items, from `prefixItems`.
    pub(super) prefix: Option<&'a [Value]>,
    /// All schemas that items must satisfy, each with the index from which it applies. The winning one is first.
    pub(super) items: Vec<(usize, &'a Value)>,
    /// The maximum number of items, if a schema forbids further ones.
    pub(super) length: Option<usize>,
    /// The non-empty lists of `anyOf` and `oneOf`.
    pub(super) alternatives: Vec<&'a [Value]>,
    /// The targets of all references.
    pub(super) targets: Vec<&'a Value>,
    /// The target of a reference that was not followed, because it closes a cycle.
    pub(super) cycle: Option<&'a Value>,
    /// Whether a part is missing: its reference leads nowhere, or the schema is too deep or too large.
    pub(super) is_partial: bool,
}

impl<'a> Form<'a> {
    /// Merges a keyword from another part of the schema. Both parts must hold.
    pub(super) fn admit(&mut self, keyword: &'a str, value: &'a Value) {
        let Some(present) = self.keywords.get_mut(keyword) else {
            self.keywords.insert(keyword, value);
            return;
        };
        if std::ptr::eq(*present, value) || *present == value || ANNOTATIONS.contains(&keyword) {
            return;
        }
        let numbers = || Some((present.as_f64()?, value.as_f64()?));
        if LOWER_BOUNDS.contains(&keyword) {
            if numbers().is_none_or(|(one, other)| other > one) {
                *present = value;
            }
        } else if UPPER_BOUNDS.contains(&keyword) {
            if numbers().is_none_or(|(one, other)| other < one) {
                *present = value;
            }
        } else if keyword == "type" {
            if is_narrower(value, present) {
                *present = value;
            }
        } else if is_contained(value, present) {
            *present = value;
        } else if !is_contained(present, value) && self.conflicts.len() < MAX_CONFLICTS && !keyword.starts_with('$') {
            self.conflicts.push((keyword, value));
        }
    }

    /// Merges the item schemas of another part: `prefix` for its first items, `items` for the rest.
    pub(super) fn admit_items(&mut self, prefix: Option<&'a [Value]>, items: Option<&'a Value>) {
        let from = prefix.map_or(0, <[Value]>::len);
        if items == Some(&Value::Bool(false)) {
            self.length = Some(self.length.map_or(from, |length| length.min(from)));
        }
        match (prefix, self.prefix) {
            (Some(_), None) => self.prefix = prefix,
            // If both parts have tuples, only the first is published.
            (Some(_), Some(known)) if from > known.len() => return,
            _ => {}
        }
        if let Some(schema @ Value::Object(_)) = items {
            self.items.push((from, schema));
        }
    }

    /// Whether the form allows only null.
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

    /// Whether the form contains more than annotations.
    pub(super) fn is_structured(&self) -> bool {
        let constrained =
            self.keywords.keys().any(|keyword| !ANNOTATIONS.contains(keyword)) || !self.items.is_empty() || self.prefix.is_some();
        (constrained && self.type_of().is_some()) || !self.required.is_empty() || !self.alternatives.is_empty()
    }

    /// The keywords that describe the value without restricting it.
    pub(super) fn annotations(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.keywords.iter().filter(|(keyword, _)| ANNOTATIONS.contains(keyword)).map(|(keyword, value)| (*keyword, *value))
    }

    /// The part that all alternatives share: everything except annotations and alternatives. Notes in words appear only once,
    /// next to the alternatives.
    pub(super) fn base(&self) -> Self {
        let mut base = self.clone();
        // Each alternative evaluates different properties and items.
        base.keywords.retain(|keyword, _| !ANNOTATIONS.contains(keyword) && !keyword.starts_with("unevaluated"));
        base.conflicts.clear();
        base.alternatives.clear();
        base
    }

    /// One alternative merged with the shared part. Its own keywords override shared ones; shared properties are listed first.
    pub(super) fn over(mut self, base: &Self) -> Self {
        for (keyword, value) in &base.keywords {
            // A condition is a unit: never combine its parts with those of another condition.
            if matches!(*keyword, "then" | "else" | "minContains" | "maxContains") && !self.keywords.contains_key(keyword) {
                let whole = if keyword.ends_with("Contains") { "contains" } else { "if" };
                if self.keywords.get(whole) != base.keywords.get(whole) {
                    continue;
                }
            }
            if *keyword == "properties" {
                self.keywords.entry(keyword).or_insert(value);
            } else {
                self.admit(keyword, value);
            }
        }
        let mut properties: IndexMap<&str, Vec<&Value>> = base.properties.keys().map(|name| (*name, Vec::new())).collect();
        for (name, parts) in self.properties.iter().chain(&base.properties) {
            properties.entry(name).or_default().extend(parts);
        }
        self.properties = properties;
        self.required.splice(0..0, base.required.iter().copied());
        if self.prefix.is_none() {
            self.prefix = base.prefix;
        }
        self.items.extend(&base.items);
        self.length = match (self.length, base.length) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.is_partial |= base.is_partial;
        self.conflicts.extend(base.conflicts.iter().take(MAX_CONFLICTS.saturating_sub(self.conflicts.len())));
        self
    }

    /// Whether `unevaluatedProperties` has the same meaning as `additionalProperties` here: all parts that could evaluate properties are
    /// in the form.
    pub(super) fn evaluates(&self) -> bool {
        let is_whole = self.alternatives.is_empty() && self.cycle.is_none() && !self.is_partial;
        is_whole && !["if", "dependentSchemas"].iter().any(|keyword| self.keywords.contains_key(keyword))
    }

    /// The number of entries that [`Form::over`] visits.
    pub(super) fn len(&self) -> usize {
        self.keywords.len() + self.properties.len() + self.required.len() + self.items.len()
    }

    pub(super) fn type_of(&self) -> Option<Value> {
        let has_items = self.prefix.is_some() || !self.items.is_empty() || self.length.is_some();
        type_of(|keyword| self.keywords.get(keyword).copied()).or_else(|| {
            if !self.properties.is_empty() || !self.required.is_empty() { Some("object".into()) } else { has_items.then(|| "array".into()) }
        })
    }
}

/// The declared type, or the one implied by other keywords.
pub(super) fn type_of<'v>(get: impl Fn(&str) -> Option<&'v Value>) -> Option<Value> {
    let known = |kind: &Value| kind.as_str().and_then(known_type);
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
    if has(&["properties", "additionalProperties", "patternProperties", "propertyNames", "minProperties", "maxProperties"])
        || has(&["dependentRequired", "unevaluatedProperties"])
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
        None
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

/// Whether `other` includes every type of `one`.
fn is_narrower(one: &Value, other: &Value) -> bool {
    let kinds = |value: &'_ Value| -> Vec<&'static str> {
        let listed = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        listed.iter().filter_map(|kind| kind.as_str().and_then(known_type)).collect()
    };
    let (one, other) = (kinds(one), kinds(other));
    !one.is_empty() && one.iter().all(|kind| other.contains(kind) || (*kind == "integer" && other.contains(&"number")))
}

/// Whether the list `other` includes every value of the list `one`.
fn is_contained(one: &Value, other: &Value) -> bool {
    match (one.as_array(), other.as_array()) {
        (Some(one), Some(other)) => {
            one.len() <= 200 && other.len() <= 200 && !one.is_empty() && one.iter().all(|value| other.contains(value))
        }
        _ => false,
    }
}

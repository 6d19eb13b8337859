//! The keywords of a published schema and the kinds of their values.

use serde_json::{Map, Value};

/// Keywords that describe a value without restricting it.
pub(super) const ANNOTATIONS: [&str; 7] = ["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"];

/// Keywords that are copied if their value is of the right kind.
pub(super) const KEPT: [(&str, Kind); 24] = [
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
    ("multipleOf", Kind::Factor),
    ("minLength", Kind::Count),
    ("maxLength", Kind::Count),
    ("minItems", Kind::Count),
    ("maxItems", Kind::Count),
    ("uniqueItems", Kind::Flag),
    ("minProperties", Kind::Count),
    ("maxProperties", Kind::Count),
    ("deprecated", Kind::Flag),
    ("readOnly", Kind::Flag),
    ("writeOnly", Kind::Flag),
    ("contentEncoding", Kind::Text),
    ("contentMediaType", Kind::Text),
];

/// Keywords for which the larger of two values is stricter. `UPPER_BOUNDS` are the opposite.
pub(super) const LOWER_BOUNDS: [&str; 5] = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];
pub(super) const UPPER_BOUNDS: [&str; 5] = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];

/// Maximum nesting depth of published conditions.
const MAX_CONDITION_DEPTH: usize = 6;

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Number,
    /// A number above zero.
    Factor,
    /// A non-negative integer.
    Count,
    Flag,
    List,
    Any,
}

impl Kind {
    pub(super) fn fits(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Number => value.is_number(),
            Self::Factor => value.as_f64().is_some_and(|number| number > 0.0),
            Self::Count => value.is_u64(),
            Self::Flag => value.is_boolean(),
            Self::List => value.as_array().is_some_and(|items| !items.is_empty()),
            Self::Any => !value.is_null(),
        }
    }
}

/// The JSON Schema type of a name. Accepts other letter case and the names of programming languages.
pub(super) fn known_type(name: &str) -> Option<&'static str> {
    const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];
    TYPES.into_iter().find(|known| known.eq_ignore_ascii_case(name)).or(match name {
        "str" => Some("string"),
        "int" => Some("integer"),
        "float" | "double" => Some("number"),
        "bool" => Some("boolean"),
        "dict" | "map" => Some("object"),
        "list" => Some("array"),
        _ => None,
    })
}

/// Whether a schema contains only known keywords, with the same meaning in every draft. Only such a schema may be published in a
/// condition (`not`, `if`), which must be exact.
pub(super) fn is_closed(schema: &Value) -> bool {
    closed(schema, MAX_CONDITION_DEPTH)
}

fn closed(schema: &Value, depth: usize) -> bool {
    let (Some(object), Some(below)) = (schema.as_object(), depth.checked_sub(1)) else { return false };
    object.iter().all(|(keyword, value)| match keyword.as_str() {
        // Only some drafts validate these keywords.
        "format" | "contentEncoding" | "contentMediaType" => false,
        "type" => match value {
            Value::String(kind) => is_type(kind),
            Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(|kind| kind.as_str().is_some_and(is_type)) && all_differ(kinds),
            _ => false,
        },
        "const" => true,
        "required" => value.as_array().is_some_and(|names| names.iter().all(Value::is_string) && all_differ(names)),
        "properties" => value.as_object().is_some_and(|properties| properties.values().all(|inner| closed(inner, below))),
        "additionalProperties" => value.is_boolean() || closed(value, below),
        "items" | "not" | "contains" => closed(value, below),
        "anyOf" | "oneOf" | "allOf" => {
            value.as_array().is_some_and(|parts| !parts.is_empty() && parts.iter().all(|inner| closed(inner, below)))
        }
        _ => KEPT.iter().any(|(kept, kind)| kept == keyword && kind.fits(value)),
    })
}

fn is_type(name: &str) -> bool {
    known_type(name) == Some(name)
}

/// Whether all values differ. Long lists are assumed to contain duplicates.
fn all_differ(values: &[Value]) -> bool {
    values.len() <= 64 && values.iter().enumerate().all(|(position, value)| !values[..position].contains(value))
}

pub(super) fn is(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get("type").is_some_and(|kind| allows(kind, name))
}

/// Whether a `type` is, or includes, the type `name`.
pub(super) fn allows(kind: &Value, name: &str) -> bool {
    match kind {
        Value::String(kind) => kind == name,
        Value::Array(kinds) => kinds.iter().any(|kind| kind == name),
        _ => false,
    }
}

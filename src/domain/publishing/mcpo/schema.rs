//! Computes the input schema that mcpo would publish.
//!
//! mcpo turns every property into one of seven Python types (string, integer, number, boolean, null, list, object), a union
//! of them, or "anything". Only the description and the default survive besides the type. It resolves a reference by its
//! last segment in `$defs`. If that fails, the whole server stays unpublished.

use serde_json::{Map, Value, json};

/// Python stops at about a thousand nested calls; a level here takes about four.
const DEEPEST: usize = 200;
/// mcpo's name for the root of every schema; a cycle is detected by names of this kind.
const TOP: &str = "_form_model";

/// Why mcpo can't publish a tool, and with it none of its server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unpublishable {
    #[error("mcpo can't resolve a reference: {0}")]
    Reference(String),
    #[error("a schema refers to itself endlessly")]
    Endless,
    #[error("a schema is not an object")]
    NotAnObject,
}

/// The body of mcpo's operation for a tool; `None` for a tool without properties, which has no body in mcpo.
pub(crate) fn published(tool: &str, input: &Value) -> Result<Option<Value>, Unpublishable> {
    let definitions = input.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default();
    let empty = Map::new();
    let properties = input.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    if properties.is_empty() {
        return Ok(None);
    }
    Ok(Some(Translation { definitions }.object(properties, input, &format!("{tool}{TOP}"), 0)?))
}

struct Translation {
    definitions: Map<String, Value>,
}

impl Translation {
    fn object(&self, properties: &Map<String, Value>, schema: &Value, prefix: &str, depth: usize) -> Result<Value, Unpublishable> {
        let names: Vec<&str> = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let mut required = Vec::new();
        let mut out = Map::new();
        for (name, property) in properties {
            let is_required = names.contains(&name.as_str());
            if is_required {
                required.push(name.as_str());
            }
            out.insert(name.clone(), self.property(property, prefix, name, is_required, depth + 1)?);
        }
        let mut object = json!({"type": "object", "properties": out});
        if !required.is_empty()
            && let Some(object) = object.as_object_mut()
        {
            object.insert("required".into(), json!(required));
        }
        Ok(object)
    }

    fn property(&self, schema: &Value, prefix: &str, name: &str, is_required: bool, depth: usize) -> Result<Value, Unpublishable> {
        if depth > DEEPEST {
            return Err(Unpublishable::Endless);
        }
        let mut keys = schema.as_object().ok_or(Unpublishable::NotAnObject)?;
        if let Some(reference) = keys.get("$ref").and_then(Value::as_str) {
            if is_cycle(reference, prefix) {
                return Ok(json!({}));
            }
            let last = reference.rsplit('/').next().unwrap_or_default();
            let found = self.definitions.get(last).ok_or_else(|| Unpublishable::Reference(reference.to_owned()))?;
            keys = found.as_object().ok_or(Unpublishable::NotAnObject)?;
        }
        let mut out = match self.kind(keys, prefix, name, depth)? {
            Value::Object(out) => out,
            _ => Map::new(),
        };
        if let Some(text) = keys.get("description").and_then(Value::as_str).filter(|text| !text.is_empty()) {
            out.insert("description".into(), text.into());
        }
        if let Some(default) = keys.get("default").filter(|default| !is_required && !default.is_null()) {
            out.insert("default".into(), default.clone());
        }
        Ok(Value::Object(out))
    }

    fn kind(&self, keys: &Map<String, Value>, prefix: &str, name: &str, depth: usize) -> Result<Value, Unpublishable> {
        if let Some(options) = keys.get("anyOf").and_then(Value::as_array) {
            let inner = format!("{prefix}_{name}");
            let options = options.iter().enumerate().map(|(at, option)| {
                let option = self.property(option, &inner, &format!("choice_{at}"), false, depth + 1)?;
                Ok(bare(option))
            });
            return Ok(json!({"anyOf": options.collect::<Result<Vec<_>, _>>()?}));
        }
        let kind = match keys.get("type") {
            Some(Value::Array(kinds)) => {
                let options = kinds.iter().map(|kind| {
                    let mut one = keys.clone();
                    one.insert("type".into(), kind.clone());
                    Ok(bare(self.property(&Value::Object(one), prefix, name, false, depth + 1)?))
                });
                return Ok(json!({"anyOf": options.collect::<Result<Vec<_>, _>>()?}));
            }
            Some(Value::String(kind)) => kind.as_str(),
            _ => return Ok(json!({})),
        };
        match kind {
            "object" => match keys.get("properties").and_then(Value::as_object).filter(|properties| !properties.is_empty()) {
                Some(properties) => {
                    let prefix = format!("{prefix}_{name}_model").replace("__", "_");
                    self.object(properties, &Value::Object(keys.clone()), prefix.trim_end_matches('_'), depth)
                }
                None => Ok(json!({"type": "object", "additionalProperties": true})),
            },
            "array" => match keys.get("items").filter(|items| !matches!(items, Value::Null | Value::Bool(false))) {
                Some(items) if items.as_object().is_none_or(|items| !items.is_empty()) => {
                    let items = self.property(items, &format!("{prefix}_{name}"), "item", false, depth + 1)?;
                    Ok(json!({"type": "array", "items": bare(items)}))
                }
                _ => Ok(json!({"type": "array", "items": {}})),
            },
            kind @ ("string" | "integer" | "number" | "boolean" | "null") => Ok(json!({"type": kind})),
            _ => Ok(json!({})),
        }
    }
}

/// List items and alternatives lose even their description.
fn bare(mut schema: Value) -> Value {
    if let Some(keys) = schema.as_object_mut() {
        keys.remove("description");
        keys.remove("default");
    }
    schema
}

/// A reference into the schema's own properties is a cycle if its path is a prefix of the current one.
fn is_cycle(reference: &str, prefix: &str) -> bool {
    let Some(path) = reference.strip_prefix("#/properties/") else { return false };
    let path = path.rsplit("#/properties/").next().unwrap_or(path).replace("/properties/", "_model_").replace("/items", "_item");
    prefix.rsplit("_form_model_").next().unwrap_or(prefix).starts_with(&path)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Unpublishable, published};

    /// Responses of mcpo 0.0.20, without titles, empty descriptions and null defaults.
    #[test]
    fn only_types_descriptions_and_defaults_survive() {
        let input = json!({
            "type": "object",
            "properties": {
                "a": {"type": "string", "enum": ["x", "y"], "minLength": 2, "description": "A"},
                "n": {"type": "integer", "minimum": 1, "default": 3},
                "l": {"type": "array", "items": {"type": "string", "format": "uri"}},
                "o": {"type": "object", "properties": {"p": {"type": "boolean"}}, "required": ["p"], "description": "O"},
                "u": {"type": ["string", "null"]},
                "an": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
                "e": {"enum": [1, 2]},
                "d": {"type": "object", "additionalProperties": {"type": "string"}},
                "r": {"$ref": "#/$defs/R", "description": "not this"}
            },
            "required": ["a"],
            "$defs": {"R": {"type": "object", "properties": {"z": {"type": "number"}}, "description": "R"}}
        });
        let nullable = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
        let expected = json!({
            "type": "object",
            "properties": {
                "a": {"type": "string", "description": "A"},
                "n": {"type": "integer", "default": 3},
                "l": {"type": "array", "items": {"type": "string"}},
                "o": {"type": "object", "properties": {"p": {"type": "boolean"}}, "required": ["p"], "description": "O"},
                "u": nullable,
                "an": nullable,
                "e": {},
                "d": {"type": "object", "additionalProperties": true},
                "r": {"type": "object", "properties": {"z": {"type": "number"}}, "description": "R"}
            },
            "required": ["a"]
        });
        assert_eq!(published("t", &input), Ok(Some(expected)));
        assert_eq!(published("t", &json!({"type": "object"})), Ok(None));
    }

    #[test]
    fn some_schemas_cost_it_the_whole_server() {
        let with = |property: Value| {
            published(
                "t",
                &json!({"properties": {"a": property}, "$defs": {"N": {
                    "type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}
                }}}),
            )
        };
        assert_eq!(with(json!({"$ref": "#/definitions/X"})), Err(Unpublishable::Reference("#/definitions/X".into())));
        assert_eq!(with(json!({"$ref": "#/$defs/N"})), Err(Unpublishable::Endless));
        assert_eq!(with(json!(true)), Err(Unpublishable::NotAnObject));
        let inside = json!({"type": "object", "properties": {"b": {"$ref": "#/properties/a"}}});
        assert_eq!(with(inside).unwrap().unwrap()["properties"]["a"]["properties"]["b"], json!({}));
    }
}

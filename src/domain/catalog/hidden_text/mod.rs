//! Removes characters from definitions that a model reads but people do not see.
//!
//! Zero-width characters, bidirectional controls, tag characters and the like can carry instructions to a model that no
//! human reviewer would find. They are removed from everything that a model reads, and reported with their code points.
//! `characters` defines them.
//!
//! Names and values of parameters are cleaned too. A call restores their original spelling ([`Identifiers`]), because the server
//! accepts no other. In regular expressions, escapes replace hidden characters, so that the expressions stay valid and mean the
//! same. The tool's raw name is never changed.

mod characters;
mod place;
mod identifiers;

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Serialize;
use serde_json::{Map, Value};

use self::characters::escaped;
pub use self::characters::{is_control, is_unseen, strip, visible};
pub use self::identifiers::Identifiers;
use self::place::Place;
use crate::domain::text::json::pointer;

/// Maximum number of places reported per definition.
const MOST_PLACES: usize = 20;
/// Maximum number of distinct code points reported per place.
const MOST_CODE_POINTS: usize = 16;
/// Members of a definition that contain schemas.
const SCHEMAS: [&str; 2] = ["inputSchema", "outputSchema"];
/// Lists in schemas whose items are all different.
const SETS: [&str; 2] = ["enum", "required"];

/// The hidden characters at one place of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HiddenText {
    /// JSON Pointer (RFC 6901) into the definition, without hidden characters.
    pub pointer: String,
    /// Code points such as `U+200B`, without duplicates and limited in number.
    pub code_points: Vec<String>,
    /// The number of hidden characters.
    pub characters: usize,
}

/// A definition without hidden characters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cleaned {
    /// The cleaned definition; `None` if nothing was hidden.
    pub value: Option<Value>,
    /// The removed characters by place, up to a maximum number of places.
    pub found: Vec<HiddenText>,
    pub identifiers: Identifiers,
}

/// Removes hidden characters everywhere except in the tool's name.
pub fn clean(definition: &Value) -> Cleaned {
    let mut cleaning = Cleaning::default();
    let value = cleaning.tool(definition);
    let schema = value.as_ref().and_then(|_| definition.get("inputSchema"));
    Cleaned { value, found: cleaning.found, identifiers: schema.map(Identifiers::of).unwrap_or_default() }
}

/// Removes hidden characters from one text and reports them.
pub fn clean_text<'a>(pointer: &str, text: &'a str) -> (Cow<'a, str>, Option<HiddenText>) {
    match strip(text) {
        None => (text.into(), None),
        Some((stripped, gone)) => (stripped.into(), Some(report(pointer, &gone))),
    }
}

#[derive(Default)]
struct Cleaning {
    found: Vec<HiddenText>,
}

impl Cleaning {
    fn tool(&mut self, definition: &Value) -> Option<Value> {
        let Value::Object(members) = definition else { return None };
        let mut pointer = String::new();
        let new = members.iter().map(|(name, value)| {
            let place = if SCHEMAS.contains(&name.as_str()) { Place::Schema } else { Place::Other };
            let clean = |pointer: &mut String| self.value(value, pointer, place);
            (None, if name == "name" { None } else { within(&mut pointer, name, clean) })
        });
        let new = new.collect();
        changed(members, new).map(Value::Object)
    }

    /// Returns the cleaned value; `None` if nothing changes.
    fn value(&mut self, value: &Value, pointer: &mut String, place: Place) -> Option<Value> {
        match value {
            Value::String(text) => self.text(text, pointer, place == Place::Pattern).map(Value::String),
            Value::Array(items) => {
                let cleaned: Vec<Option<Value>> = items
                    .iter()
                    .enumerate()
                    .map(|(number, item)| within(pointer, &number.to_string(), |pointer| self.value(item, pointer, place)))
                    .collect();
                let changed = cleaned.iter().any(Option::is_some);
                changed.then(|| items.iter().zip(cleaned).map(|(item, new)| new.unwrap_or_else(|| item.clone())).collect())
            }
            Value::Object(members) => self.object(members, pointer, place).map(Value::Object),
            _ => None,
        }
    }

    fn object(&mut self, members: &Map<String, Value>, pointer: &mut String, place: Place) -> Option<Map<String, Value>> {
        let new = members.iter().map(|(name, value)| {
            let new_name = self.text(name, pointer, place == Place::Patterns);
            let shown = new_name.as_deref().unwrap_or(name);
            let mut new = within(pointer, shown, |pointer| self.value(value, pointer, place.below(name)));
            if let Some(Value::Array(items)) = &mut new
                && place.has_keywords()
                && SETS.contains(&name.as_str())
            {
                let mut seen = HashSet::new();
                items.retain(|item| seen.insert(item.to_string()));
            }
            (new_name, new)
        });
        let new = new.collect();
        changed(members, new)
    }

    fn text(&mut self, text: &str, pointer: &str, is_pattern: bool) -> Option<String> {
        let (stripped, gone) = strip(text)?;
        if self.found.len() < MOST_PLACES {
            self.found.push(report(pointer, &gone));
        }
        Some(if is_pattern { escaped(text) } else { stripped })
    }
}

/// The members with new names and values; `None` if there are none. Nearly always, nothing is hidden, and nothing is copied.
fn changed(members: &Map<String, Value>, new: Vec<(Option<String>, Option<Value>)>) -> Option<Map<String, Value>> {
    let changed = new.iter().any(|(name, value)| name.is_some() || value.is_some());
    let pairs = members.iter().zip(new);
    let pairs = pairs.map(|((name, value), new)| (new.0.unwrap_or_else(|| name.clone()), new.1.unwrap_or_else(|| value.clone())));
    changed.then(|| pairs.collect())
}

fn report(pointer: &str, gone: &[char]) -> HiddenText {
    let mut code_points: Vec<String> = Vec::new();
    for character in gone {
        let name = format!("U+{:04X}", u32::from(*character));
        if code_points.len() < MOST_CODE_POINTS && !code_points.contains(&name) {
            code_points.push(name);
        }
    }
    HiddenText { pointer: pointer.to_owned(), code_points, characters: gone.len() }
}

/// Runs `work` with `name` appended to the pointer.
fn within<T>(pointer: &mut String, name: &str, work: impl FnOnce(&mut String) -> T) -> T {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(&pointer::escaped(name));
    let done = work(pointer);
    pointer.truncate(length);
    done
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Cleaned, clean};

    #[test]
    fn a_plain_definition_stays_as_it_is() {
        let definition = json!({"name": "a\u{200b}b", "description": "Straße, 日本, می\u{200c}خواهم", "inputSchema": {"type": "object"}});
        assert_eq!(clean(&definition), Cleaned::default());
    }

    #[test]
    fn prose_goes_without_and_names_are_remembered() {
        let definition = json!({
            "name": "x",
            "description": "Reads a file.\u{e0049}\u{e0067}\u{200b}",
            "inputSchema": {"type": "object", "required": ["pa\u{200b}th"], "properties": {
                "pa\u{200b}th": {"type": "string", "description": "Where\u{202e}", "enum": ["a", "b\u{2060}"]},
                "description": {"type": "string", "title": "T\u{feff}"}
            }}
        });
        let Cleaned { value, found, identifiers } = clean(&definition);
        let expected = json!({
            "name": "x",
            "description": "Reads a file.",
            "inputSchema": {"type": "object", "required": ["path"], "properties": {
                "path": {"type": "string", "description": "Where", "enum": ["a", "b"]},
                "description": {"type": "string", "title": "T"}
            }}
        });
        assert_eq!(value, Some(expected));
        let pointers: Vec<&str> = found.iter().map(|hidden| hidden.pointer.as_str()).collect();
        let properties = "/inputSchema/properties";
        assert_eq!(
            pointers,
            [
                "/description",
                "/inputSchema/required/0",
                properties,
                "/inputSchema/properties/path/description",
                "/inputSchema/properties/path/enum/1",
                "/inputSchema/properties/description/title"
            ]
        );
        assert_eq!((found[0].code_points.join(" ").as_str(), found[0].characters), ("U+E0049 U+E0067 U+200B", 3));
        let restored = identifiers.restore(r#"{"path": "b", "other": ["a", 1e999, "path", {"b": "path"}], "description": "T"}"#);
        let expected = "{\"pa\u{200b}th\": \"b\u{2060}\", \"other\": [\"a\", 1e999, \"path\", {\"b\": \"path\"}], \"description\": \"T\"}";
        assert_eq!(restored, expected, "a value isn't a name, and a name isn't a value");
    }

    /// Regression test: all strings of a schema were restored wherever their cleaned spelling stood.
    #[test]
    fn only_spellings_that_are_clear_are_restored() {
        let definition = json!({"name": "x", "inputSchema": {"type": "object", "properties": {
            "separator": {"enum": ["", "\u{feff}"], "default": "\u{200b}", "examples": ["e\u{200b}g"]},
            "channel": {"enum": ["general", "general\u{200b}", "r\u{200b}andom"]},
            "n\u{200b}m": {"type": "string"},
            "nested": {"properties": {"nm": {"const": "only\u{200b}"}, "k\u{200b}": {"const": {"i\u{200b}n": true}}}},
            "map": {"type": "object", "propertyNames": {"enum": ["a\u{200b}b"]}, "dependentRequired": {"x\u{200b}": ["y"]}},
        }}});
        let Cleaned { value, identifiers, .. } = clean(&definition);
        let properties = &value.unwrap()["inputSchema"]["properties"];
        assert_eq!(properties["channel"]["enum"], json!(["general", "random"]), "every value is there once");
        assert_eq!(properties["separator"], json!({"enum": [""], "default": "", "examples": ["eg"]}));
        let same = r#"{"separator": "", "": "eg", "channel": "general", "nm": "n", "text": "ab", "random": "k"}"#;
        assert_eq!(identifiers.restore(same), same);
        let sent = r#"{"channel": "random", "nested": {"nm": "only", "k" : {"in": true}}, "map": {"ab": 1, "x": 2}}"#;
        let restored = "{\"channel\": \"r\u{200b}andom\", \"nested\": {\"nm\": \"only\u{200b}\", \"k\u{200b}\" : {\"i\u{200b}n\": true}}, \
                        \"map\": {\"a\u{200b}b\": 1, \"x\u{200b}\": 2}}";
        assert_eq!(identifiers.restore(sent), restored);
    }

    #[test]
    fn a_pattern_with_hidden_characters_means_the_same_with_escapes() {
        let definition = json!({"name": "x", "inputSchema": {"type": "object", "properties": {
            "pattern": {"type": "string", "pattern": "^[^\u{200b}\\\u{e0041}]+\\d$"},
        }, "patternProperties": {"^\u{2060}": {"description": "D\u{200b}"}}}});
        let Cleaned { value, found, identifiers } = clean(&definition);
        let schema = &value.unwrap()["inputSchema"];
        assert_eq!(schema["properties"]["pattern"]["pattern"], r"^[^\u200b\u{e0041}]+\d$");
        assert_eq!(schema["patternProperties"], json!({r"^\u2060": {"description": "D"}}));
        assert!(found.len() == 3 && identifiers.is_empty(), "{found:?}");
    }
}

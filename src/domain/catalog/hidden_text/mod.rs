//! Removes characters from definitions that a model reads but people do not see.
//!
//! Zero-width characters, bidirectional controls, tag characters and the like can carry instructions to a model that no
//! human reviewer would find. They are removed from everything that a model reads, and reported with their code points.
//! `characters` defines them.
//!
//! Names and values of parameters are cleaned too. A call restores their original spelling ([`Identifiers`]), because the server
//! accepts no other. The tool's raw name is never changed.

mod characters;
mod identifiers;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

pub use self::characters::{is_control, is_unseen, strip, visible};
pub use self::identifiers::Identifiers;

/// Maximum number of places reported per definition.
const MOST_PLACES: usize = 20;
/// Maximum number of distinct code points reported per place.
const MOST_CODE_POINTS: usize = 16;
/// Members of an input schema that contain prose. Any other string is a name or a value.
const PROSE: [&str; 3] = ["title", "description", "$comment"];

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
    Cleaned { value, found: cleaning.found, identifiers: Identifiers::new(cleaning.identifiers) }
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
    /// Original spelling by cleaned spelling.
    identifiers: BTreeMap<String, String>,
}

impl Cleaning {
    fn tool(&mut self, definition: &Value) -> Option<Value> {
        let Value::Object(members) = definition else { return None };
        let mut pointer = String::new();
        let new = members.iter().map(|(name, value)| {
            let clean = |pointer: &mut String| self.value(value, pointer, name == "inputSchema");
            (None, if name == "name" { None } else { within(&mut pointer, name, clean) })
        });
        let new = new.collect();
        changed(members, new).map(Value::Object)
    }

    /// Returns the cleaned value; `None` if nothing changes. `is_identifier`: strings are names or values, unless they are prose.
    fn value(&mut self, value: &Value, pointer: &mut String, is_identifier: bool) -> Option<Value> {
        match value {
            Value::String(text) => self.text(text, pointer, is_identifier).map(Value::String),
            Value::Array(items) => {
                let cleaned: Vec<Option<Value>> = items
                    .iter()
                    .enumerate()
                    .map(|(place, item)| within(pointer, &place.to_string(), |pointer| self.value(item, pointer, is_identifier)))
                    .collect();
                let changed = cleaned.iter().any(Option::is_some);
                changed.then(|| items.iter().zip(cleaned).map(|(item, new)| new.unwrap_or_else(|| item.clone())).collect())
            }
            Value::Object(members) => self.object(members, pointer, is_identifier).map(Value::Object),
            _ => None,
        }
    }

    fn object(&mut self, members: &Map<String, Value>, pointer: &mut String, is_identifier: bool) -> Option<Map<String, Value>> {
        let new = members.iter().map(|(name, value)| {
            let new_name = self.text(name, pointer, is_identifier);
            // A property may be named `description`; its value is then an object, not prose.
            let is_identifier = is_identifier && !(value.is_string() && PROSE.contains(&name.as_str()));
            let shown = new_name.as_deref().unwrap_or(name);
            let new = within(pointer, shown, |pointer| self.value(value, pointer, is_identifier));
            (new_name, new)
        });
        let new = new.collect();
        changed(members, new)
    }

    fn text(&mut self, text: &str, pointer: &str, is_identifier: bool) -> Option<String> {
        let (stripped, gone) = strip(text)?;
        if self.found.len() < MOST_PLACES {
            self.found.push(report(pointer, &gone));
        }
        if is_identifier {
            self.identifiers.entry(stripped.clone()).or_insert_with(|| text.to_owned());
        }
        Some(stripped)
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
    pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
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
        let restored = identifiers.restore(r#"{"path": "b", "other": ["a", 1e999, "path"]}"#);
        assert_eq!(restored, "{\"pa\u{200b}th\": \"b\u{2060}\", \"other\": [\"a\", 1e999, \"pa\u{200b}th\"]}");
    }
}

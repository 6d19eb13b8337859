//! Maps names and values shown without hidden characters to their original spelling.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::characters::strip;
use super::place::Place;
use crate::domain::text::json::{self, replace_texts};

/// Original spelling by cleaned spelling, of names and of values. A spelling that also occurs without hidden characters has no original,
/// nor does the empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identifiers {
    names: BTreeMap<String, String>,
    values: BTreeMap<String, String>,
}

impl Identifiers {
    /// The names of properties, and the allowed values, of an input schema as the server sent it.
    pub(super) fn of(schema: &Value) -> Self {
        let (mut names, mut values) = (Spellings::default(), Spellings::default());
        collect(schema, Place::Schema, &mut names, &mut values);
        Self { names: names.originals(), values: values.originals() }
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.values.is_empty()
    }

    /// Restores the original spelling of names and values in arguments. Everything else is copied byte for byte.
    pub fn restore(&self, arguments: &str) -> String {
        replace_texts(arguments, |text, is_name| {
            let originals = if is_name { &self.names } else { &self.values };
            originals.get(text).map(|original| json::quoted(original))
        })
    }
}

#[derive(Default)]
struct Spellings<'a> {
    plain: BTreeSet<&'a str>,
    /// The first original of each cleaned spelling.
    originals: BTreeMap<String, &'a str>,
}

impl<'a> Spellings<'a> {
    fn add(&mut self, text: &'a str) {
        match strip(text) {
            None => {
                self.plain.insert(text);
            }
            Some((cleaned, _)) => {
                self.originals.entry(cleaned).or_insert(text);
            }
        }
    }

    fn originals(self) -> BTreeMap<String, String> {
        let Self { plain, originals } = self;
        let is_clear = |cleaned: &str| !cleaned.is_empty() && !plain.contains(cleaned);
        originals.into_iter().filter(|(cleaned, _)| is_clear(cleaned)).map(|(cleaned, original)| (cleaned, original.to_owned())).collect()
    }
}

fn collect<'a>(value: &'a Value, place: Place, names: &mut Spellings<'a>, values: &mut Spellings<'a>) {
    match value {
        Value::String(text) => match place {
            Place::Name => names.add(text),
            Place::Value => values.add(text),
            _ => {}
        },
        Value::Array(items) => items.iter().for_each(|item| collect(item, place, names, values)),
        Value::Object(members) => {
            for (name, value) in members {
                if place.has_names_of_properties() {
                    names.add(name);
                }
                collect(value, place.below(name), names, values);
            }
        }
        _ => {}
    }
}

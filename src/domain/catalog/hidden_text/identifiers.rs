//! Maps names and values shown without hidden characters to their original spelling.

use std::collections::BTreeMap;

use crate::domain::text::json::{self, replace_texts};

/// Original spelling by cleaned spelling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identifiers(BTreeMap<String, String>);

impl Identifiers {
    pub(super) fn new(originals: BTreeMap<String, String>) -> Self {
        Self(originals)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Restores the original spelling of names and values in arguments. Everything else is copied byte for byte.
    pub fn restore(&self, arguments: &str) -> String {
        replace_texts(arguments, |text| self.0.get(text).map(|original| json::quoted(original)))
    }
}

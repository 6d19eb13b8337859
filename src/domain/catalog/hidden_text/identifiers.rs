//! Names and values that are shown without their hidden characters, and what the server calls them.

use std::collections::BTreeMap;

use crate::domain::text::json::{self, replace_texts};

/// By what they are shown as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identifiers(BTreeMap<String, String>);

impl Identifiers {
    pub(super) fn new(originals: BTreeMap<String, String>) -> Self {
        Self(originals)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Arguments as the server knows their names and values: each text in them that is one of those shown gets its hidden
    /// characters back. Everything else stays as it was written.
    #[must_use]
    pub fn restore(&self, arguments: &str) -> String {
        replace_texts(arguments, |text| self.0.get(text).map(|original| json::quoted(original)))
    }
}

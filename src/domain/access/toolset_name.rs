//! The name of a toolset.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::domain::text::named::name_text;

/// Maximum length of a toolset's name, in bytes.
const MAX_NAME: usize = 64;

/// The name of a toolset, which is also a URL segment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolsetName(Arc<str>);

name_text!(ToolsetName);

impl ToolsetName {
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Validates the name of a toolset.
    ///
    /// # Errors
    /// The reason why it is invalid.
    pub fn check(name: &str) -> Result<(), &'static str> {
        let is_fine = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_fine) {
            return Err("the name of a toolset is 1 to 64 letters, digits, - and _");
        }
        Ok(())
    }
}

impl From<&str> for ToolsetName {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

//! Where keys, toolsets and metadata of tools are managed: in the configuration files, or over the API.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::domain::text::canonical::fingerprint;
use crate::domain::text::named::named;

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ManagedBy {
        /// A configuration file. The API can't change the entry.
        File = "file",
        Api = "api",
    }
}

/// The version of an entry that doesn't exist.
pub const NO_ENTRY: &str = "none";

/// The version of an entry without a number of its own: a hash of its contents, or [`NO_ENTRY`] if there is none.
pub fn version_of(entry: Option<&Value>) -> String {
    entry.map_or_else(|| NO_ENTRY.to_owned(), |entry| fingerprint(entry).to_string())
}

/// The reason why the API can't change an entry: a file defines it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{entry} is managed in {file}: change it there")]
pub struct ManagedInFile {
    /// The entry, such as "the key `ci`".
    pub entry: String,
    pub file: Arc<str>,
}

impl ManagedInFile {
    pub fn new(entry: impl fmt::Display, file: &Arc<str>) -> Self {
        Self { entry: entry.to_string(), file: Arc::clone(file) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{NO_ENTRY, version_of};

    #[test]
    fn a_version_depends_on_the_contents_alone() {
        let of = |value| version_of(Some(&value));
        assert_eq!(of(json!({"a": 1, "b": [2]})), of(json!({"b": [2], "a": 1})));
        assert_ne!(of(json!({"a": 1})), of(json!({"a": 2})));
        assert_ne!(of(json!({})), version_of(None));
        assert_eq!(version_of(None), NO_ENTRY);
    }
}

//! Where keys, toolsets and metadata of tools are managed: in the configuration files, or over the API.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

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

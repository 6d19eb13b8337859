//! The definitions of tools as first seen or last approved.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::text::canonical::Fingerprint;

#[async_trait]
pub trait DefinitionStore: Send + Sync {
    /// The data about the definitions of all tools ever seen, without their texts.
    async fn definitions(&self) -> Result<Vec<StoredDefinition>, StoreError>;

    /// The reference definition of a tool (first seen or last approved), as JSON.
    async fn definition(&self, tool: &ToolId) -> Result<Option<String>, StoreError>;

    /// Adds the definitions of new tools, each with its JSON. Existing definitions stay.
    async fn add_definitions(&self, new: &[(StoredDefinition, String)]) -> Result<(), StoreError>;

    /// Records differing definitions of a server's tools as noticed, with the time. Skips unknown tools.
    async fn note_definitions(&self, server: &ServerName, others: &[(Arc<str>, Fingerprint)], at: SystemTime) -> Result<(), StoreError>;

    /// Makes a definition the reference for later ones, and the tool no longer new. Durable.
    async fn approve_definition(&self, tool: &ToolId, definition: &Fingerprint, json: &str, at: SystemTime) -> Result<(), StoreError>;

    /// Records that a server lists these tools. Skips tools recorded within the last day.
    async fn note_definitions_seen(&self, server: &ServerName, tools: &[Arc<str>], at: SystemTime) -> Result<(), StoreError>;

    /// Deletes the definitions of tools last listed before `time`. Returns these tools. Approved definitions and the marks of
    /// listed servers stay.
    async fn forget_definitions_before(&self, time: SystemTime) -> Result<Vec<ToolId>, StoreError>;
}

/// Data about the reference definition of a tool, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDefinition {
    pub tool: ToolId,
    /// The fingerprint of the reference definition (first seen or last approved).
    pub fingerprint: Fingerprint,
    /// Whether a known server added the tool and nobody has approved it yet.
    pub is_new: bool,
    pub first_seen: SystemTime,
    /// The last differing definition that was logged, with the time.
    pub noticed: Option<(Fingerprint, SystemTime)>,
    pub approved: Option<SystemTime>,
}

impl StoredDefinition {
    /// The data for a tool that is seen for the first time.
    pub fn first(tool: ToolId, fingerprint: Fingerprint, is_new: bool, at: SystemTime) -> Self {
        Self { tool, fingerprint, is_new, first_seen: at, noticed: None, approved: None }
    }
}

//! The definitions of tools as they were first seen or last approved.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::text::canonical::Fingerprint;

#[async_trait]
pub trait DefinitionStore: Send + Sync {
    /// What is known about the definition of every tool ever seen.
    async fn definitions(&self) -> Result<Vec<StoredDefinition>, StoreError>;

    /// The first seen or last approved definition of a tool, as JSON.
    async fn definition(&self, tool: &ToolId) -> Result<Option<String>, StoreError>;

    /// Adds the definitions of tools never seen before, each with its JSON. An existing one stays.
    async fn add_definitions(&self, new: &[(StoredDefinition, String)]) -> Result<(), StoreError>;

    /// Notes which other definition of a tool was seen and logged, and when.
    async fn note_definition(&self, tool: &ToolId, other: &Fingerprint, at: SystemTime) -> Result<(), StoreError>;

    /// Makes this the definition that later ones are compared with; the tool is no longer new. Durable.
    async fn approve_definition(&self, tool: &ToolId, definition: &Fingerprint, json: &str, at: SystemTime) -> Result<(), StoreError>;

    /// Notes which tools a server lists now. Skips those noted within the last day.
    async fn note_definitions_seen(&self, server: &ServerName, tools: &[Arc<str>], at: SystemTime) -> Result<(), StoreError>;

    /// Removes the definitions of tools last listed before `time`; returns which. Approved ones stay, and so do the marks of listed
    /// servers.
    async fn forget_definitions_before(&self, time: SystemTime) -> Result<Vec<ToolId>, StoreError>;
}

/// What is known about the definition of a tool, apart from its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDefinition {
    pub tool: ToolId,
    /// Of the first seen or last approved definition. Later ones are compared with it.
    pub fingerprint: Fingerprint,
    /// The server was known before the tool, and nobody has approved the tool yet.
    pub is_new: bool,
    pub first_seen: SystemTime,
    /// Another definition that was seen and logged, and when.
    pub noticed: Option<(Fingerprint, SystemTime)>,
    pub approved: Option<SystemTime>,
}

impl StoredDefinition {
    /// A definition that is seen for the first time.
    pub fn first(tool: ToolId, fingerprint: Fingerprint, is_new: bool, at: SystemTime) -> Self {
        Self { tool, fingerprint, is_new, first_seen: at, noticed: None, approved: None }
    }
}

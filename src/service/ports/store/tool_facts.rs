//! What admins write about tools.

use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::tool_facts::WrittenFacts;
use crate::domain::catalog::tool::ToolId;

#[async_trait]
pub trait ToolFactStore: Send + Sync {
    /// What admins wrote about tools, also what they took back.
    async fn tool_facts(&self) -> Result<Vec<StoredToolFacts>, StoreError>;

    /// Replaces what is written about a tool if `expected` is its current version (0: there is none); `None` takes it back. Returns the
    /// next version, or `None` if the current one is another. Durable.
    async fn save_tool_facts(&self, tool: &ToolId, expected: u64, facts: Option<&WrittenFacts>) -> Result<Option<u64>, StoreError>;

    /// Removes the versions of what was taken back before `time`; returns about which tools.
    async fn forget_tool_facts_before(&self, time: SystemTime) -> Result<Vec<ToolId>, StoreError>;
}

/// What an admin wrote about a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToolFacts {
    pub tool: ToolId,
    /// From 1; it grows with every change.
    pub version: u64,
    /// `None`: it was taken back.
    pub facts: Option<WrittenFacts>,
}

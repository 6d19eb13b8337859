//! Overrides of tools by admins.

use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::tool_facts::ToolOverride;
use crate::domain::catalog::tool::ToolId;

#[async_trait]
pub trait ToolOverrideStore: Send + Sync {
    /// All overrides, including deleted ones.
    async fn tool_overrides(&self) -> Result<Vec<StoredToolOverride>, StoreError>;

    /// Replaces the override of a tool, or deletes it if `written` is `None`, if `expected` is its current version (0 if there is
    /// none). Returns the new version; `None` if another change was faster. Durable.
    async fn save_tool_override(&self, tool: &ToolId, expected: u64, written: Option<&ToolOverride>) -> Result<Option<u64>, StoreError>;

    /// Removes the versions of overrides that were deleted before `time`. Returns their tools.
    async fn forget_tool_overrides_before(&self, time: SystemTime) -> Result<Vec<ToolId>, StoreError>;
}

/// An admin's override of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToolOverride {
    pub tool: ToolId,
    /// The version, starting at 1. It increases with every change.
    pub version: u64,
    /// The override; `None` if it was deleted.
    pub written: Option<ToolOverride>,
}

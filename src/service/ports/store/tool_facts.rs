//! Tool overrides of admins.

use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::tool_facts::ToolOverride;
use crate::domain::catalog::tool::ToolId;

#[async_trait]
pub trait ToolOverrideStore: Send + Sync {
    /// All overrides, including withdrawn ones.
    async fn tool_overrides(&self) -> Result<Vec<StoredToolOverride>, StoreError>;

    /// Replaces the override of a tool if `expected` is its current version (0: there is none); `None` withdraws it. Returns the
    /// next version, or `None` if the current one is another. Durable.
    async fn save_tool_override(&self, tool: &ToolId, expected: u64, written: Option<&ToolOverride>) -> Result<Option<u64>, StoreError>;

    /// Removes the versions of overrides withdrawn before `time`; returns of which tools.
    async fn forget_tool_overrides_before(&self, time: SystemTime) -> Result<Vec<ToolId>, StoreError>;
}

/// An admin's override of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToolOverride {
    pub tool: ToolId,
    /// From 1; grows with every change.
    pub version: u64,
    /// `None`: withdrawn.
    pub written: Option<ToolOverride>,
}

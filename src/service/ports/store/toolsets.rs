//! The toolsets created over the API.

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::toolset::{Toolset, ToolsetDefinition, ToolsetName};

#[async_trait]
pub trait ToolsetStore: Send + Sync {
    /// All toolsets, sorted by name.
    async fn toolsets(&self) -> Result<Vec<Toolset>, StoreError>;

    /// Adds a toolset, or replaces the toolset with the same name. Durable.
    async fn save_toolset(&self, name: &ToolsetName, definition: &ToolsetDefinition) -> Result<(), StoreError>;

    /// Deletes a toolset. Returns whether there was one. Durable.
    async fn remove_toolset(&self, name: &ToolsetName) -> Result<bool, StoreError>;
}

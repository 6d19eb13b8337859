//! The toolsets created over the API.

use async_trait::async_trait;

use super::{Overwrites, StoreError};
use crate::domain::access::toolset::{Toolset, ToolsetDefinition};
use crate::domain::access::toolset_name::ToolsetName;

#[async_trait]
pub trait ToolsetStore: Send + Sync {
    /// All toolsets, sorted by name.
    async fn toolsets(&self) -> Result<Vec<Toolset>, StoreError>;

    /// Adds a toolset, or replaces the toolset with the same name. Returns `false` if it would overwrite something else. Durable.
    async fn save_toolset(
        &self,
        name: &ToolsetName,
        definition: &ToolsetDefinition,
        overwrites: Overwrites<'_, ToolsetDefinition>,
    ) -> Result<bool, StoreError>;

    /// Deletes a toolset. Returns `false` if there was none, or something else. Durable.
    async fn remove_toolset(&self, name: &ToolsetName, overwrites: Overwrites<'_, ToolsetDefinition>) -> Result<bool, StoreError>;
}

//! The store as a whole.

use async_trait::async_trait;
use uuid::Uuid;

use super::StoreError;

#[async_trait]
pub trait UpkeepStore: Send + Sync {
    /// The installation that the store belongs to; `None`: none was set yet.
    async fn installation(&self) -> Result<Option<Uuid>, StoreError>;

    /// Durable.
    async fn set_installation(&self, id: Uuid) -> Result<(), StoreError>;

    /// Whether it answers, for `/readyz`.
    async fn check(&self) -> Result<(), StoreError>;

    /// Returns unused space to the file system, as far as that is quick.
    async fn shrink(&self) -> Result<(), StoreError>;
}

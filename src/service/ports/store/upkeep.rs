//! Operations on the store as a whole.

use std::time::SystemTime;

use async_trait::async_trait;
use uuid::Uuid;

use super::StoreError;

#[async_trait]
pub trait UpkeepStore: Send + Sync {
    /// The id of the installation to which the store belongs; `None` if it is not set yet.
    async fn installation(&self) -> Result<Option<Uuid>, StoreError>;

    /// Sets the id of the installation, unless it is set already. Returns the stored id. Durable.
    async fn claim_installation(&self, id: Uuid) -> Result<Uuid, StoreError>;

    /// Checks that the store responds, for `/readyz`.
    async fn check(&self) -> Result<(), StoreError>;

    /// Checks that the store takes writes again, if the last one has failed: writes something without changing it.
    async fn check_writes(&self) -> Result<(), StoreError>;

    /// Forgets the ids of batches that were stored before `time`. Returns their number.
    async fn forget_batches_before(&self, time: SystemTime) -> Result<u64, StoreError>;

    /// Returns unused space to the file system, as far as this is quick.
    async fn shrink(&self) -> Result<(), StoreError>;

    /// The operations that failed since the start.
    fn failures(&self) -> StoreFailures;
}

/// Number of operations of the store that failed since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFailures {
    pub reads: u64,
    pub writes: u64,
}

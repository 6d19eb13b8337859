//! The policy of the administrators.

use async_trait::async_trait;

use super::StoreError;

#[async_trait]
pub trait PolicyStore: Send + Sync {
    /// The current version.
    async fn policy(&self) -> Result<Option<StoredPolicy>, StoreError>;

    /// Replaces the policy if `expected` is its current version (0: there is none). Returns the next version, or `None` if the current
    /// one is another. Durable.
    async fn save_policy(&self, expected: u64, body: &str) -> Result<Option<u64>, StoreError>;
}

/// A policy as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// From 1.
    pub version: u64,
    /// JSON.
    pub body: String,
}

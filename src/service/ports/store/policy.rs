//! The policy set over the API.

use async_trait::async_trait;

use super::StoreError;

#[async_trait]
pub trait PolicyStore: Send + Sync {
    /// The current policy; `None` if none was ever set.
    async fn policy(&self) -> Result<Option<StoredPolicy>, StoreError>;

    /// Replaces the policy if `expected` is its current version (0 if there is none). Returns the new version; `None` if another
    /// change was faster. Durable.
    async fn save_policy(&self, expected: u64, body: &str) -> Result<Option<u64>, StoreError>;
}

/// A policy, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// The version, starting at 1.
    pub version: u64,
    /// The policy as JSON text.
    pub body: String,
}

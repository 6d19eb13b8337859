//! Sealed secrets of users.

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::principal::PrincipalId;
use crate::domain::access::secret::{SealedSecret, SecretPlace};

#[async_trait]
pub trait SecretStore: Send + Sync {
    /// All secrets of one owner.
    async fn secrets(&self, owner: &PrincipalId) -> Result<Vec<SealedSecret>, StoreError>;

    /// All secrets sealed with other keys than this one.
    async fn secrets_of_other_keys(&self, key_id: &str) -> Result<Vec<SealedSecret>, StoreError>;

    /// Adds a secret, or replaces the one in its place. Durable.
    async fn save_secret(&self, secret: &SealedSecret) -> Result<(), StoreError>;

    /// Replaces `former` by `new` if `former` is still there unchanged; returns whether it was. Durable.
    async fn reseal_secret(&self, former: &SealedSecret, new: &SealedSecret) -> Result<bool, StoreError>;

    /// Returns whether there was one. Durable.
    async fn remove_secret(&self, place: &SecretPlace) -> Result<bool, StoreError>;

    /// Removes all secrets of one owner; returns how many. Durable.
    async fn remove_secrets(&self, owner: &PrincipalId) -> Result<u64, StoreError>;
}

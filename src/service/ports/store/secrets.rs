//! Encrypted secrets of users.

use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::principal::PrincipalId;
use crate::domain::access::secret::{SealedSecret, SecretPlace};

/// A stored secret, without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSecret {
    pub place: SecretPlace,
    pub updated_at: SystemTime,
}

#[async_trait]
pub trait SecretStore: Send + Sync {
    /// All secrets of one owner.
    async fn secrets(&self, owner: &PrincipalId) -> Result<Vec<SealedSecret>, StoreError>;

    /// The secrets of these owners, without their values, sorted by owner, server and name.
    async fn secrets_of(&self, owners: &[PrincipalId]) -> Result<Vec<StoredSecret>, StoreError>;

    /// A part of the secrets of all users and keys, sorted by owner, server and name, and their whole number.
    async fn stored_secrets(&self, offset: usize, limit: usize) -> Result<(Vec<StoredSecret>, u64), StoreError>;

    /// All secrets encrypted with keys other than this one.
    async fn secrets_of_other_keys(&self, key_id: &str) -> Result<Vec<SealedSecret>, StoreError>;

    /// Adds a secret. Replaces the former one with the same owner, server and name. Durable.
    async fn save_secret(&self, secret: &SealedSecret) -> Result<(), StoreError>;

    /// Replaces `former` with `new`, unless `former` has changed since. Returns whether it did. Durable.
    async fn reseal_secret(&self, former: &SealedSecret, new: &SealedSecret) -> Result<bool, StoreError>;

    /// Deletes a secret. Returns whether there was one. Durable.
    async fn remove_secret(&self, place: &SecretPlace) -> Result<bool, StoreError>;

    /// Deletes all secrets of an owner. Returns their number. Durable.
    async fn remove_secrets(&self, owner: &PrincipalId) -> Result<u64, StoreError>;
}

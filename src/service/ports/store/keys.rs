//! The API keys.

use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::api_key::{ApiKey, KeyId};

#[async_trait]
pub trait KeyStore: Send + Sync {
    /// All API keys, including revoked ones.
    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError>;

    /// Adds a key, or replaces the key with the same id. Returns false and stores nothing if the key is new and another unrevoked key has
    /// the same name. Durable.
    async fn save_api_key(&self, key: &ApiKey) -> Result<bool, StoreError>;

    /// Stores the revocation of a key and deletes the secrets, sessions and chats stored under its name, because the next key
    /// with this name may belong to somebody else. Durable.
    async fn revoke_api_key(&self, key: &ApiKey) -> Result<(), StoreError>;

    /// Records the time of a key's last use. Ignores unknown keys.
    async fn touch_api_key(&self, id: &KeyId, at: SystemTime) -> Result<(), StoreError>;

    /// Deletes keys that were revoked or expired before `time`, and everything stored under the names of the expired ones.
    /// Returns the keys' ids.
    async fn forget_keys_ended_before(&self, time: SystemTime) -> Result<Vec<KeyId>, StoreError>;
}

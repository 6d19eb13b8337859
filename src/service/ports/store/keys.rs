//! The API keys.

use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::api_key::{ApiKey, KeyId};

#[async_trait]
pub trait KeyStore: Send + Sync {
    /// All API keys, also revoked ones.
    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError>;

    /// Adds a key, or replaces the one with its id. Of two unrevoked keys with one name the second fails. Durable.
    async fn save_api_key(&self, key: &ApiKey) -> Result<(), StoreError>;

    /// Saves a key that is now revoked, and removes the secrets, sessions and chats stored under its name: the next key with this name
    /// belongs to somebody else. Durable.
    async fn revoke_api_key(&self, key: &ApiKey) -> Result<(), StoreError>;

    /// Notes when a key was last used. An unknown key is ignored.
    async fn touch_api_key(&self, id: &KeyId, at: SystemTime) -> Result<(), StoreError>;

    /// Removes keys that were revoked or expired before `time`; returns which. Everything stored under the name of an expired key
    /// is removed too.
    async fn forget_keys_ended_before(&self, time: SystemTime) -> Result<Vec<KeyId>, StoreError>;
}

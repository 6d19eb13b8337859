//! The chats' sets of tools.

use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::principal::PrincipalId;
use crate::domain::selection::chat::{ChatKey, ChatSet};

#[async_trait]
pub trait ChatStore: Send + Sync {
    async fn chat(&self, key: &ChatKey) -> Result<Option<StoredChat>, StoreError>;

    /// Replaces the chat's set if `expected` is its current version (0 if there is none). Returns the new version; `None` if
    /// another process was faster.
    ///
    /// [`Self::save_chats`] does the same for many chats.
    async fn save_chat(&self, key: &ChatKey, set: &ChatSet, expected: u64) -> Result<Option<u64>, StoreError>;

    /// Replaces the sets of many chats whose versions are the current ones, in one statement. Returns their new versions in the order
    /// of the chats; `None` for those where another process was faster.
    async fn save_chats(&self, chats: &[(ChatKey, StoredChat)]) -> Result<Vec<Option<u64>>, StoreError>;

    /// Deletes all sets of an owner.
    async fn remove_chats(&self, owner: &PrincipalId) -> Result<(), StoreError>;
}

/// A chat's set of tools, as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredChat {
    pub set: ChatSet,
    /// The version, starting at 1.
    pub version: u64,
    /// When the store wrote it last; `None` if it doesn't have it yet.
    pub written_at: Option<SystemTime>,
}

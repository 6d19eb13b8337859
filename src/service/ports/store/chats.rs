//! The sets of the chats.

use async_trait::async_trait;

use super::StoreError;
use crate::domain::selection::chat::{ChatKey, ChatSet};

#[async_trait]
pub trait ChatStore: Send + Sync {
    async fn chat(&self, key: &ChatKey) -> Result<Option<StoredChat>, StoreError>;

    /// Replaces the chat's set if `expected` is its current version (0: there is none). Returns the next version, or `None` if another
    /// process was faster.
    async fn save_chat(&self, key: &ChatKey, set: &ChatSet, expected: u64) -> Result<Option<u64>, StoreError>;
}

/// A chat's set as it was stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredChat {
    pub set: ChatSet,
    /// From 1.
    pub version: u64,
}

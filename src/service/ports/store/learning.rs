//! What use has taught.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::api_key::KeyId;
use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::evidence::Evidence;
use crate::domain::learning::memory::RememberedMessage;
use crate::domain::learning::scope::Scope;

/// Evidence from a caller's message.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedUse {
    pub message: RememberedMessage,
    pub principal: Arc<str>,
    /// For whom the evidence counts.
    pub scopes: Arc<[Scope]>,
    pub evidence: Evidence,
}

/// What to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// All messages of a caller.
    Caller(PrincipalId),
    /// What the messages of a deleted key taught: its own, and those of the users for whom it acted.
    Key(KeyId),
    /// All evidence on a tool.
    Tool(ToolId),
    /// What counts for a scope. Messages that count for no other scope are deleted.
    Scope(Scope),
    /// Messages without evidence since this time.
    Before(SystemTime),
    All,
}

#[async_trait]
pub trait LearningStore: Send + Sync {
    /// Stores evidence. Replaces earlier evidence on the same aspect of a tool for the same message.
    async fn save_learned(&self, model: &str, uses: &[LearnedUse]) -> Result<(), StoreError>;

    /// The evidence of messages with vectors of this model, newest message first: at most `messages` in total and `of_one` per caller.
    async fn learned(&self, model: &str, (messages, of_one): (usize, usize)) -> Result<Vec<LearnedUse>, StoreError>;

    /// Deletes what was learned. Returns the number of pieces of evidence. Durable, except for old messages.
    async fn forget_learned(&self, forgotten: &Forgotten) -> Result<u64, StoreError>;
}

//! What use has taught.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::api_key::KeyId;
use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::arguments::FilledParameters;
use crate::domain::learning::evidence::{Evidence, EvidenceKind, Minute};
use crate::domain::learning::memory::RememberedMessage;
use crate::domain::learning::scope::Scope;
use crate::domain::learning::vector::MessageVector;

/// Evidence from a caller's message.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedUse {
    pub message: RememberedMessage,
    pub principal: Arc<str>,
    /// For whom the evidence counts.
    pub scopes: Arc<[Scope]>,
    pub evidence: Evidence,
}

/// A call in a chat, as evidence for the tools that the chat calls together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalledInChat {
    /// A hash of the caller and the chat.
    pub chat: Arc<str>,
    pub principal: Arc<str>,
    /// For whom the evidence counts.
    pub scopes: Arc<[Scope]>,
    /// The tool, or a loaded group with an empty server.
    pub tool: ToolId,
    pub at: SystemTime,
}

/// What is stored for a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredScope {
    pub scope: Scope,
    /// Number of messages, of all models.
    pub messages: u64,
    /// Number of chats with calls.
    pub chats: u64,
}

/// Evidence from a caller's message that another model embedded.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlierUse {
    /// The id of the message.
    pub message: Arc<str>,
    /// The text of the message, if it was kept.
    pub text: Option<String>,
    /// The best tools without learning, with their scores in the ranking of that time. Empty if they are unknown.
    pub rivals: Arc<[(ToolId, f32)]>,
    pub principal: Arc<str>,
    /// For whom the evidence counts.
    pub scopes: Arc<[Scope]>,
    pub evidence: Evidence,
}

/// A call with success, by the parameters that it filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilledCall {
    pub tool: ToolId,
    /// The id of the caller's key, as in [`Scope::key`].
    pub key: Arc<str>,
    pub principal: Arc<str>,
    pub parameters: Arc<[String]>,
    pub at: SystemTime,
}

/// A call or a verdict whose selection its service doesn't know: another service on the same store may have selected.
#[derive(Clone, Debug, PartialEq)]
pub struct Unfollowed {
    /// The caller: the id of its key, its own id, and whether it may act for users.
    pub key: Option<KeyId>,
    pub principal: PrincipalId,
    pub vouches: bool,
    /// For whom the evidence counts.
    pub scopes: Arc<[Scope]>,
    pub followed: FollowedName,
    pub tool: ToolId,
    /// For a call with success always [`EvidenceKind::Called`].
    pub kind: EvidenceKind,
}

/// How a call or a verdict names its selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowedName {
    /// By its id.
    Selection(String),
    /// By the ids of the chat and the message.
    Message(String, String),
}

/// What to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// All messages and chats of a caller, whatever the key with which they came.
    Caller(PrincipalId),
    /// The messages and chats of the caller of this scope that came with its key, also where they count for others.
    Own(Scope),
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

impl Forgotten {
    /// Whether a scope is forgotten as a whole.
    pub(crate) fn has_scope(&self, scope: &Scope) -> bool {
        match self {
            Self::Scope(forgotten) | Self::Own(forgotten) => forgotten == scope,
            Self::Key(key) => *scope.key == *key.as_str(),
            _ => false,
        }
    }

    /// Whether what a person taught about a tool at this time is forgotten, in a scope that isn't forgotten as a whole.
    pub(crate) fn has(&self, scope: &Scope, person: &str, tool: &ToolId, at: Minute) -> bool {
        match self {
            Self::Caller(id) => person == id.as_str(),
            Self::Own(own) => own.key == scope.key && own.caller() == Some(person),
            Self::Tool(forgotten) => tool == forgotten,
            Self::Before(time) => at < Minute::of(*time),
            Self::Scope(_) | Self::Key(_) => false,
            Self::All => true,
        }
    }
}

#[async_trait]
pub trait LearningStore: Send + Sync {
    /// Stores evidence. Replaces earlier evidence on the same aspect of a tool for the same message.
    async fn save_learned(&self, model: &str, uses: &[LearnedUse]) -> Result<(), StoreError>;

    /// The evidence of messages with vectors of this model and with some evidence since a time, newest message first: at most `messages` in
    /// total and `of_one` per caller.
    async fn learned(&self, model: &str, since: SystemTime, (messages, of_one): (usize, usize)) -> Result<Vec<LearnedUse>, StoreError>;

    /// The evidence of messages with vectors of other models, newest message first, with limits as [`Self::learned`]. Without what the
    /// words of arguments taught.
    async fn learned_earlier(&self, model: &str, limits: (usize, usize)) -> Result<Vec<EarlierUse>, StoreError>;

    /// Replaces the vectors of messages by those of this model. Their best tools without learning stay, because without them, nothing shows
    /// whether learning helps.
    async fn replace_vectors(&self, model: &str, vectors: &[(Arc<str>, MessageVector)]) -> Result<(), StoreError>;

    /// Stores what chats called. A later call of the same tool in a chat changes only the time of the chat.
    async fn save_called(&self, calls: &[CalledInChat]) -> Result<(), StoreError>;

    /// What chats with a call since a time called, newest chat first and each chat in the order of its calls: at most `chats` in total and
    /// `of_one` per caller.
    async fn called(&self, since: SystemTime, limits: (usize, usize)) -> Result<Vec<CalledInChat>, StoreError>;

    /// The scopes for which something is stored, whatever the model, in the order of their names.
    async fn learned_scopes(&self) -> Result<Vec<StoredScope>, StoreError>;

    /// Whether something is stored that the caller of this scope taught with its key.
    async fn has_learned_from(&self, own: &Scope) -> Result<bool, StoreError>;

    /// Counts which parameters calls filled.
    async fn save_filled(&self, calls: &[FilledCall]) -> Result<(), StoreError>;

    /// Which parameters calls filled, over all callers: of one tool, or of all of them in the order of their ids.
    async fn filled(&self, tool: Option<&ToolId>) -> Result<Vec<FilledParameters>, StoreError>;

    /// Deletes what was learned from messages, chats and arguments. Returns the number of pieces of evidence: those of messages, the tools
    /// that chats called, and the tools whose arguments were counted. For a scope, returns the number of messages and chats that counted
    /// for it. Durable, except for old messages.
    async fn forget_learned(&self, forgotten: &Forgotten) -> Result<u64, StoreError>;

    /// Deletes again what other services have forgotten with a later change than this one, and returns it in the order of the changes.
    /// Without old messages, which each service forgets by itself.
    async fn forget_again(&self, after: u64) -> Result<Vec<Forgotten>, StoreError>;

    /// Whether other services may learn with this store too.
    fn is_shared(&self) -> bool {
        false
    }

    /// Stores for some minutes what only other services can learn from. Does nothing if there can't be any.
    async fn save_unfollowed(&self, _unfollowed: &[Unfollowed]) -> Result<(), StoreError> {
        Ok(())
    }

    /// What other services have stored last, with its numbers.
    async fn unfollowed(&self) -> Result<Vec<(i64, Unfollowed)>, StoreError> {
        Ok(Vec::new())
    }

    /// Removes what this service learns from. Returns the numbers that no other service had removed before.
    async fn take_unfollowed(&self, _numbers: &[i64]) -> Result<Vec<i64>, StoreError> {
        Ok(Vec::new())
    }
}

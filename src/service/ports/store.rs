//! What is kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use uuid::Uuid;

use crate::domain::access::api_key::{ApiKey, KeyId};
use crate::domain::access::principal::PrincipalId;
use crate::domain::access::secret::{SealedSecret, SecretPlace};
use crate::domain::access::tool_facts::WrittenFacts;
use crate::domain::access::toolset::{Definition, Toolset, ToolsetName};
use crate::domain::catalog::catalog::ServerListing;
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::records::feedback::Feedback;
use crate::domain::records::session_figures::{SessionQuery, SessionReport};
use crate::domain::records::usage::{Usage, UsageQuery};
use crate::domain::selection::chat::{ChatKey, ChatSet};
use crate::domain::selection::enrichment::{Author, Written};
use crate::domain::text::canonical::Fingerprint;
use crate::domain::toolsets::loading::Group;
use crate::domain::toolsets::session::{Session, SessionContents, SessionId};
use crate::service::ports::{AuditEntry, AuditQuery, SelectionEvent, SelectionName, StoredAuditEntry};

/// What must survive a restart. Everything else is a cache.
#[async_trait]
pub trait Store: Send + Sync {
    /// Which installation the store belongs to; `None`: it was never told.
    ///
    /// # Errors
    /// [`StoreError`], as every method here. On an error of a write nothing has changed.
    async fn installation(&self) -> Result<Option<Uuid>, StoreError>;

    async fn set_installation(&self, id: Uuid) -> Result<(), StoreError>;

    /// The last good listing of every server.
    async fn listings(&self) -> Result<Vec<ServerListing>, StoreError>;

    async fn save_listing(&self, listing: &ServerListing) -> Result<(), StoreError>;

    async fn remove_listing(&self, server: &ServerName) -> Result<(), StoreError>;

    /// The known vectors of these texts, by the hash of the text.
    async fn vectors(&self, model: &str, texts: &[Fingerprint]) -> Result<HashMap<Fingerprint, Arc<[f32]>>, StoreError>;

    async fn save_vectors(&self, model: &str, vectors: &[(Fingerprint, Arc<[f32]>)]) -> Result<(), StoreError>;

    /// Known token counts of function definitions, by the hash of the minified definition.
    async fn token_counts(&self, definitions: &[Fingerprint]) -> Result<HashMap<Fingerprint, u32>, StoreError>;

    async fn save_token_counts(&self, counts: &[(Fingerprint, u32)]) -> Result<(), StoreError>;

    /// Notes that these texts of the model and these definitions are in use, and removes every vector and every count
    /// that was not in use since then, of any model; returns how many went.
    async fn forget_unused(
        &self,
        model: &str,
        texts: &[Fingerprint],
        definitions: &[Fingerprint],
        since: SystemTime,
    ) -> Result<u64, StoreError>;

    /// What is written about the tools of these keys ([`crate::domain::selection::enrichment::key`]): by an admin, otherwise by this
    /// model.
    async fn enrichments(&self, model: Option<&str>, tools: &[Fingerprint]) -> Result<HashMap<Fingerprint, Written>, StoreError>;

    /// Replaces what the same author wrote about the tool. What an admin writes is on the disk when this returns.
    async fn save_enrichment(&self, tool: &Fingerprint, written: &Written) -> Result<(), StoreError>;

    /// Removes what this author wrote about the tool. Returns whether there was anything.
    async fn remove_enrichment(&self, tool: &Fingerprint, author: &Author) -> Result<bool, StoreError>;

    /// Notes that what an admin or this model wrote about these tools is in use, and removes everything written, by
    /// whomever, that was not in use since then; returns how many went.
    async fn forget_unused_enrichments(&self, model: Option<&str>, tools: &[Fingerprint], since: SystemTime) -> Result<u64, StoreError>;

    /// Whether it answers, for `/readyz`.
    async fn check(&self) -> Result<(), StoreError>;

    async fn chat(&self, key: &ChatKey) -> Result<Option<StoredChat>, StoreError>;

    /// Makes this the chat's set, if `expected` is the present version (0: there is none), and returns the next one; `None`
    /// where another process was quicker.
    async fn save_chat(&self, key: &ChatKey, set: &ChatSet, expected: u64) -> Result<Option<u64>, StoreError>;

    /// Writes events down, and adds them to the sums of their days.
    async fn record(&self, events: &[SelectionEvent]) -> Result<(), StoreError>;

    /// The id of a selection that this principal was answered with; of a chat the last one.
    async fn selection(&self, principal: &str, named: &SelectionName) -> Result<Option<String>, StoreError>;

    /// Keeps what was said last of this selection and this tool.
    async fn save_feedback(&self, feedback: &Feedback) -> Result<(), StoreError>;

    /// Sums over the days, of universal time, that these times touch.
    async fn usage(&self, query: &UsageQuery) -> Result<Usage, StoreError>;

    /// What happened in the sessions that were used last in this time.
    async fn session_figures(&self, query: &SessionQuery) -> Result<SessionReport, StoreError>;

    /// Removes the sums of days, and of sessions that were used last, before then; returns how many rows went.
    async fn forget_usage_before(&self, time: SystemTime) -> Result<u64, StoreError>;

    /// All API keys, those that are revoked too.
    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError>;

    /// Adds a key, or replaces the one with its id. What was acknowledged survives a power cut.
    async fn save_api_key(&self, key: &ApiKey) -> Result<(), StoreError>;

    /// Saves a key that is revoked now, and removes what was kept under its name with it: secrets, sessions and chats. The next key of
    /// this name is somebody else's. What was acknowledged survives a power cut.
    async fn revoke_api_key(&self, key: &ApiKey) -> Result<(), StoreError>;

    /// Notes when a key was used last. Changes nothing else, and nothing where there is no such key.
    async fn touch_api_key(&self, id: &KeyId, at: SystemTime) -> Result<(), StoreError>;

    /// The policy that administrators gave last.
    async fn policy(&self) -> Result<Option<StoredPolicy>, StoreError>;

    /// Makes this the policy, if `expected` is the present version (0: there is none), and returns the next one; `None`
    /// where another version holds. What was acknowledged survives a power cut.
    async fn save_policy(&self, expected: u64, body: &str) -> Result<Option<u64>, StoreError>;

    /// The toolsets that administrators gave, by name.
    async fn toolsets(&self) -> Result<Vec<Toolset>, StoreError>;

    /// Adds a toolset, or replaces the one of this name. What was acknowledged survives a power cut.
    async fn save_toolset(&self, name: &ToolsetName, definition: &Definition) -> Result<(), StoreError>;

    /// Returns whether there was one. What was acknowledged survives a power cut.
    async fn remove_toolset(&self, name: &ToolsetName) -> Result<bool, StoreError>;

    /// Also one whose time is over, as long as it is still there.
    async fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError>;

    /// Those of one owner, or all, whose time is not over, oldest first.
    async fn sessions(&self, owner: Option<&PrincipalId>, now: SystemTime) -> Result<Vec<Session>, StoreError>;

    /// Adds a session. Those whose time is over go before; of its owner's others the ones that were not used for longest, where
    /// there would be more than one owner may have.
    async fn save_session(&self, session: &Session, caps: SessionCaps) -> Result<SessionSaved, StoreError>;

    /// Puts other contents into a session; where there is no such session any more nothing happens.
    async fn save_session_contents(&self, id: &SessionId, contents: &SessionContents) -> Result<(), StoreError>;

    /// Notes that a session is used.
    async fn touch_session(&self, id: &SessionId, at: SystemTime) -> Result<(), StoreError>;

    /// What is loaded into a session, in the order in which it was. It goes with the session.
    async fn session_groups(&self, id: &SessionId) -> Result<Vec<Group>, StoreError>;

    /// Adds groups to what is loaded into a session. One that is loaded already stays in its place; where there is no such
    /// session any more nothing happens.
    async fn load_session_groups(&self, id: &SessionId, groups: &[Group]) -> Result<(), StoreError>;

    /// Returns whether it was loaded.
    async fn unload_session_group(&self, id: &SessionId, group: &Group) -> Result<bool, StoreError>;

    /// Returns whether there was one.
    async fn remove_session(&self, id: &SessionId) -> Result<bool, StoreError>;

    /// What admins wrote about tools, and what they took back.
    async fn tool_facts(&self) -> Result<Vec<StoredToolFacts>, StoreError>;

    /// Replaces what is written about a tool, if `expected` is the present version (0: nothing ever was), and returns the
    /// next one; `None` where another version holds. Without facts nothing is written about it any more. What was
    /// acknowledged survives a power cut.
    async fn save_tool_facts(&self, tool: &ToolId, expected: u64, facts: Option<&WrittenFacts>) -> Result<Option<u64>, StoreError>;

    /// What is known of the definitions of all tools that were ever seen.
    async fn definitions(&self) -> Result<Vec<StoredDefinition>, StoreError>;

    /// The definition of a tool that was seen first, or approved last, as JSON.
    async fn definition(&self, tool: &ToolId) -> Result<Option<String>, StoreError>;

    /// Keeps the definitions of tools that were never seen before, each with its JSON. One that is there stays.
    async fn add_definitions(&self, new: &[(StoredDefinition, String)]) -> Result<(), StoreError>;

    /// Notes which other definition of a tool was seen and logged, and when.
    async fn note_definition(&self, tool: &ToolId, other: &Fingerprint, at: SystemTime) -> Result<(), StoreError>;

    /// Puts a definition in the place of the one that later ones are held against; the tool is new no longer. What was
    /// acknowledged survives a power cut.
    async fn approve_definition(&self, tool: &ToolId, definition: &Fingerprint, json: &str, at: SystemTime) -> Result<(), StoreError>;

    /// When each server was listed last.
    async fn listing_times(&self) -> Result<HashMap<ServerName, SystemTime>, StoreError>;

    /// All secrets of one owner.
    async fn secrets(&self, owner: &PrincipalId) -> Result<Vec<SealedSecret>, StoreError>;

    /// All secrets that were not sealed with this key.
    async fn secrets_of_other_keys(&self, key_id: &str) -> Result<Vec<SealedSecret>, StoreError>;

    /// Adds a secret, or replaces the one in its place. What was acknowledged survives a power cut.
    async fn save_secret(&self, secret: &SealedSecret) -> Result<(), StoreError>;

    /// Puts the second in the place of the first, if that is still as it is given here; returns whether it was.
    async fn reseal_secret(&self, former: &SealedSecret, new: &SealedSecret) -> Result<bool, StoreError>;

    /// Returns whether there was one. What was acknowledged survives a power cut.
    async fn remove_secret(&self, place: &SecretPlace) -> Result<bool, StoreError>;

    /// Removes all of one owner; returns how many went. What was acknowledged survives a power cut.
    async fn remove_secrets(&self, owner: &PrincipalId) -> Result<u64, StoreError>;

    async fn save_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError>;

    /// Entries of the audit log, newest first.
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<StoredAuditEntry>, StoreError>;

    /// Removes keys that were revoked or expired before then, and what is still kept under the names of the latter; returns which.
    async fn forget_keys_ended_before(&self, time: SystemTime) -> Result<Vec<KeyId>, StoreError>;

    /// Notes which tools a server lists now. What was noted within the last day is left alone.
    async fn note_definitions_seen(&self, server: &ServerName, tools: &[Arc<str>], at: SystemTime) -> Result<(), StoreError>;

    /// Removes the definitions of tools that were not noted since then; returns which.
    async fn forget_definitions_before(&self, time: SystemTime) -> Result<Vec<ToolId>, StoreError>;

    /// Removes that something was taken back about tools before then; returns about which.
    async fn forget_tool_facts_before(&self, time: SystemTime) -> Result<Vec<ToolId>, StoreError>;

    /// Removes sessions whose time was over then; returns how many.
    async fn forget_sessions_before(&self, time: SystemTime) -> Result<u64, StoreError>;

    /// Gives room that is not needed back to the file system, as far as that is quick.
    async fn shrink(&self) -> Result<(), StoreError>;

    /// Removes the entries before then; returns how many went.
    async fn forget_audit_before(&self, time: SystemTime) -> Result<u64, StoreError>;

    /// Removes chats that nobody touched since then, and events and feedback before then; returns how many rows went.
    async fn forget_before(&self, chats: SystemTime, events: SystemTime) -> Result<u64, StoreError>;
}

/// A policy as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// From 1.
    pub version: u64,
    /// JSON.
    pub body: String,
}

/// A chat's set as it was stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredChat {
    pub set: ChatSet,
    /// From 1.
    pub version: u64,
}

/// How many sessions there may be at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionCaps {
    /// Of one owner.
    pub of_one: usize,
    pub of_all: usize,
}

/// What became of a new session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionSaved {
    Saved {
        /// Of the same owner, that made room for it.
        gone: Vec<SessionId>,
    },
    /// There are as many as there may be, and too few of its owner's to make room.
    Full,
}

/// What an admin wrote about a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToolFacts {
    pub tool: ToolId,
    /// From 1; it grows with every change.
    pub version: u64,
    /// `None`: it was taken back.
    pub facts: Option<WrittenFacts>,
}

/// What is known of the definition of a tool, apart from its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDefinition {
    pub tool: ToolId,
    /// Of the definition that was seen first, or approved last. Later ones are held against it.
    pub fingerprint: Fingerprint,
    /// Whether its server was known before it, and nobody has approved it yet.
    pub is_new: bool,
    pub first_seen: SystemTime,
    /// Another definition that was seen and logged, and when.
    pub noticed: Option<(Fingerprint, SystemTime)>,
    pub approved: Option<SystemTime>,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store could not {action}")]
    Failed {
        action: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

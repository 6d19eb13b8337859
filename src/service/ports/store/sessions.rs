//! The sessions below `/s/`, and what is loaded into them.

use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::principal::PrincipalId;
use crate::domain::toolsets::loading::Group;
use crate::domain::toolsets::session::{Session, SessionContents, SessionId};

#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Also an expired one, until it is removed.
    async fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError>;

    /// The unexpired sessions of one owner, or of all, oldest first.
    async fn sessions(&self, owner: Option<&PrincipalId>, now: SystemTime) -> Result<Vec<Session>, StoreError>;

    /// Adds a session and removes the expired ones. Above the cap of its owner, the owner's least recently used sessions go. Durable.
    async fn save_session(&self, session: &Session, caps: SessionCaps) -> Result<SessionSaved, StoreError>;

    /// Replaces the contents of a session. An unknown session is ignored. Durable.
    async fn save_session_contents(&self, id: &SessionId, contents: &SessionContents) -> Result<(), StoreError>;

    /// Notes when a session was last used.
    async fn touch_session(&self, id: &SessionId, at: SystemTime) -> Result<(), StoreError>;

    /// The groups loaded into a session, in loading order. They are removed with the session.
    async fn session_groups(&self, id: &SessionId) -> Result<Vec<Group>, StoreError>;

    /// Adds groups to a session. A group already loaded keeps its place. An unknown session is ignored. Durable.
    async fn load_session_groups(&self, id: &SessionId, groups: &[Group]) -> Result<(), StoreError>;

    /// Returns whether it was loaded. Durable.
    async fn unload_session_group(&self, id: &SessionId, group: &Group) -> Result<bool, StoreError>;

    /// Returns whether there was one. Durable.
    async fn remove_session(&self, id: &SessionId) -> Result<bool, StoreError>;

    /// Removes the sessions that have expired by `time`; returns how many.
    async fn forget_sessions_before(&self, time: SystemTime) -> Result<u64, StoreError>;
}

/// The most sessions at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionCaps {
    /// Of one owner.
    pub of_one: usize,
    pub of_all: usize,
}

/// The outcome of saving a new session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionSaved {
    Saved {
        /// Sessions of the same owner removed to make room.
        gone: Vec<SessionId>,
    },
    /// The cap of all sessions is reached, and its owner has too few to make room.
    Full,
}

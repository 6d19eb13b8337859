//! Address sessions (`/s/ID`), and the groups loaded into them.

use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::principal::PrincipalId;
use crate::domain::toolsets::loading::Group;
use crate::domain::toolsets::session::{Session, SessionContents, SessionId};

#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Returns a session, even if it has expired but is not deleted yet.
    async fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError>;

    /// All unexpired sessions, or those of one owner, in order of creation.
    async fn sessions(&self, owner: Option<&PrincipalId>, now: SystemTime) -> Result<Vec<Session>, StoreError>;

    /// Adds a session and deletes expired ones. Over the limit per owner, deletes the owner's least recently used sessions.
    /// Durable.
    async fn save_session(&self, session: &Session, caps: SessionCaps) -> Result<SessionSaved, StoreError>;

    /// Replaces the contents of a session. Ignores unknown sessions. Durable.
    async fn save_session_contents(&self, id: &SessionId, contents: &SessionContents) -> Result<(), StoreError>;

    /// Records the time of a session's last use.
    async fn touch_session(&self, id: &SessionId, at: SystemTime) -> Result<(), StoreError>;

    /// The groups loaded into a session, in loading order. They are deleted with the session.
    async fn session_groups(&self, id: &SessionId) -> Result<Vec<Group>, StoreError>;

    /// Adds groups to a session. Groups that are already loaded keep their position. Ignores unknown sessions. Durable.
    async fn load_session_groups(&self, id: &SessionId, groups: &[Group]) -> Result<(), StoreError>;

    /// Removes a group from a session. Returns whether it was loaded. Durable.
    async fn unload_session_group(&self, id: &SessionId, group: &Group) -> Result<bool, StoreError>;

    /// Deletes a session. Returns whether there was one. Durable.
    async fn remove_session(&self, id: &SessionId) -> Result<bool, StoreError>;

    /// Deletes sessions that have expired at `time`. Returns their number.
    async fn forget_sessions_before(&self, time: SystemTime) -> Result<u64, StoreError>;
}

/// Maximum numbers of sessions at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionCaps {
    /// Maximum number per owner.
    pub of_one: usize,
    pub of_all: usize,
}

/// The outcome of saving a new session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionSaved {
    Saved {
        /// Other sessions of the owner that were deleted to make room.
        gone: Vec<SessionId>,
    },
    /// The total limit is reached, and deleting sessions of this owner would not make enough room.
    Full,
}

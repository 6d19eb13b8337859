//! Persistent data: one trait per noun, and [`Store`], which combines them.
//!
//! Adapters implement the individual traits and thereby [`Store`]. A use case depends on the one trait that it needs; an
//! `Arc<dyn Store>` coerces to each of them.
//!
//! Every method fails with [`StoreError`]. A failed write changes nothing. An acknowledged write survives a killed process; a
//! *durable* one also survives a power cut.

mod audit;
mod changes;
mod chats;
mod computed;
mod connections;
mod definitions;
mod enrichments;
mod events;
mod feedback;
mod keys;
mod leading;
mod learning;
mod listings;
mod policy;
mod rates;
mod secrets;
mod servers;
mod sessions;
mod switches;
mod tool_facts;
mod toolsets;
mod upkeep;
mod usage;

use std::time::Duration;

pub use self::audit::AuditStore;
pub use self::changes::{ChangeStore, StateChange, StatePart, StateVersions};
pub use self::chats::{ChatStore, StoredChat};
pub use self::computed::ComputedStore;
pub use self::connections::{ConnectVisit, ConnectionStore, PendingSignIn, StoredConnection, VisitCaller, VisitKey};
pub use self::definitions::{DefinitionStore, StoredDefinition};
pub use self::enrichments::EnrichmentStore;
pub use self::events::EventStore;
pub use self::feedback::FeedbackStore;
pub use self::keys::KeyStore;
pub use self::leading::LeaderStore;
pub use self::learning::{
    CalledInChat, EarlierUse, FilledCall, FollowedName, Forgotten, LearnedUse, LearningStore, StoredScope, Unfollowed,
};
pub use self::listings::ListingStore;
pub use self::policy::{PolicyStore, StoredPolicy};
pub use self::rates::{RateKey, RateReport, RateStore, SharedRate, SharedRates};
pub use self::secrets::{SecretStore, StoredSecret};
pub use self::servers::{ServerStore, StoredServer};
pub use self::sessions::{SessionCaps, SessionSaved, SessionStore};
pub use self::switches::SwitchStore;
pub use self::tool_facts::{StoredToolOverride, ToolOverrideStore};
pub use self::toolsets::ToolsetStore;
pub use self::upkeep::{StoreFailures, UpkeepStore};
pub use self::usage::UsageStore;

macro_rules! store {
    ($first:ident, $($noun:ident),+ $(,)?) => {
        /// All traits combined.
        pub trait Store: $first $(+ $noun)+ {}

        impl<T: $first $(+ $noun)+> Store for T {}
    };
}

store! {
    AuditStore, ChangeStore, ChatStore, ComputedStore, ConnectionStore, DefinitionStore, EnrichmentStore, EventStore, FeedbackStore, KeyStore,
    LeaderStore, LearningStore, ListingStore, PolicyStore, RateStore, SecretStore, ServerStore, SessionStore, SwitchStore, ToolOverrideStore, ToolsetStore, UpkeepStore, UsageStore,
}

/// How much the clocks of two services may differ. Rows that have expired for less may be in use at another service.
pub const CLOCK_SKEW: Duration = Duration::from_hours(24);

/// What a change may overwrite: another service may have changed it since this one read it.
#[derive(Debug)]
pub enum Overwrites<'a, T> {
    Anything,
    /// Only this; `None` stands for nothing.
    Only(Option<&'a T>),
}

impl<T> Clone for Overwrites<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Overwrites<'_, T> {}

impl<'a, T: PartialEq> Overwrites<'a, T> {
    /// What a change overwrites that names a version: only what this service knows as that version. Without one, anything.
    pub fn expecting(version: Option<&str>, known: Option<&'a T>) -> Self {
        if version.is_some() { Self::Only(known) } else { Self::Anything }
    }

    /// Whether the change may overwrite what is stored.
    pub fn allow(&self, stored: Option<&T>) -> bool {
        match self {
            Self::Anything => true,
            Self::Only(known) => *known == stored,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store could not {action}")]
    Failed {
        action: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store is not available at the moment, so another attempt may succeed.
    #[error("the store could not {action}: it is not available at the moment")]
    Away {
        action: &'static str,
        /// Whether the store went away during the commit, so that the change may have been made.
        is_unsure: bool,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

//! Changes that several services on one store tell each other about.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tokio::sync::watch;
use uuid::Uuid;

use super::StoreError;
use crate::domain::text::named::named;

named! {
    /// A part of the stored state that every service keeps in memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum StatePart {
        Keys = "keys",
        Policy = "policy",
        Toolsets = "toolsets",
        ToolOverrides = "tools",
        Definitions = "definitions",
        Servers = "servers",
        Switches = "switches",
        /// The search texts of administrators.
        Enrichments = "enrichments",
        /// What services have forgotten of what use has taught.
        Learning = "learning",
        /// Callers' secrets, with which servers may have been called.
        Secrets = "secrets",
    }
}

/// A change of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateChange {
    pub number: u64,
    /// A random value. After a failover that lost changes, another change may have the same number.
    pub token: Uuid,
}

/// The numbers of the last changes. Every change of a part gets the next number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateVersions {
    /// The number of the last change of any part; 0 if there never was one.
    pub latest: u64,
    /// The last change of each part.
    pub parts: BTreeMap<StatePart, StateChange>,
}

#[async_trait]
pub trait ChangeStore: Send + Sync {
    /// A receiver that is notified soon after another service may have changed a part. `None` if no other service can use the
    /// store. Notifications can get lost, so compare [`Self::state_versions`] now and then.
    fn changes(&self) -> Option<watch::Receiver<()>>;

    /// The numbers of the last changes that are committed. A store that no other service can use has none.
    async fn state_versions(&self) -> Result<StateVersions, StoreError>;
}

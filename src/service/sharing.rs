//! Takes over what other services on the same store change.
//!
//! These are keys, rules, toolsets, overrides of tools, approvals, servers, callers' switches and administrators' search texts, which every
//! service keeps in memory, and what was forgotten of what use has taught. A change has a number, and so has the state of this service: the
//! number of the last change that it contains. A change that this service makes itself is acknowledged with a number that includes it. So
//! whoever changes something can tell whether another service has the change already.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::service::access::keys::Keys;
use crate::service::access::policies::{Policies, PolicyError};
use crate::service::access::switches::Switches;
use crate::service::catalog::definitions::Definitions;
use crate::service::catalog::enrich::admin::EnrichmentAdmin;
use crate::service::catalog::rebuild::Rebuilds;
use crate::service::catalog::tool_facts::ToolOverrides;
use crate::service::learning::learn::Learning;
use crate::service::ports::{ChangeStore, StatePart, StateVersions};
use crate::service::servers::Servers;
use crate::service::supervision::joined;
use crate::service::toolsets::toolsets::Toolsets;

/// How often to look for changes whose notification was lost.
const LOOK: Duration = Duration::from_secs(2);
/// How long taking over all changes may take. A connection to a database that is away may stay silent for longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The use cases that keep a part of the state in memory.
pub(crate) struct SharedParts {
    pub keys: Arc<Keys>,
    pub policies: Arc<Policies>,
    pub toolsets: Arc<Toolsets>,
    pub overrides: Arc<ToolOverrides>,
    pub definitions: Arc<Definitions>,
    pub servers: Arc<Servers>,
    pub switches: Arc<Switches>,
    pub enrichment: Arc<EnrichmentAdmin>,
    pub learning: Learning,
    pub rebuilds: Rebuilds,
}

/// The number of the state, and how to renew it.
pub(crate) struct SharedState {
    store: Arc<dyn ChangeStore>,
    parts: SharedParts,
    /// Whether other services can use the store.
    is_shared: bool,
    /// The numbers of the changes in memory.
    known: Mutex<StateVersions>,
    number: AtomicU64,
}

impl SharedState {
    /// `known` are the numbers from before the parts were loaded.
    pub(crate) fn new(store: Arc<dyn ChangeStore>, parts: SharedParts, known: StateVersions) -> Self {
        let (is_shared, number) = (store.changes().is_some(), AtomicU64::new(known.latest));
        Self { store, parts, is_shared, known: Mutex::new(known), number }
    }

    /// The number of the last change that this service's state contains.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Notes that this service has stored a change, and takes over what others have changed before. Returns whether the number
    /// includes the change: the store may fail after it.
    pub(crate) async fn has_changed(self: &Arc<Self>) -> bool {
        if !self.is_shared {
            self.number.fetch_add(1, Ordering::AcqRel);
            return true;
        }
        let caught_up = self.catch_up().await;
        caught_up.inspect_err(|error| tracing::debug!(%error, "the number of a change could not be read")).is_ok()
    }

    /// Takes over changes as they happen.
    pub(crate) async fn follow(self: &Arc<Self>) {
        let Some(mut changes) = self.store.changes() else { return };
        let mut fails = false;
        loop {
            let error = match timeout(PATIENCE, self.catch_up()).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("no response within {} s", PATIENCE.as_secs())),
            };
            if let Some(error) = error.as_ref().filter(|_| !fails) {
                tracing::warn!(%error, "changes by other services are not applied until the store can be read");
            }
            fails = error.is_some();
            if let Ok(Err(_)) = timeout(LOOK, changes.changed()).await {
                // Nobody notifies any more. Changes are still found, only later.
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Takes over all changes that are committed now. Whoever stops waiting for it does not end it in the middle: what is in memory by then
    /// would count as taken over, without what follows from it.
    async fn catch_up(self: &Arc<Self>) -> Result<(), PolicyError> {
        let shared = Arc::clone(self);
        joined(tokio::spawn(async move { shared.take_over().await })).await
    }

    async fn take_over(&self) -> Result<(), PolicyError> {
        let mut known = self.known.lock().await;
        let current = self.store.state_versions().await?;
        // After a failover that lost changes, the numbers are lower than before, and may have been given again.
        let has_lost = current.latest < known.latest;
        for (part, version) in &current.parts {
            if has_lost || known.parts.get(part) != Some(version) {
                let before = known.parts.get(part).copied().unwrap_or(*version);
                self.refresh(*part, before).await?;
                known.parts.insert(*part, *version);
            }
        }
        known.latest = current.latest;
        self.number.store(current.latest, Ordering::Release);
        Ok(())
    }

    /// `before` is the number of the part's last change in memory.
    async fn refresh(&self, part: StatePart, before: u64) -> Result<(), PolicyError> {
        let SharedParts { keys, policies, toolsets, overrides, definitions, servers, switches, enrichment, learning, rebuilds } =
            &self.parts;
        match part {
            StatePart::Keys => keys.refresh().await?,
            StatePart::Policy => policies.refresh().await?,
            StatePart::Toolsets => toolsets.refresh().await?,
            StatePart::ToolOverrides => overrides.refresh().await?,
            StatePart::Servers => servers.refresh().await?,
            StatePart::Switches => switches.refresh().await?,
            StatePart::Enrichments => enrichment.publish(),
            StatePart::Learning => learning.refresh(before).await?,
            StatePart::Definitions => {
                for server in definitions.refresh().await? {
                    rebuilds.of(&server).await;
                }
            }
        }
        Ok(())
    }
}

//! Takes over what other services on the same store change.
//!
//! These are keys, rules, toolsets, overrides of tools, approvals, servers, callers' switches and administrators' search texts, which every
//! service keeps in memory, callers' secrets, with which it has connections, and what was forgotten of what use has taught. A change has a
//! number, and so has the state of this service: the number of the last change that it contains. A change that this service makes itself is
//! acknowledged with a number that includes it. So whoever changes something can tell whether another service has the change already. A
//! failover or a restored backup may lose changes, and their numbers are given again: so each change also has a random token, which is
//! compared too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::service::access::keys::Keys;
use crate::service::access::policies::{Policies, PolicyError};
use crate::service::access::secrets::Secrets;
use crate::service::access::switches::Switches;
use crate::service::catalog::definitions::Definitions;
use crate::service::catalog::enrich::admin::EnrichmentAdmin;
use crate::service::catalog::rebuild::Rebuilds;
use crate::service::catalog::tool_facts::ToolOverrides;
use crate::service::learning::learn::Learning;
use crate::service::ports::{ChangeStore, StateChange, StatePart, StateVersions};
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
    pub secrets: Arc<Secrets>,
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
        for (part, change) in outdated(&known, &current) {
            self.refresh(part, last_common(known.parts.get(&part).copied(), change)).await?;
            known.parts.insert(part, change);
        }
        known.latest = current.latest;
        self.number.store(current.latest, Ordering::Release);
        Ok(())
    }

    /// `before` is the number of the part's last change in memory.
    async fn refresh(&self, part: StatePart, before: u64) -> Result<(), PolicyError> {
        let SharedParts { keys, policies, toolsets, overrides, definitions, servers, switches, enrichment, learning, rebuilds, secrets } =
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
            StatePart::Secrets => secrets.refresh().await?,
            StatePart::Definitions => {
                for server in definitions.refresh().await? {
                    rebuilds.of(&server).await;
                }
            }
        }
        Ok(())
    }
}

/// The parts whose last change is not the one in memory. A lower number means that changes were lost: then all parts are read again.
fn outdated(known: &StateVersions, current: &StateVersions) -> Vec<(StatePart, StateChange)> {
    let has_lost = current.latest < known.latest;
    let parts = current.parts.iter().map(|(part, change)| (*part, *change));
    parts.filter(|(part, change)| has_lost || known.parts.get(part) != Some(change)).collect()
}

/// The number of a part's last change that memory and the store can have in common. The last one in the store is not in memory, even if
/// memory has one with its number.
fn last_common(known: Option<StateChange>, current: StateChange) -> u64 {
    known.map_or(current.number, |known| if known == current { known.number } else { known.number.min(current.number.saturating_sub(1)) })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::{StateChange, StatePart, StateVersions, last_common, outdated};

    fn change(number: u64, token: u128) -> StateChange {
        StateChange { number, token: Uuid::from_u128(token) }
    }

    fn versions(latest: u64, parts: [(StatePart, StateChange); 2]) -> StateVersions {
        StateVersions { latest, parts: BTreeMap::from(parts) }
    }

    /// Regression test: after a failover, other changes had the same numbers, and were never taken over.
    #[test]
    fn another_change_with_the_same_number_is_taken_over() {
        use StatePart::{Keys, Policy};
        let known = versions(7, [(Keys, change(7, 1)), (Policy, change(5, 2))]);
        let parts = |current: &StateVersions| outdated(&known, current).into_iter().map(|(part, _)| part).collect::<Vec<_>>();
        assert_eq!(parts(&known), []);
        assert_eq!(parts(&versions(8, [(Keys, change(8, 3)), (Policy, change(5, 2))])), [Keys]);
        assert_eq!(parts(&versions(7, [(Keys, change(7, 3)), (Policy, change(5, 2))])), [Keys]);
        assert_eq!(parts(&versions(6, [(Keys, change(6, 3)), (Policy, change(5, 2))])), [Keys, Policy]);
        for (before, current, expected) in [
            (None, change(9, 1), 9),
            (Some(change(7, 1)), change(9, 2), 7),
            (Some(change(7, 1)), change(7, 2), 6),
            (Some(change(7, 1)), change(4, 2), 3),
            (Some(change(7, 1)), change(7, 1), 7),
        ] {
            assert_eq!(last_common(before, current), expected, "{before:?} {current:?}");
        }
    }
}

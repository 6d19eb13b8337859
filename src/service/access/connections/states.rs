//! Which servers a caller may call at once. Every filter and search asks for this, so the answers are kept in memory for a short time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::{ConnectionState, Connections, MACHINE};
use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::StoreError;

/// How long an answer is used. Changes by this process count at once, those by other replicas and commands after this time.
const KEPT: Duration = Duration::from_secs(10);
/// How long a message or a search waits for the store.
const PATIENCE: Duration = Duration::from_millis(100);
/// Maximum number of owners in memory.
const OWNERS: u64 = 10_000;

/// The servers to which each owner is signed in, as last read from the store.
#[derive(Clone)]
pub(in crate::service::access) struct SignedIn {
    known: Cache<PrincipalId, Arc<HashSet<ServerName>>>,
    /// The number of changes, so that an answer that was read before a change is not kept after it.
    changes: Arc<Mutex<u64>>,
}

impl Default for SignedIn {
    fn default() -> Self {
        Self { known: Cache::builder().max_capacity(OWNERS).time_to_live(KEPT).build(), changes: Arc::default() }
    }
}

impl SignedIn {
    pub(super) fn forget(&self, owner: &PrincipalId) {
        let mut changes = self.changes.lock();
        *changes += 1;
        self.known.invalidate(owner);
    }

    fn keep(&self, owner: PrincipalId, servers: &Arc<HashSet<ServerName>>, changes: u64) {
        let now = self.changes.lock();
        if *now == changes {
            self.known.insert(owner, Arc::clone(servers));
        }
    }
}

impl Connections {
    /// For each server that is called with a sign-in, whether the caller may call it at once. Empty if there is no such server.
    async fn states(&self, caller: &Principal) -> Result<HashMap<ServerName, ConnectionState>, StoreError> {
        let configured = self.configured.load_full();
        let mut states = HashMap::with_capacity(configured.len());
        for (name, server) in configured.iter() {
            let is_ready = match Self::owner(server, caller) {
                // Whether the user's own token comes with a call shows only then.
                _ if server.settings.exchange.is_some() => true,
                None => false,
                Some(owner) if owner.as_str() == MACHINE => true,
                Some(owner) => self.signed_in(owner).await?.contains(name),
            };
            states.insert(name.clone(), if is_ready { ConnectionState::Ready } else { ConnectionState::SignIn });
        }
        Ok(states)
    }

    /// Like [`Self::states`], but empty if the store fails: no answer may depend on them.
    pub(crate) async fn known_states(&self, caller: &Principal) -> HashMap<ServerName, ConnectionState> {
        match timeout(PATIENCE, self.states(caller)).await {
            Ok(Ok(states)) => states,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the sign-ins of a caller can't be read");
                HashMap::new()
            }
            Err(_) => {
                tracing::warn!(patience = ?PATIENCE, "the sign-ins of a caller can't be read in time");
                HashMap::new()
            }
        }
    }

    async fn signed_in(&self, owner: PrincipalId) -> Result<Arc<HashSet<ServerName>>, StoreError> {
        if let Some(servers) = self.signed_in.known.get(&owner) {
            return Ok(servers);
        }
        // Goes on in the background if the caller does not wait, so that the next one gets the answer.
        let (store, signed_in) = (Arc::clone(&self.store), self.signed_in.clone());
        let reading = tokio::spawn(async move {
            let changes = *signed_in.changes.lock();
            let stored = store.connections(&owner).await?;
            let valid = stored.into_iter().filter(|stored| stored.ended.is_none());
            let servers = Arc::new(valid.map(|stored| stored.sealed.place.server).collect());
            signed_in.keep(owner, &servers, changes);
            Ok::<_, StoreError>(servers)
        });
        reading.await.unwrap_or_else(|error| Err(StoreError::Failed { action: "read the sign-ins of a caller", source: error.into() }))
    }
}

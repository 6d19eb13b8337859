//! Readiness of the service, with the state of each component.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::domain::access::management::ManagedBy;
use crate::domain::catalog::tool::ServerName;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::definitions::{DefinitionCounts, Definitions};
use crate::service::catalog::reload::{Reload, ReloadState};
use crate::service::leading::Leading;
use crate::service::learning::learn::{Learning, LearningState};
use crate::service::ports::{Embedder, IndexState, ServerPhase, ServerState, SpoolState, ToolIndex, ToolServers, UpkeepStore};

/// After this time, the service is ready even if some servers have not answered.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for a check of the store, which otherwise counts as failed.
const STORE_PATIENCE: Duration = Duration::from_secs(1);
/// How long a check of the store is cached for unauthenticated callers, whose requests are not limited.
const STORE_KNOWN: Duration = Duration::from_millis(250);

/// Looks up why nobody gets a token for a server: what can't be done, and the reason.
pub(crate) type SignInFault = Box<dyn Fn(&ServerName) -> Option<String> + Send + Sync>;

pub(crate) struct Status {
    pub current: Arc<CurrentCatalog>,
    pub servers: Arc<dyn ToolServers>,
    pub index: Arc<dyn ToolIndex>,
    pub store: Arc<dyn UpkeepStore>,
    pub embedder: Arc<dyn Embedder>,
    pub reload: Arc<Reload>,
    pub definitions: Arc<Definitions>,
    /// What waits on the disk for the store, for the audit log and for events.
    pub spools: Box<dyn Fn() -> [SpoolState; 2] + Send + Sync>,
    pub leading: Leading,
    /// The error of the last sign-in or exchange for a server, if its authorization server caused it.
    pub sign_in_fault: SignInFault,
    pub started: Instant,
    /// Whether the service was ready before, or a stored catalog was loaded at the start. Once ready, the service stays ready.
    pub was_ready: AtomicBool,
    /// Cancelled when the service begins to stop. From then on, it is not ready, so that load balancers send requests elsewhere.
    pub draining: CancellationToken,
    pub learning: Learning,
    /// The last check of the store, cached for unauthenticated callers.
    pub cached: Mutex<Option<(Instant, StoreState)>>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Readiness {
    pub ready: bool,
    pub tools: usize,
    pub servers: Vec<ServerState>,
    pub index: IndexView,
    pub store: StoreState,
    pub spool: SpoolView,
    /// Whether this service does what must happen once for all services on the store.
    pub leader: bool,
    pub embedder: EmbedderState,
    pub reload: ReloadState,
    /// Number of changed and new definitions, only for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definitions: Option<DefinitionCounts>,
    /// What learning from use does, only for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning: Option<LearningState>,
}

impl Readiness {
    /// Removes the reasons for failures, which are not public: they may quote a server's output, and contain paths, hosts and names of
    /// settings.
    pub(crate) fn hide_reasons(&mut self) {
        self.servers.iter_mut().for_each(|server| server.error = None);
        self.reload.hide_details();
        if let StoreState::Failed { error } | StoreState::Degraded { error } = &mut self.store {
            "see the log".clone_into(error);
        }
        self.spool.error = None;
        self.embedder.error = None;
        let holds = &mut self.index.holds;
        holds.error = None;
        holds.qdrant.iter_mut().for_each(|qdrant| qdrant.error = None);
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum StoreState {
    Ready,
    /// The store can be read and takes no writes: changes are refused, and all else continues.
    Degraded {
        error: String,
    },
    /// The store failed; the service uses data in memory.
    Failed {
        error: String,
    },
}

/// Records on the disk that wait for the store.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct SpoolView {
    pub bytes: u64,
    /// Why the disk does not take further records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl SpoolView {
    fn of(states: [SpoolState; 2]) -> Self {
        let bytes = states.iter().map(|state| state.bytes).sum();
        Self { bytes, error: states.into_iter().find_map(|state| state.error) }
    }
}

/// Progress of the index. Tools without vectors are found by words.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct IndexView {
    pub state: Indexed,
    #[serde(flatten)]
    pub holds: IndexState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Indexed {
    /// The index is being built and does not match the catalog yet.
    Building,
    /// The index contains all tools, but some have no vectors.
    Embedding,
    /// All tools have vectors.
    Complete,
}

impl IndexView {
    fn of(holds: IndexState, tools: usize) -> Self {
        let state = match (holds.documents == tools, holds.embedded == tools) {
            (true, true) => Indexed::Complete,
            (true, false) => Indexed::Embedding,
            (false, _) => Indexed::Building,
        };
        Self { state, holds }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct EmbedderState {
    pub model: String,
    /// Length of the vectors; 0 while an endpoint's is unknown.
    pub dimension: usize,
    /// The reason why texts can't be embedded now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Status {
    pub(crate) fn is_configured(&self, server: &ServerName) -> bool {
        self.servers.states().iter().any(|state| state.server == *server)
    }

    /// Checks all components. `for_stranger`: uses the cached check of the store.
    pub(crate) async fn readiness(&self, for_stranger: bool) -> Readiness {
        let mut servers = self.servers.states();
        let known = self.reload.known();
        for state in &mut servers {
            if let Some(reason) = (self.sign_in_fault)(&state.server) {
                state.error = Some(reason);
            }
            if state.error.is_none() {
                let added = known.iter().find(|known| known.name == state.server && known.managed_by == ManagedBy::Api);
                state.error = added.and_then(|added| added.error.clone());
            }
        }
        let attempted = servers.iter().all(|state| state.phase != ServerPhase::Starting);
        // A server counts as ready once its tools are in the catalog.
        let catalog = self.current.snapshot();
        let taken_over =
            servers.iter().all(|state| state.phase != ServerPhase::Connected || catalog.server(state.server.as_str()).is_some());
        let ready = self.was_ready.load(Ordering::Relaxed) || (attempted && taken_over) || self.started.elapsed() >= PATIENCE;
        if ready {
            self.was_ready.store(true, Ordering::Relaxed);
        }
        Readiness {
            ready: ready && !self.draining.is_cancelled(),
            tools: catalog.tools().len(),
            servers,
            index: IndexView::of(self.index.state(), catalog.tools().len()),
            store: if for_stranger { self.recent_store().await } else { self.store().await },
            spool: SpoolView::of((self.spools)()),
            leader: self.leading.leads(),
            embedder: self.embedder(),
            reload: self.reload.state(),
            definitions: Some(self.definitions.counts()),
            learning: self.learning.state(),
        }
    }

    fn embedder(&self) -> EmbedderState {
        let embedder = &self.embedder;
        EmbedderState { model: embedder.model().to_owned(), dimension: embedder.dimension(), error: embedder.fault() }
    }

    async fn recent_store(&self) -> StoreState {
        let mut cached = self.cached.lock().await;
        if let Some((_, state)) = cached.as_ref().filter(|(at, _)| at.elapsed() < STORE_KNOWN) {
            return state.clone();
        }
        let state = self.store().await;
        *cached = Some((Instant::now(), state.clone()));
        state
    }

    async fn store(&self) -> StoreState {
        match tokio::time::timeout(STORE_PATIENCE, self.store.check()).await {
            Ok(Ok(())) => self.writable_store().await,
            Ok(Err(error)) => {
                let reason = std::error::Error::source(&error).map_or_else(String::new, |reason| format!(": {reason}"));
                StoreState::Failed { error: format!("{error}{reason}") }
            }
            Err(_) => StoreState::Failed { error: format!("the store does not answer within {} s", STORE_PATIENCE.as_secs()) },
        }
    }

    /// The state of a store that can be read.
    async fn writable_store(&self) -> StoreState {
        let reason = match tokio::time::timeout(STORE_PATIENCE, self.store.check_writes()).await {
            Ok(Ok(())) => return StoreState::Ready,
            Ok(Err(error)) => std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string),
            Err(_) => format!("a write takes longer than {} s", STORE_PATIENCE.as_secs()),
        };
        StoreState::Degraded { error: format!("changes are refused: {reason}") }
    }
}

//! Whether the service is ready, and the state of each part.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::service::current::CurrentCatalog;
use crate::service::ports::{IndexState, ServerPhase, ServerState, ToolIndex, ToolServers};

/// After this time the service is ready with what it has.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Status {
    pub current: Arc<CurrentCatalog>,
    pub servers: Arc<dyn ToolServers>,
    pub index: Arc<dyn ToolIndex>,
    pub started: Instant,
    /// Whether a last good catalog was loaded at start.
    pub last_good: AtomicBool,
}

/// The body of `/readyz`.
#[derive(Clone, Debug, Serialize)]
pub struct Readiness {
    pub ready: bool,
    pub tools: usize,
    pub servers: Vec<ServerState>,
    pub index: IndexState,
}

impl Status {
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let servers = self.servers.states();
        let attempted = servers.iter().all(|state| state.phase != ServerPhase::Starting);
        // A server that answered is ready once its tools are in the catalog, not a moment before.
        let catalog = self.current.snapshot();
        let taken_over =
            servers.iter().all(|state| state.phase != ServerPhase::Connected || catalog.server(state.server.as_str()).is_some());
        let ready = self.last_good.load(Ordering::Relaxed) || (attempted && taken_over) || self.started.elapsed() >= PATIENCE;
        Readiness { ready, tools: catalog.tools().len(), servers, index: self.index.state() }
    }
}

//! Servers that have not listed their tools yet: in their first start, or down since then. Whether they have a tool nobody knows.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::{ServerName, Tool, ToolId};
use crate::service::execution::execute::{Execute, ExecuteError};
use crate::service::ports::{CallError, ServerPhase, ServerState};

/// How long a call waits for the first list of a server that starts.
const FIRST_LIST: Duration = Duration::from_secs(20);
/// How often it is looked whether the start has failed: nothing tells of that.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// When the list of a server may be there.
pub const LIST_RETRY: Duration = Duration::from_secs(2);
/// What stands between the names of server and tool in a published name.
const SEPARATOR: &str = "__";

impl Execute {
    /// As [`Execute::by_id`], for a call: of a server that is in its first start the list is waited for.
    ///
    /// # Errors
    /// [`ExecuteError::NotFound`]: unknown, or denied. [`CallError::Unavailable`]: it is not known what the server has.
    pub async fn find_by_id(&self, id: &ToolId, principal: &Principal) -> Result<Arc<Tool>, ExecuteError> {
        match self.by_id(id, principal) {
            Err(ExecuteError::NotFound { .. }) if self.is_unlisted(&id.server, principal) => {
                self.until_listed(&id.server).await?;
                self.by_id(id, principal)
            }
            found => found,
        }
    }

    /// As [`Execute::by_name`], for a call. The server is told by what the name begins with.
    ///
    /// # Errors
    /// Those of [`Execute::find_by_id`].
    pub async fn find_by_name(&self, name: &str, principal: &Principal) -> Result<Arc<Tool>, ExecuteError> {
        let found = self.by_name(name, principal);
        if !matches!(found, Err(ExecuteError::NotFound { .. })) {
            return found;
        }
        let is_meant = |server: &ServerName| name.strip_prefix(server.as_str()).is_some_and(|tool| tool.starts_with(SEPARATOR));
        let meant = self.servers.states().into_iter().map(|state| state.server).find(is_meant);
        let Some(server) = meant.filter(|server| self.is_unlisted(server, principal)) else { return found };
        self.until_listed(&server).await?;
        self.by_name(name, principal)
    }

    /// Whether a server is configured and has listed nothing yet. Of servers that a caller may not know of, none is.
    #[must_use]
    pub fn is_unlisted(&self, server: &ServerName, principal: &Principal) -> bool {
        self.current.snapshot().server(server.as_str()).is_none()
            && self.current.shows_server(principal, server)
            && self.state(server).is_some()
    }

    fn state(&self, server: &ServerName) -> Option<ServerState> {
        self.servers.states().into_iter().find(|state| state.server == *server)
    }

    async fn until_listed(&self, server: &ServerName) -> Result<(), ExecuteError> {
        let mut changes = self.current.changes();
        let until = Instant::now() + FIRST_LIST;
        while self.current.snapshot().server(server.as_str()).is_none() {
            // Its list is taken over a moment after it has come.
            let may_come = self.state(server).is_some_and(|state| matches!(state.phase, ServerPhase::Starting | ServerPhase::Connected));
            if !may_come || Instant::now() >= until {
                let reason = "it has not listed its tools yet".to_owned();
                return Err(CallError::Unavailable { reason, retry_after: LIST_RETRY }.into());
            }
            let _ = timeout(LOOK_AGAIN, changes.changed()).await;
        }
        Ok(())
    }
}

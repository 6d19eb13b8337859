//! Calls to servers that are still starting or down and have not listed their tools yet.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::{ServerName, Tool, ToolId};
use crate::service::execution::execute::{Execute, ExecuteError};
use crate::service::ports::{CallContext, CallError, ServerPhase, ServerState};

/// How long a call waits until a starting server has listed its tools.
const FIRST_LIST: Duration = Duration::from_secs(20);
/// Interval at which the server's state is polled, because a failed start sends no notification.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// `Retry-After` for calls to such a server.
pub(crate) const LIST_RETRY: Duration = Duration::from_secs(2);
/// Separates server and tool in a published name.
const SEPARATOR: &str = "__";

impl Execute {
    /// Like [`Execute::by_id`], but waits until a starting server has listed its tools, or until a server that lists them for users only
    /// has listed them for this caller. `headers` returns those of the request.
    ///
    /// # Errors
    /// [`ExecuteError::NotFound`] if the tool is unknown or denied; [`CallError::Unavailable`] if the server has listed no tools; or why
    /// it can't be asked for this caller.
    pub(crate) async fn find_by_id(
        &self,
        id: &ToolId,
        principal: &Principal,
        headers: impl FnOnce() -> HeaderMap,
    ) -> Result<Arc<Tool>, ExecuteError> {
        match self.by_id(id, principal) {
            Err(ExecuteError::NotFound { .. }) if self.is_unlisted(&id.server, principal) => {
                // Boxed, because hardly any call waits.
                Box::pin(self.until_listed(&id.server, principal, headers())).await?;
                self.by_id(id, principal)
            }
            found => found,
        }
    }

    /// Like [`Execute::by_name`], but waits as [`Execute::find_by_id`] does. The name's prefix identifies the server.
    ///
    /// # Errors
    /// Those of [`Execute::find_by_id`].
    pub(crate) async fn find_by_name(
        &self,
        name: &str,
        principal: &Principal,
        headers: impl FnOnce() -> HeaderMap,
    ) -> Result<Arc<Tool>, ExecuteError> {
        let found = self.by_name(name, principal);
        if !matches!(found, Err(ExecuteError::NotFound { .. })) {
            return found;
        }
        let is_meant = |server: &ServerName| name.strip_prefix(server.as_str()).is_some_and(|tool| tool.starts_with(SEPARATOR));
        let meant = self.servers.states().into_iter().map(|state| state.server).find(is_meant);
        let Some(server) = meant.filter(|server| self.is_unlisted(server, principal)) else { return found };
        Box::pin(self.until_listed(&server, principal, headers())).await?;
        self.by_name(name, principal)
    }

    /// Whether a configured server has not listed its tools yet. Always `false` for servers hidden from the caller.
    #[must_use]
    pub(crate) fn is_unlisted(&self, server: &ServerName, principal: &Principal) -> bool {
        self.current.snapshot().server(server.as_str()).is_none()
            && self.current.shows_server(principal, server)
            && self.state(server).is_some()
    }

    fn state(&self, server: &ServerName) -> Option<ServerState> {
        self.servers.states().into_iter().find(|state| state.server == *server)
    }

    async fn until_listed(&self, server: &ServerName, principal: &Principal, headers: HeaderMap) -> Result<(), ExecuteError> {
        let mut changes = self.current.changes();
        let until = Instant::now() + FIRST_LIST;
        let (mut introduction, mut introduced) = (pin!(self.introduce(server, principal, headers, until)), None);
        while self.current.snapshot().server(server.as_str()).is_none() {
            // The catalog contains a list shortly after it arrives.
            let may_come = matches!(introduced, None | Some(Ok(true)))
                || self.state(server).is_some_and(|state| matches!(state.phase, ServerPhase::Starting | ServerPhase::Connected));
            if !may_come || Instant::now() >= until {
                if let Some(Err(error)) = introduced {
                    return Err(error);
                }
                let reason = "it has not listed its tools yet".to_owned();
                return Err(CallError::Unavailable { reason, retry_after: LIST_RETRY, sent: false }.into());
            }
            tokio::select! {
                result = &mut introduction, if introduced.is_none() => introduced = Some(result),
                _ = timeout(LOOK_AGAIN, changes.changed()) => {}
            }
        }
        Ok(())
    }

    /// Connects to a server with the caller's credentials, so that it lists its tools. Returns whether it gets any, and the caller has
    /// them.
    async fn introduce(
        &self,
        server: &ServerName,
        principal: &Principal,
        headers: HeaderMap,
        until: Instant,
    ) -> Result<bool, ExecuteError> {
        let Ok(Some(credentials)) = self.secrets.credentials(principal, &headers, server).await else { return Ok(false) };
        let context =
            CallContext { headers: Arc::new(headers), credentials: Some(credentials), ..CallContext::new(Arc::new(principal.clone())) };
        let connect = async |context: CallContext| {
            let Some(credentials) = &context.credentials else { return Err(CallError::NoCredentials) };
            self.servers.introduce_for_call(server, &context.principal.id, credentials, until).await?;
            Ok(RawValue::NULL.to_owned())
        };
        self.secrets.send::<ExecuteError, _>(server, context, connect).await.map(|_| true)
    }
}

//! Sessions of MCP clients with older protocol versions: owners, notifications and limits.
//!
//! A session contains no tools and permits nothing: the policy decides each request anew. It contains queued notifications, the
//! groups that its client has loaded, and its subscriptions, all in memory. It is created after its caller is authenticated and
//! is valid only for that caller and that endpoint.

mod session;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use ahash::RandomState;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::session::{Abilities, Listening, McpEndpoint, McpSession, McpSessionId, Running, Subscription, listed_at};
use crate::domain::access::api_key::Presented;
use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::Tool;
use crate::domain::publishing::address::Address;
use crate::domain::toolsets::loading::Loaded;
use crate::domain::toolsets::mode::{DefaultMode, Mode};
use crate::service::catalog::current::{CurrentCatalog, View};
use crate::service::ports::{SessionStore, StoreError};
use crate::service::publishing::publish::Publish;
use crate::service::supervision::Supervised;
use crate::service::toolsets::loading::Loading;
use crate::settings::McpSettings;

/// Interval at which unused sessions are removed.
const REAPING: Duration = Duration::from_secs(30);
/// Changes within this time cause a single notification.
const TOGETHER: Duration = Duration::from_millis(100);

pub(crate) struct McpSessions {
    current: Arc<CurrentCatalog>,
    store: Arc<dyn SessionStore>,
    settings: McpSettings,
    sessions: Mutex<HashMap<McpSessionId, Arc<McpSession>, RandomState>>,
    hasher: RandomState,
    stopping: CancellationToken,
}

impl McpSessions {
    /// Starts to remove unused sessions and to notify clients of changed lists. Ends all sessions after `stop`.
    pub(crate) fn start(
        current: Arc<CurrentCatalog>,
        store: Arc<dyn SessionStore>,
        settings: McpSettings,
        stop: CancellationToken,
    ) -> (Arc<Self>, JoinHandle<()>) {
        let stopping = stop.clone();
        let sessions = Arc::new(Self { current, store, settings, sessions: Mutex::default(), hasher: RandomState::new(), stopping });
        let keeper = Arc::clone(&sessions);
        let keeping = tokio::spawn(async move {
            let mut part = Supervised::new("MCP sessions");
            stop.run_until_cancelled(async { while part.panicked(keeper.keep()).await {} }).await;
            let ended: Vec<_> = keeper.sessions.lock().drain().collect();
            for (_, session) in ended {
                session.end();
            }
        });
        (sessions, keeping)
    }

    /// Whether sessions are enabled.
    pub(crate) fn are_given(&self) -> bool {
        self.settings.sessions
    }

    /// Creates a session. `None` if sessions are disabled or too many are in use.
    pub(crate) fn open(&self, caller: &Arc<Principal>, endpoint: McpEndpoint, abilities: Abilities) -> Option<Arc<McpSession>> {
        if !self.settings.sessions {
            return None;
        }
        self.begin(caller, endpoint, abilities)
    }

    /// Creates a hidden session for a stream of a client with the newer protocol version. The session ends with the stream.
    /// `None` if too many sessions are in use.
    pub(crate) async fn open_stream(self: &Arc<Self>, caller: &Arc<Principal>, endpoint: McpEndpoint) -> Option<OpenStream> {
        let session = self.begin(caller, endpoint, Abilities::default())?;
        let stream = OpenStream { session, sessions: Arc::clone(self) };
        stream.session.set_listed(self.list_now(&stream.session).await);
        Some(stream)
    }

    fn begin(&self, caller: &Arc<Principal>, endpoint: McpEndpoint, abilities: Abilities) -> Option<Arc<McpSession>> {
        let mut sessions = self.sessions.lock();
        if self.stopping.is_cancelled() {
            return None;
        }
        if sessions.values().filter(|session| session.is_of(caller)).count() >= self.settings.per_caller {
            let own = sessions.values().filter(|session| session.is_of(caller));
            let unused = own.filter_map(|session| Some((session.unused_for()?, session.id().clone()))).max_by_key(|(unused, _)| *unused);
            let (_, oldest) = unused?;
            sessions.remove(&oldest);
        } else if sessions.len() >= self.settings.total {
            self.reap(&mut sessions);
            if sessions.len() >= self.settings.total {
                return None;
            }
        }
        let session = Arc::new(McpSession::new(caller, endpoint, abilities));
        sessions.insert(session.id().clone(), Arc::clone(&session));
        Some(session)
    }

    /// Finds a session by its id, if it belongs to this caller and this endpoint.
    pub(crate) fn find(&self, id: &str, caller: &Arc<Principal>, endpoint: &McpEndpoint) -> Option<Arc<McpSession>> {
        let session = self.sessions.lock().get(id).cloned()?;
        if !session.is_of(caller) || session.endpoint().path != endpoint.path {
            return None;
        }
        session.used_by(caller);
        Some(session)
    }

    /// Ends a session with its streams and subscriptions, and cancels its requests.
    pub(crate) fn close(&self, session: &McpSession) {
        let ended = self.sessions.lock().remove(session.id());
        session.end();
        drop(ended);
    }

    /// Ends the sessions of callers whose key is no longer valid.
    pub(crate) fn close_without(&self, is_good: impl Fn(&Presented) -> bool) {
        for session in self.all() {
            if session.viewer().key.as_ref().is_some_and(|key| !is_good(key)) {
                self.close(&session);
            }
        }
    }

    /// The mode of a list of tools at an address, for a caller who has named no mode and has no session.
    pub(crate) fn mode_of(&self, viewer: &Principal, address: &Address) -> Mode {
        let View { catalog, visibility, .. } = self.current.view(viewer);
        let tools = catalog.visible(&visibility).filter(|tool| address.shows(tool, &visibility, Mode::Full));
        self.settings.full_list.mode(tools.map(AsRef::as_ref))
    }

    /// The mode of the client's list. It changes only together with a notification.
    pub(crate) fn mode_in(&self, session: &McpSession) -> Mode {
        session.mode().unwrap_or_else(|| self.mode_now(session))
    }

    /// Like [`Self::mode_in`], for a client that is about to get its list.
    pub(crate) fn mode_to_list(&self, session: &McpSession) -> Mode {
        session.keep_mode(self.mode_in(session))
    }

    fn mode_now(&self, session: &McpSession) -> Mode {
        match session.endpoint().mode {
            DefaultMode::Named(mode) => mode,
            DefaultMode::Auto => self.mode_of(&session.viewer(), &session.endpoint().address),
        }
    }

    /// A hash of the list of tools that the client is about to get. Pass it to [`McpSession::set_listed`] when the client has its list:
    /// if the list changes in between, the client may have the former one, and is notified.
    pub(crate) async fn list_now(&self, session: &McpSession) -> u64 {
        // A client whose loaded tools are unreadable gets a list without them.
        let loaded = self.loaded(session).await.unwrap_or_default();
        self.list(session, self.mode_to_list(session), &loaded)
    }

    /// Notifies the listening clients of an address of changed lists.
    pub(crate) fn notify_address(&self, address: &Address) {
        for session in self.all().iter().filter(|session| session.endpoint().address.has_path_of(address)) {
            session.notify_list_changed();
        }
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.sessions.lock().len()
    }

    pub(super) fn all(&self) -> Vec<Arc<McpSession>> {
        self.sessions.lock().values().cloned().collect()
    }

    async fn keep(&self) {
        let mut changes = self.current.changes();
        let mut reaping = tokio::time::interval(REAPING.min(self.settings.idle));
        loop {
            tokio::select! {
                _ = reaping.tick() => self.reap(&mut self.sessions.lock()),
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    tokio::time::sleep(TOGETHER).await;
                    changes.mark_unchanged();
                    self.notify_of_changes().await;
                }
            }
        }
    }

    fn reap(&self, sessions: &mut HashMap<McpSessionId, Arc<McpSession>, RandomState>) {
        sessions.retain(|_, session| session.unused_for().is_none_or(|unused| unused < self.settings.idle));
    }

    /// Notifies all active clients whose list has changed since they fetched it. Other clients are notified once they connect.
    async fn notify_of_changes(&self) {
        for session in self.all().iter().filter(|session| !session.is_idle()) {
            self.notify_if_changed(session).await;
            tokio::task::yield_now().await;
        }
    }

    /// Notifies the client if its list has changed since the client fetched it.
    pub(crate) async fn notify_if_changed(&self, session: &McpSession) {
        // Again if the client fetches its list meanwhile, which may be an older or a newer one.
        while let Some(listed) = session.listed() {
            let loaded = match self.loaded(session).await {
                Ok(loaded) => loaded,
                Err(error) => {
                    // A client that asks in vain loses less than one that isn't told.
                    tracing::warn!(%error, "loaded tools could not be read, so their client is told of changes in any case");
                    session.notify_list_changed();
                    return;
                }
            };
            let mode = self.mode_now(session);
            let now = self.list(session, mode, &loaded);
            if now == listed || session.change_list(listed, now, mode) {
                return;
            }
        }
    }

    /// The groups that are loaded at the session's address, or by its client.
    async fn loaded(&self, session: &McpSession) -> Result<Loaded, StoreError> {
        let endpoint = session.endpoint();
        let groups = match &*endpoint.address {
            // A server's list contains no loaded tools.
            _ if endpoint.server.is_some() => Vec::new(),
            Address::Session(address) => self.store.session_groups(&address.id).await?,
            Address::Whole | Address::Toolset(_) => session.loads().groups(),
        };
        Ok(Loaded { groups, tools: Vec::new() })
    }

    /// A hash of the list of tools for the session's caller, in this mode and with these loaded groups.
    fn list(&self, session: &McpSession, mode: Mode, loaded: &Loaded) -> u64 {
        let endpoint = session.endpoint();
        let view = self.current.view(&session.viewer());
        let binds = endpoint.server.is_none() && Loading::binds(&endpoint.address, mode);
        let bound: HashSet<_> = if binds { Loading::bound_with(loaded, &view, mode).into_iter().collect() } else { HashSet::new() };
        let View { catalog, visibility, .. } = view;
        let mut hasher = self.hasher.build_hasher();
        if endpoint.server.is_none() {
            for definition in Publish::meta_tools(&catalog, &visibility, mode) {
                (definition.tool.name(), &definition.description).hash(&mut hasher);
            }
        }
        let address = listed_at(&endpoint.address, endpoint.mode, mode);
        let is_listed = |tool: &Tool| {
            endpoint.server.as_ref().is_none_or(|server| *server == tool.id.server)
                && (address.shows(tool, &visibility, mode) || bound.contains(&tool.operation_id))
        };
        for tool in catalog.visible(&visibility).filter(|tool| is_listed(tool)) {
            (&tool.operation_id, tool.version.as_bytes()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// The stream of a client with the newer protocol version. Dropping it ends its hidden session.
pub(crate) struct OpenStream {
    session: Arc<McpSession>,
    sessions: Arc<McpSessions>,
}

impl OpenStream {
    pub(crate) fn session(&self) -> &Arc<McpSession> {
        &self.session
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.sessions.close(&self.session);
    }
}

#[cfg(test)]
mod tests;

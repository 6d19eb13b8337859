//! The configured MCP servers over rmcp: connections, lists of tools, calls.
//!
//! Each server has its own supervisor task, so a dead, slow or broken server neither delays nor hides another. Calls use a shared
//! link. While the server is up, they never wait for the supervisor. Roots and tasks are deliberately unsupported.

mod text;
mod timing;
mod process;
mod exchange;
mod transport;
mod link;
mod supervision;
mod bridge;
#[doc(hidden)]
pub mod fuzzing;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::{HeaderName, HeaderValue, StatusCode};
use indexmap::IndexMap;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub use self::bridge::{Bridge, BridgeError};
pub use self::link::link::Questions;
pub use self::process::child::Processes;
pub use self::process::sandbox::SandboxPlaces;
pub use self::timing::Timing;
pub use self::transport::client::client_builder;

use self::exchange::{Exchange, Listeners};
use self::link::asking::{in_time, waiting_for_answers};
use self::link::attempt::Surroundings;
use self::link::call::{self, Request};
use self::link::error::LinkError;
use self::link::link::{Link, Wire};
use self::supervision::per_user::UserConnections;
use self::supervision::server::{self, NoLink, Outlet, Patience, Server};
use self::supervision::supervisor::Supervisor;
use self::transport::oauth::TokenStore;
use self::transport::sending::Forwarded;
use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::service::ports::{
    CallContext, CallError, Credentials, LogLine, Offers, Parting, PassthroughRequest, ServerChange, ServerChangeKind, ServerEvent,
    ServerListing, ServerNews, ServerState, ToolServers,
};
use crate::settings::UserConnectionSettings;
use crate::settings::servers::ServerSettings;

/// Capacity of the event queue for subscribers.
const EVENTS: usize = 64;
/// Time limit for stopping all servers.
const SHUTDOWN: Duration = Duration::from_secs(8);
/// How long a server with new settings waits for its old instance to end, because both may need the same file or port. If the old
/// one's calls take longer, both run side by side.
const GIVE_WAY: Duration = Duration::from_secs(1);
/// Retry-After for a call whose connection was lost.
const AFTER_LOSS: Duration = Duration::from_secs(1);
const INTERNAL_ERROR: i64 = -32603;
const INVALID_PARAMS: i64 = -32602;

/// Shared options of all servers.
pub struct Options {
    /// The HTTP client, created with [`client_builder`].
    pub client: reqwest::Client,
    /// Options of server processes.
    pub processes: Arc<Processes>,
    /// The folder for renewed OAuth tokens. If `None`, they are not stored.
    pub oauth: Option<PathBuf>,
    pub timing: Timing,
    /// Limits on the number of connections per user.
    pub users: UserConnectionSettings,
    /// The requests that servers may send to callers.
    pub questions: Questions,
}

/// The configured MCP servers. Dropping it ends their connections and processes, without waiting.
pub struct McpServers {
    surroundings: Surroundings,
    timing: Timing,
    servers: ArcSwap<IndexMap<ServerName, Arc<Server>>>,
    tasks: Mutex<IndexMap<ServerName, Task>>,
    /// The tasks of all servers, including removed servers with running calls, and renewals of tokens.
    supervisors: TaskTracker,
    /// Connections that belong to single users.
    users: Arc<UserConnections>,
    outlet: Arc<Outlet>,
    /// The headers that contain users' tokens for some server, in lower case. Others get them only by their full name.
    token_headers: ArcSwap<BTreeSet<String>>,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

struct Task {
    stop: CancellationToken,
    done: JoinHandle<()>,
}

impl McpServers {
    /// Starts to connect to every server in the background and returns at once.
    pub fn start(settings: Vec<ServerSettings>, options: Options) -> Arc<Self> {
        let stop = CancellationToken::new();
        let supervisors = TaskTracker::new();
        let Options { client, processes, oauth, timing, users, questions } = options;
        let surroundings = Surroundings { client, processes, oauth: Arc::new(TokenStore::new(oauth, supervisors.clone())), questions };
        let users = UserConnections::new(surroundings.clone(), users, timing, supervisors.clone(), stop.child_token());
        let servers = Arc::new(Self {
            surroundings,
            timing,
            servers: ArcSwap::default(),
            tasks: Mutex::default(),
            supervisors,
            users,
            outlet: Arc::default(),
            token_headers: ArcSwap::default(),
            stop: stop.clone(),
            _stop_on_drop: stop.drop_guard(),
        });
        servers.configure(settings);
        servers
    }

    /// Keeps the tools of these lists until users' connections have listed their own, for servers that list tools for users only.
    pub fn remember<'a>(&self, listings: impl IntoIterator<Item = &'a ServerListing>) {
        let servers = self.servers.load();
        for listing in listings {
            if let Some(server) = servers.get(&listing.server).filter(|server| !server.settings().per_user.is_empty()) {
                server.remember(listing.tools.clone());
            }
        }
    }

    /// Starts the supervisor of a server. `former` is its task under the previous settings.
    fn supervise(&self, server: Arc<Server>, former: Option<Task>) -> Task {
        let stop = self.stop.child_token();
        let supervisor = Supervisor {
            server,
            surroundings: self.surroundings.clone(),
            timing: self.timing,
            stop: stop.clone(),
            shutdown: self.stop.clone(),
        };
        let done = self.supervisors.spawn(async move {
            if let Some(former) = former {
                former.stop.cancel();
                tokio::select! {
                    _ = former.done => {}
                    () = sleep(GIVE_WAY) => {}
                }
            }
            supervisor.run().await;
        });
        Task { stop, done }
    }

    /// Sends a request over the caller's connection.
    async fn send(&self, name: &ServerName, request: Request<'_>, context: CallContext) -> Result<Box<RawValue>, CallError> {
        let start = Instant::now();
        let timing = self.timing;
        // Retry once if the request can't have reached the server.
        let (mut is_spare, mut failed) = (true, None);
        loop {
            let server = self.servers.load().get(name).cloned().ok_or(CallError::UnknownServer)?;
            let call_timeout = server.settings().call_timeout;
            let limit = context.deadline.map_or(call_timeout, |deadline| deadline.saturating_duration_since(start));
            let deadline = start + limit;
            let patience = Patience { started: deadline.min(start + timing.start_patience), back: deadline.min(start + timing.patience) };
            let settings = server.settings();
            let linked = if settings.per_user.is_empty() {
                server.link(failed.as_ref(), patience).await
            } else {
                let credentials = context.credentials.as_deref().ok_or(CallError::NoCredentials)?;
                Box::pin(self.users.link(&server, credentials.owner(&context.principal.id), credentials, failed.as_ref(), deadline)).await
            };
            let held = match linked {
                Ok(held) => held,
                // The server was reconfigured in the meantime; use the new settings.
                Err(NoLink::Retired) => continue,
                Err(no_link) => return Err(unlinked(no_link)),
            };
            let forwarded = self.forwarded(&server, &held.link, &request, &context);
            let (messages, waiting) = context.messages.clone().map(waiting_for_answers).unzip();
            let owner = Some(context.principal.id.clone());
            let (progress, trace) = (context.progress.clone(), context.trace.clone());
            let listeners = Listeners { progress, messages, capabilities: None, owner, trace };
            let call = pin!(call::send(&held.link, request.clone(), context.round.as_ref(), listeners, forwarded));
            let error = match in_time(call, deadline, waiting.as_deref()).await {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(error)) => error,
                Err(_) => {
                    if limit == call_timeout && !held.link.exchange.was_heard_since(start) {
                        held.link.doubt();
                    }
                    if !settings.per_user.is_empty() {
                        // Only this error indicates that such a connection is dead.
                        held.link.exchange.suspect.notify_one();
                    }
                    return Err(CallError::Timeout(limit));
                }
            };
            if matches!(error, LinkError::Closed { sent: false, .. }) && std::mem::take(&mut is_spare) {
                held.link.exchange.suspect.notify_one();
                failed = Some(Arc::clone(&held.link));
                continue;
            }
            return Err(call_error(error, &held.link.exchange, !settings.per_user.is_empty()));
        }
    }

    /// The headers to send with a request: those of the caller that the settings forward, and those that repeat arguments.
    fn forwarded(&self, server: &Server, link: &Link, request: &Request<'_>, context: &CallContext) -> Option<Forwarded> {
        let settings = server.settings();
        let mut forwarded = settings.remote.forwarding.as_ref().map(|rules| {
            let mut headers = rules.select(&context.headers, &self.token_headers.load());
            // Forwarded headers must not override per-user headers.
            for name in settings.per_user.templates.keys() {
                headers.remove(name.to_lowercase());
            }
            Forwarded(headers)
        });
        if let Request::Call { tool, arguments } = request
            && link.is_modern
            && link.wire == Wire::StreamableHttp
        {
            let headers = server.param_headers.of(tool, arguments).into_iter();
            let headers = headers.filter_map(|(name, value)| Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?)));
            forwarded.get_or_insert_default().0.extend(headers);
        }
        forwarded
    }

    /// Retires a server's former instance and starts the new one, which callers already find.
    fn succeed(&self, former: Option<&Arc<Server>>, server: Arc<Server>, tasks: &mut IndexMap<ServerName, Task>) {
        if let Some(former) = former {
            former.retire(false);
            self.users.retire(former);
        }
        let former = tasks.shift_remove(&server.name);
        tasks.insert(server.name.clone(), self.supervise(server, former));
    }

    fn tasks(&self) -> MutexGuard<'_, IndexMap<ServerName, Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a call whose request failed. Some errors make the connection doubtful.
fn call_error(error: LinkError, exchange: &Exchange, is_per_user: bool) -> CallError {
    let (reason, sent) = match error {
        LinkError::Protocol { code, message, data } => return CallError::Protocol { code, message, data },
        LinkError::Rejected { code, message, data } => {
            // Another server, with another protocol version, may have replaced this one.
            if code != INVALID_PARAMS {
                exchange.suspect.notify_one();
            }
            return CallError::Protocol { code, message, data };
        }
        LinkError::TooLarge { limit } => return CallError::TooLarge { limit },
        LinkError::Challenged(challenge) => return CallError::Challenged(challenge),
        error @ LinkError::Refused(_) if error.is_of_proxy() => {
            exchange.suspect.notify_one();
            // A proxy sends 503 if it has no server to pass the call on to.
            let sent = !matches!(error, LinkError::Refused(StatusCode::SERVICE_UNAVAILABLE));
            (error.to_string(), sent)
        }
        // The server no longer accepts the user's secret, with which it accepted the connection.
        error @ LinkError::Refused(StatusCode::UNAUTHORIZED) if is_per_user => {
            return CallError::NotLetIn { reason: error.to_string(), retry_after: server::SHORT_RETRY };
        }
        LinkError::Refused(status) => {
            if status == StatusCode::BAD_REQUEST {
                exchange.suspect.notify_one();
            }
            return CallError::Refused { status: status.as_u16(), retry_after: None };
        }
        LinkError::Busy(StatusCode::SERVICE_UNAVAILABLE, retry_after) => {
            exchange.suspect.notify_one();
            return CallError::Unavailable { reason: error.to_string(), retry_after, sent: false };
        }
        LinkError::Busy(status, time) => {
            return CallError::Refused { status: status.as_u16(), retry_after: Some(time) };
        }
        LinkError::Unusable(message) => return CallError::Protocol { code: INTERNAL_ERROR, message, data: None },
        LinkError::Closed { reason, sent } => {
            exchange.suspect.notify_one();
            (reason.into_owned(), sent)
        }
    };
    CallError::Unavailable { reason, retry_after: AFTER_LOSS, sent }
}

/// The error of a call without a link. The server has not received the call.
fn unlinked(no_link: NoLink) -> CallError {
    match no_link {
        NoLink::Retired => CallError::Unavailable { reason: "it is restarting".to_owned(), retry_after: server::SHORT_RETRY, sent: false },
        NoLink::Unavailable { reason, retry_after } => CallError::Unavailable { reason, retry_after, sent: false },
        NoLink::NotLetIn { challenge: Some(challenge), .. } => CallError::Challenged(challenge),
        NoLink::NotLetIn { reason, .. } => CallError::NotLetIn { reason, retry_after: server::SHORT_RETRY },
        NoLink::TooManyUsers { limit, of } => CallError::TooManyUsers { limit, of, retry_after: server::START_RETRY },
    }
}

#[async_trait]
impl ToolServers for McpServers {
    fn events(&self) -> mpsc::Receiver<ServerEvent> {
        let (sender, receiver) = mpsc::channel(EVENTS);
        let (queue, mut queued) = mpsc::unbounded_channel();
        let mut outlet = self.outlet.lock();
        for event in self.servers.load().values().flat_map(|server| server.present()) {
            let _ = queue.send(event);
        }
        if !self.stop.is_cancelled() {
            *outlet = Some(queue);
        }
        drop(outlet);
        // Between supervisors and followers is an unbounded queue, so that a slow follower blocks no supervisor.
        tokio::spawn(async move {
            while let Some(event) = queued.recv().await {
                if sender.send(event).await.is_err() {
                    return;
                }
            }
        });
        receiver
    }

    fn news(&self) -> mpsc::Receiver<ServerNews> {
        let (sender, receiver) = mpsc::channel(EVENTS);
        if !self.stop.is_cancelled() {
            self.outlet.send_news_to(Some(sender));
        }
        receiver
    }

    fn configure(&self, settings: Vec<ServerSettings>) -> Vec<ServerChange> {
        let mut tasks = self.tasks();
        if self.stop.is_cancelled() {
            return Vec::new();
        }
        let present = self.servers.load_full();
        let exchanges = settings.iter().filter_map(|server| server.remote.connect.as_ref()?.exchange.as_ref());
        self.token_headers.store(Arc::new(exchanges.map(|exchange| exchange.header.clone()).collect()));
        let (mut next, mut changes, mut begin) = (IndexMap::new(), Vec::new(), Vec::new());
        for settings in settings {
            let name = settings.name.clone();
            let former = present.get(&name);
            let keys = former.map(|former| former.settings().differences(&settings)).unwrap_or_default();
            let reconnects = keys.iter().any(|key| !ServerSettings::keeps_connection(key));
            let server = if let Some(former) = former.filter(|_| !reconnects) {
                former.adjust(settings);
                Arc::clone(former)
            } else {
                let server = Arc::new(Server::new(settings, Arc::clone(&self.outlet)));
                match former {
                    Some(_) if keys.iter().any(|key| ServerSettings::names_server(key)) => server.is_new(),
                    Some(former) => server.remember_from(former),
                    None => {}
                }
                begin.push(Arc::clone(&server));
                server
            };
            let kind = match former {
                None => ServerChangeKind::Added,
                Some(_) if keys.is_empty() => ServerChangeKind::Unchanged,
                Some(_) => ServerChangeKind::Changed { keys, reconnects },
            };
            next.insert(name.clone(), server);
            changes.push(ServerChange { server: name, kind });
        }
        let gone: Vec<_> = present.iter().filter(|(name, _)| !next.contains_key(*name)).collect();
        changes.extend(gone.iter().map(|(name, _)| ServerChange { server: (*name).clone(), kind: ServerChangeKind::Removed }));
        // The order matters: a caller that finds a server retired must find its successor, which must not start earlier.
        self.servers.store(Arc::new(next));
        for (name, server) in gone {
            self.surroundings.processes.logs.forget(name);
            server.retire(true);
            self.users.retire(server);
            if let Some(task) = tasks.shift_remove(name) {
                task.stop.cancel();
            }
        }
        for server in begin {
            self.succeed(present.get(&server.name), server, &mut tasks);
        }
        changes
    }

    fn restart(&self, name: &ServerName) -> bool {
        let mut tasks = self.tasks();
        let present = self.servers.load_full();
        let Some(former) = present.get(name).filter(|_| !self.stop.is_cancelled()) else { return false };
        let server = Arc::new(Server::new(ServerSettings::clone(&former.settings()), Arc::clone(&self.outlet)));
        server.remember_from(former);
        let mut next = IndexMap::clone(&present);
        next.insert(name.clone(), Arc::clone(&server));
        self.servers.store(Arc::new(next));
        self.succeed(Some(former), server, &mut tasks);
        true
    }

    fn log(&self, server: &ServerName) -> Vec<LogLine> {
        self.surroundings.processes.logs.lines(server)
    }

    fn states(&self) -> Vec<ServerState> {
        let with_users = |server: &Arc<Server>| {
            let is_per_user = !server.settings().per_user.is_empty();
            ServerState { user_connections: is_per_user.then(|| self.users.count(server)), ..server.state() }
        };
        self.servers.load().values().map(with_users).collect()
    }

    fn down(&self) -> Vec<ServerName> {
        let servers = self.servers.load();
        servers.values().filter(|server| server.is_down()).map(|server| server.name.clone()).collect()
    }

    async fn call(&self, tool: &ToolId, arguments: Arc<RawValue>, context: CallContext) -> Result<Box<RawValue>, CallError> {
        self.send(&tool.server, Request::Call { tool: &tool.name, arguments }, context).await
    }

    async fn ask(&self, server: &ServerName, request: PassthroughRequest, context: CallContext) -> Result<Box<RawValue>, CallError> {
        self.send(server, Request::Other(&request), context).await
    }

    fn offers(&self, server: &ServerName) -> Offers {
        self.servers.load().get(server).map(|server| server.offers()).unwrap_or_default()
    }

    fn forwards_headers(&self, server: &ServerName) -> bool {
        self.servers.load().get(server).is_some_and(|server| server.settings().remote.forwarding.is_some())
    }

    fn disconnect(&self, principal: &PrincipalId, server: Option<&ServerName>, parting: Parting) {
        self.users.disconnect(principal, server, parting);
    }

    fn introduce(&self, server: &ServerName, principal: &PrincipalId, credentials: Arc<Credentials>) {
        let Some(server) = self.servers.load().get(server).filter(|server| !server.is_linked()).cloned() else { return };
        let (users, owner) = (Arc::clone(&self.users), principal.clone());
        self.supervisors.spawn(async move {
            let until = Instant::now() + server.settings().start_timeout;
            if let Err(no_link) = users.link(&server, credentials.owner(&owner), &credentials, None, until).await {
                let error = unlinked(no_link);
                tracing::info!(server = %server.name, %error, "could not list the server's tools over a user's connection");
            }
        });
    }

    async fn introduce_for_call(
        &self,
        server: &ServerName,
        principal: &PrincipalId,
        credentials: &Credentials,
        until: Instant,
    ) -> Result<(), CallError> {
        let server = self.servers.load().get(server).cloned().ok_or(CallError::UnknownServer)?;
        if server.is_linked() {
            return Ok(());
        }
        let held = self.users.link(&server, credentials.owner(principal), credentials, None, until).await.map_err(unlinked)?;
        // A connection that existed before lists again. A new one may list twice.
        held.link.exchange.changed.notify_one();
        Ok(())
    }

    async fn shut_down(&self) {
        {
            let mut tasks = self.tasks();
            self.stop.cancel();
            tasks.clear();
        }
        self.supervisors.close();
        // If a supervisor is slower, the runtime drops it, which kills its child process.
        let _ = timeout(SHUTDOWN, self.supervisors.wait()).await;
        *self.outlet.lock() = None;
        self.outlet.send_news_to(None);
    }
}

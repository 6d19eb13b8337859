//! The configured MCP servers over rmcp: connections, lists of tools, calls.
//!
//! Each server has a supervisor task of its own, so a server that is dead, slow or broken neither delays nor hides
//! another. Calls read a shared link and never wait for a supervisor while the server is up. Absent on purpose: the
//! deprecated HTTP+SSE transport, forwarding of the caller's headers, and everything of MCP but tools.

mod call;
mod child;
mod connection;
mod exchange;
mod http;
mod list;
mod server;
mod stdio;
mod supervisor;
mod text;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use futures::future::join_all;
use indexmap::IndexMap;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::http::client_builder;
pub use self::supervisor::Timing;

use self::connection::LinkError;
use self::server::{Outlet, Patience, Server};
use self::supervisor::Supervisor;
use crate::domain::tool::{ServerName, ToolId};
use crate::service::ports::{CallContext, CallError, ServerEvent, ServerState, ToolServers};
use crate::settings::servers::{ServerSettings, TransportSettings};

/// Events on their way to who follows them.
const EVENTS: usize = 64;
/// The longest that ending all servers may take.
const SHUTDOWN: Duration = Duration::from_secs(8);
/// What a caller is told to wait after a server has dropped the connection in the middle of a call.
const AFTER_LOSS: Duration = Duration::from_secs(1);
const INTERNAL_ERROR: i64 = -32603;

/// What all servers share.
#[derive(Clone)]
pub struct Options {
    /// Made with [`client_builder`].
    pub client: reqwest::Client,
    /// Give children the whole environment instead of the allow-list.
    pub inherit_environment: bool,
    pub timing: Timing,
}

/// The configured MCP servers. Dropping it ends their connections and processes too, without waiting for it.
pub struct McpServers {
    options: Options,
    servers: ArcSwap<IndexMap<ServerName, Arc<Server>>>,
    tasks: Mutex<IndexMap<ServerName, Task>>,
    outlet: Arc<Outlet>,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

struct Task {
    stop: CancellationToken,
    done: JoinHandle<()>,
}

impl McpServers {
    /// Starts to connect to every server, in the background, and returns at once.
    #[must_use]
    pub fn start(settings: Vec<ServerSettings>, options: Options) -> Arc<Self> {
        let stop = CancellationToken::new();
        let servers = Arc::new(Self {
            options,
            servers: ArcSwap::default(),
            tasks: Mutex::default(),
            outlet: Arc::default(),
            stop: stop.clone(),
            _stop_on_drop: stop.drop_guard(),
        });
        servers.reconcile(settings);
        servers
    }

    /// Makes these the configured servers. Those that have not changed keep their connections.
    pub fn reconcile(&self, settings: Vec<ServerSettings>) {
        let mut tasks = self.tasks();
        if self.stop.is_cancelled() {
            return;
        }
        let present = self.servers.load();
        let mut next = IndexMap::new();
        for settings in settings {
            let name = settings.name.clone();
            let server = match present.get(&name) {
                Some(server) if is_same(&server.settings, &settings) => Arc::clone(server),
                _ => {
                    let server = Arc::new(Server::new(settings, Arc::clone(&self.outlet)));
                    if let Some(former) = present.get(&name) {
                        former.retire(false);
                    }
                    let former = tasks.shift_remove(&name);
                    tasks.insert(name.clone(), self.supervise(Arc::clone(&server), former));
                    server
                }
            };
            next.insert(name, server);
        }
        for (name, server) in present.iter().filter(|(name, _)| !next.contains_key(*name)) {
            server.retire(true);
            if let Some(task) = tasks.shift_remove(name) {
                task.stop.cancel();
            }
        }
        self.servers.store(Arc::new(next));
    }

    /// `former` ran this server with other settings; it gives way first.
    fn supervise(&self, server: Arc<Server>, former: Option<Task>) -> Task {
        let stop = self.stop.child_token();
        let supervisor = Supervisor {
            server,
            client: self.options.client.clone(),
            inherit_environment: self.options.inherit_environment,
            timing: self.options.timing,
            stop: stop.clone(),
        };
        let done = tokio::spawn(async move {
            if let Some(former) = former {
                former.stop.cancel();
                let _ = former.done.await;
            }
            supervisor.run().await;
        });
        Task { stop, done }
    }

    fn tasks(&self) -> MutexGuard<'_, IndexMap<ServerName, Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
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
        // Between a supervisor and who follows it lies a queue without end, so that a slow follower holds up nobody.
        tokio::spawn(async move {
            while let Some(event) = queued.recv().await {
                if sender.send(event).await.is_err() {
                    return;
                }
            }
        });
        receiver
    }

    fn states(&self) -> Vec<ServerState> {
        self.servers.load().values().map(|server| server.state()).collect()
    }

    async fn call(&self, tool: &ToolId, arguments: Map<String, Value>, context: CallContext) -> Result<Value, CallError> {
        let server = self.servers.load().get(&tool.server).cloned().ok_or(CallError::UnknownServer)?;
        let start = Instant::now();
        let limit = context.deadline.map_or(server.settings.call_timeout, |deadline| deadline.saturating_duration_since(start));
        let deadline = start + limit;
        let timing = self.options.timing;
        let patience = Patience { started: deadline.min(start + timing.start_patience), back: deadline.min(start + timing.patience) };
        let mut link = server.link(None, patience).await?;
        // A request that can't have reached the server is made once more.
        let mut spare = Some(arguments.clone());
        let mut arguments = arguments;
        loop {
            let call = call::call(&link, &tool.name, arguments, context.progress.clone());
            let error = match timeout_at(deadline, call).await {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(error)) => error,
                Err(_) => return Err(CallError::Timeout(limit)),
            };
            let reason = match error {
                LinkError::Protocol { code, message } => return Err(CallError::Protocol { code, message }),
                LinkError::TooLarge { limit } => return Err(CallError::TooLarge { limit }),
                LinkError::Refused(status) => return Err(CallError::Refused { status: status.as_u16() }),
                LinkError::Unusable(message) => return Err(CallError::Protocol { code: INTERNAL_ERROR, message }),
                LinkError::Closed { reason, sent } => {
                    link.exchange.suspect.notify_one();
                    if let (false, Some(again)) = (sent, spare.take()) {
                        link = server.link(Some(&link), patience).await?;
                        arguments = again;
                        continue;
                    }
                    reason.into_owned()
                }
            };
            return Err(CallError::Unavailable { reason, retry_after: AFTER_LOSS });
        }
    }

    async fn shut_down(&self) {
        let tasks = {
            let mut tasks = self.tasks();
            self.stop.cancel();
            std::mem::take(&mut *tasks)
        };
        // A supervisor that takes longer has its child killed when the runtime drops it.
        let _ = timeout(SHUTDOWN, join_all(tasks.into_values().map(|task| task.done))).await;
        *self.outlet.lock() = None;
    }
}

fn is_same(one: &ServerSettings, other: &ServerSettings) -> bool {
    let secrets = |secrets: &IndexMap<String, SecretString>| -> Vec<(String, String)> {
        secrets.iter().map(|(name, value)| (name.clone(), value.expose_secret().to_owned())).collect()
    };
    let transports = match (&one.transport, &other.transport) {
        (
            TransportSettings::Stdio { command, args, env, directory },
            TransportSettings::Stdio { command: command_2, args: args_2, env: env_2, directory: directory_2 },
        ) => (command, args, directory) == (command_2, args_2, directory_2) && secrets(env) == secrets(env_2),
        (TransportSettings::StreamableHttp { url, headers }, TransportSettings::StreamableHttp { url: url_2, headers: headers_2 }) => {
            url == url_2 && secrets(headers) == secrets(headers_2)
        }
        _ => false,
    };
    transports
        && (one.call_timeout, one.start_timeout, one.max_result_bytes) == (other.call_timeout, other.start_timeout, other.max_result_bytes)
        && one.disabled_tools == other.disabled_tools
}

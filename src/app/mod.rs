//! The composition root: builds adapters and services from the settings, and runs the application. Only this module
//! uses all layers.

mod background;
mod configuration;
mod foundation;
mod installation;
mod listening;
mod parts;
mod progress;
mod state;
mod stopping;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use actix_web::dev::Server;
use actix_web::web;
use tokio_util::sync::CancellationToken;

use self::background::{Tasks, follow_changes, follow_others, follow_stops};
use self::configuration::Configuration;
use self::foundation::{Foundation, open_store};
pub(crate) use self::installation::check_installation;
use self::listening::{bind, listen};
pub(crate) use self::parts::mcp_options;
pub use self::parts::select;
use self::parts::{KnownTools, Parts, SessionParts};
pub use self::state::publish_options;
use self::state::{shared_state, state};
pub use self::stopping::Stopper;
use crate::adapters::data_dir::{DataDir, DataDirError};
use crate::adapters::signals::{Hangups, Stops};
use crate::adapters::store::{OpenedStore, StoreOpenError};
use crate::adapters::{embed, systemd};
use crate::domain::installation::Mismatch;
use crate::service::access::policies::PolicyError;
use crate::service::catalog::reload::Reload;
use crate::service::ports::{IndexError, StoreError, ToolServers};
use crate::service::servers::StoredServers;
use crate::settings::{EntryRules, Settings};

/// The running service.
pub struct Application {
    server: Server,
    address: SocketAddr,
    is_secure: bool,
    servers: Arc<dyn ToolServers>,
    store: OpenedStore,
    reload: Arc<Reload>,
    stopper: Stopper,
    tasks: Tasks,
    // Locks the data folder as long as the service runs.
    _data_dir: DataDir,
}

impl StartError {
    /// Whether the configuration or the data folder is the reason, so that another start would fail too.
    pub fn is_invalid_configuration(&self) -> bool {
        match self {
            Self::Store(error) => error.is_lasting(),
            error => matches!(
                error,
                Self::Embedder(embed::EmbedderOpenError::Folder { .. })
                    | Self::OtherStore { .. }
                    | Self::OtherDatabase { .. }
                    | Self::Installation { .. }
                    | Self::Exposed { .. }
            ),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    #[error(
        "{} names an installation that had keys, rules, toolsets, servers, tags or approvals, and toolsieve.db next to it is not its database: \
         {reason}. Starting would allow access to blocked tools. Restore a backup (toolsieve restore FILE --force). To use this database anyway, \
         without any of that data, delete {}",
        file.display(), file.display()
    )]
    OtherStore { file: PathBuf, reason: Mismatch },
    #[error(
        "{} names an installation that had keys, rules, toolsets, servers, tags or approvals, and the database in store.url is not its database: \
         {reason}. Starting would allow access to blocked tools. Use the right database, or copy the state into this one (toolsieve store \
         copy). To use this database anyway, without any of that data, delete {}",
        file.display(), file.display()
    )]
    OtherDatabase { file: PathBuf, reason: Mismatch },
    #[error("{} can't be read: {source}. {}", file.display(), installation_remedy(source))]
    Installation { file: PathBuf, source: io::Error },
    #[error("callers can't be authenticated: {0}")]
    Keys(StoreError),
    #[error("the toolsets can't be read: {0}")]
    Toolsets(StoreError),
    #[error("the servers of the API can't be read: {0}")]
    Servers(StoreError),
    #[error("the switches of users can't be read: {0}")]
    Switches(StoreError),
    #[error("the tool metadata can't be read: {0}")]
    ToolOverrides(StoreError),
    #[error("the policy can't be applied: {0}")]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(
        "the folder {} can't be used: {source}. Give this user access to it and to everything in it, or delete it: the index is a cache, \
         which the service builds again",
        folder.display()
    )]
    IndexFolder { folder: PathBuf, source: io::Error },
    #[error(transparent)]
    Embedder(#[from] embed::EmbedderOpenError),
    #[error("the folder {} can't be used: {source}. Give this user access to it and to everything in it", folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    #[error("the key of signed links can't be read: {0}")]
    LinkKey(StoreError),
    #[error("no HTTP client: {0}")]
    Client(reqwest::Error),
    #[error("signals can't be handled: {0}")]
    Signal(io::Error),
    #[error("can't listen on {address}: {source}. Choose another port with --port.")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(
        "the socket {address} that was passed to the service is reachable from other machines without a key: set a key in \
         TOOLSIEVE_API_KEY, use a loopback address in the socket unit, or allow it with --insecure"
    )]
    Exposed { address: SocketAddr },
}

/// A file that this user may not read is not damaged, and must not be deleted: it protects the data.
fn installation_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "Give this user access to it",
        _ => "Restore it from a backup, or delete it if the database is the right one",
    }
}

impl Application {
    /// Starts all parts, and returns as soon as the service listens. MCP servers connect in the background.
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        // The future is large, and callers would contain it.
        Box::pin(Self::start_on(settings, None)).await
    }

    /// Like [`Self::start`], on a socket that another process keeps open, if there is one.
    pub async fn start_on(settings: Settings, socket: Option<TcpListener>) -> Result<Self, StartError> {
        let started = Instant::now();
        let (start, mut tasks) = (&settings.start, Tasks::default());
        let hangups = Hangups::listen().map_err(StartError::Signal)?;
        // Comes first, so that nothing has been started if the address is in use.
        let is_socket_kept = socket.is_some();
        let (listener, address) = bind(start, socket)?;

        let data_dir = DataDir::open(&start.store.data_dir)?;
        let database = open_store(start, &data_dir).await?;
        let store = database.port();
        // Comes before the parts are loaded, so that no change in between is missed.
        let versions = store.state_versions().await.map_err(StartError::Keys)?;
        let stored_servers = StoredServers::load(store.as_ref(), start.secrets.keys.as_ref()).await.map_err(StartError::Servers)?;
        let rules = EntryRules { start, calls: &settings.live.calls };
        let live = rules.merge(&settings.live.servers, &stored_servers.overrides()).within(&settings.live);
        let known = KnownTools::read(&store, &live);
        let foundation = Foundation::open(started, (start, &live), &data_dir, &database, &mut tasks).await?;

        let parts = Parts::start(&foundation, known, &mut tasks).await?;
        let configuration = Configuration::new(&settings, &foundation, &parts, stored_servers);
        let (closing, draining) = (tasks.stop().child_token(), CancellationToken::new());
        let sessions = SessionParts::start(&foundation, &parts, &closing, &mut tasks);
        let shared = Arc::new(shared_state(&foundation, &parts, &configuration, versions));
        tasks.add(follow_others(Arc::clone(&shared), tasks.stop()));

        let (servers, reload) = (Arc::clone(&parts.catalog.servers), Arc::clone(&configuration.reload));
        let state = state(foundation, parts, sessions, configuration, shared, draining.clone());
        let (server, connections) = match listen(start, listener, address, web::Data::new(state)) {
            Ok(listening) => listening,
            Err(error) => {
                servers.shut_down().await;
                return Err(error);
            }
        };
        // Comes before clients can learn that the service is ready. From here on, a stop signal is remembered until it
        // can be handled.
        let stops = Stops::listen().map_err(StartError::Signal)?;
        let stopper = Stopper {
            server: server.handle(),
            connections,
            draining,
            closing,
            hurry: CancellationToken::new(),
            delay: start.http.shutdown_delay,
            is_socket_kept,
        };
        let server_count = live.servers.len();
        tracing::info!(%address, data_dir = %start.store.data_dir.display(), store = %database, servers = server_count, "listening");
        systemd::ready();
        let watched = start.reload.watch.then(|| reload.files());
        follow_changes(&reload, hangups, watched, stopper.clone(), &mut tasks);
        tasks.add(follow_stops(stops, stopper.clone(), tasks.stop()));
        let is_secure = start.http.tls.is_some();
        Ok(Self { server, address, is_secure, servers, store: database, reload, stopper, tasks, _data_dir: data_dir })
    }

    /// The service's URL on this machine.
    pub fn url(&self) -> String {
        let host = if self.address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { self.address.ip().to_string() };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{host}:{}", self.address.port())
    }

    /// A handle that reloads the configuration.
    pub fn reload(&self) -> Arc<Reload> {
        Arc::clone(&self.reload)
    }

    /// A handle that stops the application.
    pub fn handle(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Serves until a signal or [`Application::handle`] stops the service. Then ends all server processes and writes
    /// pending data.
    ///
    /// # Errors
    /// An error of the listener.
    pub async fn run(self) -> io::Result<()> {
        let result = self.server.await;
        tracing::info!("stopping");
        self.servers.shut_down().await;
        self.tasks.end().await;
        self.store.close().await;
        result
    }
}

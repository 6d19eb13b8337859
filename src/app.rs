//! The composition root: settings → adapters → services → a running application. Only this module sees everything.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use actix_web::dev::{Server, ServerHandle};
use actix_web::{App, HttpServer, middleware, web};
use arc_swap::ArcSwap;
use tokio::net::TcpSocket;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use utoipa_actix_web::AppExt;

use crate::adapters::data_dir::{DataDir, DataDirError};
use crate::adapters::embed;
use crate::adapters::files::FileFolder;
use crate::adapters::hangup::{Hangup, Hangups};
use crate::adapters::index::{EmbeddedIndex, EmbeddedIndexOptions, RemoteIndex, RemoteIndexOptions, Spread, Timing};
use crate::adapters::llm::{self, ChatModels};
use crate::adapters::mcp::{self, McpServers};
use crate::adapters::process;
use crate::adapters::store::{OpenError, SqliteStore};
use crate::adapters::tokens::TokenCounter;
use crate::adapters::watch::FileWatch;
use crate::domain::layout::{Layout, Naming};
use crate::domain::relevance::LexicalModel;
use crate::http;
use crate::http::caller::{Access, Admission};
use crate::http::state::State;
use crate::service::audit::Audit;
use crate::service::chats::Chats;
use crate::service::current::{CurrentCatalog, LiveSelection};
use crate::service::definitions::Definitions;
use crate::service::describe::Describe;
use crate::service::enrich::Enriching;
use crate::service::enrich::admin::EnrichmentAdmin;
use crate::service::enrich::feed::EnrichmentFeed;
use crate::service::execute::Execute;
use crate::service::exposition::{Exposition, Parts};
use crate::service::feedback::Feedback;
use crate::service::files::Files;
use crate::service::find::Find;
use crate::service::judges::Judges;
use crate::service::keys::Keys;
use crate::service::limits::Limits;
use crate::service::loading::Loading;
use crate::service::mcp_sessions::McpSessions;
use crate::service::message_selections::MessageSelections;
use crate::service::meta_tokens::MetaTokens;
use crate::service::meters::{CacheKind, Meters};
use crate::service::passthrough::Passthrough;
use crate::service::policies::{Policies, PolicyError};
use crate::service::ports::{IndexError, Store, StoreError, ToolIndex, ToolServers, recovered};
use crate::service::publish::{Publish, PublishOptions};
use crate::service::rebuild::Rebuilds;
use crate::service::record::{Recorder, Retention};
use crate::service::refresh::{Beside, CountTokens, Indexing, Refresh, configured};
use crate::service::reload::{Apply, Reload, Trigger};
use crate::service::report::Report;
use crate::service::retrieve::Retrieve;
use crate::service::secrets::Secrets;
use crate::service::select::Select;
use crate::service::sessions::Sessions;
use crate::service::smart_select::SmartSelect;
use crate::service::status::Status;
use crate::service::subscriptions::Subscriptions;
use crate::service::tool_admin::ToolAdmin;
use crate::service::tool_facts::Facts;
use crate::service::toolsets::Toolsets;
use crate::service::usage::Usage;
use crate::service::waiting_calls::WaitingCalls;
use crate::settings::{HttpSettings, LiveSettings, LlmSettings, McpoSettings, QdrantSettings, Settings, StartSettings};

/// How long calls in flight may go on after the service was told to stop, in seconds.
const SHUTDOWN_SECONDS: u64 = 5;
/// Connections that the system keeps for us until they are accepted.
const BACKLOG: u32 = 2048;

/// The service, listening.
pub struct Application {
    server: Server,
    address: SocketAddr,
    is_secure: bool,
    servers: Arc<dyn ToolServers>,
    store: Arc<SqliteStore>,
    reload: Arc<Reload>,
    /// Ends streams on which nothing is answered.
    closing: CancellationToken,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    // Held until the end: it locks the folder.
    _data_dir: DataDir,
}

impl StartError {
    /// Whether the configuration is wrong: another start would fail too.
    #[must_use]
    pub fn is_invalid_configuration(&self) -> bool {
        matches!(self, Self::Embedder(embed::OpenError::Folder { .. }))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error("callers can't be told: {0}")]
    Keys(StoreError),
    #[error("the toolsets can't be read: {0}")]
    Toolsets(StoreError),
    #[error("what is known about tools can't be read: {0}")]
    ToolFacts(StoreError),
    #[error("the policy can't be put in force: {0}")]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Embedder(#[from] embed::OpenError),
    #[error("the folder for files: {0}")]
    Files(io::Error),
    #[error("no HTTP client: {0}")]
    Client(reqwest::Error),
    #[error("SIGHUP can't be heard: {0}")]
    Signal(io::Error),
    #[error("can't listen on {address}: {source}. Choose another port with --port.")]
    Listen { address: SocketAddr, source: io::Error },
}

impl Application {
    /// Starts everything; returns when the service listens. MCP servers connect in the background.
    ///
    /// # Errors
    /// [`StartError`]
    #[expect(clippy::too_many_lines, reason = "the composition root names every part once, in the order in which they need each other")]
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        let started = Instant::now();
        let stop = CancellationToken::new();
        let hangups = Hangups::listen().map_err(StartError::Signal)?;
        // Before anything is started: an address that is in use starts nothing.
        let (listener, address) = bind(&settings.start.http)?;
        let (start, live) = (settings.start.clone(), settings.live.clone());
        let data_dir = DataDir::open(&start.store.data_dir)?;
        let sqlite = Arc::new(SqliteStore::open(&data_dir.database()).await?);
        let store: Arc<dyn Store> = Arc::clone(&sqlite) as _;
        let meters = Arc::new(Meters::new(start.metrics.per_tool));
        let embedder = embed::open_metered(&start.embedder, meters.cache(CacheKind::Vectors))?;
        let index = open_index(&start, &data_dir, embedder.model())?;
        let (keys, noting) = Keys::start(Arc::clone(&store), stop.clone()).await.map_err(StartError::Keys)?;
        let current = Arc::new(CurrentCatalog::default());
        let toolsets = Toolsets::start(Arc::clone(&current), Arc::clone(&store), &live).await.map_err(StartError::Toolsets)?;
        let toolsets = Arc::new(toolsets);
        let policies = Arc::new(Policies::start(Arc::clone(&current), Arc::clone(&store), Arc::clone(&keys), &live).await?);

        let counter = TokenCounter::default();
        let (catalog, catalog_changes) = watch::channel(configured(&live.servers));
        let count_tokens: CountTokens = Arc::new(move |texts: &[String]| counter.count(texts));
        let (rebuilds, requests) = Rebuilds::channel();
        let facts = Arc::new(Facts::start(Arc::clone(&store), rebuilds.clone(), &live).await.map_err(StartError::ToolFacts)?);
        let definitions = Definitions::start(Arc::clone(&store), live.definitions).await.map_err(StartError::ToolFacts)?;
        let definitions = Arc::new(definitions);
        let beside = Beside { facts: Arc::clone(&facts), definitions: Arc::clone(&definitions), rebuilds: requests };
        let mut refresh = Refresh::new(Arc::clone(&current), Arc::clone(&store), Arc::clone(&count_tokens), catalog_changes, beside)
            .with_tool_tokens(start.documents.tool_tokens);
        let server_count = live.servers.len();
        let files = files(&data_dir, &start).map_err(StartError::Files)?;
        let servers: Arc<dyn ToolServers> = McpServers::start(live.servers.clone(), mcp_options(&start, &data_dir)?);
        let known = refresh.load_last_good().await;
        let selection: LiveSelection = Arc::new(ArcSwap::from_pointee(live.selection.clone()));

        let (recorder, recording) = Recorder::start(Arc::clone(&store), retention(&start), stop.clone());
        let recorder = recorder.with_meters(Arc::clone(&meters)).with_texts(start.learning.message_text);
        let (audit, auditing) = Audit::start(Arc::clone(&store), start.store.audit_retention, stop.clone());
        let (chats, chat_writing) = Chats::start(Arc::clone(&store), Arc::clone(&selection), stop.clone());
        let events = servers.events();
        let following = tokio::spawn(async move { refresh.follow(events).await });
        let (enrichment, enriching) = enrichment(&start.llm, &current, &store, stop.clone())?;
        let indexing = Indexing {
            current: Arc::clone(&current),
            store: Arc::clone(&store),
            index: Arc::clone(&index),
            embedder: Arc::clone(&embedder),
            lexical: LexicalModel::default(),
            on_progress: progress::embedding(),
            enrichment: Arc::clone(&enrichment.feed),
            unused_retention: start.store.unused_retention,
        };
        let indexing = keep_indexed(indexing, stop.clone());

        let retrieve = Retrieve::new(Arc::clone(&embedder), Arc::clone(&index), Arc::clone(&selection));
        let retrieve = Arc::new(retrieve.with_meters(Arc::clone(&meters)));
        let judges = Arc::new(judges(&start.llm)?.with_meters(Arc::clone(&meters)));
        let teaching = teach(Arc::clone(&retrieve), Arc::clone(&store), embedder.recoveries(), stop.clone());
        let secrets = Arc::new(Secrets::new(Arc::clone(&store), Arc::clone(&servers), start.secrets.keys.clone(), &live));
        let resealing = reseal(Arc::clone(&secrets), stop.clone());
        let limits = Arc::new(Limits::new(Arc::clone(&meters)));
        limits.configure(&live);
        let execute =
            Execute::new(Arc::clone(&current), Arc::clone(&servers), recorder.clone(), audit.clone(), files.clone(), Arc::clone(&secrets));
        let execute = Arc::new(execute.with_limits(Arc::clone(&limits)));
        execute.configure(&live);
        let parts = Parts {
            current: Arc::clone(&current),
            servers: Arc::clone(&servers),
            index: Arc::clone(&index),
            embedder: Arc::clone(&embedder),
            recorder: recorder.clone(),
            audit: audit.clone(),
            process: Arc::new(process::read),
        };
        let exposition = Exposition::new(&meters, parts);
        let publish = Publish::new(Arc::clone(&current), publish_options(&start)).with_meter(meters.cache(CacheKind::Documents));
        let admission = Arc::new(admission(&start, &live, &keys));
        let takers = (Arc::clone(&toolsets), Arc::clone(&policies), Arc::clone(&secrets), Arc::clone(&limits));
        let apply = apply(Arc::clone(&execute), Arc::clone(&selection), Arc::clone(&admission), takers);
        let apply = apply_to_tools(apply, Arc::clone(&facts), Arc::clone(&definitions));
        let reload = Arc::new(Reload::new(&settings, Arc::clone(&servers), catalog, apply));
        let loading = Arc::new(Loading {
            current: Arc::clone(&current),
            store: Arc::clone(&store),
            chats: chats.clone(),
            selection: Arc::clone(&selection),
            recorder: recorder.clone(),
        });
        let find = Find {
            current: Arc::clone(&current),
            retrieve: Arc::clone(&retrieve),
            loading: Arc::clone(&loading),
            selection: Arc::clone(&selection),
            recorder: recorder.clone(),
        };
        let select = Select::new(
            Arc::clone(&current),
            Arc::clone(&retrieve),
            Arc::clone(&judges),
            chats,
            recorder.clone(),
            Arc::clone(&selection),
            MetaTokens::new(count_tokens),
        );
        let select = Arc::new(select);
        let (sessions, session_noting) =
            Sessions::start(Arc::clone(&current), Arc::clone(&select), Arc::clone(&store), start.sessions.clone(), stop.clone());
        let waiting_calls = WaitingCalls::new(start.mcp.waiting.clone(), stop.clone());
        let closing = stop.child_token();
        let (mcp_sessions, session_keeping) = McpSessions::start(Arc::clone(&current), start.mcp.clone(), closing.clone());
        let passthrough =
            Passthrough::new(Arc::clone(&current), Arc::clone(&servers), Arc::clone(&secrets), Arc::clone(&limits), audit.clone());
        let passthrough = Arc::new(passthrough);
        let (subscriptions, subscribing) = Subscriptions::start(
            Arc::clone(&current),
            Arc::clone(&servers),
            Arc::clone(&passthrough),
            Arc::clone(&mcp_sessions),
            start.mcp.clone(),
            closing.clone(),
        );
        let status = Status {
            current: Arc::clone(&current),
            servers: Arc::clone(&servers),
            index,
            store: Arc::clone(&store),
            embedder,
            reload: Arc::clone(&reload),
            definitions: Arc::clone(&definitions),
            started,
            was_ready: AtomicBool::new(known > 0),
        };
        let state = web::Data::new(State {
            admission,
            policies,
            audit,
            current: Arc::clone(&current),
            keys,
            secrets,
            body_limit: start.http.max_body_bytes,
            publish,
            execute: Arc::clone(&execute),
            files,
            find,
            describe: Describe { execute },
            smart_select: SmartSelect { current: Arc::clone(&current), retrieve, judges, recorder: recorder.clone() },
            public_url: start.http.public_url.as_ref().map(|url| url.as_str().trim_end_matches('/').to_owned()),
            select,
            message_selections: MessageSelections::default(),
            sessions,
            toolsets,
            loading,
            metrics: start.metrics,
            meters,
            exposition,
            limits,
            mcp_sessions,
            waiting_calls,
            passthrough,
            subscriptions,
            feedback: Feedback { current: Arc::clone(&current), store: Arc::clone(&store), recorder },
            usage: Usage { store: Arc::clone(&store) },
            report: Report { store: Arc::clone(&store) },
            enrichment,
            tool_admin: ToolAdmin { current, facts, definitions, rebuilds, servers: Arc::clone(&servers), store: Arc::clone(&store) },
            status,
        });
        let server = match listen(&start, listener, address, state) {
            Ok(server) => server,
            Err(error) => {
                servers.shut_down().await;
                return Err(error);
            }
        };
        tracing::info!(%address, data_dir = %start.store.data_dir.display(), servers = server_count, "listening");
        let watched = if start.reload.watch { settings.sources.files() } else { Vec::new() };
        let (reloading, watching) = follow_changes(&reload, hangups, &watched, stopper(&server, &closing), &stop);
        let terminating = tokio::spawn(end_streams(closing.clone()));
        Ok(Self {
            server,
            closing,
            address,
            is_secure: start.http.tls.is_some(),
            servers,
            store: sqlite,
            reload,
            stop,
            tasks: vec![
                recording,
                chat_writing,
                noting,
                session_noting,
                session_keeping,
                subscribing,
                terminating,
                auditing,
                resealing,
                following,
                indexing,
                enriching,
                teaching,
                reloading,
                watching,
            ],
            _data_dir: data_dir,
        })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where this machine reaches the service.
    #[must_use]
    pub fn url(&self) -> String {
        let host = if self.address.ip().is_unspecified() { "127.0.0.1".to_owned() } else { self.address.ip().to_string() };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{host}:{}", self.address.port())
    }

    /// Takes over a changed configuration when used.
    #[must_use]
    pub fn reload(&self) -> Arc<Reload> {
        Arc::clone(&self.reload)
    }

    /// Stops the application when used.
    #[must_use]
    pub fn handle(&self) -> Stopper {
        stopper(&self.server, &self.closing)
    }

    /// Serves until SIGINT, SIGTERM or [`Application::handle`] say stop, then ends every child process and writes
    /// down what waits.
    ///
    /// # Errors
    /// What the listener died of.
    pub async fn run(self) -> io::Result<()> {
        let result = self.server.await;
        tracing::info!("stopping");
        self.servers.shut_down().await;
        self.stop.cancel();
        for task in self.tasks {
            if tokio::time::timeout(Duration::from_secs(SHUTDOWN_SECONDS), task).await.is_err() {
                tracing::warn!("a background task did not end in time");
            }
        }
        self.store.close().await;
        result
    }
}

/// Stops the application.
#[derive(Clone)]
pub struct Stopper {
    server: ServerHandle,
    closing: CancellationToken,
}

impl Stopper {
    /// Takes no more requests and resolves when those under way are answered, within bounds; without `graceful`, at once.
    pub async fn stop(&self, graceful: bool) {
        self.closing.cancel();
        self.server.stop(graceful).await;
    }
}

fn stopper(server: &Server, closing: &CancellationToken) -> Stopper {
    Stopper { server: server.handle(), closing: closing.clone() }
}

/// A stream on which a client only listens has no end of its own: when the process is told to stop, the server would wait for it as for a
/// call.
async fn end_streams(closing: CancellationToken) {
    match signal(SignalKind::terminate()) {
        Ok(mut terminated) => {
            tokio::select! {
                _ = terminated.recv() => closing.cancel(),
                () = closing.cancelled() => {}
            }
        }
        Err(error) => tracing::warn!(%error, "streams will hold up the stop of the process by {SHUTDOWN_SECONDS} s"),
    }
}

/// Teaches the gate now, and again whenever the embedder can what it could not before.
fn teach(
    retrieve: Arc<Retrieve>,
    store: Arc<dyn Store>,
    mut recoveries: Option<watch::Receiver<u64>>,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let teach = async {
            loop {
                retrieve.teach_gate(store.as_ref()).await;
                recovered(&mut recoveries).await;
            }
        };
        stop.run_until_cancelled(teach).await;
    })
}

/// Seals with the present key what former ones have sealed.
fn reseal(secrets: Arc<Secrets>, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        stop.run_until_cancelled(secrets.reseal()).await;
    })
}

fn keep_indexed(indexing: Indexing, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move { indexing.follow(stop).await })
}

/// Reloads at a `SIGHUP`, and when one of these files has changed.
fn follow_changes(
    reload: &Arc<Reload>,
    mut hangups: Hangups,
    files: &[PathBuf],
    server: Stopper,
    stop: &CancellationToken,
) -> (JoinHandle<()>, JoinHandle<()>) {
    let (triggers, queue) = mpsc::channel(1);
    let mut files = if files.is_empty() {
        None
    } else {
        FileWatch::start(files)
            .inspect(|_| tracing::info!(files = files.len(), "watching the configuration"))
            .inspect_err(|error| tracing::warn!(%error, "the configuration is not watched; a SIGHUP still reloads it"))
            .ok()
    };
    let (follower, stopped) = (Arc::clone(reload), stop.clone());
    let reloading = tokio::spawn(async move { follower.follow(queue, stopped).await });
    let stopped = stop.clone();
    let watching = tokio::spawn(async move {
        if files.is_some() {
            // What changed between reading and watching.
            let _ = triggers.send(Trigger::Files).await;
        }
        loop {
            let changed = async {
                match &mut files {
                    Some(files) => files.changed().await,
                    None => std::future::pending().await,
                }
            };
            let trigger = tokio::select! {
                () = changed => Trigger::Files,
                hangup = hangups.next() => match hangup {
                    Hangup::Reload => Trigger::Request,
                    Hangup::TerminalGone => {
                        tracing::info!("the terminal is gone");
                        server.stop(true).await;
                        return;
                    }
                },
                () = stopped.cancelled() => return,
            };
            let _ = triggers.send(trigger).await;
        }
    });
    (reloading, watching)
}

/// Files can only be handed out under an address that callers know.
fn files(data_dir: &DataDir, start: &StartSettings) -> io::Result<Option<Arc<Files>>> {
    let Some(public_url) = &start.http.public_url else { return Ok(None) };
    let folder = FileFolder::open(data_dir.files(), start.files.max_total_bytes)?;
    let key = folder.signing_key()?;
    Ok(Some(Arc::new(Files::new(Arc::new(folder), key, public_url, start.files.lifetime))))
}

fn mcp_options(settings: &StartSettings, data_dir: &DataDir) -> Result<mcp::Options, StartError> {
    let client = mcp::client_builder().build().map_err(StartError::Client)?;
    let timing = mcp::Timing { drain: settings.reload.drain, ..mcp::Timing::default() };
    Ok(mcp::Options {
        client,
        inherit_environment: settings.mcpo.is_some(),
        oauth: Some(data_dir.oauth()),
        timing,
        users: settings.user_connections.clone(),
        questions: mcp::Questions { elicitation: settings.mcp.elicitation, sampling: settings.mcp.sampling },
    })
}

/// Whoever can be asked for a judgement.
pub(crate) fn judges(settings: &LlmSettings) -> Result<Judges, StartError> {
    let client = llm::client_builder().build().map_err(StartError::Client)?;
    Ok(Judges::new(Arc::new(ChatModels::new(client, settings.clone())), settings.clone()))
}

/// What is written about tools, and who has a language model write more, where that is wanted.
fn enrichment(
    settings: &LlmSettings,
    current: &Arc<CurrentCatalog>,
    store: &Arc<dyn Store>,
    stop: CancellationToken,
) -> Result<(EnrichmentAdmin, JoinHandle<()>), StartError> {
    let model = settings.enrichment.as_ref().map(|enrichment| enrichment.endpoint.model.clone());
    let feed = Arc::new(EnrichmentFeed::new(model));
    let admin = EnrichmentAdmin { current: Arc::clone(current), store: Arc::clone(store), feed: Arc::clone(&feed) };
    let Some(enrichment) = settings.enrichment.clone() else { return Ok((admin, tokio::spawn(async {}))) };
    let client = llm::client_builder().build().map_err(StartError::Client)?;
    let enricher = Arc::new(ChatModels::new(client, settings.clone()));
    let enriching = Enriching { current: Arc::clone(current), store: Arc::clone(store), enricher, settings: enrichment, feed };
    Ok((admin, tokio::spawn(async move { enriching.follow(stop).await })))
}

/// Hands settings that can change to the use cases that go by them.
fn apply(
    execute: Arc<Execute>,
    selection: LiveSelection,
    admission: Arc<Admission>,
    (toolsets, policies, secrets, limits): (Arc<Toolsets>, Arc<Policies>, Arc<Secrets>, Arc<Limits>),
) -> Apply {
    Box::new(move |live| {
        secrets.configure(live);
        limits.configure(live);
        admission.groups.store(Arc::new(live.groups.clone()));
        toolsets.configure(live);
        policies.configure(live);
        execute.configure(live);
        selection.store(Arc::new(live.selection.clone()));
    })
}

/// The same, with what tools are made of. The catalog follows when it is told of the servers, after this.
fn apply_to_tools(apply: Apply, facts: Arc<Facts>, definitions: Arc<Definitions>) -> Apply {
    Box::new(move |live| {
        apply(live);
        facts.configure(live);
        definitions.configure(live.definitions);
    })
}

pub(crate) fn retention(start: &StartSettings) -> Retention {
    let store = &start.store;
    Retention { chats: store.chat_retention, events: store.event_retention, usage: store.usage_retention }
}

fn open_index(settings: &StartSettings, data_dir: &DataDir, model: &str) -> Result<Arc<dyn ToolIndex>, IndexError> {
    let progress = progress::indexing();
    let Some(qdrant) = settings.index.qdrant.clone() else {
        let options = EmbeddedIndexOptions { folder: data_dir.index(), model: model.into(), progress };
        return Ok(EmbeddedIndex::open(options)?);
    };
    let QdrantSettings { urls, api_key, timeout, prefix, shards, replicas } = qdrant;
    let timing = Timing { search: timeout, ..Timing::default() };
    Ok(RemoteIndex::open(RemoteIndexOptions { urls, api_key, prefix, spread: Spread { shards, replicas }, timing, progress })?)
}

/// What all documents have in common.
#[must_use]
pub fn publish_options(settings: &StartSettings) -> PublishOptions {
    let secured = settings.http.api_key.is_some() || settings.access.admin_key.is_some();
    let Some(mcpo) = &settings.mcpo else { return PublishOptions { secured, ..PublishOptions::default() } };
    let McpoSettings { single, path_prefix, root_path, title, version, description, .. } = mcpo.clone();
    let layout = Layout { root_path, prefix: path_prefix, single, naming: Naming::Mcpo };
    PublishOptions { secured, layout, title, version, description }
}

fn access(settings: &StartSettings) -> Access {
    let http = &settings.http;
    match (&http.api_key, &settings.mcpo) {
        (Some(key), Some(mcpo)) => Access::Mcpo { key: key.clone(), strict: mcpo.strict_auth },
        (Some(key), None) => Access::Key(Some(key.clone())),
        (None, _) if settings.access.admin_key.is_some() => Access::Key(None),
        (None, _) if http.insecure => Access::Everybody,
        (None, _) => Access::Loopback { origins: http.cors_origins.clone() },
    }
}

fn admission(start: &StartSettings, live: &LiveSettings, keys: &Arc<Keys>) -> Admission {
    if start.http.api_key.is_some() && start.access.admin_key.is_none() {
        tracing::info!("access.admin_key is not set: nobody can administer keys");
    }
    Admission {
        access: access(start),
        keys: Arc::clone(keys),
        admin_key: start.access.admin_key.clone(),
        trust_users: start.access.trust_users,
        user_jwt_secret: start.access.user_jwt_secret.clone(),
        groups: ArcSwap::from_pointee(live.groups.clone()),
        warned: AtomicBool::new(false),
    }
}

/// Takes the address. Who connects waits until the service is there.
fn bind(settings: &HttpSettings) -> Result<(TcpListener, SocketAddr), StartError> {
    let address = SocketAddr::new(settings.host, settings.port);
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?.into_std()?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    bind().map_err(|source| StartError::Listen { address, source })
}

fn listen(settings: &StartSettings, listener: TcpListener, address: SocketAddr, state: web::Data<State>) -> Result<Server, StartError> {
    let failed = |source| StartError::Listen { address, source };
    let (http, as_mcpo) = (&settings.http, settings.mcpo.is_some());
    if http.public_url.is_none() {
        tracing::warn!("http.public_url is not set: answers carry no links");
    }
    let origins = http.cors_origins.clone();
    let body_limit = http.max_body_bytes;
    let server = HttpServer::new(move || {
        let layout = state.publish.layout().clone();
        App::new()
            .into_utoipa_app()
            .map(|app| {
                app.app_data(state.clone())
                    .app_data(web::PayloadConfig::new(body_limit))
                    .wrap(middleware::from_fn(http::caller::admit))
                    .wrap(middleware::from_fn(http::meter::count))
                    .wrap(http::cors(&origins, as_mcpo))
            })
            .configure(http::configure)
            .into_app()
            .configure(|config| http::configure_servers(config, &layout))
    })
    // A caller that goes away cancels its call; half-closed connections would hide that.
    .h1_allow_half_closed(false)
    .tcp_nodelay(true)
    .shutdown_timeout(SHUTDOWN_SECONDS);
    let server = match &http.tls {
        Some(tls) => server.listen_rustls_0_23(listener, rustls::ServerConfig::clone(&tls.config)),
        None => server.listen(listener),
    };
    Ok(server.map_err(failed)?.run())
}

/// Progress of work in the background: a bar on a terminal when it takes longer, a log line at its end.
mod progress {
    use std::io::IsTerminal;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use indicatif::{ProgressBar, ProgressStyle};

    use crate::adapters::index::IndexProgress;
    use crate::service::refresh::OnProgress;

    /// Work that is done sooner shows nothing.
    const PATIENCE: Duration = Duration::from_secs(1);

    /// Work under way.
    struct Work {
        since: Instant,
        bar: Option<ProgressBar>,
    }

    impl Work {
        fn begin() -> Self {
            Self { since: Instant::now(), bar: None }
        }

        fn show(&mut self, what: &'static str, done: usize, total: usize) {
            if self.bar.is_none() && self.since.elapsed() > PATIENCE && std::io::stderr().is_terminal() {
                let style =
                    ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {eta}").unwrap_or_else(|_| ProgressStyle::default_bar());
                self.bar = Some(ProgressBar::new(total as u64).with_style(style).with_message(what));
            }
            if let Some(bar) = &self.bar {
                bar.set_position(done as u64);
            }
        }

        fn end(&self) -> Duration {
            if let Some(bar) = &self.bar {
                bar.finish_and_clear();
            }
            self.since.elapsed()
        }
    }

    fn milliseconds(took: Duration) -> u64 {
        u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn embedding() -> OnProgress {
        let work: Mutex<Option<Work>> = Mutex::new(None);
        Arc::new(move |done, total| {
            let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
            let current = work.get_or_insert_with(Work::begin);
            current.show("embedding tools", done, total);
            if done >= total {
                tracing::info!(texts = total, took_ms = milliseconds(current.end()), "tools embedded");
                *work = None;
            }
        })
    }

    pub(super) fn indexing() -> Arc<dyn Fn(IndexProgress) + Send + Sync> {
        let work: Mutex<Option<Work>> = Mutex::new(None);
        Arc::new(move |progress| {
            let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
            let current = work.get_or_insert_with(Work::begin);
            match progress {
                IndexProgress::Storing { done, total } => current.show("indexing tools", done, total),
                IndexProgress::Optimizing => current.show("optimising the index", 0, 1),
                IndexProgress::Finished => {
                    tracing::debug!(took_ms = milliseconds(current.end()), "index built");
                    *work = None;
                }
            }
        })
    }
}

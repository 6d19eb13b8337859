//! The composition root: builds adapters and services from the settings, and runs the application. Only this module
//! uses all layers.

mod background;
mod installation;
mod listening;
mod parts;
mod progress;
mod stopping;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use actix_web::dev::Server;
use actix_web::web;
use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::background::{
    clean, end_sessions, export_spans, follow_changes, follow_others, follow_stops, keep_indexed, learn_again, learn_from_others,
    list_shared, reseal, share_limits, teach,
};
pub(crate) use self::installation::check_installation;
use self::listening::{admission, bind, listen, replica};
pub(crate) use self::parts::mcp_options;
use self::parts::{
    apply, apply_to_keys, apply_to_tools, enrichment, files, judges, kept_after_expiry, open_index, record_enrichment, retention, spools,
};
pub use self::parts::{publish_options, select};
pub use self::stopping::Stopper;
use crate::adapters::authorization::HttpAuthorizationClient;
use crate::adapters::data_dir::{self, DataDir, DataDirError};
use crate::adapters::mcp::McpServers;
use crate::adapters::signals::{Hangups, Stops};
use crate::adapters::store::{OpenedStore, StoreOpenError};
use crate::adapters::tokens::TokenCounter;
use crate::adapters::{embed, log, process, systemd, telemetry};
use crate::domain::installation::Mismatch;
use crate::http::access_log::AccessLog;
use crate::http::body::Bodies;
use crate::http::console::session::ConsoleSessions;
use crate::http::methods::Methods;
use crate::http::origin::Origins;
use crate::http::service_document;
use crate::http::state::State;
use crate::service::access::connections::{ConnectionParts, Connections};
use crate::service::access::keys::Keys;
use crate::service::access::limits::Limits;
use crate::service::access::policies::{Policies, PolicyError};
use crate::service::access::rates::Rates;
use crate::service::access::secrets::Secrets;
use crate::service::access::switches::Switches;
use crate::service::access::wrong_keys::WrongKeys;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::definitions::Definitions;
use crate::service::catalog::indexing::Indexing;
use crate::service::catalog::rebuild::Rebuilds;
use crate::service::catalog::refresh::{CatalogInputs, CountTokens, Refresh, configured};
use crate::service::catalog::reload::Reload;
use crate::service::catalog::status::Status;
use crate::service::catalog::tool_admin::ToolAdmin;
use crate::service::catalog::tool_facts::ToolOverrides;
use crate::service::cleaning::Cleaning;
use crate::service::execution::execute::Execute;
use crate::service::leading::Leading;
use crate::service::learning::learn::Learning;
use crate::service::mcp::mcp_sessions::McpSessions;
use crate::service::mcp::passthrough::Passthrough;
use crate::service::mcp::subscriptions::Subscriptions;
use crate::service::mcp::waiting_calls::WaitingCalls;
use crate::service::meta_tools::describe::Describe;
use crate::service::meta_tools::find::Find;
use crate::service::meta_tools::smart_select::SmartSelect;
use crate::service::ports::{IndexError, StoreError, ToolServers};
use crate::service::publishing::meta_tokens::MetaTokens;
use crate::service::publishing::publish::Publish;
use crate::service::records::activity::Activity;
use crate::service::records::audit::Audit;
use crate::service::records::costs::CostReports;
use crate::service::records::feedback::Feedback;
use crate::service::records::llm_costs::LlmCosts;
use crate::service::records::metrics::{CacheKind, Meters};
use crate::service::records::prometheus::{LogState, MetricSources, PrometheusExport};
use crate::service::records::record::Recorder;
use crate::service::records::report::Report;
use crate::service::records::usage::Usage;
use crate::service::selection::chats::Chats;
use crate::service::selection::message_selections::MessageSelections;
use crate::service::selection::offers::OfferCache;
use crate::service::selection::retrieve::Retrieve;
use crate::service::selection::select::Select;
use crate::service::selection::trial::TextTrials;
use crate::service::servers::{ServerParts, Servers, StoredServers};
use crate::service::sharing::{SharedParts, SharedState};
use crate::service::supervision::joined;
use crate::service::toolsets::loading::Loading;
use crate::service::toolsets::sessions::Sessions;
use crate::service::toolsets::toolsets::Toolsets;
use crate::settings::{EntryRules, Settings};

/// How long background tasks may take to write pending data at the end.
const ENDING: Duration = Duration::from_secs(5);

/// The running service.
pub struct Application {
    server: Server,
    address: SocketAddr,
    is_secure: bool,
    servers: Arc<dyn ToolServers>,
    store: OpenedStore,
    reload: Arc<Reload>,
    stopper: Stopper,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
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
    #[expect(clippy::too_many_lines, reason = "the composition root names every part once, in the order in which they need each other")]
    pub async fn start_on(settings: Settings, socket: Option<TcpListener>) -> Result<Self, StartError> {
        let started = Instant::now();
        let stop = CancellationToken::new();
        let hangups = Hangups::listen().map_err(StartError::Signal)?;
        // Comes first, so that nothing has been started if the address is in use.
        let is_socket_kept = socket.is_some();
        let (listener, address) = bind(&settings.start, socket)?;
        let start = settings.start.clone();
        let data_dir = DataDir::open(&start.store.data_dir)?;
        let opened = OpenedStore::open(start.store.postgres.as_ref(), &data_dir.database()).await?;
        opened.make_shrinkable().await;
        opened.set_mark(installation::settled(&opened, data_dir.installation()).await?);
        opened.end_claims().await;
        let store = opened.port();
        // Comes before the parts are loaded, so that no change in between is missed.
        let versions = store.state_versions().await.map_err(StartError::Keys)?;
        let stored_servers = StoredServers::load(store.as_ref(), start.secrets.keys.as_ref()).await.map_err(StartError::Servers)?;
        let overrides = stored_servers.overrides();
        let rules = EntryRules { start: &start, calls: &settings.live.calls };
        let live = rules.merge(&settings.live.servers, &overrides).within(&settings.live);
        // With very many tools, both take long. Meanwhile, the other parts are loaded.
        let definitions = tokio::spawn(Definitions::start(store.clone(), live.definitions));
        let listings = tokio::spawn({
            let store = store.clone();
            async move { store.listings().await }
        });
        let meters = Arc::new(Meters::new(start.metrics.per_tool));
        let (tracer, span_export) = telemetry::open(&start.telemetry, &meters).map_err(StartError::Client)?.unzip();
        let exporting = export_spans(span_export, stop.clone());
        let embedder = embed::open_metered(&start.embedder, meters.cache(CacheKind::Vectors))?;
        let index = open_index(&start, &data_dir, embedder.model())?;
        let (keys, noting) = Keys::start(store.clone(), stop.clone()).await.map_err(StartError::Keys)?;
        keys.configure(&live);
        let current = Arc::new(CurrentCatalog::new(live.selection.clone()));
        let toolsets = Toolsets::start(Arc::clone(&current), store.clone(), &live).await.map_err(StartError::Toolsets)?;
        let toolsets = Arc::new(toolsets);
        let policies = Arc::new(Policies::start(Arc::clone(&current), store.clone(), Arc::clone(&keys), &live).await?);

        let counter = TokenCounter::default();
        let (catalog, catalog_changes) = watch::channel(configured(&live.servers));
        let count_tokens: CountTokens = Arc::new(move |texts: &[String]| counter.count(texts));
        let (rebuilds, requests) = Rebuilds::channel();
        let tool_overrides =
            Arc::new(ToolOverrides::start(store.clone(), rebuilds.clone(), &live).await.map_err(StartError::ToolOverrides)?);
        let definitions = joined(definitions).await.map_err(StartError::ToolOverrides)?;
        definitions.configure(&live);
        let definitions = Arc::new(definitions);
        let inputs = CatalogInputs { overrides: Arc::clone(&tool_overrides), definitions: Arc::clone(&definitions), rebuilds: requests };
        let mut refresh = Refresh::new(Arc::clone(&current), store.clone(), Arc::clone(&count_tokens), catalog_changes, inputs)
            .with_tool_tokens(start.documents.tool_tokens);
        let server_count = live.servers.len();
        let (files, signer) = files(&data_dir, &start, &opened).await?.unzip();
        // Before the servers start, because many of them would delay it.
        let known = refresh.load_last_good(joined(listings).await).await;
        // Names that are in the catalog count once they are gone.
        let loaded = current.snapshot();
        current.remember(definitions.names().into_iter().filter(|name| loaded.operation_position(name.as_str()).is_none()));
        let servers = McpServers::start(live.servers.clone(), mcp_options(&start, data_dir.path())?);
        servers.remember(refresh.listings());
        let servers: Arc<dyn ToolServers> = servers;

        let leading = Leading::of(store.leads());
        let [audit_spool, event_spool] = spools(&data_dir, &start)?;
        let kept = (retention(&start), leading.clone());
        let (recorder, recording) = Recorder::start(store.clone(), Some(event_spool), kept, stop.clone());
        let usage_settings = Arc::new(ArcSwap::from_pointee(live.usage.clone()));
        let recorder = recorder.with_meters(Arc::clone(&meters)).with_texts(start.learning.message_text);
        let kept = (embedder.model(), start.store.event_retention);
        let (learning, learning_writing) = Learning::start(store.clone(), start.learning, kept, stop.clone()).await;
        let learning = learning.with_embedder(Arc::clone(&embedder));
        let replaying = learning.replay_nightly(stop.clone());
        let recorder = recorder.with_usage(Arc::clone(&usage_settings)).with_learning(learning.if_on());
        let learning_from_others = learn_from_others(recorder.clone(), stop.clone());
        let llm_costs = LlmCosts::new(recorder.clone(), Arc::clone(&count_tokens));
        let (audit, auditing) = Audit::start(store.clone(), audit_spool, (start.store.audit_retention, leading.clone()), stop.clone());
        let (chats, chat_writing) = Chats::start(store.clone(), stop.clone());
        let of_revoked = Arc::clone(&keys);
        let chats = chats.without(move |owner| of_revoked.is_revoked(owner));
        let chats = match &start.store.postgres {
            // Half of the connections stay free for other operations.
            Some(postgres) => chats.with_patience(start.store.message_wait, (postgres.max_connections as usize / 2).max(1)),
            None => chats,
        };
        let events = servers.events();
        let following = tokio::spawn(async move { refresh.follow(events).await });
        let (enrichment, enriching) =
            enrichment(&start.llm, &live, &current, &store, record_enrichment(&llm_costs), (leading.clone(), stop.clone()))?;
        let indexing = Indexing {
            on_progress: progress::embedding(),
            enrichment: Arc::clone(&enrichment.feed),
            unused_retention: start.store.unused_retention,
            ..Indexing::new(Arc::clone(&current), store.clone(), Arc::clone(&index), Arc::clone(&embedder))
        };
        let retrieve = Retrieve::over(&indexing);
        let (lexical, enrichments) = (Arc::clone(&indexing.lexical), indexing.enrichments.subscribe());
        let indexing = keep_indexed(indexing, stop.clone());
        let public_url = start.http.public_url.as_ref().map(|url| url.as_str().trim_end_matches('/').to_owned());
        let parts = ConnectionParts {
            client: Arc::new(HttpAuthorizationClient),
            servers: Arc::clone(&servers),
            current: Arc::clone(&current),
            api_keys: Arc::clone(&keys),
            keys: start.secrets.keys.clone(),
            signer,
            public_url: public_url.clone(),
        };
        let connections = Connections::new(store.clone(), parts, &live);
        let switches = Arc::new(Switches::start(store.clone()).await.map_err(StartError::Switches)?);
        let cleaning = Cleaning {
            leading: leading.clone(),
            store: store.clone(),
            keys: Arc::clone(&keys),
            connections: Arc::clone(&connections),
            overrides: Arc::clone(&tool_overrides),
            definitions: Arc::clone(&definitions),
            learning: learning.clone(),
            switches: Arc::clone(&switches),
            kept: kept_after_expiry(&start),
        };
        let cleaning = clean(cleaning, stop.clone());
        let retrieve = retrieve.with_connections(Arc::clone(&connections)).with_learning(learning.if_on());
        let retrieve = Arc::new(retrieve.with_meters(Arc::clone(&meters)).with_servers(Arc::clone(&servers)));
        let judges = Arc::new(judges(&start.llm)?.with_meters(Arc::clone(&meters)).with_costs(llm_costs));
        let learning_again = learn_again(learning.clone(), Arc::clone(&retrieve), embedder.recoveries(), stop.clone());
        let teaching = teach(Arc::clone(&retrieve), store.clone(), embedder.recoveries(), stop.clone());
        let (keys_of_secrets, sign_ins) = (start.secrets.keys.clone(), Arc::clone(&connections));
        let secrets = Arc::new(Secrets::new(store.clone(), Arc::clone(&servers), sign_ins, keys_of_secrets, &live));
        let listing_shared = list_shared(Arc::clone(&connections), stop.clone());
        let resealing = reseal(Arc::clone(&secrets), stop.clone());
        let limits = Arc::new(Limits::new(Arc::clone(&meters), Rates::new(Some(store.clone()))));
        let sharing_limits = share_limits(Arc::clone(&limits), stop.clone());
        limits.configure(&live);
        let execute =
            Execute::new(Arc::clone(&current), Arc::clone(&servers), recorder.clone(), audit.clone(), files.clone(), Arc::clone(&secrets));
        let execute = Arc::new(execute.with_limits(Arc::clone(&limits)));
        execute.configure(&live);
        let parts = MetricSources {
            current: Arc::clone(&current),
            servers: Arc::clone(&servers),
            index: Arc::clone(&index),
            embedder: Arc::clone(&embedder),
            store: store.clone(),
            recorder: recorder.clone(),
            learning: learning.clone(),
            audit: audit.clone(),
            leading: leading.clone(),
            process: Arc::new(process::read),
            space: Arc::new({
                let folder = data_dir.path().to_owned();
                move || data_dir::space(&folder)
            }),
            log: Arc::new(|| LogState { lines_dropped: log::dropped(), panics: log::panics() }),
        };
        let prometheus = PrometheusExport::new(&meters, parts);
        let publish = Publish::new(Arc::clone(&current), publish_options(&start)).with_meter(meters.cache(CacheKind::Documents));
        let admission = Arc::new(admission(&start, &live, &keys));
        let takers = (Arc::clone(&toolsets), Arc::clone(&policies), Arc::clone(&secrets), Arc::clone(&limits));
        let apply = apply(Arc::clone(&execute), Arc::clone(&current), Arc::clone(&admission), takers, Arc::clone(&usage_settings));
        let apply = apply_to_tools(apply, Arc::clone(&tool_overrides), Arc::clone(&definitions), Arc::clone(&enrichment.feed));
        let apply = apply_to_keys(apply, Arc::clone(&keys));
        let reload = Arc::new(Reload::new(&settings, overrides, Arc::clone(&servers), catalog, apply));
        let parts = ServerParts {
            reload: Arc::clone(&reload),
            servers: Arc::clone(&servers),
            connections: Arc::clone(&connections),
            rebuilds: rebuilds.clone(),
        };
        let managed_servers = Arc::new(Servers::new(store.clone(), start.secrets.keys.clone(), stored_servers, parts));
        let loading =
            Arc::new(Loading { current: Arc::clone(&current), store: store.clone(), chats: chats.clone(), recorder: recorder.clone() });
        let find = Find {
            current: Arc::clone(&current),
            retrieve: Arc::clone(&retrieve),
            loading: Arc::clone(&loading),
            limits: Arc::clone(&limits),
            recorder: recorder.clone(),
        };
        let select = Select::new(
            Arc::clone(&current),
            Arc::clone(&retrieve),
            Arc::clone(&judges),
            chats,
            recorder.clone(),
            MetaTokens::new(count_tokens),
        );
        let select = Arc::new(select.with_switches(Arc::clone(&switches)));
        let text_trials = TextTrials {
            current: Arc::clone(&current),
            overrides: Arc::clone(&tool_overrides),
            policies: Arc::clone(&policies),
            select: Arc::clone(&select),
            index: Arc::clone(&index),
            embedder: Arc::clone(&embedder),
            lexical,
            enrichments,
        };
        let (sessions, session_noting) =
            Sessions::start(Arc::clone(&current), Arc::clone(&select), store.clone(), start.sessions.clone(), stop.clone());
        let waiting_calls = WaitingCalls::new(start.mcp.waiting.clone(), stop.clone());
        let (closing, draining) = (stop.child_token(), CancellationToken::new());
        let (mcp_sessions, session_keeping) = McpSessions::start(Arc::clone(&current), store.clone(), start.mcp.clone(), closing.clone());
        let passthrough = Passthrough::new(
            Arc::clone(&current),
            Arc::clone(&servers),
            Arc::clone(&secrets),
            Arc::clone(&limits),
            audit.clone(),
            Arc::clone(&definitions),
        );
        let passthrough = Arc::new(passthrough);
        let ending_sessions = end_sessions(Arc::clone(&keys), Arc::clone(&mcp_sessions), closing.clone());
        let (subscriptions, subscribing) = Subscriptions::start(
            Arc::clone(&current),
            Arc::clone(&servers),
            Arc::clone(&passthrough),
            Arc::clone(&mcp_sessions),
            Arc::clone(&loading),
            start.mcp.clone(),
            closing.clone(),
        );
        let status = Status {
            current: Arc::clone(&current),
            servers: Arc::clone(&servers),
            index,
            store: store.clone(),
            embedder,
            reload: Arc::clone(&reload),
            definitions: Arc::clone(&definitions),
            spools: {
                let (audit, recorder) = (audit.clone(), recorder.clone());
                Box::new(move || [audit.spool(), recorder.spool()])
            },
            leading,
            sign_in_fault: {
                let connections = Arc::clone(&connections);
                Box::new(move |server| connections.fault_in_words(server))
            },
            started,
            was_ready: AtomicBool::new(known > 0),
            draining: draining.clone(),
            cached: tokio::sync::Mutex::default(),
            learning: learning.clone(),
        };
        let parts = SharedParts {
            keys: Arc::clone(&keys),
            policies: Arc::clone(&policies),
            toolsets: Arc::clone(&toolsets),
            overrides: Arc::clone(&tool_overrides),
            definitions: Arc::clone(&definitions),
            servers: Arc::clone(&managed_servers),
            switches: Arc::clone(&switches),
            enrichment: Arc::clone(&enrichment),
            learning: learning.clone(),
            rebuilds: rebuilds.clone(),
            secrets: Arc::clone(&secrets),
        };
        let shared = Arc::new(SharedState::new(store.clone(), parts, versions));
        let sharing = follow_others(Arc::clone(&shared), stop.clone());
        let methods = Methods::new(&service_document(), publish.layout());
        let state = web::Data::new(State {
            admission,
            policies,
            audit: audit.clone(),
            current: Arc::clone(&current),
            keys,
            secrets,
            switches,
            connections,
            bodies: Bodies::new(start.http.max_body_bytes, start.http.body_timeout, start.http.max_bodies_bytes),
            origins: Origins::new(&start.http.cors_origins, start.http.public_url.as_ref(), start.http.tls.is_some()),
            trusted_proxies: start.http.trusted_proxies.clone(),
            shared,
            replica: replica(start.http.replica.as_deref()),
            console: ConsoleSessions::default(),
            wrong_keys: WrongKeys::new(audit, Arc::clone(&meters)),
            methods,
            publish,
            execute: Arc::clone(&execute),
            files,
            find,
            describe: Describe { execute },
            draining: draining.clone(),
            smart_select: SmartSelect {
                current: Arc::clone(&current),
                retrieve,
                judges,
                loading: Arc::clone(&loading),
                limits: Arc::clone(&limits),
                recorder: recorder.clone(),
            },
            public_url,
            select,
            message_selections: MessageSelections::default(),
            access_log: AccessLog::new(start.logging.access),
            tracer,
            offers: OfferCache::default(),
            sessions,
            toolsets,
            loading,
            metrics: start.metrics,
            meters,
            prometheus,
            limits,
            mcp_sessions,
            waiting_calls,
            passthrough,
            subscriptions,
            learning,
            feedback: Feedback { current: Arc::clone(&current), store: store.clone(), recorder },
            activity: Activity::new(store.clone()),
            text_trials,
            usage: Usage { store: store.clone() },
            report: Report { store: store.clone() },
            costs: CostReports { store: store.clone(), settings: usage_settings },
            enrichment,
            tool_admin: ToolAdmin {
                current,
                overrides: tool_overrides,
                definitions,
                rebuilds,
                servers: Arc::clone(&servers),
                reload: Arc::clone(&reload),
                store: store.clone(),
            },
            servers: managed_servers,
            status,
        });
        let (server, connections) = match listen(&start, listener, address, state) {
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
        tracing::info!(%address, data_dir = %start.store.data_dir.display(), store = %opened, servers = server_count, "listening");
        systemd::ready();
        let watched = start.reload.watch.then(|| reload.files());
        let (reloading, watching) = follow_changes(&reload, hangups, watched, stopper.clone(), &stop);
        let stopping = follow_stops(stops, stopper.clone(), stop.clone());
        Ok(Self {
            server,
            stopper,
            address,
            is_secure: start.http.tls.is_some(),
            servers,
            store: opened,
            reload,
            stop,
            tasks: vec![
                recording,
                chat_writing,
                noting,
                session_noting,
                learning_writing,
                replaying,
                session_keeping,
                ending_sessions,
                subscribing,
                stopping,
                auditing,
                cleaning,
                resealing,
                listing_shared,
                sharing,
                sharing_limits,
                following,
                indexing,
                enriching,
                teaching,
                learning_again,
                learning_from_others,
                exporting,
                reloading,
                watching,
            ],
            _data_dir: data_dir,
        })
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
        self.stop.cancel();
        let deadline = tokio::time::Instant::now() + ENDING;
        for task in self.tasks {
            if tokio::time::timeout_at(deadline, task).await.is_err() {
                tracing::warn!("a background task did not end in time");
            }
        }
        self.store.close().await;
        result
    }
}

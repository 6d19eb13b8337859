//! Builds the state of the routes from the parts.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio_util::sync::CancellationToken;

use super::configuration::Configuration;
use super::foundation::Foundation;
use super::listening::replica;
use super::parts::{AccessParts, CallParts, CatalogParts, Parts, RecordParts, SelectionParts, SessionParts, UserParts};
use crate::adapters::{data_dir, log, process};
use crate::domain::publishing::layout::{Layout, Naming};
use crate::http::access_log::AccessLog;
use crate::http::body::Bodies;
use crate::http::console::session::ConsoleSessions;
use crate::http::methods::Methods;
use crate::http::origin::Origins;
use crate::http::service_document;
use crate::http::state::State;
use crate::service::access::wrong_keys::WrongKeys;
use crate::service::catalog::status::Status;
use crate::service::catalog::tool_admin::ToolAdmin;
use crate::service::meta_tools::describe::Describe;
use crate::service::meta_tools::find::Find;
use crate::service::meta_tools::smart_select::SmartSelect;
use crate::service::ports::StateVersions;
use crate::service::publishing::publish::{Publish, PublishOptions};
use crate::service::records::activity::Activity;
use crate::service::records::costs::CostReports;
use crate::service::records::feedback::Feedback;
use crate::service::records::metrics::CacheKind;
use crate::service::records::prometheus::{LogState, MetricSources, PrometheusExport};
use crate::service::records::report::Report;
use crate::service::records::usage::Usage;
use crate::service::selection::message_selections::MessageSelections;
use crate::service::selection::offers::OfferCache;
use crate::service::sharing::{SharedParts, SharedState};
use crate::settings::{McpoSettings, StartSettings};

/// What other services on the same store change. `versions` are those of the state that the parts have loaded, or older ones.
pub(super) fn shared_state(base: &Foundation<'_>, parts: &Parts, configuration: &Configuration, versions: StateVersions) -> SharedState {
    let AccessParts { keys, toolsets, policies } = parts.access.clone();
    let CatalogParts { overrides, definitions, rebuilds, .. } = parts.catalog.clone();
    let UserParts { secrets, switches, .. } = parts.users.clone();
    let parts = SharedParts {
        keys,
        policies,
        toolsets,
        overrides,
        definitions,
        servers: Arc::clone(&configuration.servers),
        switches,
        enrichment: Arc::clone(&parts.selection.enrichment),
        learning: parts.records.learning.clone(),
        rebuilds,
        secrets,
    };
    SharedState::new(base.store.clone(), parts, versions)
}

/// The state of the routes. `draining` is cancelled when the service begins to stop.
pub(super) fn state(
    base: Foundation<'_>,
    parts: Parts,
    sessions: SessionParts,
    configuration: Configuration,
    shared: Arc<SharedState>,
    draining: CancellationToken,
) -> State {
    let prometheus = prometheus(&base, &parts);
    let status = status(&base, &parts, &configuration, draining.clone());
    let public_url = base.public_url();
    let Foundation { start, store, current, meters, tracer, links, .. } = base;
    let Parts { access, catalog, records, users, selection, calls } = parts;
    let AccessParts { keys, toolsets, policies } = access;
    let CatalogParts { servers, overrides, definitions, rebuilds, .. } = catalog;
    let RecordParts { recorder, audit, learning, usage, .. } = records;
    let UserParts { connections, secrets, switches } = users;
    let SelectionParts { enrichment, retrieve, judges, select, text_trials, .. } = selection;
    let CallParts { limits, execute, passthrough } = calls;
    let SessionParts { loading, sessions, mcp_sessions, subscriptions, waiting_calls } = sessions;
    let Configuration { admission, reload, servers: managed_servers } = configuration;
    let publish = Publish::new(Arc::clone(&current), publish_options(start)).with_meter(meters.cache(CacheKind::Documents));
    State {
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
        methods: Methods::new(&service_document(), publish.layout()),
        publish,
        files: links.map(|(files, _)| files),
        find: Find {
            current: Arc::clone(&current),
            retrieve: Arc::clone(&retrieve),
            loading: Arc::clone(&loading),
            limits: Arc::clone(&limits),
            recorder: recorder.clone(),
        },
        describe: Describe { execute: Arc::clone(&execute) },
        execute,
        draining,
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
        costs: CostReports { store: store.clone(), settings: usage },
        enrichment,
        tool_admin: ToolAdmin { current, overrides, definitions, rebuilds, servers, reload, store },
        servers: managed_servers,
        status,
    }
}

/// What the metrics read.
fn prometheus(base: &Foundation<'_>, parts: &Parts) -> PrometheusExport {
    let RecordParts { recorder, audit, learning, .. } = parts.records.clone();
    let sources = MetricSources {
        current: Arc::clone(&base.current),
        servers: Arc::clone(&parts.catalog.servers),
        index: Arc::clone(&base.index),
        embedder: Arc::clone(&base.embedder),
        store: base.store.clone(),
        recorder,
        learning,
        audit,
        leading: base.leading.clone(),
        process: Arc::new(process::read),
        space: Arc::new({
            let folder = base.data_dir.path().to_owned();
            move || data_dir::space(&folder)
        }),
        log: Arc::new(|| LogState { lines_dropped: log::dropped(), panics: log::panics() }),
    };
    PrometheusExport::new(&base.meters, sources)
}

fn status(base: &Foundation<'_>, parts: &Parts, configuration: &Configuration, draining: CancellationToken) -> Status {
    let RecordParts { recorder, audit, learning, .. } = parts.records.clone();
    let connections = Arc::clone(&parts.users.connections);
    Status {
        current: Arc::clone(&base.current),
        servers: Arc::clone(&parts.catalog.servers),
        index: Arc::clone(&base.index),
        store: base.store.clone(),
        embedder: Arc::clone(&base.embedder),
        reload: Arc::clone(&configuration.reload),
        definitions: Arc::clone(&parts.catalog.definitions),
        spools: Box::new(move || [audit.spool(), recorder.spool()]),
        leading: base.leading.clone(),
        sign_in_fault: Box::new(move |server| connections.fault_in_words(server)),
        started: base.started,
        was_ready: AtomicBool::new(parts.catalog.had_tools),
        draining,
        cached: tokio::sync::Mutex::default(),
        learning,
    }
}

/// The options that all documents share.
pub fn publish_options(settings: &StartSettings) -> PublishOptions {
    let secured = settings.http.api_key.is_some() || settings.access.admin_key.is_some() || settings.access.has_keys_in_file;
    let max_tools = settings.documents.max_tools;
    let Some(mcpo) = &settings.mcpo else { return PublishOptions { secured, max_tools, ..PublishOptions::default() } };
    let McpoSettings { single, path_prefix, root_path, title, version, description, .. } = mcpo.clone();
    let layout = Layout { root_path, prefix: path_prefix, single, naming: Naming::Mcpo };
    PublishOptions { secured, layout, title, version, description, max_tools }
}

//! Builds individual parts of the service from the settings.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{StartError, progress};
use crate::adapters::data_dir::{DataDir, oauth};
use crate::adapters::files::FileFolder;
use crate::adapters::index::{AnnouncedIndex, EmbeddedIndex, EmbeddedIndexOptions, RemoteIndex, RemoteIndexOptions, Spread, Timing};
use crate::adapters::llm::ChatModels;
use crate::adapters::spool::{SpoolFolder, SpoolSpace};
use crate::adapters::store::OpenedStore;
use crate::adapters::tokens::TokenCounter;
use crate::adapters::{llm, mcp};
use crate::domain::access::signature::Signer;
use crate::domain::publishing::layout::{Layout, Naming};
use crate::http::caller::Admission;
use crate::service::access::keys::Keys;
use crate::service::access::limits::Limits;
use crate::service::access::policies::Policies;
use crate::service::access::secrets::Secrets;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::definitions::Definitions;
use crate::service::catalog::enrich::admin::EnrichmentAdmin;
use crate::service::catalog::enrich::feed::EnrichmentFeed;
use crate::service::catalog::enrich::{Enriching, OnExchange};
use crate::service::catalog::reload::Apply;
use crate::service::catalog::tool_facts::ToolOverrides;
use crate::service::cleaning::Kept;
use crate::service::execution::execute::Execute;
use crate::service::execution::files::Files;
use crate::service::leading::Leading;
use crate::service::ports::{FileStore, IndexError, Purpose, Spool, Store, ToolIndex};
use crate::service::publishing::meta_tokens::MetaTokens;
use crate::service::publishing::publish::PublishOptions;
use crate::service::records::llm_costs::{AskedFor, LlmCosts};
use crate::service::records::record::{Recorder, Retention};
use crate::service::selection::chats::Chats;
use crate::service::selection::judges::Judges;
use crate::service::selection::retrieve::Retrieve;
use crate::service::selection::select::Select;
use crate::service::supervision::Supervised;
use crate::service::toolsets::toolsets::Toolsets;
use crate::settings::{LiveSettings, LlmSettings, McpoSettings, QdrantSettings, StartSettings, UsageSettings};

/// The files behind signed links, and the signer of links. Returns `None` without a public URL, because the links need one.
pub(super) async fn files(
    data_dir: &DataDir,
    start: &StartSettings,
    store: &OpenedStore,
) -> Result<Option<(Arc<Files>, Signer)>, StartError> {
    let Some(public_url) = &start.http.public_url else { return Ok(None) };
    let settings = &start.files;
    let unusable = |source| StartError::Folder { folder: data_dir.files(), source };
    let folder = FileFolder::open(data_dir.files(), settings.max_total_bytes).map_err(unusable)?;
    let own_key = folder.signing_key().map_err(unusable)?;
    let shared = store.shared_files(&own_key, (settings.max_file_bytes, settings.max_total_bytes)).await;
    let (files, key) = shared.map_err(StartError::LinkKey)?.unwrap_or_else(|| (Arc::new(folder) as Arc<dyn FileStore>, own_key));
    let signer = Signer::new(key);
    Ok(Some((Arc::new(Files::new(files, signer.clone(), public_url, settings.lifetime)), signer)))
}

/// The options for connections to MCP servers. Commands also use this function, without locking the data folder.
pub(crate) fn mcp_options(settings: &StartSettings, data_dir: &Path) -> Result<mcp::Options, StartError> {
    Ok(mcp::Options {
        client: mcp::client_builder().build().map_err(StartError::Client)?,
        processes: Arc::new(mcp::Processes::of(settings, data_dir)),
        oauth: Some(oauth(data_dir)),
        timing: mcp::Timing { drain: settings.reload.drain, ping: settings.processes.ping, ..mcp::Timing::default() },
        users: settings.user_connections.clone(),
        questions: mcp::Questions { elicitation: settings.mcp.elicitation, sampling: settings.mcp.sampling },
    })
}

/// The language models that can rerank tools.
pub(super) fn judges(settings: &LlmSettings) -> Result<Judges, StartError> {
    let client = llm::client_builder().build().map_err(StartError::Client)?;
    Ok(Judges::new(Arc::new(ChatModels::new(client, settings.clone())), settings.clone()))
}

/// Selection without a service. Chats and events are written until `stop`.
///
/// # Errors
/// The HTTP client of the judges can't be built.
pub fn select(
    current: &Arc<CurrentCatalog>,
    retrieve: &Arc<Retrieve>,
    store: &Arc<dyn Store>,
    start: &StartSettings,
    stop: &CancellationToken,
) -> Result<Select, StartError> {
    let (recorder, _) = Recorder::start(store.clone(), None, (retention(start), Leading::of(store.leads())), stop.clone());
    let (chats, _) = Chats::start(store.clone(), stop.clone());
    let judges = Arc::new(judges(&start.llm)?);
    let counter = TokenCounter::default();
    let meta_tokens = MetaTokens::new(Arc::new(move |texts| counter.count(texts)));
    Ok(Select::new(Arc::clone(current), Arc::clone(retrieve), judges, chats, recorder, meta_tokens))
}

/// Records what a language model consumes to enrich tools.
pub(super) fn record_enrichment(costs: &LlmCosts) -> OnExchange {
    let costs = costs.clone();
    Arc::new(move |exchange| costs.record(exchange, AskedFor { purpose: Purpose::Enrich, principal: None, is_own: false }))
}

/// The administration of enrichment texts, and the task that requests them if enrichment is enabled.
pub(super) fn enrichment(
    settings: &LlmSettings,
    live: &LiveSettings,
    current: &Arc<CurrentCatalog>,
    store: &Arc<dyn Store>,
    on_exchange: OnExchange,
    (mut leading, stop): (Leading, CancellationToken),
) -> Result<(Arc<EnrichmentAdmin>, JoinHandle<()>), StartError> {
    let model = settings.enrichment.as_ref().map(|enrichment| enrichment.endpoint.model.clone());
    let feed = Arc::new(EnrichmentFeed::new(model));
    feed.configure(live);
    let admin = Arc::new(EnrichmentAdmin { current: Arc::clone(current), store: store.clone(), feed: Arc::clone(&feed) });
    let Some(enrichment) = settings.enrichment.clone() else { return Ok((admin, tokio::spawn(async {}))) };
    let client = llm::client_builder().build().map_err(StartError::Client)?;
    let enricher = Arc::new(ChatModels::new(client, settings.clone()));
    let enriching = Enriching { current: Arc::clone(current), store: store.clone(), enricher, settings: enrichment, on_exchange, feed };
    let task = tokio::spawn(async move {
        let mut part = Supervised::new("enrichment");
        // One service asks the language model, for all.
        let others = leading.clone();
        let mut work = async || {
            tokio::select! {
                () = leading.while_leading(&stop, |term| enriching.follow(term)) => {}
                () = enriching.follow_others(&others) => {}
            }
        };
        while part.panicked(work()).await {}
    });
    Ok((admin, task))
}

/// Passes changed settings to the use cases.
pub(super) fn apply(
    execute: Arc<Execute>,
    current: Arc<CurrentCatalog>,
    admission: Arc<Admission>,
    (toolsets, policies, secrets, limits): (Arc<Toolsets>, Arc<Policies>, Arc<Secrets>, Arc<Limits>),
    usage: Arc<ArcSwap<UsageSettings>>,
) -> Apply {
    Box::new(move |live| {
        usage.store(Arc::new(live.usage.clone()));
        secrets.configure(live);
        limits.configure(live);
        admission.groups.store(Arc::new(live.groups.clone()));
        toolsets.configure(live);
        policies.configure(live);
        execute.configure(live);
        current.set_settings(live.selection.clone());
    })
}

/// Like [`apply`], and also passes the settings that affect tools. Must run before the catalog receives the changed
/// servers.
pub(super) fn apply_to_tools(
    apply: Apply,
    overrides: Arc<ToolOverrides>,
    definitions: Arc<Definitions>,
    enrichment: Arc<EnrichmentFeed>,
) -> Apply {
    Box::new(move |live| {
        apply(live);
        overrides.configure(live);
        definitions.configure(live);
        enrichment.configure(live);
    })
}

/// Like the given function, and also passes the keys in the settings file.
pub(super) fn apply_to_keys(apply: Apply, keys: Arc<Keys>) -> Apply {
    Box::new(move |live| {
        keys.configure(live);
        apply(live);
    })
}

/// The places on the disk for the audit log and for events, while the store is away.
pub(super) fn spools(data_dir: &DataDir, start: &StartSettings) -> Result<[Arc<dyn Spool>; 2], StartError> {
    let space = SpoolSpace::new(start.store.max_spool_bytes);
    let open = |name: &str| match SpoolFolder::open(data_dir.spool().join(name), Arc::clone(&space)) {
        Ok(spool) => Ok(Arc::new(spool) as Arc<dyn Spool>),
        Err(source) => Err(StartError::Folder { folder: data_dir.spool(), source }),
    };
    Ok([open("audit")?, open("events")?])
}

pub(super) fn retention(start: &StartSettings) -> Retention {
    let store = &start.store;
    Retention { chats: store.chat_retention, events: store.event_retention, usage: store.usage_retention }
}

/// How long expired data is kept.
pub(super) fn kept_after_expiry(start: &StartSettings) -> Kept {
    Kept { keys: start.store.key_retention, definitions: start.store.definition_retention }
}

pub(super) fn open_index(settings: &StartSettings, data_dir: &DataDir, model: &str) -> Result<Arc<dyn ToolIndex>, StartError> {
    let progress = progress::indexing();
    let Some(qdrant) = settings.index.qdrant.clone() else {
        let options = EmbeddedIndexOptions { folder: data_dir.index(), model: model.into(), progress };
        let index = EmbeddedIndex::open(options).map_err(|error| match error {
            IndexError::Io(source) => StartError::IndexFolder { folder: data_dir.index(), source },
            error => StartError::Index(error),
        })?;
        return Ok(Arc::new(AnnouncedIndex::over(index)));
    };
    let QdrantSettings { urls, api_key, timeout, prefix, shards, replicas } = qdrant;
    let timing = Timing { search: timeout, ..Timing::default() };
    let options = RemoteIndexOptions { urls, api_key, prefix, spread: Spread { shards, replicas }, timing, progress };
    Ok(Arc::new(AnnouncedIndex::over(RemoteIndex::open(options)?)))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Kept, Retention, kept_after_expiry, mcp_options, retention};
    use crate::settings::{EmbedderProvider, Environment, Settings, Sources};

    /// Each setting has a value of its own, so no two can be mixed up on their way.
    #[test]
    fn each_setting_arrives_where_it_is_used() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let environment: Environment = [
            ("STORE__CHAT_RETENTION_DAYS", "11"),
            ("STORE__EVENT_RETENTION_DAYS", "12"),
            ("STORE__USAGE_RETENTION_DAYS", "13"),
            ("STORE__KEY_RETENTION_DAYS", "14"),
            ("STORE__DEFINITION_RETENTION_DAYS", "15"),
            ("STORE__AUDIT_RETENTION_DAYS", "16"),
            ("STORE__UNUSED_RETENTION_DAYS", "17"),
            ("FILES__LIFETIME_SECONDS", "118"),
            ("FILES__MAX_TOTAL_BYTES", "1190000000"),
            ("MCP__SESSION_IDLE_SECONDS", "120"),
            ("MCP__WAITING_CALLS_TOTAL", "2100"),
            ("PROCESSES__PING_SECONDS", "22"),
            ("LIMITS__SELECTION_EXCEPTIONS", "user:few*=23"),
            ("EMBEDDER__URL", "http://127.0.0.1:9/v1"),
            ("EMBEDDER__MODEL", "a-model"),
            ("EMBEDDER__QUERY_PREFIX", "query-24"),
            ("EMBEDDER__PASSAGE_PREFIX", "passage-25"),
        ]
        .into_iter()
        .map(|(name, value)| (format!("TOOLSIEVE_{name}"), value.to_owned()))
        .collect();
        let (Settings { start, live, .. }, _) = Settings::load(&Sources { environment, ..Sources::default() }).unwrap();
        let (days, seconds) = (|days: u64| Duration::from_hours(24 * days), Duration::from_secs);
        let Retention { chats, events, usage } = retention(&start);
        assert_eq!([chats, events, usage], [days(11), days(12), days(13)]);
        assert_eq!(kept_after_expiry(&start), Kept { keys: days(14), definitions: days(15) });
        assert_eq!([start.store.audit_retention, start.store.unused_retention], [days(16), days(17)]);
        assert_eq!((start.files.lifetime, start.files.max_total_bytes), (seconds(118), 1_190_000_000));
        assert_eq!((start.mcp.idle, start.mcp.waiting.total), (seconds(120), 2_100));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(mcp_options(&start, folder.path()).unwrap().timing.ping, Some(seconds(22)));
        assert_eq!(live.limits.selection_exceptions, [("user:few*".to_owned(), 23)]);
        let EmbedderProvider::Endpoint(endpoint) = &start.embedder.provider else { panic!("{:?}", start.embedder) };
        let prefixes = [&endpoint.prefixes.query, &endpoint.prefixes.passage].map(|prefix| prefix.as_deref().unwrap());
        assert_eq!(prefixes, ["query-24", "passage-25"]);
    }
}

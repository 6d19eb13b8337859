//! Selects tools for a message.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::records::retention;
use super::{AccessParts, CatalogParts, RecordParts, UserParts};
use crate::adapters::llm::{self, ChatModels};
use crate::adapters::tokens::TokenCounter;
use crate::app::background::{Tasks, enrich, keep_indexed, learn_again, teach};
use crate::app::foundation::Foundation;
use crate::app::{StartError, progress};
use crate::domain::selection::enrichment::Enrichments;
use crate::domain::selection::relevance::lexical::LexicalModel;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::enrich::admin::EnrichmentAdmin;
use crate::service::catalog::enrich::feed::EnrichmentFeed;
use crate::service::catalog::enrich::{Enriching, OnExchange};
use crate::service::catalog::indexing::Indexing;
use crate::service::leading::Leading;
use crate::service::ports::{Purpose, Store};
use crate::service::publishing::meta_tokens::MetaTokens;
use crate::service::records::llm_costs::{AskedFor, LlmCosts};
use crate::service::records::record::Recorder;
use crate::service::selection::chats::Chats;
use crate::service::selection::judges::Judges;
use crate::service::selection::retrieve::Retrieve;
use crate::service::selection::select::Select;
use crate::service::selection::trial::TextTrials;
use crate::settings::{LlmSettings, StartSettings};

/// Selects tools for a message.
pub(in crate::app) struct SelectionParts {
    pub enrichment: Arc<EnrichmentAdmin>,
    pub retrieve: Arc<Retrieve>,
    pub judges: Arc<Judges>,
    pub chats: Chats,
    pub select: Arc<Select>,
    pub text_trials: TextTrials,
}

impl SelectionParts {
    pub(super) fn start(
        base: &Foundation<'_>,
        access: &AccessParts,
        catalog: &CatalogParts,
        records: &RecordParts,
        users: &UserParts,
        tasks: &mut Tasks,
    ) -> Result<Self, StartError> {
        let Foundation { start, store, meters, embedder, current, .. } = base;
        let chats = chats(base, access, tasks);
        let enrichment = enrichment(base, &records.llm_costs, tasks)?;
        let (retrieve, indexed) = index(base, &enrichment, tasks);
        let retrieve = retrieve.with_connections(Arc::clone(&users.connections)).with_learning(records.learning.if_on());
        let retrieve = Arc::new(retrieve.with_meters(Arc::clone(meters)).with_servers(Arc::clone(&catalog.servers)));
        let judges = Arc::new(judges(&start.llm)?.with_meters(Arc::clone(meters)).with_costs(records.llm_costs.clone()));
        tasks.add(learn_again(records.learning.clone(), Arc::clone(&retrieve), embedder.recoveries(), tasks.stop()));
        tasks.add(teach(Arc::clone(&retrieve), store.clone(), embedder.recoveries(), tasks.stop()));
        let select = Select::new(
            Arc::clone(current),
            Arc::clone(&retrieve),
            Arc::clone(&judges),
            chats.clone(),
            records.recorder.clone(),
            MetaTokens::new(Arc::clone(&catalog.count_tokens)),
        );
        let select = Arc::new(select.with_switches(Arc::clone(&users.switches)));
        let text_trials = TextTrials {
            current: Arc::clone(current),
            overrides: Arc::clone(&catalog.overrides),
            policies: Arc::clone(&access.policies),
            select: Arc::clone(&select),
            index: Arc::clone(&base.index),
            embedder: Arc::clone(embedder),
            lexical: indexed.lexical,
            enrichments: indexed.enrichments,
        };
        Ok(Self { enrichment, retrieve, judges, chats, select, text_trials })
    }
}

/// The sets of chats, except those of revoked keys.
fn chats(base: &Foundation<'_>, access: &AccessParts, tasks: &mut Tasks) -> Chats {
    let keys = Arc::clone(&access.keys);
    let chats = tasks.keep(Chats::start(base.store.clone(), tasks.stop())).without(move |owner| keys.is_revoked(owner));
    match &base.start.store.postgres {
        // Half of the connections stay free for other operations.
        Some(postgres) => chats.with_patience(base.start.store.message_wait, (postgres.max_connections as usize / 2).max(1)),
        None => chats,
    }
}

/// The administration of enrichment texts. Starts the task that requests them, if enrichment is enabled.
fn enrichment(base: &Foundation<'_>, costs: &LlmCosts, tasks: &mut Tasks) -> Result<Arc<EnrichmentAdmin>, StartError> {
    let Foundation { start: StartSettings { llm: settings, .. }, live, store, current, .. } = base;
    let model = settings.enrichment.as_ref().map(|enrichment| enrichment.endpoint.model.clone());
    let feed = Arc::new(EnrichmentFeed::new(model));
    feed.configure(live);
    if let Some(enrichment) = settings.enrichment.clone() {
        let client = llm::client_builder().build().map_err(StartError::Client)?;
        let enriching = Enriching {
            current: Arc::clone(current),
            store: store.clone(),
            enricher: Arc::new(ChatModels::new(client, settings.clone())),
            settings: enrichment,
            on_exchange: record_enrichment(costs),
            feed: Arc::clone(&feed),
        };
        tasks.add(enrich(enriching, base.leading.clone(), tasks.stop()));
    }
    Ok(Arc::new(EnrichmentAdmin { current: Arc::clone(current), store: store.clone(), feed }))
}

/// Records what a language model consumes to enrich tools.
fn record_enrichment(costs: &LlmCosts) -> OnExchange {
    let costs = costs.clone();
    Arc::new(move |exchange| costs.record(exchange, AskedFor { purpose: Purpose::Enrich, principal: None, is_own: false }))
}

/// What the index was built with.
struct Indexed {
    lexical: Arc<LexicalModel>,
    enrichments: watch::Receiver<Arc<Enrichments>>,
}

/// Keeps the index of the tools up to date. Returns the search in it.
fn index(base: &Foundation<'_>, enrichment: &EnrichmentAdmin, tasks: &mut Tasks) -> (Retrieve, Indexed) {
    let Foundation { start, store, embedder, index, current, .. } = base;
    let indexing = Indexing {
        on_progress: progress::embedding(),
        enrichment: Arc::clone(&enrichment.feed),
        unused_retention: start.store.unused_retention,
        ..Indexing::new(Arc::clone(current), store.clone(), Arc::clone(index), Arc::clone(embedder))
    };
    let retrieve = Retrieve::over(&indexing);
    let indexed = Indexed { lexical: Arc::clone(&indexing.lexical), enrichments: indexing.enrichments.subscribe() };
    tasks.add(keep_indexed(indexing, tasks.stop()));
    (retrieve, indexed)
}

/// The language models that can rerank tools.
fn judges(settings: &LlmSettings) -> Result<Judges, StartError> {
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

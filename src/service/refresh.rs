//! Keeps the catalog and the index up with the servers.
//!
//! What a server lists becomes tools (only changed ones are made anew), a new catalog is swapped in, the listing is
//! stored as the last good one, and the index follows in the background: first lexically, then with vectors.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::domain::canonical::{self, Fingerprint};
use crate::domain::catalog::{self, Catalog, CatalogServer, ServerListing};
use crate::domain::diet;
use crate::domain::enrichment::{Written, key};
use crate::domain::hidden_text::HiddenText;
use crate::domain::policy::ToolFacts;
use crate::domain::relevance::{self, Gate, LexicalModel};
use crate::domain::tool::{ServerName, Tool};
use crate::service::current::CurrentCatalog;
use crate::service::definitions::Definitions;
use crate::service::enrich::feed::EnrichmentFeed;
use crate::service::enrich::in_force;
use crate::service::ports::{Embedder, IndexContents, IndexDocument, IndexServer, ServerEvent, Store, StoreError, ToolIndex, recovered};
use crate::service::rebuild::Rebuild;
use crate::service::supervision::Supervised;
use crate::service::tool_facts::Facts;
use crate::settings::servers::ServerSettings;

/// Counts cl100k tokens of several texts at once. Given by the composition root; blocking, CPU-bound.
pub type CountTokens = Arc<dyn Fn(&[String]) -> Vec<u32> + Send + Sync>;

/// Told how far embedding is: done, total.
pub type OnProgress = Arc<dyn Fn(usize, usize) + Send + Sync>;

/// Texts embedded between two writes to the store.
const EMBED_BATCH: usize = 128;
/// Listings that follow each other within this time make one index update.
const SETTLE: Duration = Duration::from_millis(500);
/// However many listings follow each other, the index is not older than this.
const LONGEST_SETTLE: Duration = Duration::from_secs(3);
/// When an update that failed is tried again: twice as long after each failure.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_mins(10);
/// How often unused vectors and token counts are looked for.
const SWEEP: Duration = Duration::from_hours(6);

/// The configured servers, each with the tools that the user has disabled.
pub type Configured = BTreeMap<ServerName, BTreeSet<String>>;

/// What the catalog is to hold of these servers.
#[must_use]
pub fn configured(servers: &[ServerSettings]) -> Arc<Configured> {
    Arc::new(servers.iter().map(|server| (server.name.clone(), server.disabled_tools.iter().cloned().collect())).collect())
}

/// What tools are made of beside what their servers say.
pub struct Beside {
    pub facts: Arc<Facts>,
    pub definitions: Arc<Definitions>,
    /// Servers whose tools are to be made anew.
    pub rebuilds: mpsc::Receiver<Rebuild>,
}

pub struct Refresh {
    current: Arc<CurrentCatalog>,
    store: Arc<dyn Store>,
    count_tokens: CountTokens,
    changes: watch::Receiver<Arc<Configured>>,
    beside: Beside,
    /// What the catalog goes by now.
    configured: Arc<Configured>,
    /// Definitions of more tokens are shortened.
    tool_tokens: Option<u32>,
    /// The last listing of every configured server, with what is disabled.
    listings: BTreeMap<ServerName, ServerListing>,
}

impl Refresh {
    #[must_use]
    pub fn new(
        current: Arc<CurrentCatalog>,
        store: Arc<dyn Store>,
        count_tokens: CountTokens,
        mut changes: watch::Receiver<Arc<Configured>>,
        beside: Beside,
    ) -> Self {
        let configured = Arc::clone(&changes.borrow_and_update());
        Self { current, store, count_tokens, changes, beside, configured, tool_tokens: None, listings: BTreeMap::new() }
    }

    /// Definitions of more tokens are shortened.
    #[must_use]
    pub fn with_tool_tokens(mut self, tool_tokens: Option<u32>) -> Self {
        self.tool_tokens = tool_tokens;
        self
    }

    /// Publishes the last good listings of the servers that are still configured. Returns how many there were.
    pub async fn load_last_good(&mut self) -> usize {
        let listings = match self.store.listings().await {
            Ok(listings) => listings,
            Err(error) => {
                tracing::warn!(error = %error, "the last good catalog could not be read; it is built from the servers");
                return 0;
            }
        };
        let (known, gone): (Vec<_>, Vec<_>) = listings.into_iter().partition(|listing| self.configured.contains_key(&listing.server));
        for listing in gone {
            self.forget(&listing.server).await;
        }
        let mut servers = Vec::new();
        for listing in &known {
            servers.push(self.server(listing, None).await);
        }
        if !servers.is_empty() {
            self.publish(servers);
        }
        self.listings = known.into_iter().map(|listing| (listing.server.clone(), listing)).collect();
        self.listings.len()
    }

    /// Follows the servers, and what is configured of them, until their stream of events ends.
    pub async fn follow(&mut self, mut events: mpsc::Receiver<ServerEvent>) {
        let mut part = Supervised::new("catalog");
        while part.panicked(self.follow_events(&mut events)).await {}
    }

    async fn follow_events(&mut self, events: &mut mpsc::Receiver<ServerEvent>) {
        let mut changes = self.changes.clone();
        let mut is_live = true;
        loop {
            let event = tokio::select! {
                // What was taken out of the configuration goes before any news.
                biased;
                changed = changes.changed(), if is_live => {
                    is_live = changed.is_ok();
                    let configured = Arc::clone(&changes.borrow_and_update());
                    self.reconfigure(configured).await;
                    continue;
                }
                // Somebody waits for it.
                Some(Rebuild { server, done }) = self.beside.rebuilds.recv() => {
                    self.rebuild(&server).await;
                    let _ = done.send(());
                    continue;
                }
                event = events.recv() => event,
            };
            match event {
                Some(ServerEvent::Listed(listing)) => self.listed(listing).await,
                Some(ServerEvent::Failed { server, reason }) => {
                    let kept = self.current.snapshot().server(server.as_str()).map_or(0, |known| known.tools.len());
                    tracing::warn!(%server, reason, kept_tools = kept, "server is not available; retrying");
                }
                Some(ServerEvent::Removed { server }) => {
                    self.listings.remove(&server);
                    self.beside.definitions.forget_present(&server);
                    self.swap(&server, None);
                    self.forget(&server).await;
                }
                None => return,
            }
        }
    }

    /// One new catalog for all that has changed.
    async fn reconfigure(&mut self, configured: Arc<Configured>) {
        self.configured = configured;
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.listings).into_iter().partition(|(name, _)| self.configured.contains_key(name));
        let snapshot = self.current.snapshot();
        let mut servers = Vec::new();
        for (name, listing) in &kept {
            servers.push(self.server(listing, snapshot.server(name.as_str())).await);
        }
        self.listings = kept;
        self.publish(servers);
        for name in gone.keys() {
            self.beside.definitions.forget_present(name);
            self.forget(name).await;
        }
    }

    async fn listed(&mut self, listing: ServerListing) {
        // The last words of a server that was taken out.
        let Some(disabled) = self.configured.get(&listing.server) else { return };
        for skipped in listing.skipped.iter().filter(|skipped| !disabled.contains(&skipped.tool)) {
            tracing::warn!(server = %listing.server, tool = skipped.tool, reason = skipped.reason, "tool left out");
        }
        let snapshot = self.current.snapshot();
        let server = self.server(&listing, snapshot.server(listing.server.as_str())).await;
        tracing::info!(server = %listing.server, tools = server.tools.len(), "server listed");
        self.swap(&listing.server, Some(server));
        if let Err(error) = self.store.save_listing(&listing).await {
            tracing::warn!(server = %listing.server, error = %error, "the listing was not stored; the next start waits for the server");
        }
        self.listings.insert(listing.server.clone(), listing);
    }

    /// Makes a server's tools anew, as far as something beside what it says has changed.
    async fn rebuild(&self, name: &ServerName) {
        let Some(listing) = self.listings.get(name) else { return };
        let snapshot = self.current.snapshot();
        let server = self.server(listing, snapshot.server(name.as_str())).await;
        self.swap(name, Some(server));
        self.current.hurry();
    }

    fn swap(&self, name: &ServerName, server: Option<CatalogServer>) {
        let mut servers: Vec<CatalogServer> =
            self.current.snapshot().servers().iter().filter(|known| known.name != *name).cloned().collect();
        servers.extend(server);
        self.publish(servers);
    }

    fn publish(&self, servers: Vec<CatalogServer>) {
        let catalog = Catalog::new(servers);
        if catalog.version() == self.current.snapshot().version() {
            return;
        }
        self.current.swap(catalog);
    }

    async fn forget(&self, server: &ServerName) {
        if let Err(error) = self.store.remove_listing(server).await {
            tracing::warn!(%server, error = %error, "the stored listing of a removed server is still there");
        }
    }

    /// Makes a server's tools, taking over those that did not change and leaving out those that are disabled or withheld.
    async fn server(&self, listing: &ServerListing, known: Option<&CatalogServer>) -> CatalogServer {
        let definitions = &self.beside.definitions;
        definitions.observe(&listing.server, listing.enabled(self.configured.get(&listing.server))).await;
        let withheld = definitions.withheld_of(&listing.server);
        let known_tools = || known.into_iter().flat_map(|server| &server.tools).chain(&withheld);
        let by_fingerprint: HashMap<&Fingerprint, &Arc<Tool>> = known_tools().map(|tool| (&tool.fingerprint, tool)).collect();
        // Of a listing that was seen before, nothing is hashed again.
        let by_address: HashMap<usize, &Arc<Tool>> = known_tools().map(|tool| (address(&tool.raw), tool)).collect();
        let book = self.beside.facts.book();
        let mut tools = Vec::with_capacity(listing.tools.len());
        let mut new = Vec::new();
        for raw in listing.enabled(self.configured.get(&listing.server)) {
            let former = by_address.get(&address(raw)).or_else(|| by_fingerprint.get(&canonical::fingerprint(raw)));
            if let Some(tool) = former
                && book.overlay(&tool.id, &tool.operation_id, &ToolFacts::of(&tool.raw)).version(&tool.fingerprint) == tool.version
            {
                tools.push(Arc::clone(tool));
                continue;
            }
            match catalog::tool(&listing.server, raw) {
                Ok(tool) => {
                    if former.is_none() {
                        log_hidden(&tool.id.to_string(), &tool.hidden);
                    }
                    let overlay = book.overlay(&tool.id, &tool.operation_id, &tool.facts);
                    new.push(tool.with(&overlay));
                }
                Err(skipped) => {
                    tracing::warn!(server = %listing.server, tool = skipped.tool, reason = skipped.reason, "tool left out");
                }
            }
        }
        self.count_tokens(&mut new).await;
        if let Some(budget) = self.tool_tokens {
            new = self.shortened(new, budget).await;
        }
        tools.extend(new.into_iter().map(Arc::new));
        let (withheld, tools): (Vec<_>, Vec<_>) = tools.into_iter().partition(|tool| definitions.is_withheld(&tool.id));
        definitions.withhold(&listing.server, withheld);
        definitions.observe_server(listing).await;
        let (server, hidden) = CatalogServer::of(&self.approved(listing).await, tools);
        if known.is_none_or(|known| known.instructions != server.instructions || known.title != server.title) {
            log_hidden(listing.server.as_str(), &hidden);
        }
        server
    }

    /// What a server says of itself: as it was approved, where what it says now is withheld.
    async fn approved(&self, listing: &ServerListing) -> ServerListing {
        let now = ServerListing {
            server: listing.server.clone(),
            title: listing.title.clone(),
            program: listing.program.clone(),
            version: listing.version.clone(),
            instructions: listing.instructions.clone(),
            tools: Vec::new(),
            skipped: Vec::new(),
        };
        let text = |approved: &Value, member: &str| approved.get(member).and_then(Value::as_str).map(str::to_owned);
        match self.beside.definitions.approved_server(&listing.server).await {
            Ok(None) => now,
            Ok(Some(approved)) => ServerListing {
                title: text(&approved, "title"),
                program: text(&approved, "program"),
                instructions: text(&approved, "instructions"),
                ..now
            },
            Err(error) => {
                tracing::warn!(server = %listing.server, %error, "what was approved of the server could not be read; its title and instructions are left out");
                ServerListing { title: None, program: None, instructions: None, ..now }
            }
        }
    }

    async fn shortened(&self, mut tools: Vec<Tool>, budget: u32) -> Vec<Tool> {
        let (within, mut long): (Vec<Tool>, Vec<Tool>) = tools.drain(..).partition(|tool| tool.tokens <= budget);
        tools = within;
        let count = Arc::clone(&self.count_tokens);
        let long = tokio::task::spawn_blocking(move || {
            diet::shorten(&mut long, budget, &*count);
            long
        });
        tools.extend(long.await.unwrap_or_default());
        tools
    }

    async fn count_tokens(&self, tools: &mut [Tool]) {
        let definitions = tools.iter().map(|tool| Tool::function(&tool.operation_id, &tool.description, &tool.input).to_string()).collect();
        for (tool, count) in tools.iter_mut().zip(self.tokens(definitions).await) {
            tool.tokens = count;
        }
    }

    /// The tokens of each definition: from the store where it is known, counted otherwise.
    async fn tokens(&self, definitions: Vec<String>) -> Vec<u32> {
        if definitions.is_empty() {
            return Vec::new();
        }
        let hashes: Vec<Fingerprint> = definitions.iter().map(|definition| Fingerprint::of_text(definition)).collect();
        let mut counts = self.store.token_counts(&hashes).await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "stored token counts could not be read; they are counted again");
            HashMap::new()
        });
        let (missing, texts): (Vec<Fingerprint>, Vec<String>) =
            hashes.iter().copied().zip(definitions).filter(|(hash, _)| !counts.contains_key(hash)).unzip();
        if !texts.is_empty() {
            let count = Arc::clone(&self.count_tokens);
            let counted = tokio::task::spawn_blocking(move || count(&texts)).await.unwrap_or_default();
            let counted: Vec<(Fingerprint, u32)> = missing.into_iter().zip(counted).collect();
            if let Err(error) = self.store.save_token_counts(&counted).await {
                tracing::warn!(error = %error, "token counts were not stored");
            }
            counts.extend(counted);
        }
        hashes.iter().map(|hash| counts.get(hash).copied().unwrap_or_default()).collect()
    }
}

/// Keeps the index up with the catalog.
pub struct Indexing {
    pub current: Arc<CurrentCatalog>,
    pub store: Arc<dyn Store>,
    pub index: Arc<dyn ToolIndex>,
    pub embedder: Arc<dyn Embedder>,
    pub lexical: LexicalModel,
    pub on_progress: OnProgress,
    /// Says when something was written about tools, and hears when it is searched.
    pub enrichment: Arc<EnrichmentFeed>,
    /// How long vectors and token counts are kept that no tool needs.
    pub unused_retention: Duration,
}

impl Indexing {
    /// Follows the catalog until `stop`: what is new is announced at once, and the index brought up to it as fast as can be.
    pub async fn follow(&self, stop: CancellationToken) {
        tokio::join!(self.announce_changes(&stop), self.index_changes(stop.clone()));
    }

    async fn index_changes(&self, stop: CancellationToken) {
        let mut changes = self.current.changes();
        changes.mark_changed();
        let mut pause = FIRST_RETRY;
        let mut sweep = tokio::time::interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first one comes with the first complete update.
        sweep.reset();
        let mut is_first = true;
        let mut recoveries = self.embedder.recoveries();
        let mut writings = self.enrichment.writings();
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                written = writings.changed() => if written.is_err() { return },
                () = self.index.needs_contents() => {}
                () = recovered(&mut recoveries) => {}
                _ = sweep.tick() => {
                    self.forget_unused(&self.current.snapshot()).await;
                    continue;
                }
                () = stop.cancelled() => return,
            }
            // Where nothing can be found yet, what is there already goes first.
            if self.index.state().documents > 0 {
                tokio::select! {
                    () = settled(&mut changes) => {}
                    () = self.current.hurried() => {}
                    () = stop.cancelled() => return,
                }
            }
            changes.mark_unchanged();
            writings.mark_unchanged();
            let catalog = self.current.snapshot();
            tokio::select! {
                complete = self.update(&catalog) => if complete {
                    pause = FIRST_RETRY;
                    if std::mem::take(&mut is_first) {
                        self.forget_unused(&catalog).await;
                    }
                    if catalog.version() == self.current.snapshot().version() {
                        self.enrichment.complete();
                    }
                } else {
                    tracing::info!(retry_in_s = pause.as_secs(), "the index is updated again later");
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = self.index.needs_contents() => {}
                        () = recovered(&mut recoveries) => {}
                        () = stop.cancelled() => return,
                    }
                    changes.mark_changed();
                    pause = (pause * 2).min(LONGEST_RETRY);
                },
                () = stop.cancelled() => return,
            }
        }
    }

    /// Makes the index hold this catalog: first what is known, then with every vector. Returns whether it
    /// does, completely.
    pub async fn update(&self, catalog: &Catalog) -> bool {
        if catalog.tools().is_empty() && self.index.state().documents == 0 {
            return true;
        }
        catalog.learn_texts(self.lexical.analyzer());
        let passages = Passages::of(catalog, &self.written(catalog).await);
        let wanted: Vec<Fingerprint> = passages.texts().map(|text| Fingerprint::of_text(text)).collect();
        let mut vectors = self.store.vectors(self.embedder.model(), &wanted).await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "stored vectors could not be read; the tools are embedded again");
            HashMap::new()
        });
        let dimension = self.embedder.dimension();
        if dimension > 0 {
            // The same name may stand for another model now.
            vectors.retain(|_, vector| vector.len() == dimension);
        }
        let mut seen = HashSet::new();
        let missing: Vec<(Fingerprint, String)> = passages
            .texts()
            .map(|text| (Fingerprint::of_text(text), text.clone()))
            .filter(|(hash, _)| !vectors.contains_key(hash) && seen.insert(*hash))
            .collect();
        let mut complete = true;
        if !missing.is_empty() {
            // Searchable by their words at once, by their meaning as soon as the vectors are there.
            self.replace(&passages, &vectors).await;
            match self.embed(missing, &mut vectors).await {
                Embedded::All => {}
                Embedded::Some => complete = false,
                // Its update follows at once, and finds what was embedded in the store.
                Embedded::UntilChange => return true,
            }
        }
        self.replace(&passages, &vectors).await && complete
    }

    /// Forgets the vectors and token counts that were not needed for long.
    async fn forget_unused(&self, catalog: &Catalog) {
        let passages = Passages::of(catalog, &self.written(catalog).await);
        let texts = passages.texts().map(|text| Fingerprint::of_text(text));
        let texts: Vec<Fingerprint> = texts.chain(Gate::example_texts().map(Fingerprint::of_text)).collect();
        let definitions = catalog.tools().iter().map(|tool| Tool::function(&tool.operation_id, &tool.description, &tool.input).to_string());
        let definitions: Vec<Fingerprint> = definitions.map(|definition| Fingerprint::of_text(&definition)).collect();
        let since = SystemTime::now().checked_sub(self.unused_retention).unwrap_or(SystemTime::UNIX_EPOCH);
        match self.store.forget_unused(self.embedder.model(), &texts, &definitions, since).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "vectors and token counts of tools that are gone were removed"),
            Err(error) => tracing::warn!(error = %error, "unused vectors and token counts were not removed"),
        }
        let tools: Vec<Fingerprint> = catalog.tools().iter().map(|tool| key(tool)).collect();
        match self.store.forget_unused_enrichments(self.enrichment.model(), &tools, since).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "what was written about tools that are gone was removed"),
            Err(error) => tracing::warn!(error = %error, "what was written about tools that are gone was not removed"),
        }
    }

    /// What tools are found by beside their own texts.
    async fn written(&self, catalog: &Catalog) -> HashMap<Fingerprint, Written> {
        in_force(catalog, self.store.as_ref(), self.enrichment.model()).await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "what is written about tools could not be read; they are found by their own texts");
            HashMap::new()
        })
    }

    async fn embed(&self, missing: Vec<(Fingerprint, String)>, vectors: &mut HashMap<Fingerprint, Arc<[f32]>>) -> Embedded {
        let total = missing.len();
        let mut done = 0;
        let mut outcome = Embedded::All;
        let version = self.current.snapshot().version();
        (self.on_progress)(done, total);
        for batch in missing.chunks(EMBED_BATCH) {
            let texts = batch.iter().map(|(_, text)| text.clone()).collect();
            match self.embedder.embed_passages(texts).await {
                Ok(embedded) => {
                    let embedded: Vec<(Fingerprint, Arc<[f32]>)> = batch.iter().map(|(hash, _)| *hash).zip(embedded).collect();
                    if let Err(error) = self.store.save_vectors(self.embedder.model(), &embedded).await {
                        tracing::warn!(error = %error, "vectors were not stored; the next start embeds these tools again");
                    }
                    vectors.extend(embedded);
                }
                Err(error) => {
                    outcome = Embedded::Some;
                    tracing::warn!(error = %error, texts = batch.len(), "tools were not embedded; they are found by their words only");
                }
            }
            done += batch.len();
            (self.on_progress)(done, total);
            // New tools must not wait until all of these are embedded.
            if done < total && self.current.snapshot().version() != version {
                return Embedded::UntilChange;
            }
        }
        outcome
    }

    async fn replace(&self, passages: &Passages<'_>, vectors: &HashMap<Fingerprint, Arc<[f32]>>) -> bool {
        let known = |text: &String| vectors.get(&Fingerprint::of_text(text)).cloned();
        let classes = self.current.policy().assign(self.current.snapshot().as_ref()).classes;
        let class = |tool: &Tool| classes.of(tool).unwrap_or_default();
        let documents = passages
            .tools
            .iter()
            .map(|(tool, texts)| IndexDocument {
                tool: tool.id.clone(),
                class: class(tool),
                dense: texts.iter().filter_map(known).collect(),
                sparse: self.lexical.document_vector(&tool.text()),
            })
            .collect();
        let servers = passages
            .servers
            .iter()
            .map(|(server, text)| IndexServer {
                server: server.name.clone(),
                classes: server.tools.iter().map(|tool| class(tool)).collect(),
                dense: known(text).into_iter().collect(),
            })
            .collect();
        // An endpoint that was not reached yet has not said how long its vectors are, those that it made before do.
        let known = || vectors.values().next().map_or(0, |vector| vector.len());
        let dimension = Some(self.embedder.dimension()).filter(|dimension| *dimension > 0).unwrap_or_else(known);
        let contents = IndexContents { model: self.embedder.model().into(), dimension, documents, servers };
        match self.index.replace(contents).await {
            Ok(()) => {
                let state = self.index.state();
                tracing::info!(tools = state.documents, embedded = state.embedded, "index is up to date");
                true
            }
            Err(error) => {
                tracing::error!(error = %error, "the index was not updated; searches see the tools of before");
                false
            }
        }
    }
}

/// What came of embedding.
enum Embedded {
    All,
    /// The rest has to be tried again.
    Some,
    /// The catalog changed meanwhile.
    UntilChange,
}

/// What tells a listed tool from every other one while both are there.
fn address(raw: &Arc<Value>) -> usize {
    Arc::as_ptr(raw).addr()
}

/// Says what hidden characters there are, and not what they say.
fn log_hidden(what: &str, hidden: &[HiddenText]) {
    if hidden.is_empty() {
        return;
    }
    let places: Vec<String> = hidden.iter().map(|hidden| format!("{}: {}", hidden.pointer, hidden.code_points.join(" "))).collect();
    tracing::warn!(of = what, places = places.join("; "), "hidden characters in a definition are not shown to models");
}

/// Waits until the catalog has not changed for a while: at a start servers come in one after the other.
async fn settled(changes: &mut watch::Receiver<u64>) {
    let latest = Instant::now() + LONGEST_SETTLE;
    while let Ok(Ok(())) = timeout_at(latest.min(Instant::now() + SETTLE), changes.changed()).await {}
}

/// How many tools have all their vectors in the store.
///
/// # Errors
/// Those of the store.
pub async fn embedded(catalog: &Catalog, store: &dyn Store, model: &str) -> Result<usize, StoreError> {
    let hashes = |tool: &Tool| passages(tool).iter().map(|text| Fingerprint::of_text(text)).collect::<Vec<_>>();
    let tools: Vec<Vec<Fingerprint>> = catalog.tools().iter().map(|tool| hashes(tool)).collect();
    let known = store.vectors(model, &tools.concat()).await?;
    Ok(tools.iter().filter(|texts| texts.iter().all(|text| known.contains_key(text))).count())
}

/// What is embedded of a tool.
#[must_use]
pub fn passages(tool: &Tool) -> Vec<String> {
    relevance::passages(&tool.text())
}

/// What is embedded of a catalog.
struct Passages<'a> {
    tools: Vec<(&'a Arc<Tool>, Vec<String>)>,
    /// Those that have tools.
    servers: Vec<(&'a CatalogServer, String)>,
}

impl<'a> Passages<'a> {
    /// Of a tool its own texts first, then what was written about it.
    fn of(catalog: &'a Catalog, written: &HashMap<Fingerprint, Written>) -> Self {
        let texts = |tool: &Tool| {
            let mut texts = passages(tool);
            texts.extend(written.get(&key(tool)).into_iter().flat_map(|written| written.enrichment.passages(tool)));
            texts
        };
        let servers = catalog.servers().iter().filter(|server| !server.tools.is_empty());
        Self {
            tools: catalog.tools().iter().map(|tool| (tool, texts(tool))).collect(),
            servers: servers.map(|server| (server, relevance::server_passage(&server_text(server)))).collect(),
        }
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        let servers = self.servers.iter().map(|(_, text)| text);
        self.tools.iter().flat_map(|(_, texts)| texts).chain(servers)
    }
}

fn server_text(server: &CatalogServer) -> relevance::ServerText<'_> {
    relevance::ServerText {
        name: server.name.as_str(),
        title: server.title.as_deref(),
        instructions: server.instructions.as_deref(),
        tools: server.tools.iter().map(|tool| &*tool.label).collect(),
    }
}

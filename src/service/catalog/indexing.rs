//! Keeps the index in sync with the catalog: first with words, then with vectors.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::domain::catalog::catalog::{Catalog, CatalogServer};
use crate::domain::catalog::texts::ToolText;
use crate::domain::catalog::tool::Tool;
use crate::domain::selection::enrichment::{Enrichments, key};
use crate::domain::selection::relevance::{self, Gate, LexicalModel, SparseVector};
use crate::domain::text::canonical::Fingerprint;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::catalog::enrich::feed::EnrichmentFeed;
use crate::service::catalog::enrich::in_use;
use crate::service::ports::{ComputedStore, Embedder, IndexContents, IndexDocument, IndexServer, Store, StoreError, ToolIndex, recovered};

/// Receives the progress of embedding: the number of finished texts and the total.
pub type OnProgress = Arc<dyn Fn(usize, usize) + Send + Sync>;

/// Number of texts embedded between two writes to the store.
const EMBED_BATCH: usize = 128;
/// Changes of the catalog within this time cause a single update of the index.
const SETTLE: Duration = Duration::from_millis(500);
/// Maximum delay of an update, however many changes arrive.
const LONGEST_SETTLE: Duration = Duration::from_secs(3);
/// Number of refused texts from which the embedder is suspected to take none.
const SUSPICIOUS: usize = 4;
/// A text that every embedder takes.
const HARMLESS: &str = "Finds a file by its name.";
/// Number of characters of a refused text in the log.
const SHOWN: usize = 80;
/// Pause after the first failed update. It doubles after each further failure.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_mins(10);
/// Interval at which unused vectors and token counts are deleted.
const SWEEP: Duration = Duration::from_hours(6);

pub struct Indexing {
    pub current: Arc<CurrentCatalog>,
    pub store: Arc<dyn Store>,
    pub index: Arc<dyn ToolIndex>,
    pub embedder: Arc<dyn Embedder>,
    pub lexical: Arc<LexicalModel>,
    pub on_progress: OnProgress,
    /// Notifies of new enrichments, and is notified once these are searchable.
    pub enrichment: Arc<EnrichmentFeed>,
    /// Whether searches use enrichments.
    pub uses_enrichment: bool,
    /// The enrichments of the last update.
    pub enrichments: watch::Sender<Arc<Enrichments>>,
    /// How long unused vectors and token counts are kept.
    pub unused_retention: Duration,
    /// The next update waits until this time: after a build that took long, for as long as it took. Otherwise, the index of very many tools
    /// would be built all the time, because one of their servers always changes something.
    pub rests_until: Mutex<Instant>,
    /// Texts that the embedder never takes. They are not tried again until the next start.
    pub refused: Mutex<HashSet<Fingerprint>>,
}

impl Indexing {
    /// Without enrichments and progress; unused vectors are kept for a day.
    pub fn new(current: Arc<CurrentCatalog>, store: Arc<dyn Store>, index: Arc<dyn ToolIndex>, embedder: Arc<dyn Embedder>) -> Self {
        Self {
            current,
            store,
            index,
            embedder,
            lexical: Arc::default(),
            on_progress: Arc::new(|_, _| {}),
            enrichment: Arc::default(),
            uses_enrichment: true,
            enrichments: watch::Sender::default(),
            unused_retention: Duration::from_hours(24),
            rests_until: Mutex::new(Instant::now()),
            refused: Mutex::default(),
        }
    }

    /// Keeps the index up to date until `stop`. New tools are announced at once, and the index follows as soon as possible.
    pub async fn follow(&self, stop: CancellationToken) {
        tokio::join!(self.announce_changes(&stop), self.index_changes(stop.clone()));
    }

    async fn index_changes(&self, stop: CancellationToken) {
        let mut changes = self.current.changes();
        changes.mark_changed();
        let mut pause = FIRST_RETRY;
        let mut sweep = tokio::time::interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first deletion follows the first complete update.
        sweep.reset();
        let mut is_first = true;
        let mut recoveries = self.embedder.recoveries();
        let mut writings = self.enrichment.writings();
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                written = writings.changed() => if written.is_err() { return },
                // Lost contents are replaced without a rest.
                () = self.index.needs_contents() => *self.rests_until.lock() = Instant::now(),
                () = recovered(&mut recoveries) => {}
                _ = sweep.tick() => {
                    self.forget_unused(&self.current.snapshot()).await;
                    continue;
                }
                () = stop.cancelled() => return,
            }
            // If the index is empty, fill it with the known tools without waiting.
            if self.index.state().documents > 0 {
                let rests_until = *self.rests_until.lock();
                tokio::select! {
                    () = settled(&mut changes, rests_until) => {}
                    () = self.current.hurried() => {}
                    () = stop.cancelled() => return,
                }
            }
            changes.mark_unchanged();
            writings.mark_unchanged();
            let (catalog, policy) = (self.current.snapshot(), self.current.policy().version());
            tokio::select! {
                complete = self.update(&catalog) => if complete {
                    pause = FIRST_RETRY;
                    if std::mem::take(&mut is_first) {
                        self.forget_unused(&catalog).await;
                    }
                    if !self.is_outdated(&catalog, policy) {
                        self.enrichment.complete();
                    }
                } else {
                    tracing::info!(retry_in_s = pause.as_secs(), "the update of the index is retried later");
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        changed = changes.changed() => if changed.is_err() { return },
                        written = writings.changed() => if written.is_err() { return },
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

    /// Updates the index to this catalog, first with the known vectors, then with all of them. Returns whether it is complete.
    pub async fn update(&self, catalog: &Catalog) -> bool {
        if catalog.tools().is_empty() && self.index.state().documents == 0 {
            return true;
        }
        catalog.learn_texts(self.lexical.analyzer());
        let enrichments = Arc::new(self.enrichments_of(catalog).await);
        // The announced words must be the same, see `announce_changes`.
        self.enrichments.send_if_modified(|known| {
            let is_changed = *known != enrichments;
            known.clone_from(&enrichments);
            is_changed
        });
        let passages = Passages::of(catalog, enrichments);
        let wanted: Vec<Fingerprint> = passages.texts().map(|text| Fingerprint::of_text(text)).collect();
        let mut vectors = self.store.vectors(self.embedder.model(), &wanted).await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "stored vectors could not be read; the tools are embedded again");
            HashMap::new()
        });
        let dimension = self.embedder.dimension();
        if dimension > 0 {
            // Drop vectors of another length: the name may now stand for another model.
            vectors.retain(|_, vector| vector.len() == dimension);
        }
        let mut seen = HashSet::new();
        let missing: Vec<(Fingerprint, String)> = passages
            .texts()
            .map(|text| (Fingerprint::of_text(text), text.clone()))
            .filter(|(hash, _)| !vectors.contains_key(hash) && seen.insert(*hash))
            .filter(|(hash, _)| !self.refused.lock().contains(hash))
            .collect();
        let mut complete = true;
        if !missing.is_empty() {
            // Tools are found by words at once, and by meaning as soon as they have vectors.
            let (policy, begun) = (self.current.policy().version(), Instant::now());
            self.replace(&passages, &vectors).await;
            match self.embed(missing, &mut vectors, begun.elapsed(), || self.is_outdated(catalog, policy)).await {
                Embedded::All => {}
                Embedded::Some => complete = false,
                // The next update follows at once and reads the new vectors from the store.
                Embedded::UntilChange => return true,
            }
        }
        self.replace(&passages, &vectors).await && complete
    }

    /// Whether there is a newer catalog, or a newer policy than this version.
    fn is_outdated(&self, catalog: &Catalog, policy: u64) -> bool {
        self.current.snapshot().version() != catalog.version() || self.current.policy().version() != policy
    }

    /// Deletes vectors, token counts and enrichments that were not used for a long time.
    async fn forget_unused(&self, catalog: &Catalog) {
        let searched = Passages::of(catalog, Arc::new(self.enrichments_of(catalog).await));
        // The tools' own texts are searched again once too few tools have an enrichment.
        let own = Passages::of(catalog, Arc::default());
        let texts = searched.texts().chain(own.texts()).map(|text| Fingerprint::of_text(text));
        let texts: Vec<Fingerprint> = texts.chain(Gate::example_texts().map(Fingerprint::of_text)).collect();
        let definitions = catalog.tools().iter().map(|tool| tool.function_text());
        let definitions: Vec<Fingerprint> = definitions.map(|definition| Fingerprint::of_text(&definition)).collect();
        let since = SystemTime::now().checked_sub(self.unused_retention).unwrap_or(SystemTime::UNIX_EPOCH);
        match self.store.forget_unused(self.embedder.model(), &texts, &definitions, since).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "unused vectors and token counts were removed"),
            Err(error) => tracing::warn!(error = %error, "unused vectors and token counts were not removed"),
        }
        let tools: Vec<Fingerprint> = catalog.tools().iter().map(|tool| key(tool)).collect();
        match self.store.forget_unused_enrichments(self.enrichment.model(), &tools, since).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "unused enrichments were removed"),
            Err(error) => tracing::warn!(error = %error, "unused enrichments were not removed"),
        }
    }

    /// Loads the enrichments to use for the catalog's tools.
    async fn enrichments_of(&self, catalog: &Catalog) -> Enrichments {
        if !self.uses_enrichment {
            return Enrichments::default();
        }
        let of_files = self.enrichment.of_files();
        in_use(catalog, self.store.as_ref(), self.enrichment.model(), &of_files).await.unwrap_or_else(|error| {
            tracing::warn!(error = %error, "enrichments could not be read; tools are found by their own texts");
            Enrichments::default()
        })
    }

    /// The words of a tool with their weights.
    pub(super) fn words(&self, tool: &Tool, enrichments: &Enrichments) -> SparseVector {
        let description = enrichments.description(tool);
        self.lexical.document_vector(&ToolText { description: &description, ..tool.text() })
    }

    /// Embeds the texts until they would be of an outdated catalog, but for at least this time: otherwise, frequent changes of a large
    /// catalog would leave no time for it.
    async fn embed(
        &self,
        missing: Vec<(Fingerprint, String)>,
        vectors: &mut HashMap<Fingerprint, Arc<[f32]>>,
        least: Duration,
        is_outdated: impl Fn() -> bool,
    ) -> Embedded {
        let total = missing.len();
        let mut done = 0;
        let mut outcome = Embedded::All;
        let begun = Instant::now();
        (self.on_progress)(done, total);
        for batch in missing.chunks(EMBED_BATCH) {
            let (embedded, is_whole) = self.embed_batch(batch).await;
            if let Err(error) = self.store.save_vectors(self.embedder.model(), &embedded).await {
                tracing::warn!(error = %error, "vectors were not stored; the next start embeds these tools again");
            }
            vectors.extend(embedded);
            if !is_whole {
                outcome = Embedded::Some;
            }
            done += batch.len();
            (self.on_progress)(done, total);
            // New tools must not wait until all older ones are embedded.
            if done < total && begun.elapsed() >= least && is_outdated() {
                return Embedded::UntilChange;
            }
        }
        outcome
    }

    /// Embeds a batch. Returns the vectors, and whether none is missing that another attempt may bring. An embedder that is there may
    /// refuse the batch because of one text. The batch is then split, so that this costs no other text its vector.
    async fn embed_batch(&self, batch: &[(Fingerprint, String)]) -> (Vec<(Fingerprint, Arc<[f32]>)>, bool) {
        let (mut vectors, mut refused) = (Vec::with_capacity(batch.len()), Vec::new());
        let mut waiting = vec![batch];
        while let Some(part) = waiting.pop() {
            let error = match self.embedder.embed_passages(part.iter().map(|(_, text)| text.clone()).collect()).await {
                Ok(embedded) => {
                    vectors.extend(part.iter().map(|(hash, _)| *hash).zip(embedded));
                    continue;
                }
                Err(error) => error,
            };
            if part.len() == 1 {
                refused.extend(part);
            } else {
                let (first, rest) = part.split_at(part.len() / 2);
                waiting.extend([rest, first]);
            }
            let looks_down = vectors.is_empty() && (refused.len() == SUSPICIOUS || waiting.is_empty());
            if self.embedder.fault().is_some() || (looks_down && !self.takes_texts().await) {
                let texts = batch.len() - vectors.len();
                tracing::warn!(error = %error, texts, "tools were not embedded; they are found by their words only");
                return (vectors, false);
            }
        }
        for (hash, text) in refused {
            let start: String = text.chars().take(SHOWN).collect();
            tracing::warn!(text = start, "the embedder refuses the text of a tool, which is found by its words only");
            self.refused.lock().insert(*hash);
        }
        (vectors, true)
    }

    /// Whether the embedder takes a text that it can't refuse for its contents.
    async fn takes_texts(&self) -> bool {
        self.embedder.embed_passages(vec![HARMLESS.to_owned()]).await.is_ok()
    }

    async fn replace(&self, passages: &Passages<'_>, vectors: &HashMap<Fingerprint, Arc<[f32]>>) -> bool {
        let refused = self.refused.lock().clone();
        // The vectors of texts, and whether none is still to be computed.
        let known = |texts: &[String]| {
            let (mut dense, mut is_complete) = (Vec::with_capacity(texts.len()), true);
            for hash in texts.iter().map(|text| Fingerprint::of_text(text)) {
                match vectors.get(&hash) {
                    Some(vector) => dense.push(Arc::clone(vector)),
                    None => is_complete &= refused.contains(&hash),
                }
            }
            (dense, is_complete)
        };
        let classes = self.current.policy().assign(self.current.snapshot().as_ref()).classes;
        let class = |tool: &Tool| classes.of(tool).unwrap_or_default();
        let mut incomplete = HashSet::new();
        let mut documents = Vec::with_capacity(passages.tools.len());
        for (tool, texts) in &passages.tools {
            let (dense, is_complete) = known(texts);
            if !is_complete {
                incomplete.insert(tool.id.clone());
            }
            let sparse = self.words(tool, &passages.enrichments);
            documents.push(IndexDocument { tool: tool.id.clone(), class: class(tool), dense, sparse });
        }
        let mut servers = Vec::with_capacity(passages.servers.len());
        for (server, text) in &passages.servers {
            let (dense, is_complete) = known(std::slice::from_ref(text));
            if !is_complete {
                incomplete.extend(server.tools.iter().map(|tool| tool.id.clone()));
            }
            let classes = server.tools.iter().map(|tool| class(tool)).collect();
            servers.push(IndexServer { server: server.name.clone(), classes, dense });
        }
        // Before the first response of an endpoint, its vectors' length is known only from stored vectors.
        let known = || vectors.values().next().map_or(0, |vector| vector.len());
        let dimension = Some(self.embedder.dimension()).filter(|dimension| *dimension > 0).unwrap_or_else(known);
        let contents = IndexContents { model: self.embedder.model().into(), dimension, documents, servers, incomplete };
        let begun = Instant::now();
        match self.index.replace(contents).await {
            Ok(()) => {
                *self.rests_until.lock() = Instant::now() + begun.elapsed();
                let state = self.index.state();
                // Without room for the index, only the words of the tools are there. A warning has said so.
                if state.error.is_none() {
                    tracing::info!(tools = state.documents, embedded = state.embedded, "index is up to date");
                }
                true
            }
            Err(error) => {
                tracing::error!(error = %error, "the index was not updated; searches still use its former contents");
                false
            }
        }
    }
}

/// The outcome of embedding.
enum Embedded {
    All,
    /// Some texts failed and must be retried.
    Some,
    /// The catalog changed in the meantime.
    UntilChange,
}

/// Waits until this time, and then until the catalog stays unchanged for a while. After a start, servers connect one by one.
async fn settled(changes: &mut watch::Receiver<u64>, rests_until: Instant) {
    sleep_until(rests_until).await;
    let latest = Instant::now() + LONGEST_SETTLE;
    while let Ok(Ok(())) = timeout_at(latest.min(Instant::now() + SETTLE), changes.changed()).await {}
}

/// The number of tools whose vectors are all in the store.
pub async fn embedded(catalog: &Catalog, enrichments: &Enrichments, store: &dyn ComputedStore, model: &str) -> Result<usize, StoreError> {
    let hashes = |tool: &Tool| enrichments.passages(tool).iter().map(|text| Fingerprint::of_text(text)).collect::<Vec<_>>();
    let tools: Vec<Vec<Fingerprint>> = catalog.tools().iter().map(|tool| hashes(tool)).collect();
    let known = store.vectors(model, &tools.concat()).await?;
    Ok(tools.iter().filter(|texts| texts.iter().all(|text| known.contains_key(text))).count())
}

/// The texts of a catalog to embed.
struct Passages<'a> {
    enrichments: Arc<Enrichments>,
    tools: Vec<(&'a Arc<Tool>, Vec<String>)>,
    /// Servers with at least one tool, each with its text.
    servers: Vec<(&'a CatalogServer, String)>,
}

impl<'a> Passages<'a> {
    fn of(catalog: &'a Catalog, enrichments: Arc<Enrichments>) -> Self {
        let servers = catalog.servers().iter().filter(|server| !server.tools.is_empty());
        Self {
            tools: catalog.tools().iter().map(|tool| (tool, enrichments.passages(tool))).collect(),
            servers: servers.map(|server| (server, relevance::server_passage(&server_text(server)))).collect(),
            enrichments,
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::watch;
    use tokio::time::Instant;

    use super::{SETTLE, settled};

    #[tokio::test]
    async fn an_update_waits_after_a_long_one_and_until_nothing_changes() {
        let (sender, mut changes) = watch::channel(0);
        let begun = Instant::now();
        settled(&mut changes, begun).await;
        assert!(begun.elapsed() >= SETTLE);
        let rests_until = Instant::now() + Duration::from_secs(1);
        sender.send_modify(|count| *count += 1);
        settled(&mut changes, rests_until).await;
        assert!(Instant::now() >= rests_until + SETTLE);
    }
}

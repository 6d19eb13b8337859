//! Implements the index port with a Qdrant server or cluster.
//!
//! | module | job |
//! | --- | --- |
//! | `nodes` | node health and failover |
//! | `collections` | building a collection, switching to it, removing old ones |
//! | `wire` | requests and responses |
//! | `fault` | why a call failed |
//!
//! Types of `qdrant-client` stay in this folder.

mod fault;
mod nodes;
mod wire;
mod collections;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use async_trait::async_trait;
use qdrant_client::qdrant::{QueryBatchPoints, QueryBatchPointsBuilder, QueryPoints};
use secrecy::SecretString;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep};
use url::Url;
use uuid::Uuid;

use self::collections::Names;
use self::fault::Fault;
use self::nodes::Nodes;
pub use self::wire::Spread;
use super::building::{IndexProgress, LARGE};
use super::contents::CanonicalContents;
use super::directory::{Directory, Restriction};
use super::embedded::unembedded;
use super::lists::{TermLists, by_words};
use super::merged::{Merged, Scored};
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{IndexAnswer, IndexContents, IndexError, IndexQuery, IndexState, ToolIndex};

/// Options of an index on a cluster.
pub struct RemoteIndexOptions {
    /// The addresses of the nodes, at least one, with scheme and port.
    pub urls: Vec<Url>,
    pub api_key: Option<SecretString>,
    /// Prefix of the names of all collections and aliases. Each installation on a cluster needs its own.
    pub prefix: String,
    pub spread: Spread,
    pub timing: Timing,
    /// Reports progress while a collection is filled.
    pub progress: Arc<dyn Fn(IndexProgress) + Send + Sync>,
}

#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Time limit of a search, including retries on other nodes.
    pub search: Duration,
    /// How long a failed node is skipped. The time doubles with each further failure.
    pub first_pause: Duration,
    pub longest_pause: Duration,
    /// How long a collection without an alias is kept, because other replicas may still search it.
    pub idle: Duration,
    /// How often the mark of the current collection is renewed, several times per hour.
    pub renewal: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            search: Duration::from_millis(250),
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(5),
            idle: Duration::from_mins(2),
            renewal: Duration::from_mins(15),
        }
    }
}

/// A [`ToolIndex`] on a Qdrant cluster.
///
/// Keeps names and terms of the tools in memory. If no node responds in time, search uses only these and returns a
/// warning.
pub struct RemoteIndex {
    shared: Arc<Shared>,
}

struct Shared {
    nodes: Nodes,
    prefix: String,
    /// The name of this process in the marks of its collections.
    replica: String,
    spread: Spread,
    timing: Timing,
    progress: Arc<dyn Fn(IndexProgress) + Send + Sync>,
    /// The contents last passed to [`ToolIndex::replace`], even if they are not on the cluster yet.
    latest: ArcSwap<Documents>,
    /// The collection to search; `None` until there is one.
    current: ArcSwapOption<Collection>,
    /// Allows one build at a time.
    builder: Mutex<()>,
    signals: Arc<Signals>,
}

/// Notifies the owner of the index that it needs contents.
#[derive(Default)]
struct Signals {
    /// Whether the latest contents are missing from the cluster.
    is_outdated: AtomicBool,
    needed: Notify,
}

/// A complete collection on the cluster.
struct Collection {
    names: Names,
    fingerprint: Fingerprint,
    documents: Arc<Documents>,
    /// Set if the collection was removed from the cluster.
    is_lost: AtomicBool,
}

/// The part of the contents that is kept in memory.
struct Documents {
    dimension: usize,
    directory: Directory,
    terms: TermLists,
    /// The ids of the points: those of tools, followed by those of servers.
    ids: Vec<Uuid>,
    positions: HashMap<Uuid, usize>,
}

impl Documents {
    fn of(contents: &CanonicalContents) -> Self {
        let tools = contents.documents.iter().map(|document| wire::id(&document.tool));
        let ids: Vec<Uuid> = tools.chain(contents.servers.iter().map(|server| wire::server_id(&server.server))).collect();
        Self {
            dimension: contents.dimension,
            directory: Directory::of(contents),
            terms: TermLists::of(&contents.documents),
            positions: ids.iter().enumerate().map(|(position, id)| (*id, position)).collect(),
            ids,
        }
    }

    /// The dense vector of a query, if it is comparable with those of the documents.
    fn usable<'a>(&self, vector: Option<&'a [f32]>) -> Option<&'a [f32]> {
        let fits = |vector: &&[f32]| vector.len() == self.dimension && vector.iter().all(|value| value.is_finite());
        vector.filter(|_| self.dimension > 0).filter(fits)
    }
}

impl RemoteIndex {
    /// Connects in the background, so that an unavailable cluster does not delay the start. The index is empty until
    /// [`ToolIndex::replace`]. Call it within a runtime.
    ///
    /// # Errors
    /// [`IndexError::Qdrant`] for an invalid address.
    pub fn open(options: RemoteIndexOptions) -> Result<Arc<Self>, IndexError> {
        let signals = Arc::new(Signals::default());
        let waker = Arc::clone(&signals);
        let recovered: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            if waker.is_outdated.load(Ordering::Relaxed) {
                waker.needed.notify_one();
            }
        });
        let nodes = Nodes::connect(&options, &recovered)?;
        let shared = Shared {
            nodes,
            prefix: options.prefix,
            replica: format!("{:016x}", rand::random::<u64>()),
            spread: options.spread,
            timing: options.timing,
            progress: options.progress,
            latest: ArcSwap::from_pointee(Documents::of(&CanonicalContents::of(IndexContents::default()))),
            current: ArcSwapOption::empty(),
            builder: Mutex::default(),
            signals,
        };
        let shared = Arc::new(shared);
        tokio::spawn(Shared::renew(Arc::downgrade(&shared), options.timing.renewal));
        Ok(Arc::new(Self { shared }))
    }
}

#[async_trait]
impl ToolIndex for RemoteIndex {
    async fn replace(&self, contents: IndexContents) -> Result<(), IndexError> {
        self.shared.replace(contents).await
    }

    async fn needs_contents(&self) {
        self.shared.signals.needed.notified().await;
    }

    async fn search(&self, request: &IndexQuery<'_>) -> Result<IndexAnswer, IndexError> {
        Ok(self.shared.search(request).await)
    }

    fn state(&self) -> IndexState {
        let is_searched = |current: &Arc<Collection>| !current.is_lost.load(Ordering::Relaxed) && self.shared.nodes.any_answers();
        let searched = self.shared.current.load_full().filter(is_searched);
        let qdrant = Some(self.shared.nodes.state(searched.is_some()));
        match searched {
            Some(collection) => {
                let directory = &collection.documents.directory;
                IndexState { documents: directory.len(), embedded: directory.embedded(), qdrant, ..IndexState::default() }
            }
            None => IndexState { documents: self.shared.latest.load().directory.len(), qdrant, ..IndexState::default() },
        }
    }
}

impl Shared {
    async fn replace(self: &Arc<Self>, contents: IndexContents) -> Result<(), IndexError> {
        let _building = self.builder.lock().await;
        let contents = CanonicalContents::of(contents);
        let current = self.current.load_full();
        if current.is_some_and(|current| current.fingerprint == contents.fingerprint && !current.is_lost.load(Ordering::Relaxed)) {
            return Ok(());
        }
        let documents = Arc::new(Documents::of(&contents));
        if contents.documents.is_empty() {
            // There is nothing to search. Collections of other replicas must stay.
            self.latest.store(documents);
            self.current.store(None);
            self.signals.is_outdated.store(false, Ordering::Relaxed);
            return Ok(());
        }
        self.latest.store(Arc::clone(&documents));
        let names = Names::of(&self.prefix, &contents);
        self.signals.is_outdated.store(true, Ordering::Relaxed);
        collections::ensure(&self.nodes, &names, &self.replica, &contents, self.spread, &*self.progress).await?;
        self.signals.is_outdated.store(false, Ordering::Relaxed);
        let fingerprint = contents.fingerprint;
        self.current.store(Some(Arc::new(Collection { names: names.clone(), fingerprint, documents, is_lost: AtomicBool::new(false) })));
        self.collect_later(names).await;
        Ok(())
    }

    /// Renews the mark of the current collection from time to time, and looks for collections whose marks have expired.
    async fn renew(shared: Weak<Self>, pause: Duration) {
        loop {
            sleep(pause).await;
            let Some(shared) = shared.upgrade() else { return };
            let _building = shared.builder.lock().await;
            let Some(current) = shared.current.load_full().filter(|current| !current.is_lost.load(Ordering::Relaxed)) else { continue };
            match collections::mark(&shared.nodes, &current.names, &shared.replica).await {
                Ok(()) => shared.collect_later(current.names.clone()).await,
                Err(fault) => {
                    let collection = &current.names.collection;
                    tracing::warn!(collection, "could not mark the collection as used: Qdrant {}", fault.words());
                }
            }
        }
    }

    /// Schedules the removal of collections without an alias. A collection is removed after a pause if it still has no alias.
    async fn collect_later(self: &Arc<Self>, names: Names) {
        let Ok(idle) = collections::idle(&self.nodes, &names).await else { return };
        if idle.is_empty() {
            return;
        }
        let (shared, pause) = (Arc::downgrade(self), self.timing.idle);
        tokio::spawn(async move {
            sleep(pause).await;
            Self::collect(&shared, &names, &idle).await;
        });
    }

    async fn collect(shared: &Weak<Self>, names: &Names, idle: &[String]) {
        let Some(shared) = shared.upgrade() else { return };
        let Ok(still_idle) = collections::idle(&shared.nodes, names).await else { return };
        for collection in still_idle.iter().filter(|name| idle.contains(name)) {
            let is_current = shared.current.load().as_ref().is_some_and(|current| current.names.collection == *collection);
            if is_current {
                continue;
            }
            match collections::remove(&shared.nodes, collection).await {
                Ok(()) => tracing::debug!(collection, "removed an old collection from Qdrant"),
                Err(fault) => tracing::warn!(collection, "could not remove an old collection: Qdrant {}", fault.words()),
            }
        }
    }

    async fn search(&self, request: &IndexQuery<'_>) -> IndexAnswer {
        if request.texts.is_empty() || request.limit == 0 {
            return IndexAnswer::default();
        }
        let Some(current) = self.current.load_full() else {
            let latest = self.latest.load_full();
            let warning = match self.nodes.fault() {
                Some(fault) if !self.nodes.any_answers() => fault.warning(),
                _ => "ranked by words alone: the index is being built",
            };
            return IndexAnswer {
                warning: (latest.directory.len() > 0).then_some(warning),
                ..by_words(&latest.directory, &latest.terms, request)
            };
        };
        let deadline = Instant::now() + self.timing.search;
        let mut found = if current.is_lost.load(Ordering::Relaxed) {
            // A collection with this name may exist but be incomplete.
            Err(Fault::NotFound)
        } else {
            self.ask(&current.names.collection, true, &current.documents, request, deadline).await
        };
        if found.as_ref().is_err_and(|fault| *fault == Fault::NotFound) {
            if !current.is_lost.swap(true, Ordering::Relaxed) {
                let collection = &current.names.collection;
                tracing::warn!(collection, "Qdrant has lost the index, or another replica has removed it; rebuilding it");
                self.signals.needed.notify_one();
            }
            // The collection last completed by another replica has nearly the same contents. If another release built it, it may
            // lack servers.
            found = self.ask(&current.names.alias, false, &current.documents, request, deadline).await;
        }
        match found {
            Ok(found) => {
                let directory = &current.documents.directory;
                let candidates = directory.candidates(&found.tools, request.visibility);
                let warning = unembedded(request, directory.len(), directory.embedded());
                IndexAnswer {
                    candidates,
                    servers: directory.server_scores(found.servers, request.visibility),
                    warning,
                    ..IndexAnswer::default()
                }
            }
            Err(fault) => {
                let latest = self.latest.load();
                IndexAnswer { warning: Some(fault.warning()), ..by_words(&latest.directory, &latest.terms, request) }
            }
        }
    }

    /// Requests the candidates for all texts and the cosines of the servers in one call, and missing cosines of tools in a
    /// second. Merges the results by position.
    async fn ask(
        &self,
        collection: &str,
        has_servers: bool,
        documents: &Documents,
        request: &IndexQuery<'_>,
        deadline: Instant,
    ) -> Result<Found, Fault> {
        let limit = request.limit.min(documents.directory.len());
        let texts = request.texts.len();
        let mut merged = Merged::new(texts, documents.directory.len(), 2 * limit * texts);
        let mut scored_servers = Vec::new();
        let filter = match documents.directory.restriction(request.visibility) {
            _ if limit == 0 => return Ok(Found { tools: merged, servers: scored_servers }),
            Restriction::Nothing => return Ok(Found { tools: merged, servers: scored_servers }),
            Restriction::Everything => None,
            Restriction::Some(values) => Some(wire::filter(values)),
        };
        let is_exact = documents.directory.len() <= LARGE;
        let servers = if has_servers && request.servers { documents.directory.servers().len() } else { 0 };
        let dense: Vec<Option<&[f32]>> = request.texts.iter().map(|text| documents.usable(text.dense.as_deref())).collect();
        let mut queries = Vec::with_capacity(3 * texts);
        let mut of_texts = Vec::with_capacity(3 * texts);
        for (position, text) in request.texts.iter().enumerate() {
            if let Some(query) = dense[position] {
                queries.push(wire::nearest(collection, query, filter.clone(), limit, is_exact));
                of_texts.push((position, List::Dense));
                if servers > 0 {
                    queries.push(wire::servers(collection, query, filter.clone(), servers));
                    of_texts.push((position, List::Servers));
                }
            }
            let weighted = documents.terms.weighted(&text.sparse);
            if !weighted.indices.is_empty() {
                queries.push(wire::lexical(collection, &weighted, filter.clone(), limit));
                of_texts.push((position, List::Lexical));
            }
        }
        for ((position, list), found) in of_texts.into_iter().zip(self.query(collection, queries, documents, deadline).await?) {
            match list {
                List::Dense => merged.add_dense(position, found),
                List::Servers => scored_servers.extend(found),
                List::Lexical => merged.add_lexical(position, found.into_iter().filter(|(_, score)| *score > 0.0).collect()),
            }
        }
        let mut queries = Vec::with_capacity(texts);
        let mut of_texts = Vec::with_capacity(texts);
        for (position, query) in dense.iter().enumerate() {
            let Some(query) = query else { continue };
            let missing = merged.without_dense(position, |point| documents.directory.is_embedded(point));
            if !missing.is_empty() {
                queries.push(wire::cosines(collection, query, missing.iter().map(|point| documents.ids[*point])));
                of_texts.push(position);
            }
        }
        for (position, found) in of_texts.into_iter().zip(self.query(collection, queries, documents, deadline).await?) {
            merged.add_dense(position, found);
        }
        Ok(Found { tools: merged, servers: scored_servers })
    }

    /// For each query, the positions and scores of the points found. Unknown points are omitted.
    async fn query(
        &self,
        collection: &str,
        queries: Vec<QueryPoints>,
        documents: &Documents,
        deadline: Instant,
    ) -> Result<Vec<Vec<Scored>>, Fault> {
        if queries.is_empty() {
            return Ok(Vec::new());
        }
        let batch: &QueryBatchPoints = &QueryBatchPointsBuilder::new(collection, queries).build();
        let answer = self.nodes.call(deadline, |client| async move { client.query_batch(batch.clone()).await }).await?;
        let position = |point| wire::found(point).and_then(|(id, score)| Some((*documents.positions.get(&id)?, score)));
        Ok(answer.result.into_iter().map(|list| list.result.into_iter().filter_map(position).collect()).collect())
    }
}

#[derive(Clone, Copy)]
enum List {
    Dense,
    Lexical,
    Servers,
}

/// The results from the cluster.
struct Found {
    tools: Merged,
    servers: Vec<Scored>,
}

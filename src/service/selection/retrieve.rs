//! Ranks tools for a message: embeds it, searches the index and fuses the results.
//!
//! An outage costs quality and causes a warning, but there is always a response. Without vectors, the ranking is lexical; without
//! the index, it is empty.

mod ranking;
mod gate;
mod preferences;
mod asked;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use ahash::RandomState;
use arc_swap::ArcSwap;
use parking_lot::Mutex;

pub(super) use self::gate::without_gate;
pub use self::ranking::Ranking;
use crate::domain::access::principal::Principal;
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::{ServerName, Tool, ToolId};
use crate::domain::learning::boost::Learned;
use crate::domain::learning::vector::MessageVector;
use crate::domain::selection::relevance::{
    Candidates, FusionParameters, Gate, LexicalModel, QueryPlan, Ranked, SparseVector, living_first, raise, z_scores,
};
use crate::domain::selection::remembering::Remembering;
use crate::service::access::connections::Connections;
use crate::service::catalog::current::View;
use crate::service::catalog::indexing::Indexing;
use crate::service::learning::learn::Learning;
use crate::service::ports::{
    Coverage, EmbedError, Embedder, IndexAnswer, IndexCandidate, IndexQuery, IndexQueryText, IndexServerScore, SpanKind, ToolIndex,
    ToolServers,
};
use crate::service::records::metrics::{Meters, Stage};
use crate::service::selection::builtins::BuiltinExamples;
use crate::service::selection::explain::{Trace, common_words};
use crate::service::selection::foreign::{Foreign, ForeignTool, ForeignVectors, Known};
use crate::service::spans;

pub struct Retrieve {
    embedder: Arc<dyn Embedder>,
    index: Arc<dyn ToolIndex>,
    lexical: Arc<LexicalModel>,
    fusion: FusionParameters,
    gate: ArcSwap<Gate>,
    foreign: ForeignVectors,
    builtins: BuiltinExamples,
    meters: Arc<Meters>,
    /// Reports which servers are down; `None` where tools are never called.
    servers: Option<Arc<dyn ToolServers>>,
    /// Knows who is signed in where; `None` where tools are never called.
    connections: Option<Arc<Connections>>,
    /// What use has taught; `None` if learning is off.
    learning: Option<Learning>,
}

/// The merged results of several queries.
#[derive(Clone, Debug, Default)]
pub struct Merged {
    /// The tools that the index returned for any query, best first, each with its best scores of all queries. Keys are positions in the
    /// catalog.
    pub ranked: Vec<Ranked<u32>>,
    /// The best tool of each query.
    pub firsts: Vec<u32>,
    /// Whether the index failed, so that the ranking says nothing about the tools.
    pub has_failed: bool,
    /// The cosine below which a tool is weak, by the query that most needs a tool.
    pub weak_cosine: Option<f32>,
    /// The vector of the query, if there is only one.
    pub vector: Option<Arc<[f32]>>,
    pub warnings: Vec<String>,
}

impl Merged {
    /// Appends the tools that the caller sees but no query returned, in the order of the catalog. In a large catalog, these are nearly all.
    pub fn add_rest(&mut self, view: &View) {
        let returned: HashSet<u32, RandomState> = self.ranked.iter().map(|ranked| ranked.key).collect();
        let rest = view.visible().positions().iter().filter(|key| !returned.contains(key));
        self.ranked.extend(rest.map(|&key| Ranked { key, fused: f32::NEG_INFINITY, ..Ranked::default() }));
    }
}

impl Retrieve {
    /// Searches what `indexing` indexes, with its embedder and its lexical model.
    pub fn over(indexing: &Indexing) -> Self {
        Self { lexical: Arc::clone(&indexing.lexical), ..Self::new(Arc::clone(&indexing.embedder), Arc::clone(&indexing.index)) }
    }

    /// Ranks with the default lexical model.
    pub fn new(embedder: Arc<dyn Embedder>, index: Arc<dyn ToolIndex>) -> Self {
        let gate = ArcSwap::from_pointee(Gate::for_model(embedder.model()));
        Self {
            embedder,
            index,
            lexical: Arc::default(),
            fusion: FusionParameters::default(),
            gate,
            foreign: ForeignVectors::default(),
            builtins: BuiltinExamples::default(),
            meters: Arc::default(),
            servers: None,
            connections: None,
            learning: None,
        }
    }

    /// The same with another index. It counts in no metrics, and doesn't know the examples for Open WebUI's own tools.
    pub(super) fn with_index(&self, index: Arc<dyn ToolIndex>) -> Self {
        Self {
            embedder: Arc::clone(&self.embedder),
            index,
            lexical: Arc::clone(&self.lexical),
            fusion: self.fusion,
            gate: ArcSwap::new(self.gate.load_full()),
            foreign: ForeignVectors::default(),
            builtins: BuiltinExamples::default(),
            meters: Arc::default(),
            servers: self.servers.clone(),
            connections: self.connections.clone(),
            learning: self.learning.clone(),
        }
    }

    /// Records latencies with these metrics.
    #[must_use]
    pub fn with_meters(self, meters: Arc<Meters>) -> Self {
        Self { meters, ..self }
    }

    /// Prefers tools of servers to which the caller has signed in.
    #[must_use]
    pub(crate) fn with_connections(self, connections: Arc<Connections>) -> Self {
        Self { connections: Some(connections), ..self }
    }

    /// Ranks tools that helped with similar messages higher.
    #[must_use]
    pub fn with_learning(self, learning: Option<Learning>) -> Self {
        Self { learning, ..self }
    }

    /// What use has taught; `None` if learning is off.
    pub(super) fn learning(&self) -> Option<&Learning> {
        self.learning.as_ref()
    }

    /// The vector of a message, as it is remembered.
    ///
    /// # Errors
    /// The embedder fails.
    pub(crate) async fn message_vector(&self, message: &str) -> Result<Option<MessageVector>, EmbedError> {
        Ok(self.query_vector(message).await?.as_deref().and_then(MessageVector::of))
    }

    /// The vector of a text. `None` for an empty one.
    ///
    /// # Errors
    /// The embedder fails.
    pub(crate) async fn query_vector(&self, text: &str) -> Result<Option<Arc<[f32]>>, EmbedError> {
        let plan = QueryPlan::new(text);
        if plan.is_empty() {
            return Ok(None);
        }
        Ok(self.embedder.embed_queries(&[plan.whole()]).await?.first().map(|vector| Arc::from(&vector[..])))
    }

    /// Lowers the ranks of tools on servers that are down, as reported by `servers`.
    #[must_use]
    pub fn with_servers(self, servers: Arc<dyn ToolServers>) -> Self {
        Self { servers: Some(servers), ..self }
    }

    /// Replaces the fusion, to measure its contribution. The weight of the dense half remains a setting.
    #[must_use]
    pub fn with_fusion(self, fusion: FusionParameters) -> Self {
        Self { fusion, ..self }
    }

    pub fn model(&self) -> &str {
        self.embedder.model()
    }

    /// Ranks all tools that the caller sees, together with the foreign tools, for one message.
    pub async fn rank(&self, plan: &QueryPlan, view: &View, list: Option<usize>, foreign: &[ForeignTool]) -> Ranking {
        self.rank_noting(plan, view, list, foreign, None).await
    }

    /// Like [`Self::rank`], and notes the evidence for an explanation.
    pub(super) async fn rank_noting(
        &self,
        plan: &QueryPlan,
        view: &View,
        list: Option<usize>,
        foreign: &[ForeignTool],
        trace: Option<&Mutex<Trace>>,
    ) -> Ranking {
        let View { catalog, visibility, settings, .. } = view;
        let texts: Vec<&str> = plan.texts().iter().map(String::as_str).collect();
        if texts.is_empty() {
            return Ranking::default();
        }
        let mut warnings = Vec::new();
        let vectors = self.embedded(&texts, &mut warnings).await;
        let query = self.query(plan, &vectors, view, foreign);
        let fusion = FusionParameters { dense_weight: settings.dense_weight, ..self.fusion }.for_message(plan.whole());
        let limit = list.unwrap_or(settings.candidates);
        // Servers' scores do not help messages with a single part.
        let has_parts = texts.len() > 2 && plan.in_context().is_none();
        let found = self.found(&IndexQuery { texts: &query, visibility, limit, servers: has_parts }, &mut warnings).await;
        let has_failed = found.is_none();
        let found = found.unwrap_or_default();
        let is_poor = found.coverage.is_poor();
        if !vectors.is_empty() && found.warning.is_none() {
            warnings.extend(of_coverage(found.coverage));
        }
        let is_partial = vectors.is_empty() || !found.coverage.is_complete();
        let mut candidates = Candidates::new(texts.len(), plan.parts());
        add_found(&mut candidates, &found, view);
        let not_judged = self.add_foreign(&mut candidates, catalog, &vectors, &query, foreign, &mut warnings).await;
        let servers = server_priors(&found.servers, catalog);
        candidates.set_prior(|key| catalog.server_of(key).and_then(|server| servers.get(server as usize)).copied().unwrap_or(0.0));
        let mut ranked = candidates.fuse(&fusion);
        if let Some(trace) = trace {
            let words = |key: u32| {
                let tool = catalog.tools().get(key as usize);
                tool.map_or_else(Vec::new, |tool| common_words(&self.lexical, tool, query.iter().map(|text| &text.sparse)))
            };
            trace.lock().found(plan, &candidates, &ranked, words);
        }
        // The gate's features include all tools, even those of servers that are down.
        let agreement = agreement(&ranked, catalog);
        let down = self.down(catalog);
        if down.contains(&true) {
            let is_down = |key| catalog.server_of(key).is_some_and(|server| down[server as usize]);
            living_first(&mut ranked, is_down, |key| catalog.texts().map_or(key, |texts| texts.near_duplicates.group(key)));
        }
        Ranking {
            agreement,
            strictness: settings.strictness,
            has_parts,
            down,
            not_judged,
            is_partial,
            has_failed,
            is_new_topic: false,
            asked: asked::asked(plan.whole(), catalog, &ranked, foreign),
            has_text: plan.has_text(),
            ranked,
            message: plan.whole().to_owned(),
            in_context: plan.in_context().map(str::to_owned),
            left_open: plan.left_open(),
            learned: Learned::default(),
            plain: Vec::new(),
            context_vector: vectors.get(1).filter(|_| plan.in_context().is_some() && !is_poor).cloned(),
            vector: vectors.into_iter().next().filter(|_| !is_poor),
            warnings,
        }
    }

    /// What to search for each text: its words, and its vector if there is one.
    fn query(&self, plan: &QueryPlan, vectors: &[Arc<[f32]>], view: &View, foreign: &[ForeignTool]) -> Vec<IndexQueryText> {
        let texts = plan.texts();
        let asks = |text: &str| Remembering::of(text).is_some();
        let asking: Vec<bool> = match plan.in_context() {
            // Only the message's own text counts: earlier turns may ask for other things.
            Some(_) => vec![asks(plan.whole()); texts.len()],
            None => texts.iter().map(|text| asks(text)).collect(),
        };
        let has_memory = asking.contains(&true) && asked::has_memory(view, foreign);
        let of_memory = has_memory.then(|| self.lexical.query_vector(Remembering::WORDS));
        let words = |at: usize, text: &str| {
            let words = match view.catalog.texts() {
                Some(texts) => self.lexical.expanded_query_vector(text, &view.settings.synonyms, &texts.vocabulary),
                None => self.lexical.query_vector(text),
            };
            // The message's own words are about what to remember.
            match of_memory.as_ref().filter(|_| asking[at]) {
                Some(of_memory) => words.plus(of_memory),
                None => words,
            }
        };
        texts.iter().enumerate().map(|(at, text)| IndexQueryText { dense: vectors.get(at).cloned(), sparse: words(at, text) }).collect()
    }

    /// Embeds the texts. If the embedder fails, returns no vectors and adds a warning.
    async fn embedded(&self, texts: &[&str], warnings: &mut Vec<String>) -> Vec<Arc<[f32]>> {
        let started = Instant::now();
        let step = spans::child(SpanKind::Internal, || format!("embeddings {}", self.model()).into());
        if let Some(span) = step.recorded() {
            span.set("gen_ai.operation.name", "embeddings".into());
            span.set("gen_ai.request.model", self.model().to_owned().into());
            span.set("toolsieve.embeddings.texts", texts.len().into());
        }
        step.capture("toolsieve.embeddings.input", || texts.join("\n"));
        let embedded = self.embedder.embed_queries(texts).await;
        self.meters.stage(Stage::Embed, started);
        embedded.unwrap_or_else(|error| {
            step.fail("embedder_failed");
            tracing::warn!(error = %error, "the message was not embedded");
            warnings.push("ranked by words alone: the embedder does not answer".to_owned());
            Vec::new()
        })
    }

    /// Searches the index. If that fails, adds a warning.
    async fn found(&self, query: &IndexQuery<'_>, warnings: &mut Vec<String>) -> Option<IndexAnswer> {
        let started = Instant::now();
        let step = spans::child(SpanKind::Internal, || "retrieval tools".into());
        let found = self.index.search(query).await;
        self.meters.stage(Stage::Index, started);
        if let Some(span) = step.recorded() {
            span.set("gen_ai.operation.name", "retrieval".into());
            span.set("gen_ai.data_source.id", "tools".into());
            span.set("db.system.name", "qdrant".into());
            span.set("db.response.returned_rows", found.as_ref().map_or(0, |found| found.candidates.len()).into());
        }
        match found {
            Ok(found) => {
                warnings.extend(found.warning.map(str::to_owned));
                Some(found)
            }
            Err(error) => {
                step.fail("index_failed");
                tracing::error!(error = %error, "the index was not searched");
                warnings.push("tools could not be searched".to_owned());
                None
            }
        }
    }

    /// For each server of the catalog, whether it is down.
    fn down(&self, catalog: &Catalog) -> Vec<bool> {
        let mut down = vec![false; catalog.servers().len()];
        for server in self.servers.iter().flat_map(|servers| servers.down()) {
            if let Some(place) = catalog.server_position(server.as_str()) {
                down[place] = true;
            }
        }
        down
    }

    /// Whether all tools of the catalog have vectors, and messages can be embedded now.
    pub fn is_complete(&self, catalog: &Catalog) -> bool {
        let state = self.index.state();
        let tools = catalog.tools().len();
        state.documents == tools && state.embedded == tools && self.embedder.fault().is_none()
    }

    /// Warnings about tools whose servers are down. The tools stay, because a server may be back when a tool is called.
    pub(in crate::service) fn down_warnings<'a>(&self, tools: impl Iterator<Item = &'a ToolId>) -> Vec<String> {
        let down: BTreeSet<ServerName> = self.servers.iter().flat_map(|servers| servers.down()).collect();
        if down.is_empty() {
            return Vec::new();
        }
        let shown: BTreeSet<&ServerName> = tools.map(|tool| &tool.server).filter(|server| down.contains(*server)).collect();
        shown.into_iter().map(|server| format!("{server} is down; its tools are still offered")).collect()
    }

    /// Adds the scores of the foreign tools. Returns the positions of those that were not judged.
    async fn add_foreign(
        &self,
        candidates: &mut Candidates<u32>,
        catalog: &Catalog,
        vectors: &[Arc<[f32]>],
        query: &[IndexQueryText],
        foreign: &[ForeignTool],
        warnings: &mut Vec<String>,
    ) -> Vec<usize> {
        if foreign.is_empty() {
            return Vec::new();
        }
        let terms: Vec<SparseVector> = query.iter().map(|text| text.sparse.clone()).collect();
        let Foreign { known, warning } = self.foreign.judge(foreign, &self.embedder, &self.lexical, catalog, &terms).await;
        warnings.extend(warning);
        let first = u32::try_from(catalog.tools().len()).unwrap_or(u32::MAX);
        let mut not_judged = Vec::new();
        for (place, (key, known)) in (first..).zip(known).enumerate() {
            let Known::Judged(passage, scores) = known else {
                not_judged.push(place);
                continue;
            };
            for (text, score) in scores.into_iter().enumerate() {
                candidates.add_lexical(text, key, score);
            }
            for (text, vector) in vectors.iter().enumerate() {
                if let Some(passage) = &passage {
                    candidates.add_dense(text, key, vector.iter().zip(passage.iter()).map(|(one, other)| one * other).sum());
                }
            }
        }
        not_judged
    }

    /// The best tools for several queries, merged, best first, with readable scores: exactly `limit` if the caller sees that
    /// many. Applies neither the gate nor the cut.
    pub async fn search(
        &self,
        queries: &[String],
        view: &View,
        principal: &Principal,
        limit: usize,
    ) -> (Vec<(Arc<Tool>, f32)>, Vec<String>) {
        let mut merged = self.merged(queries, view, principal, limit).await;
        if merged.ranked.len() < limit {
            merged.add_rest(view);
        }
        let tool = |ranked: Ranked<u32>| Some((Arc::clone(view.catalog.tools().get(ranked.key as usize)?), ranked.score()));
        (merged.ranked.into_iter().take(limit).filter_map(tool).collect(), merged.warnings)
    }

    /// Tools that the caller sees, ordered by their match with the queries. `list` is the minimum number of candidates per query.
    pub async fn merged(&self, queries: &[String], view: &View, principal: &Principal, list: usize) -> Merged {
        let View { catalog, settings, .. } = view;
        let mut merged = Merged::default();
        let mut best: HashMap<u32, Ranked<u32>, RandomState> = HashMap::default();
        for query in queries {
            let list = settings.candidates.max(list);
            let mut ranking = self.rank(&QueryPlan::new(query), view, Some(list), &[]).await;
            self.apply_learning(&mut ranking, view, principal, |_| true);
            self.prefer_better(&mut ranking, view, principal);
            merged.vector.clone_from(&ranking.vector);
            merged.has_failed |= ranking.has_failed;
            let weak = self.weak_cosine(&ranking, catalog.tools().len());
            merged.weak_cosine = merged.weak_cosine.into_iter().chain(weak).reduce(f32::min);
            merged.warnings.extend(ranking.warnings);
            raise(&mut ranking.ranked, &called(query, view));
            merged.firsts.extend(ranking.ranked.first().map(|first| first.key));
            for ranked in ranking.ranked {
                best.entry(ranked.key).and_modify(|known| known.raise(&ranked)).or_insert(ranked);
            }
        }
        if queries.len() != 1 {
            merged.vector = None;
        }
        merged.warnings.sort_unstable();
        merged.warnings.dedup();
        merged.ranked = best.into_values().collect();
        merged.ranked.sort_unstable_by(|one, other| other.fused.total_cmp(&one.fused).then(one.key.cmp(&other.key)));
        merged
    }
}

/// Maximum number of tools that a query may name.
const MOST_CALLED: usize = 8;

/// The tools that the query is the name of: the published one, or those with this name of their own.
fn called(query: &str, view: &View) -> Vec<u32> {
    let name = query.trim();
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Vec::new();
    }
    let View { catalog, .. } = view;
    if let Some(position) = view.operation(name).and_then(|tool| catalog.position(&tool.id)) {
        return vec![position];
    }
    let visible = view.visible();
    let is_called = |position: &&u32| catalog.tools()[**position as usize].id.name.eq_ignore_ascii_case(name);
    visible.positions().iter().filter(is_called).take(MOST_CALLED).copied().collect()
}

/// Adds the candidates from the index. If few tools have vectors, ignores cosines.
fn add_found(candidates: &mut Candidates<u32>, found: &IndexAnswer, view: &View) {
    let View { catalog, visibility, .. } = view;
    let is_poor = found.coverage.is_poor();
    for IndexCandidate { tool, dense, lexical } in &found.candidates {
        // The index may lag behind the catalog and the policy.
        let Some(key) = catalog.position(tool).filter(|&key| visibility.allows(&catalog.tools()[key as usize])) else { continue };
        for (text, cosine) in dense.iter().enumerate() {
            if let Some(cosine) = cosine.filter(|_| !is_poor) {
                candidates.add_dense(text, key, cosine);
            }
        }
        for (text, score) in lexical.iter().enumerate() {
            candidates.add_lexical(text, key, *score);
        }
    }
}

/// The warning if some tools have no vectors yet.
fn of_coverage(coverage: Coverage) -> Option<String> {
    let Coverage { tools, embedded } = coverage;
    if coverage.is_complete() {
        None
    } else if coverage.is_poor() {
        Some(format!("ranked by words alone: {embedded} of {tools} tools are embedded so far"))
    } else {
        Some(format!("{} of {tools} tools are found by their words alone until they are embedded", tools - embedded))
    }
}

/// For each server of the catalog, its match with the message; 0 if unknown.
fn server_priors(scores: &[IndexServerScore], catalog: &Catalog) -> Vec<f32> {
    let mut priors = vec![0.0; catalog.servers().len()];
    let cosines: Vec<f32> = scores.iter().map(|score| score.dense).collect();
    for (score, prior) in scores.iter().zip(z_scores(&cosines)) {
        // The index may lag behind the catalog.
        if let Some(place) = catalog.server_position(score.server.as_str()) {
            priors[place] = prior;
        }
    }
    priors
}

/// The share of the top five tools that belong to the server of the first one. A foreign tool belongs to no server.
fn agreement(ranked: &[Ranked<u32>], catalog: &Catalog) -> f32 {
    let first = &ranked[..ranked.len().min(5)];
    let Some(best) = first.first().and_then(|ranked| catalog.server_of(ranked.key)) else { return 0.0 };
    first.iter().filter(|ranked| catalog.server_of(ranked.key) == Some(best)).count() as f32 / first.len() as f32
}

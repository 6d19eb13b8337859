//! Ranks tools for a message: embeds it, searches the index and fuses the results.
//!
//! An outage costs quality and causes a warning, but there is always a response. Without vectors, the ranking is lexical; without
//! the index, it is empty.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use ahash::RandomState;
use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::domain::access::principal::Principal;
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::tool::{ServerName, Tool, ToolId};
use crate::domain::learning::boost::{Learned, apply};
use crate::domain::learning::memory::RIVALS;
use crate::domain::learning::quality::Quality;
use crate::domain::learning::vector::MessageVector;
use crate::domain::learning::votes::Vote;
use crate::domain::selection::builtins::Families;
use crate::domain::selection::explanation::GateExplanation;
use crate::domain::selection::relevance::arrange::{prefer_better, prefer_ready};
use crate::domain::selection::relevance::{
    Candidates, FusionParameters, Gate, GateEvidence, GateRule, GateVerdict, LeftOpen, LexicalModel, QueryPlan, Ranked, Signals,
    SparseVector, TurnEvidence, living_first, z_scores,
};
use crate::domain::text::canonical::Fingerprint;
use crate::service::access::connections::{ConnectionState, Connections};
use crate::service::catalog::current::View;
use crate::service::catalog::indexing::Indexing;
use crate::service::learning::learn::Learning;
use crate::service::ports::{
    ComputedStore, Coverage, EmbedError, Embedder, IndexAnswer, IndexCandidate, IndexQuery, IndexQueryText, IndexServerScore, SpanKind,
    ToolIndex, ToolServers,
};
use crate::service::records::metrics::{Meters, Stage};
use crate::service::selection::builtins::{BuiltinExamples, BuiltinFamilies, BuiltinTexts};
use crate::service::selection::explain::{Trace, common_words};
use crate::service::selection::foreign::{Foreign, ForeignTool, ForeignVectors, Known};
use crate::service::spans;

/// A ranking with the evidence for the gate and the cut. Keys below the number of tools in the catalog are positions in it;
/// larger keys are foreign tools in their order.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    pub ranked: Vec<Ranked<u32>>,
    /// The text of the message that was searched, without pastes.
    pub message: String,
    /// The message together with earlier turns, if it depends on them.
    pub in_context: Option<String>,
    /// The vector of `in_context`.
    pub context_vector: Option<Arc<[f32]>>,
    /// Whether the assistant's last turn ended with a question or offered to do something.
    pub left_open: LeftOpen,
    /// The vector of the message.
    pub vector: Option<Arc<[f32]>>,
    /// The share of the top five tools that belong to the server of the first one.
    pub agreement: f32,
    /// Positions of foreign tools that were not judged and are kept.
    pub not_judged: Vec<usize>,
    /// Whether the message has several sentences or clauses.
    pub has_parts: bool,
    /// For each server of the catalog, whether it is down.
    down: Vec<bool>,
    /// How strict the gate is (`selection.strictness`).
    strictness: f32,
    /// What learning from use changed.
    pub(super) learned: Learned,
    /// The best tools without learning, with their scores. Empty if learning is off.
    pub(crate) plain: Vec<(u32, f32)>,
    /// Whether some tools or the message have no vectors, so that semantic results are incomplete.
    pub is_partial: bool,
    /// Whether the index failed.
    pub has_failed: bool,
    pub warnings: Vec<String>,
}

impl Ranking {
    /// Whether a server is down, by its position in the catalog.
    pub fn is_down(&self, server: u32) -> bool {
        self.down.get(server as usize).copied().unwrap_or(false)
    }

    /// Calls `judge` with the evidence of all searched texts.
    fn with_evidence<T>(&self, tools: usize, judge: impl FnOnce(&GateEvidence<'_>) -> T) -> T {
        let cosines = best_five(self.ranked.iter().filter_map(|ranked| ranked.dense));
        judge(&GateEvidence {
            message: &self.message,
            vector: self.vector.as_deref(),
            best_dense: cosines.first().copied(),
            best_five: &cosines,
            agreement: self.agreement,
            best_lexical: self.ranked.iter().map(|ranked| ranked.lexical).fold(0.0, f32::max),
            tools,
        })
    }

    /// Calls `judge` with the evidence of the message alone and in context.
    fn with_turn<T>(&self, tools: usize, judge: impl FnOnce(&TurnEvidence<'_>) -> T) -> T {
        let cosines = best_five(self.ranked.iter().filter_map(|ranked| ranked.dense_alone));
        self.with_evidence(tools, |all| {
            let alone = GateEvidence {
                best_dense: cosines.first().copied(),
                best_five: &cosines,
                best_lexical: self.ranked.iter().map(|ranked| ranked.lexical_alone).fold(0.0, f32::max),
                ..*all
            };
            let message = self.in_context.as_deref().unwrap_or(&self.message);
            let in_context = GateEvidence { message, vector: self.context_vector.as_deref(), ..*all };
            judge(&TurnEvidence { alone, in_context, left_open: self.left_open })
        })
    }
}

/// The explanation if tools are let through without the gate.
pub(super) fn without_gate(rule: GateRule) -> GateExplanation {
    GateExplanation { needs_tool: true, margin: None, by: rule, signals: Vec::new() }
}

/// The five largest cosines, descending.
fn best_five(cosines: impl Iterator<Item = f32>) -> Vec<f32> {
    let mut cosines: Vec<f32> = cosines.collect();
    cosines.sort_unstable_by(|one, other| other.total_cmp(one));
    cosines.truncate(5);
    cosines
}

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

/// By how much uses must prefer one of two near duplicates, in standard deviations of the candidates, so that the other one doesn't take
/// its place by better answers.
const HABIT: f32 = 0.5;
/// Number of messages that must have led to one of two near duplicates before the embedding model changed, and at least twice as many as
/// to the other one.
const EARLIER: u32 = 3;

/// The merged results of several queries.
#[derive(Clone, Debug, Default)]
pub struct Merged {
    /// All tools that the caller sees, best first, each with its best scores of all queries. Keys are positions in the catalog.
    pub ranked: Vec<Ranked<u32>>,
    /// Whether the index failed, so that the ranking says nothing about the tools.
    pub has_failed: bool,
    /// The cosine below which a tool is weak, by the query that most needs a tool.
    pub weak_cosine: Option<f32>,
    /// The vector of the query, if there is only one.
    pub vector: Option<Arc<[f32]>>,
    pub warnings: Vec<String>,
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

    /// Lets the messages that the caller may learn from change the ranking of this message. Votes for tools that are not offered don't
    /// count.
    pub(crate) fn apply_learning(&self, ranking: &mut Ranking, view: &View, principal: &Principal, is_offered: impl Fn(u32) -> bool) {
        let Some(learning) = &self.learning else { return };
        let vector = if ranking.in_context.is_some() { &ranking.context_vector } else { &ranking.vector };
        let Some(vector) = vector.as_deref().and_then(MessageVector::of) else { return };
        let votes = learning.votes(principal, &vector);
        let View { catalog, visibility, .. } = view;
        let counts = |key: &u32| visibility.allows(&catalog.tools()[*key as usize]) && is_offered(*key);
        let allowed = |(tool, vote): (ToolId, Vote)| {
            let key = catalog.position(&tool).filter(counts)?;
            // Near duplicates on available servers have taken the ranks of unavailable tools.
            let is_down = catalog.server_of(key).is_some_and(|server| ranking.is_down(server));
            (vote.delta < 0.0 || !is_down).then_some((key, vote))
        };
        let votes: HashMap<u32, Vote> = votes.into_iter().filter_map(allowed).collect();
        let is_ours = |one: &&Ranked<u32>| (one.key as usize) < catalog.tools().len();
        ranking.plain = ranking.ranked.iter().filter(is_ours).take(RIVALS).map(|one| (one.key, one.fused)).collect();
        ranking.learned = apply(&mut ranking.ranked, &votes);
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

    /// For each server that is called with a sign-in, whether the caller may call it at once.
    pub(crate) async fn connection_states(&self, caller: &Principal) -> HashMap<ServerName, ConnectionState> {
        match &self.connections {
            Some(connections) => connections.known_states(caller).await,
            None => HashMap::new(),
        }
    }

    /// Moves tools that the caller can call at once before equally good ones that need a sign-in first.
    pub(crate) fn prefer_ready(ranked: &mut [Ranked<u32>], states: &HashMap<ServerName, ConnectionState>, view: &View) {
        if !states.values().any(|state| *state == ConnectionState::SignIn) {
            return;
        }
        let View { catalog, settings, .. } = view;
        let texts = catalog.texts().filter(|_| settings.fold_duplicates);
        let tools = catalog.tools();
        let is_ready = |key: u32| {
            let server = tools.get(key as usize).map(|tool| &tool.id.server);
            server.is_none_or(|server| states.get(server) != Some(&ConnectionState::SignIn))
        };
        let group = |key: u32| if (key as usize) < tools.len() { texts.map_or(key, |texts| texts.near_duplicates.group(key)) } else { key };
        prefer_ready(ranked, group, is_ready);
    }

    /// Among near duplicates, moves the one that fails less and answers faster to the first place, unless the caller's uses clearly
    /// prefer another one. If that is no difference, the one that the caller used more often before the embedding model changed.
    pub(crate) fn prefer_better(&self, ranking: &mut Ranking, view: &View, caller: &Principal) {
        let View { catalog, settings, .. } = view;
        let Some(learning) = &self.learning else { return };
        let (quality, earlier) = (learning.qualities(caller), learning.earlier(caller));
        if quality.is_none() && earlier.is_none() {
            return;
        }
        let Some(texts) = catalog.texts().filter(|_| settings.fold_duplicates) else { return };
        let tools = catalog.tools();
        let Ranking { ranked, learned, down, .. } = ranking;
        let is_down = |key: u32| catalog.server_of(key).is_some_and(|server| down.get(server as usize).copied().unwrap_or_default());
        let delta = |key: u32| learned.deltas.get(&key).copied().unwrap_or_default();
        let of = |key: u32| quality.as_ref()?(&tools.get(key as usize)?.id);
        let used = |key: u32| earlier.as_ref()?.get(&tools.get(key as usize)?.id).copied();
        let is_habit = |one: u32, other: u32| used(one).unwrap_or_default() >= EARLIER.max(2 * used(other).unwrap_or_default());
        let group = |key: u32| if (key as usize) < tools.len() { texts.near_duplicates.group(key) } else { key };
        prefer_better(ranked, group, |one, other| {
            let is_preferred = delta(other) > 0.0 && delta(other) - delta(one) >= HABIT;
            let is_better = Quality::is_better(of(one), of(other));
            !is_preferred && !is_down(one) && (is_better || (is_habit(one, other) && !Quality::is_better(of(other), of(one))))
        });
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

    /// Trains the gate with the embedder's vectors of its examples, unless the model has a trained head. The vectors are cached
    /// in the store like those of tools.
    pub async fn teach_gate(&self, store: &dyn ComputedStore) {
        if !self.gate.load().wants_examples() {
            return;
        }
        let texts: Vec<&str> = Gate::example_texts().collect();
        let Some(vectors) = self.example_vectors(&texts, store).await else {
            tracing::warn!("messages that need no tool are recognised by their words alone");
            return;
        };
        let mut gate = Gate::default();
        if gate.teach(&vectors.iter().collect::<Vec<_>>()) {
            self.gate.store(Arc::new(gate));
        }
    }

    /// Embeds the examples of messages that need Open WebUI's own tools. The vectors are cached in the store like those of tools.
    pub async fn teach_builtins(&self, store: &dyn ComputedStore) {
        let texts: Vec<&str> = Families::all().example_texts().collect();
        if let Some(vectors) = self.example_vectors(&texts, store).await {
            self.builtins.set(vectors);
        } else {
            tracing::warn!("messages that need Open WebUI's own tools are recognised by their words alone");
        }
    }

    /// The families of Open WebUI's own tools that these texts need.
    pub(super) async fn builtins(&self, texts: &BuiltinTexts) -> BuiltinFamilies {
        self.builtins.judge(texts, self.embedder.as_ref()).await
    }

    /// The vectors of example texts, from the store or the embedder; `None` if the embedder fails.
    async fn example_vectors(&self, texts: &[&str], store: &dyn ComputedStore) -> Option<Vec<Arc<[f32]>>> {
        let hashes: Vec<Fingerprint> = texts.iter().map(|text| Fingerprint::of_text(text)).collect();
        let mut known = store.vectors(self.model(), &hashes).await.unwrap_or_default();
        let missing: Vec<(Fingerprint, String)> = hashes
            .iter()
            .zip(texts)
            .filter(|(hash, _)| !known.contains_key(hash))
            .map(|(hash, text)| (*hash, (*text).to_owned()))
            .collect();
        if !missing.is_empty() {
            match self.embedder.embed_passages(missing.iter().map(|(_, text)| text.clone()).collect()).await {
                Ok(vectors) => {
                    let vectors: Vec<(Fingerprint, Arc<[f32]>)> = missing.iter().map(|(hash, _)| *hash).zip(vectors).collect();
                    if let Err(error) = store.save_vectors(self.model(), &vectors).await {
                        tracing::warn!(error = %error, "example messages were not stored");
                    }
                    known.extend(vectors);
                }
                Err(error) => {
                    tracing::warn!(error = %error, "example messages were not embedded");
                    return None;
                }
            }
        }
        hashes.iter().map(|hash| known.get(hash).cloned()).collect()
    }

    /// The cosine below which a search result is weak, see [`is_weak`](crate::domain::selection::relevance::is_weak). `tools` is the number
    /// of tools searched.
    pub fn weak_cosine(&self, ranking: &Ranking, tools: usize) -> Option<f32> {
        let gate = self.gate.load();
        gate.weak_cosine(ranking.with_evidence(tools, |evidence| gate.judge(evidence)))
    }

    /// Whether the message needs any tool.
    pub fn needs_tool(&self, ranking: &Ranking, tools: usize) -> bool {
        self.verdict(ranking, tools).is_none_or(|verdict| verdict.needs_tool)
    }

    /// The decision of [`Self::needs_tool`], with the features behind it.
    pub(super) fn explain_gate(&self, ranking: &Ranking, tools: usize) -> GateExplanation {
        let Some(verdict) = self.verdict(ranking, tools) else { return without_gate(GateRule::Partial) };
        let gate = self.gate.load();
        let signals = match ranking.in_context {
            Some(_) => ranking.with_turn(tools, |evidence| gate.weighed_turn(verdict, evidence)),
            None => ranking.with_evidence(tools, |evidence| gate.weighed(verdict, evidence)),
        };
        let margin = Some(verdict.margin).filter(|margin| margin.is_finite());
        GateExplanation { needs_tool: verdict.needs_tool, margin, by: verdict.by, signals }
    }

    /// The gate's verdict; `None` if it can't judge because tools have no vectors yet, and the words suggest one.
    fn verdict(&self, ranking: &Ranking, tools: usize) -> Option<GateVerdict> {
        let gate = self.gate.load();
        // Cosines say nothing about tools without vectors. If there are no vectors at all, the gate uses words anyway.
        let by_words =
            |alone: &GateEvidence<'_>| gate.judge(&GateEvidence { vector: None, best_dense: None, best_five: &[], ..*alone }).needs_tool;
        if ranking.is_partial && ranking.vector.is_some() && ranking.with_turn(tools, |turn| by_words(&turn.alone)) {
            return None;
        }
        let verdict = match ranking.in_context {
            Some(_) => ranking.with_turn(tools, |evidence| gate.judge_turn(evidence)),
            None => ranking.with_evidence(tools, |evidence| gate.judge(evidence)),
        };
        Some(verdict.at(ranking.strictness))
    }

    /// The features of the gate's trained head, for its training.
    pub fn signals(&self, ranking: &Ranking, tools: usize) -> Signals {
        ranking.with_evidence(tools, |evidence| self.gate.load().signals(evidence))
    }

    /// The features for the turn head: those of the message alone, of the message in context, and of the turns.
    pub fn turn_signals(&self, ranking: &Ranking, tools: usize) -> [serde_json::Value; 3] {
        ranking.with_turn(tools, |evidence| self.gate.load().turn_signals(evidence))
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
        let sparse = |text: &str| match catalog.texts() {
            Some(texts) => self.lexical.expanded_query_vector(text, &settings.synonyms, &texts.vocabulary),
            None => self.lexical.query_vector(text),
        };
        let query: Vec<IndexQueryText> =
            texts.iter().enumerate().map(|(at, text)| IndexQueryText { dense: vectors.get(at).cloned(), sparse: sparse(text) }).collect();
        let fusion = FusionParameters { dense_weight: settings.dense_weight, ..self.fusion };
        let limit = list.unwrap_or(settings.candidates);
        // Servers' scores do not help messages with a single part.
        let has_parts = texts.len() > 2;
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
        let Merged { ranked, warnings, .. } = self.merged(queries, view, principal, limit).await;
        let tool = |ranked: Ranked<u32>| Some((Arc::clone(view.catalog.tools().get(ranked.key as usize)?), ranked.score()));
        (ranked.into_iter().take(limit).filter_map(tool).collect(), warnings)
    }

    /// All tools that the caller sees, ordered by their match with the queries. `list` is the minimum number of candidates per
    /// query.
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
            for ranked in ranking.ranked {
                best.entry(ranked.key).and_modify(|known| known.raise(&ranked)).or_insert(ranked);
            }
        }
        if queries.len() != 1 {
            merged.vector = None;
        }
        merged.warnings.sort_unstable();
        merged.warnings.dedup();
        // Tools that no query returned follow in the order of the catalog. Mostly, these are nearly all.
        let (mut found, mut rest) = (Vec::with_capacity(best.len()), Vec::new());
        for &key in &**view.visible().positions() {
            match best.remove(&key) {
                Some(ranked) => found.push(ranked),
                None => rest.push(Ranked { key, fused: f32::NEG_INFINITY, ..Ranked::default() }),
            }
        }
        found.sort_by(|one, other| other.fused.total_cmp(&one.fused).then(one.key.cmp(&other.key)));
        found.append(&mut rest);
        merged.ranked = found;
        merged
    }
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

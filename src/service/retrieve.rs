//! Ranks tools for a message: embed, ask the index, fuse.
//!
//! A part that is down costs a warning and quality, never the answer: without vectors the ranking is lexical, without
//! the index it is empty.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;

use crate::domain::canonical::Fingerprint;
use crate::domain::catalog::Catalog;
use crate::domain::principal::Visibility;
use crate::domain::relevance::{
    Candidates, FusionParameters, Gate, GateEvidence, LexicalModel, QueryPlan, Ranked, Signals, readable_score, z_scores,
};
use crate::domain::tool::Tool;
use crate::service::current::LiveSelection;
use crate::service::meters::{Meters, Stage};
use crate::service::ports::{Embedder, IndexAnswer, IndexCandidate, IndexQuery, IndexQueryText, IndexServerScore, Store, ToolIndex};

/// A tool of somebody else that shall be judged with ours: what is known of it is its definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignTool {
    pub name: String,
    pub description: String,
}

/// A ranked list with the evidence that the cut and the gate go by. Keys below the number of tools in the catalog are
/// positions in it; the others are foreign tools in their order.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    pub ranked: Vec<Ranked<u32>>,
    /// The message as it was searched for: without its pastes.
    pub message: String,
    /// The message with the turns before it, where it leans on them.
    pub in_context: Option<String>,
    /// The vector of that.
    pub context_vector: Option<Arc<[f32]>>,
    /// The message as a vector.
    pub vector: Option<Arc<[f32]>>,
    /// The share of the five first that are of the first one's server.
    pub agreement: f32,
    /// Whether the message has several sentences or clauses.
    pub has_parts: bool,
    pub warnings: Vec<String>,
}

/// How far a message that leans on earlier turns may lie below the gate's threshold alone, in log-odds, where it lies above
/// it with them: "thanks!" stays below, "and Seoul?" does not.
const CONTEXT_ALLOWANCE: f32 = 4.0;

pub struct Retrieve {
    embedder: Arc<dyn Embedder>,
    index: Arc<dyn ToolIndex>,
    lexical: LexicalModel,
    fusion: FusionParameters,
    settings: LiveSelection,
    gate: ArcSwap<Gate>,
    meters: Arc<Meters>,
}

/// What several queries bring together.
#[derive(Clone, Debug, Default)]
pub struct Merged {
    /// Positions in the catalog with their fused scores, best first: all that the caller sees.
    pub ranked: Vec<(u32, f32)>,
    /// The first query as a vector.
    pub vector: Option<Arc<[f32]>>,
    pub warnings: Vec<String>,
}

impl Retrieve {
    #[must_use]
    pub fn new(embedder: Arc<dyn Embedder>, index: Arc<dyn ToolIndex>, settings: LiveSelection) -> Self {
        let gate = ArcSwap::from_pointee(Gate::for_model(embedder.model()));
        Self {
            embedder,
            index,
            lexical: LexicalModel::default(),
            fusion: FusionParameters::default(),
            settings,
            gate,
            meters: Arc::default(),
        }
    }

    /// Tells how long its parts take.
    #[must_use]
    pub fn with_meters(self, meters: Arc<Meters>) -> Self {
        Self { meters, ..self }
    }

    /// With other parts than the usual ones, for measuring what each contributes. The index must have been filled with
    /// the same lexical model. The weight of the dense half is a setting, and stays one.
    #[must_use]
    pub fn with_parts(mut self, lexical: LexicalModel, fusion: FusionParameters) -> Self {
        self.lexical = lexical;
        self.fusion = fusion;
        self
    }

    #[must_use]
    pub fn model(&self) -> &str {
        self.embedder.model()
    }

    /// Teaches the gate the embedder's view of its examples, unless it was trained for this model. Their vectors are kept in
    /// the store like those of tools.
    pub async fn teach_gate(&self, store: &dyn Store) {
        if !self.gate.load().wants_examples() {
            return;
        }
        let texts: Vec<&str> = Gate::example_texts().collect();
        let hashes: Vec<Fingerprint> = texts.iter().map(|text| Fingerprint::of_text(text)).collect();
        let mut known = store.vectors(self.model(), &hashes).await.unwrap_or_default();
        let missing: Vec<(Fingerprint, String)> = hashes
            .iter()
            .zip(&texts)
            .filter(|(hash, _)| !known.contains_key(hash))
            .map(|(hash, text)| (*hash, (*text).to_owned()))
            .collect();
        if !missing.is_empty() {
            match self.embedder.embed_passages(missing.iter().map(|(_, text)| text.clone()).collect()).await {
                Ok(vectors) => {
                    let vectors: Vec<(Fingerprint, Arc<[f32]>)> = missing.iter().map(|(hash, _)| *hash).zip(vectors).collect();
                    if let Err(error) = store.save_vectors(self.model(), &vectors).await {
                        tracing::warn!(error = %error, "the gate's examples were not stored");
                    }
                    known.extend(vectors);
                }
                Err(error) => {
                    tracing::warn!(error = %error, "messages that need no tool are told by their words alone");
                    return;
                }
            }
        }
        let vectors: Vec<&Arc<[f32]>> = hashes.iter().filter_map(|hash| known.get(hash)).collect();
        let mut gate = Gate::default();
        if gate.teach(&vectors) {
            self.gate.store(Arc::new(gate));
        }
    }

    /// Whether the message needs a tool at all, by absolute evidence.
    #[must_use]
    pub fn needs_tool(&self, ranking: &Ranking, tools: usize) -> bool {
        let gate = self.gate.load();
        Self::with_evidence(ranking, tools, |evidence| {
            let alone = gate.judge(evidence);
            let Some(message) = ranking.in_context.as_deref() else { return alone.needs_tool };
            let in_context = gate.judge(&GateEvidence { message, vector: ranking.context_vector.as_deref(), ..*evidence });
            alone.needs_tool || (in_context.needs_tool && alone.margin >= -CONTEXT_ALLOWANCE)
        })
    }

    /// What the gate's trained half goes by: for training it.
    #[must_use]
    pub fn signals(&self, ranking: &Ranking, tools: usize) -> Signals {
        Self::with_evidence(ranking, tools, |evidence| self.gate.load().signals(evidence))
    }

    fn with_evidence<T>(ranking: &Ranking, tools: usize, judge: impl FnOnce(&GateEvidence<'_>) -> T) -> T {
        let mut cosines: Vec<f32> = ranking.ranked.iter().filter_map(|ranked| ranked.dense).collect();
        cosines.sort_unstable_by(|one, other| other.total_cmp(one));
        cosines.truncate(5);
        let evidence = GateEvidence {
            message: &ranking.message,
            vector: ranking.vector.as_deref(),
            best_dense: cosines.first().copied(),
            best_five: &cosines,
            agreement: ranking.agreement,
            best_lexical: ranking.ranked.iter().map(|ranked| ranked.lexical).reduce(f32::max).unwrap_or(0.0),
            tools,
        };
        judge(&evidence)
    }

    /// Ranks what the caller sees, and the foreign tools with it, for one message.
    pub async fn rank(
        &self,
        plan: &QueryPlan,
        visibility: &Visibility,
        catalog: &Catalog,
        list: Option<usize>,
        foreign: &[ForeignTool],
    ) -> Ranking {
        let texts: Vec<&str> = plan.texts().iter().map(String::as_str).collect();
        if texts.is_empty() {
            return Ranking::default();
        }
        let mut warnings = Vec::new();
        let started = Instant::now();
        let vectors = match self.embedder.embed_queries(&texts).await {
            Ok(vectors) => vectors,
            Err(error) => {
                tracing::warn!(error = %error, "the message was not embedded");
                warnings.push("ranked by words alone: the embedder does not answer".to_owned());
                Vec::new()
            }
        };
        self.meters.stage(Stage::Embed, started);
        let settings = self.settings.load_full();
        let sparse = |text: &str| match catalog.texts() {
            Some(facts) => self.lexical.expanded_query_vector(text, &settings.synonyms, &facts.vocabulary),
            None => self.lexical.query_vector(text),
        };
        let query: Vec<IndexQueryText> =
            texts.iter().enumerate().map(|(at, text)| IndexQueryText { dense: vectors.get(at).cloned(), sparse: sparse(text) }).collect();
        let fusion = FusionParameters { dense_weight: settings.dense_weight, ..self.fusion };
        let limit = list.unwrap_or(settings.candidates);
        // Messages of one part gain nothing by their servers.
        let has_parts = texts.len() > 2;
        let started = Instant::now();
        let found = match self.index.search(&IndexQuery { texts: &query, visibility, limit, servers: has_parts }).await {
            Ok(found) => {
                warnings.extend(found.warning.map(str::to_owned));
                found
            }
            Err(error) => {
                tracing::error!(error = %error, "the index was not searched");
                warnings.push("tools could not be searched".to_owned());
                IndexAnswer::default()
            }
        };
        self.meters.stage(Stage::Index, started);
        let mut candidates = Candidates::new(texts.len(), plan.parts());
        for IndexCandidate { tool, dense, lexical } in &found.candidates {
            // The index may be a moment behind the catalog and the policy.
            let Some(key) = catalog.position(tool).filter(|&key| visibility.allows(&catalog.tools()[key as usize])) else { continue };
            for (text, cosine) in dense.iter().enumerate() {
                if let Some(cosine) = cosine {
                    candidates.add_dense(text, key, *cosine);
                }
            }
            for (text, score) in lexical.iter().enumerate() {
                candidates.add_lexical(text, key, *score);
            }
        }
        if !foreign.is_empty() && !vectors.is_empty() {
            self.add_foreign(&mut candidates, catalog, &vectors, foreign, &mut warnings).await;
        }
        let servers = server_priors(&found.servers, catalog);
        candidates.set_prior(|key| catalog.server_of(key).and_then(|server| servers.get(server as usize)).copied().unwrap_or(0.0));
        let ranked = candidates.fuse(&fusion);
        Ranking {
            agreement: agreement(&ranked, catalog),
            has_parts,
            ranked,
            message: plan.whole().to_owned(),
            in_context: plan.in_context().map(str::to_owned),
            context_vector: vectors.get(1).filter(|_| plan.in_context().is_some()).cloned(),
            vector: vectors.into_iter().next(),
            warnings,
        }
    }

    async fn add_foreign(
        &self,
        candidates: &mut Candidates<u32>,
        catalog: &Catalog,
        vectors: &[Arc<[f32]>],
        foreign: &[ForeignTool],
        warnings: &mut Vec<String>,
    ) {
        let passages: Vec<String> =
            foreign.iter().map(|tool| format!("{}: {}", tool.name.replace(['_', '-'], " "), tool.description)).collect();
        let passages: Vec<&str> = passages.iter().map(String::as_str).collect();
        let embedded = match self.embedder.embed_queries(&passages).await {
            Ok(embedded) => embedded,
            Err(error) => {
                tracing::warn!(error = %error, "foreign tools were not embedded");
                warnings.push("foreign tools were not judged".to_owned());
                return;
            }
        };
        let first = u32::try_from(catalog.tools().len()).unwrap_or(u32::MAX);
        for (key, passage) in (first..).zip(&embedded) {
            for (text, vector) in vectors.iter().enumerate() {
                let cosine = vector.iter().zip(passage.iter()).map(|(one, other)| one * other).sum();
                candidates.add_dense(text, key, cosine);
                candidates.add_lexical(text, key, 0.0);
            }
        }
    }

    /// The best tools for several queries, merged, best first, with readable scores: exactly `limit` when the caller
    /// sees that many. No gate, no cut.
    pub async fn search(
        &self,
        queries: &[String],
        visibility: &Visibility,
        catalog: &Catalog,
        limit: usize,
    ) -> (Vec<(Arc<Tool>, f32)>, Vec<String>) {
        let Merged { ranked, warnings, .. } = self.merged(queries, visibility, catalog, limit).await;
        let tool = |(key, fused): (u32, f32)| Some((Arc::clone(catalog.tools().get(key as usize)?), readable_score(fused)));
        (ranked.into_iter().take(limit).filter_map(tool).collect(), warnings)
    }

    /// All that the caller sees, in the order in which it fits the queries; `list` is how many of each query matter at least.
    pub async fn merged(&self, queries: &[String], visibility: &Visibility, catalog: &Catalog, list: usize) -> Merged {
        let mut merged = Merged::default();
        let mut best: HashMap<u32, f32> = HashMap::new();
        for query in queries {
            let list = self.settings.load().candidates.max(list);
            let ranking = self.rank(&QueryPlan::new(query), visibility, catalog, Some(list), &[]).await;
            merged.warnings.extend(ranking.warnings);
            merged.vector = merged.vector.or(ranking.vector);
            for ranked in ranking.ranked {
                best.entry(ranked.key).and_modify(|fused| *fused = fused.max(ranked.fused)).or_insert(ranked.fused);
            }
        }
        merged.warnings.sort_unstable();
        merged.warnings.dedup();
        // Tools that no list brought, which happens while they are not embedded yet, come last.
        for (key, tool) in (0..).zip(catalog.tools()) {
            if visibility.allows(tool) {
                best.entry(key).or_insert(f32::NEG_INFINITY);
            } else {
                best.remove(&key);
            }
        }
        merged.ranked = best.into_iter().collect();
        merged.ranked.sort_by(|(one, one_score), (other, other_score)| other_score.total_cmp(one_score).then(one.cmp(other)));
        merged
    }
}

/// How far the message is about each server of the catalog; 0 for those of which nothing is known.
fn server_priors(scores: &[IndexServerScore], catalog: &Catalog) -> Vec<f32> {
    let mut priors = vec![0.0; catalog.servers().len()];
    let cosines: Vec<f32> = scores.iter().map(|score| score.dense).collect();
    for (score, prior) in scores.iter().zip(z_scores(&cosines)) {
        // The index may be a moment behind the catalog.
        if let Some(place) = catalog.server_position(score.server.as_str()) {
            priors[place] = prior;
        }
    }
    priors
}

/// The share of the five first that are of the first one's server; a foreign tool is of none.
fn agreement(ranked: &[Ranked<u32>], catalog: &Catalog) -> f32 {
    let first = &ranked[..ranked.len().min(5)];
    let Some(best) = first.first().and_then(|ranked| catalog.server_of(ranked.key)) else { return 0.0 };
    first.iter().filter(|ranked| catalog.server_of(ranked.key) == Some(best)).count() as f32 / first.len() as f32
}

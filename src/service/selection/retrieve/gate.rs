//! Whether a message needs any tool: one of the catalog, or one of Open WebUI's own. Both learn from example messages.

use std::sync::Arc;

use super::{Ranking, Retrieve};
use crate::domain::selection::builtins::Families;
use crate::domain::selection::explanation::GateExplanation;
use crate::domain::selection::relevance::{Gate, GateEvidence, GateRule, GateVerdict, Signals};
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::ComputedStore;
use crate::service::selection::builtins::{BuiltinFamilies, BuiltinTexts};

/// The explanation if tools are let through without the gate.
pub(in crate::service::selection) fn without_gate(rule: GateRule) -> GateExplanation {
    GateExplanation { needs_tool: true, margin: None, by: rule, signals: Vec::new() }
}

impl Retrieve {
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

    /// Waits until the examples of messages that need Open WebUI's own tools are worth embedding, which takes seconds: until a request
    /// offers such tools. If the store has vectors of them, this was so at an earlier start.
    pub async fn needs_builtins(&self, store: &dyn ComputedStore) {
        let hashes: Vec<Fingerprint> = Families::all().example_texts().map(Fingerprint::of_text).collect();
        if store.vectors(self.model(), &hashes).await.unwrap_or_default().is_empty() {
            self.builtins.missed().await;
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
    pub(in crate::service::selection) async fn builtins(&self, texts: &BuiltinTexts) -> BuiltinFamilies {
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
    pub(in crate::service::selection) fn explain_gate(&self, ranking: &Ranking, tools: usize) -> GateExplanation {
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
    pub(in crate::service::selection) fn verdict(&self, ranking: &Ranking, tools: usize) -> Option<GateVerdict> {
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

    /// The gate's verdict on the message alone, without earlier turns.
    pub(in crate::service::selection) fn verdict_alone(&self, ranking: &Ranking, tools: usize) -> GateVerdict {
        ranking.with_turn(tools, |turn| self.gate.load().judge(&turn.alone)).at(ranking.strictness)
    }

    /// The features of the gate's trained head, for its training.
    pub fn signals(&self, ranking: &Ranking, tools: usize) -> Signals {
        ranking.with_evidence(tools, |evidence| self.gate.load().signals(evidence))
    }

    /// The features for the turn head: those of the message alone, of the message in context, and of the turns.
    pub fn turn_signals(&self, ranking: &Ranking, tools: usize) -> [serde_json::Value; 3] {
        ranking.with_turn(tools, |evidence| self.gate.load().turn_signals(evidence))
    }
}

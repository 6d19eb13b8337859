//! A ranking of tools for a message, with the evidence for the gate.

use std::collections::HashSet;
use std::sync::Arc;

use crate::domain::catalog::catalog::Catalog;
use crate::domain::learning::boost::Learned;
use crate::domain::selection::relevance::{Asked, GateEvidence, LeftOpen, Ranked, TurnEvidence, raise_to_alone};

/// Minimum cosine of a message that asks for the time with the most similar tool. Questions about time in general ("why are there time
/// zones?") have less in most languages.
const TIME_COSINE: f32 = 0.3;

/// A ranking with the evidence for the gate and the cut. Keys below the number of tools in the catalog are positions in it;
/// larger keys are foreign tools in their order.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one ranking")]
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
    pub(super) down: Vec<bool>,
    /// What the words of the message ask for, with the tools that do it.
    pub(super) asked: Option<(Asked, HashSet<u32>)>,
    /// Whether the message contains a text to work on, which wasn't searched, and names no product.
    pub(super) has_text: bool,
    /// How strict the gate is (`selection.strictness`).
    pub(super) strictness: f32,
    /// What learning from use changed.
    pub(in crate::service::selection) learned: Learned,
    /// The best tools without learning, with their scores. Empty if learning is off.
    pub(crate) plain: Vec<(u32, f32)>,
    /// Whether some tools or the message have no vectors, so that semantic results are incomplete.
    pub is_partial: bool,
    /// Whether the index failed.
    pub has_failed: bool,
    /// Whether the message could depend on earlier turns, but begins a new topic.
    pub is_new_topic: bool,
    pub warnings: Vec<String>,
}

impl Ranking {
    /// Says that the message names a product, so that a text to work on makes a tool no less likely.
    pub(in crate::service::selection) fn ignore_text(&mut self) {
        self.has_text = false;
    }

    /// Ranks by the message alone, because it begins a new topic. Tools of servers that are down stay where they are.
    pub(in crate::service::selection) fn begin_topic(&mut self, catalog: &Catalog) {
        self.is_new_topic = true;
        let Self { ranked, down, .. } = self;
        raise_to_alone(ranked, |key| !catalog.server_of(key).is_some_and(|server| is_down(down, server)));
    }

    /// Whether a server is down, by its position in the catalog.
    pub fn is_down(&self, server: u32) -> bool {
        is_down(&self.down, server)
    }

    /// What the words of the message ask for, if a ranked tool does it.
    pub(in crate::service::selection) fn asked(&self) -> Option<Asked> {
        let (asked, tools) = self.asked.as_ref()?;
        let is_met = match asked {
            Asked::Memory => self.ranked.iter().any(|ranked| tools.contains(&ranked.key)),
            Asked::Time => {
                let of =
                    |ranked: &Ranked<u32>| ranked.dense_alone.filter(|cosine| *cosine >= TIME_COSINE).map(|cosine| (ranked.key, cosine));
                let nearest = self.ranked.iter().filter_map(of).max_by(|one, other| one.1.total_cmp(&other.1));
                nearest.is_some_and(|(key, _)| tools.contains(&key))
            }
        };
        is_met.then_some(*asked)
    }

    /// Calls `judge` with the evidence of all searched texts.
    pub(super) fn with_evidence<T>(&self, tools: usize, judge: impl FnOnce(&GateEvidence<'_>) -> T) -> T {
        let cosines = best_five(self.ranked.iter().filter_map(|ranked| ranked.dense));
        judge(&GateEvidence {
            message: &self.message,
            vector: self.vector.as_deref(),
            best_dense: cosines.first().copied(),
            best_five: &cosines,
            agreement: self.agreement,
            best_lexical: self.ranked.iter().map(|ranked| ranked.lexical).fold(0.0, f32::max),
            tools,
            asked: self.asked(),
            has_text: self.has_text,
        })
    }

    /// Calls `judge` with the evidence of the message alone and in context.
    pub(super) fn with_turn<T>(&self, tools: usize, judge: impl FnOnce(&TurnEvidence<'_>) -> T) -> T {
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

fn is_down(down: &[bool], server: u32) -> bool {
    down.get(server as usize).copied().unwrap_or(false)
}

/// The five largest cosines, descending.
fn best_five(cosines: impl Iterator<Item = f32>) -> Vec<f32> {
    let mut cosines: Vec<f32> = cosines.collect();
    cosines.sort_unstable_by(|one, other| other.total_cmp(one));
    cosines.truncate(5);
    cosines
}

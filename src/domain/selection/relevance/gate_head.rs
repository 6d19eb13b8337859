//! The gate's trained head for the built-in model.
//!
//! A logistic regression over features of a message ([`Signals`]) and its vector, fitted by `assets/training/gate.py` and
//! stored next to the model's weights (`assets/gate.json`). It belongs to one model, because vectors of other models mean
//! something else; for these the gate uses its examples.

use serde::Deserialize;

use super::gate::GateEvidence;

static BUILT_IN: &str = include_str!("../../../../assets/gate.json");

/// Weights and threshold, as written by the training.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateHead {
    /// The id of the model that it was fitted for.
    pub model: String,
    /// How it was made and its results, for people.
    pub made: String,
    bias: f32,
    weights: Signals,
    /// One weight per value of the message's vector.
    direction: Vec<f32>,
    /// Messages below it need no tool.
    threshold: f32,
}

/// The features besides the vector; in the data file, their weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Signals {
    /// The best raw cosine of any candidate.
    pub best: f32,
    /// The second best.
    pub second: f32,
    /// The mean of the five best.
    pub five: f32,
    /// The best BM25 score over the largest possible idf.
    pub lexical: f32,
    /// Log-odds of the message's words.
    pub wording: f32,
    /// Logarithm of the number of tools.
    pub tools: f32,
    /// 1 if the message names a file, a path, an address or a handle.
    pub reference: f32,
    /// The share of the five best candidates on the same server as the first.
    pub agreement: f32,
    /// Logarithm of one plus the number of words.
    pub length: f32,
    /// 1 if the message has non-ASCII letters.
    pub foreign: f32,
}

impl Signals {
    pub(super) fn dot(&self, other: &Self) -> f32 {
        let values =
            |it: &Self| [it.best, it.second, it.five, it.lexical, it.wording, it.tools, it.reference, it.agreement, it.length, it.foreign];
        values(self).iter().zip(values(other)).map(|(one, other)| one * other).sum()
    }
}

impl GateHead {
    /// The head for a model, if it was fitted for that model.
    pub fn of(model: &str) -> Option<Self> {
        let head: Self = serde_json::from_str(BUILT_IN).ok()?;
        (head.model == model).then_some(head)
    }

    /// Distance from the threshold, in log-odds; `None` without a vector and cosines.
    pub(super) fn margin(&self, evidence: &GateEvidence<'_>, signals: &Signals) -> Option<f32> {
        let vector = evidence.vector.filter(|vector| vector.len() == self.direction.len())?;
        evidence.best_dense?;
        let direction: f32 = vector.iter().zip(&self.direction).map(|(value, weight)| value * weight).sum();
        Some(self.bias + self.weights.dot(signals) + direction - self.threshold)
    }
}

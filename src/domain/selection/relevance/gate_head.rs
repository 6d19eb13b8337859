//! The trained head of the gate for the built-in model.
//!
//! A logistic regression plus a small network with one hidden layer, over a message's vector and features ([`Signals`]), fitted by
//! `assets/training/gate.py` and stored beside the model's weights (`assets/gate.json`). The network adds what no straight line separates:
//! at the same share of kept messages, it silences .91 of the held-out messages that need no tool, and the regression alone .88. It works
//! only with the vectors of that model; for other models, the gate uses its examples.

use serde::Deserialize;

use super::evidence::GateEvidence;
use super::weighed_signal::WeighedSignal;

static BUILT_IN: &str = include_str!("../../../../assets/gate.json");

/// Weights and threshold, in the format that the training writes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateHead {
    /// The id of the model whose vectors the head was fitted to.
    pub model: String,
    /// How the head was trained, with its results, for people.
    pub made: String,
    bias: f32,
    weights: Signals,
    /// One weight per component of the message's vector.
    direction: Vec<f32>,
    hidden: Vec<Unit>,
    /// Messages with a lower score need no tool.
    threshold: f32,
}

/// A unit of the hidden layer: `out · max(0, bias + weights · signals + direction · vector)`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unit {
    out: f32,
    bias: f32,
    weights: Signals,
    direction: Vec<f32>,
}

/// The features other than the vector. In the data file, the same structure contains their weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Signals {
    /// The best cosine of any candidate.
    pub best: f32,
    /// The second best cosine.
    pub second: f32,
    /// The mean of the five best cosines.
    pub five: f32,
    /// The best BM25 score, divided by the largest possible idf.
    pub lexical: f32,
    /// Log-odds of the message's words.
    pub wording: f32,
    /// The logarithm of the number of tools.
    pub tools: f32,
    /// 1 if the message contains a file name, a path, an address or a handle.
    pub reference: f32,
    /// The share of the five best candidates that are on the server of the best one.
    pub agreement: f32,
    /// The logarithm of one plus the number of words.
    pub length: f32,
    /// 1 if the message has non-ASCII letters.
    pub foreign: f32,
}

impl Signals {
    /// The names of the features, in the order of [`Self::values`].
    const NAMES: [&str; 10] = ["best", "second", "five", "lexical", "wording", "tools", "reference", "agreement", "length", "foreign"];

    fn values(&self) -> [f32; 10] {
        let Self { best, second, five, lexical, wording, tools, reference, agreement, length, foreign } = *self;
        [best, second, five, lexical, wording, tools, reference, agreement, length, foreign]
    }

    /// These signals with their weights. `prefix` precedes their names.
    pub(super) fn weighed(&self, prefix: &str, weights: &Self) -> impl Iterator<Item = WeighedSignal> {
        WeighedSignal::all(prefix, Self::NAMES, self.values(), weights.values())
    }

    pub(super) fn dot(&self, other: &Self) -> f32 {
        self.values().iter().zip(other.values()).map(|(one, other)| one * other).sum()
    }
}

impl GateHead {
    /// The head for a model, if there is one.
    pub fn of(model: &str) -> Option<Self> {
        let head: Self = serde_json::from_str(BUILT_IN).ok()?;
        (head.model == model).then_some(head)
    }

    /// Distance from the threshold in log-odds; `None` without a vector and cosines.
    pub(super) fn margin(&self, evidence: &GateEvidence<'_>, signals: &Signals) -> Option<f32> {
        let vector = self.vector(evidence)?;
        let direct = self.bias + self.weights.dot(signals) + dot(vector, &self.direction);
        Some(direct + self.hidden(vector, signals) - self.threshold)
    }

    /// The signals whose weighted sum is the margin; none if there is no margin.
    pub(super) fn weighed(&self, evidence: &GateEvidence<'_>, signals: &Signals) -> Vec<WeighedSignal> {
        let Some(vector) = self.vector(evidence) else { return Vec::new() };
        let mut weighed: Vec<WeighedSignal> = signals.weighed("", &self.weights).collect();
        weighed.push(WeighedSignal::sum("vector", dot(vector, &self.direction)));
        weighed.push(WeighedSignal::sum("network", self.hidden(vector, signals)));
        weighed.extend(WeighedSignal::constants(self.bias, self.threshold));
        weighed
    }

    /// The message's vector, if the head can judge the message.
    fn vector<'a>(&self, evidence: &GateEvidence<'a>) -> Option<&'a [f32]> {
        evidence.best_dense?;
        evidence.vector.filter(|vector| vector.len() == self.direction.len())
    }

    /// The output of the hidden layer.
    fn hidden(&self, vector: &[f32], signals: &Signals) -> f32 {
        let activation = |unit: &Unit| (unit.bias + unit.weights.dot(signals) + dot(vector, &unit.direction)).max(0.0);
        self.hidden.iter().map(|unit| unit.out * activation(unit)).sum()
    }
}

pub(super) fn dot(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

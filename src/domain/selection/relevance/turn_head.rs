//! The trained head that judges a message in context, for the built-in model.
//!
//! A logistic regression over features of the message alone and in context, and over both vectors. If the assistant left
//! something open, the message's vector has additional weights, because the meaning of "yes" depends on that. Words and word
//! pairs are features too: the embedding model was trained to distinguish topics, not speech acts. Fitted by
//! `assets/training/turns.py` and stored beside the model's weights (`assets/turn.json`). Like the gate's head, it works with
//! only one model.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::courtesies::courtesy_share;
use super::gate_head::{Signals, dot};
use super::turn::LeftOpen;
use super::weighed_signal::WeighedSignal;

static BUILT_IN: &str = include_str!("../../../../assets/turn.json");

/// Weights and threshold, in the format that the training writes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnHead {
    /// The id of the model whose vectors the head was fitted to.
    pub model: String,
    /// How the head was trained, with its results, for people.
    pub made: String,
    bias: f32,
    alone: Signals,
    in_context: Signals,
    turn: TurnSignals,
    /// For each word and word pair, its weight, and an additional weight if the assistant left something open.
    grams: HashMap<String, [f32; 2]>,
    /// One weight per component of the message's vector.
    message: Vec<f32>,
    /// Additional weights if the assistant left something open.
    message_if_open: Vec<f32>,
    /// One weight per component of the vector of the message in context.
    context: Vec<f32>,
    /// Messages with a lower score need no tool.
    threshold: f32,
}

/// Features of the turns. In the data file, the same structure contains their weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TurnSignals {
    /// 1 if the assistant's turn ended with a question.
    pub asks: f32,
    /// 1 if the assistant's turn offered to do something.
    pub offers: f32,
    /// 1 if the message is a question.
    pub question: f32,
    /// The share of the message's words that belong to polite phrases.
    pub courtesy: f32,
    /// The gate's margin for the message alone, clamped.
    pub margin_alone: f32,
    /// The gate's margin for the message in context, clamped.
    pub margin_in_context: f32,
}

/// A message alone and in context, with both vectors.
pub(super) struct Turn<'a> {
    pub(super) alone: Signals,
    pub(super) in_context: Signals,
    pub(super) last: TurnSignals,
    pub(super) text: &'a str,
    pub(super) message: &'a [f32],
    pub(super) context: &'a [f32],
}

/// Maximum absolute value of a margin, so that margins do not dominate the other features.
const LARGEST_MARGIN: f32 = 8.0;

impl TurnSignals {
    pub fn new(left_open: LeftOpen, message: &str, alone: f32, in_context: f32) -> Self {
        let flag = |is: bool| f32::from(u8::from(is));
        let bounded = |margin: f32| margin.clamp(-LARGEST_MARGIN, LARGEST_MARGIN);
        Self {
            asks: flag(left_open.asks),
            offers: flag(left_open.offers),
            question: flag(message.contains(['?', '？', '؟'])),
            courtesy: courtesy_share(message),
            margin_alone: bounded(alone),
            margin_in_context: bounded(in_context),
        }
    }

    /// The names of the features, in the order of [`Self::values`].
    const NAMES: [&str; 6] = ["asks", "offers", "question", "courtesy", "margin_alone", "margin_in_context"];

    fn values(&self) -> [f32; 6] {
        [self.asks, self.offers, self.question, self.courtesy, self.margin_alone, self.margin_in_context]
    }

    /// 1 if the assistant left something open, otherwise 0.
    fn open(&self) -> f32 {
        f32::from(u8::from(self.asks + self.offers > 0.0))
    }

    fn dot(&self, other: &Self) -> f32 {
        self.asks * other.asks
            + self.offers * other.offers
            + self.question * other.question
            + self.courtesy * other.courtesy
            + self.margin_alone * other.margin_alone
            + self.margin_in_context * other.margin_in_context
    }
}

impl TurnHead {
    /// The head for a model, if there is one.
    pub fn of(model: &str) -> Option<Self> {
        let head: Self = serde_json::from_str(BUILT_IN).ok()?;
        (head.model == model).then_some(head)
    }

    /// Distance from the threshold in log-odds; `None` if a vector has the wrong length.
    pub(super) fn margin(&self, turn: &Turn<'_>) -> Option<f32> {
        if turn.message.len() != self.message.len() || turn.context.len() != self.context.len() {
            return None;
        }
        let signals = self.alone.dot(&turn.alone) + self.in_context.dot(&turn.in_context) + self.turn.dot(&turn.last);
        let message = self.message(turn);
        Some(self.bias + signals + message + self.words(turn.text, turn.last.open()) + dot(turn.context, &self.context) - self.threshold)
    }

    /// The signals whose weighted sum is the margin.
    pub(super) fn weighed(&self, turn: &Turn<'_>) -> Vec<WeighedSignal> {
        let mut weighed: Vec<WeighedSignal> = turn.alone.weighed("alone.", &self.alone).collect();
        weighed.extend(turn.in_context.weighed("in_context.", &self.in_context));
        weighed.extend(WeighedSignal::all("", TurnSignals::NAMES, turn.last.values(), self.turn.values()));
        weighed.push(WeighedSignal::sum("alone.vector", self.message(turn)));
        weighed.push(WeighedSignal::sum("in_context.vector", dot(turn.context, &self.context)));
        weighed.push(WeighedSignal::sum("words", self.words(turn.text, turn.last.open())));
        weighed.extend(WeighedSignal::constants(self.bias, self.threshold));
        weighed
    }

    /// The contribution of the message's vector.
    fn message(&self, turn: &Turn<'_>) -> f32 {
        dot(turn.message, &self.message) + turn.last.open() * dot(turn.message, &self.message_if_open)
    }

    /// The contribution of the words: the mean of their weights, times the square root of their number.
    fn words(&self, text: &str, open: f32) -> f32 {
        let known: Vec<&[f32; 2]> = grams(text).iter().filter_map(|gram| self.grams.get(gram)).collect();
        let sum: f32 = known.iter().map(|[plain, if_open]| plain + open * if_open).sum();
        sum / (known.len().max(1) as f32).sqrt()
    }
}

/// Maximum number of words examined.
const WORDS_READ: usize = 24;

/// The distinct words and word pairs of a message. Question and exclamation marks count as words, and so do `^` and `$` for its
/// start and end.
fn grams(text: &str) -> BTreeSet<String> {
    let text: String = text.to_lowercase().chars().filter(|character| !matches!(character, '\'' | '’')).collect();
    let mut words = vec!["^".to_owned()];
    let mut word = String::new();
    for character in text.chars().chain([' ']) {
        if character.is_alphanumeric() || character == '_' {
            word.push(character);
            continue;
        }
        if !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if matches!(character, '?' | '!') {
            words.push(character.to_string());
        }
    }
    words.truncate(1 + WORDS_READ);
    words.push("$".to_owned());
    let pairs: Vec<String> = words.windows(2).map(|pair| pair.join(" ")).collect();
    words.into_iter().chain(pairs).collect()
}

#[cfg(test)]
mod tests {
    use super::grams;

    #[test]
    fn grams_are_words_and_pairs_with_the_ends() {
        let found: Vec<String> = grams("That's it?").into_iter().collect();
        assert_eq!(found, ["$", "?", "? $", "^", "^ thats", "it", "it ?", "thats", "thats it"]);
    }
}

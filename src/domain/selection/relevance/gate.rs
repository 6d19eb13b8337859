//! Decides whether a message needs a tool at all.
//!
//! A fused score can't decide that: it is normalised over the candidates, so there is always a winner. The gate uses absolute
//! scores instead. It also learns the kind of message from two short lists of examples (see [`super::examples`]):
//!
//! - **direction**: the position of the message's vector between the mean of the no-tool examples (-1) and that of the tool
//!   examples (+1): a nearest-centroid classifier. It is computed from the examples' vectors, for any model.
//! - **dense**: the best cosine with a tool, in standard deviations above the cosines between unrelated examples.
//! - **lexical**: the best BM25 score over the largest possible idf, roughly the number of rare words in common.
//! - **wording**: naive Bayes log-odds of the message's words (function words count here: "explain what …"), divided by the
//!   square root of the message's length.
//! - **reference**: whether the message contains a file name, a path, an address or a handle. That holds for 14 % of the
//!   messages that need a tool, and for none of the others.
//! - **tools**: the logarithm of the number of tools, because the best score among many tools is higher by chance.
//!
//! The weights are a logistic regression (except **reference**, which is set by hand) over 22 catalogs of 19 to 2,989 tools from
//! real servers. The training messages differ from the examples. The gate keeps 98 % of the messages that need a tool and stops
//! 83 % of those that need none. It stops 67 % of the hard ones, which mention topics of tools. The best cosine alone stops 49 %
//! and 32 %; the gate without vectors, 49 % and 40 %.
//!
//! Some words weigh beside that, because vectors hardly show what they ask for: those that ask to remember something and those that ask for
//! the time, if a tool does that ([`Asked`]). A text to translate makes a tool less likely.
//!
//! Known limits: it misses a short request after a part that needs no tool ("write a poem and print it"), and small talk
//! that happens to resemble a tool of a small catalogue.

use std::collections::HashMap;

use unicode_segmentation::UnicodeSegmentation;

use super::acceptances::accepts;
use super::courtesies::{Courtesy, courtesy, is_untrained_reply};
use super::evidence::{Asked, GateEvidence};
use super::examples::{NO_TOOL_EXAMPLES, TOOL_EXAMPLES};
use super::gate_head::{GateHead, Signals, dot};
use super::resource::names_resource;
use super::turn::TurnEvidence;
use super::turn_head::{Turn, TurnHead, TurnSignals};
use super::weakness::{WEAK_COSINE, WEAK_COSINE_WITHOUT_NEED, WEAK_MARGIN, WEAK_SPREADS};
use super::weighed_signal::WeighedSignal;
use crate::domain::text::named::named;

/// Logistic regression weights for messages with vectors, see the module documentation.
pub(crate) const DENSE_WEIGHTS: GateWeights =
    GateWeights { bias: -2.55, direction: 2.25, dense: 1.23, lexical: 0.5, wording: 0.98, tools: -0.58, reference: 2.5, threshold: -1.75 };

/// Logistic regression weights for messages or catalogues without vectors.
pub(crate) const LEXICAL_WEIGHTS: GateWeights =
    GateWeights { bias: -1.43, direction: 0.0, dense: 0.0, lexical: 2.05, wording: 1.47, tools: -0.27, reference: 2.5, threshold: -2.1 };

/// Reduction of the threshold for a message with non-ASCII letters, because the built-in model and the examples are mostly
/// English. It raises the share of such messages that pass, among those that need a tool, from 93 % to 98 %.
pub(crate) const FOREIGN_ALLOWANCE: f32 = 2.0;

/// How much one step of `selection.strictness` raises the threshold, in log-odds.
const STRICTNESS_STEP: f32 = 1.0;

/// A message that passes the threshold in context may be this far below it when judged alone, in log-odds. Only for models
/// without a trained head.
pub(crate) const CONTEXT_ALLOWANCE: f32 = 4.0;

/// What a text to work on adds to the margin: the words before it ("translate to German") ask for no tool, but resemble some.
const TEXT_SHIFT: f32 = -2.2;

/// What a question for the time or the date adds to the margin, if the most similar tool answers such questions. The encoder reads short
/// questions poorly in most languages. With this, of 68 such questions 62 pass instead of 40, and of 56 questions about time in general 5
/// instead of 3. Computed from the margins without it; the messages were seen while it was chosen.
const TIME_SHIFT: f32 = 3.0;

/// What a reply that accepts an offer and goes on ("yes, but only to Anna") adds to the margin. Many of them thank, so the turn head takes
/// them for the end of a conversation. Of 160 such replies in 16 languages that were not seen while it was chosen, 107 pass; without it and
/// with the former heads, 80. None of 64 refusals counts as such a reply.
const ACCEPTANCE_SHIFT: f32 = 4.0;

/// Weights of one classifier. A message needs a tool if the weighted sum is at least `threshold`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GateWeights {
    pub bias: f32,
    pub direction: f32,
    pub dense: f32,
    pub lexical: f32,
    pub wording: f32,
    pub tools: f32,
    pub reference: f32,
    pub threshold: f32,
}

impl GateWeights {
    /// The names of the features, in the order of [`Self::of_values`].
    const NAMES: [&str; 6] = ["direction", "dense", "lexical", "wording", "tools", "reference"];

    /// The weights of the features, without bias and threshold.
    fn of_values(&self) -> [f32; 6] {
        [self.direction, self.dense, self.lexical, self.wording, self.tools, self.reference]
    }
}

/// The weights with and without vectors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GateParameters {
    pub foreign_allowance: f32,
    pub with_vectors: GateWeights,
    pub without_vectors: GateWeights,
}

impl Default for GateParameters {
    fn default() -> Self {
        Self { foreign_allowance: FOREIGN_ALLOWANCE, with_vectors: DENSE_WEIGHTS, without_vectors: LEXICAL_WEIGHTS }
    }
}

impl GateEvidence<'_> {
    /// What raises or lowers the margin beside the weighed features.
    fn shift(&self) -> f32 {
        let text = if self.has_text && !names_resource(self.message) { TEXT_SHIFT } else { 0.0 };
        text + if self.asked == Some(Asked::Time) { TIME_SHIFT } else { 0.0 }
    }
}

impl TurnEvidence<'_> {
    /// Like [`GateEvidence::shift`], for a message that depends on earlier turns.
    fn shift(&self) -> f32 {
        let is_acceptance = self.left_open.offers && accepts(self.alone.message);
        self.alone.shift() + if is_acceptance { ACCEPTANCE_SHIFT } else { 0.0 }
    }
}

/// The gate's decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GateVerdict {
    pub needs_tool: bool,
    /// Distance from the threshold in log-odds; negative below it.
    pub margin: f32,
    pub by: GateRule,
    /// The strictness that the margin contains, see [`Self::at`].
    strictness: f32,
    /// The shift that the margin contains, see [`Self::shifted`].
    shift: f32,
}

impl GateVerdict {
    fn new(needs_tool: bool, margin: f32, by: GateRule) -> Self {
        Self { needs_tool, margin, by, strictness: 0.0, shift: 0.0 }
    }

    /// The verdict with this added to its margin.
    fn shifted(self, shift: f32) -> Self {
        let margin = self.margin + shift;
        let needs_tool = if shift > 0.0 { self.needs_tool || margin >= 0.0 } else { self.needs_tool && margin >= 0.0 };
        Self { needs_tool, margin, shift, ..self }
    }

    /// The verdict with a threshold that is `strictness` steps higher. Only verdicts with a weighed margin depend on it.
    #[must_use]
    pub fn at(self, strictness: f32) -> Self {
        let is_weighed = matches!(self.by, GateRule::Head | GateRule::TurnHead | GateRule::Examples | GateRule::Words);
        if !is_weighed || strictness == 0.0 {
            return self;
        }
        let margin = self.margin - STRICTNESS_STEP * strictness;
        // Some messages need no tool although their margin is positive.
        let may_pass = self.needs_tool || self.margin < 0.0;
        Self { needs_tool: margin >= 0.0 && may_pass, margin, strictness, ..self }
    }

    /// The parts of the margin that aren't features of the message.
    fn shifts(self) -> impl Iterator<Item = WeighedSignal> {
        let shift = (self.shift != 0.0).then(|| WeighedSignal::sum("shift", self.shift));
        std::iter::once(WeighedSignal::new("strictness", self.strictness, -STRICTNESS_STEP)).chain(shift)
    }
}

named! {
    /// What decided whether a message needs a tool.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum GateRule {
        /// There are no tools.
        NoTools = "no_tools",
        /// The list of polite phrases, or of words of assent.
        Courtesy = "courtesy",
        /// Words that ask to remember or to forget something, where a tool does that.
        Asked = "asked",
        /// The trained head.
        Head = "head",
        /// The trained head for messages that depend on earlier turns.
        TurnHead = "turn_head",
        /// The similarity to examples, for models without a trained head.
        Examples = "examples",
        /// The words alone, because the message or the tools have no vectors.
        Words = "words",
        /// Nothing: some tools have no vectors yet, and the words alone suggest a tool.
        Partial = "partial",
        /// What was learned: similar messages needed a tool.
        Learned = "learned",
        /// The message contains the name of a tool.
        Named = "named",
        /// Nothing: the gate is switched off (`selection.gate`).
        Off = "off",
    }
}

/// The verdict on purely polite messages, which a list detects.
const COURTEOUS: GateVerdict = GateVerdict { needs_tool: false, margin: -10.0, by: GateRule::Courtesy, strictness: 0.0, shift: 0.0 };
const NO_TOOLS: GateVerdict =
    GateVerdict { needs_tool: false, margin: f32::NEG_INFINITY, by: GateRule::NoTools, strictness: 0.0, shift: 0.0 };

/// Decides whether messages need a tool. [`Gate::teach`] adds the model-specific part once the vectors of the examples are
/// available.
#[derive(Debug, Clone)]
pub struct Gate {
    parameters: GateParameters,
    /// For each word, the log-odds that a message with it needs a tool.
    words: HashMap<String, f32>,
    model: Option<ModelPart>,
    /// The trained head, which decides if the message has a vector.
    head: Option<GateHead>,
    /// The trained head for messages that depend on earlier turns.
    turn_head: Option<TurnHead>,
}

/// Model-specific statistics of the examples' vectors.
#[derive(Debug, Clone)]
struct ModelPart {
    /// Difference between the means of the tool examples and the others, scaled so that the two means are 2 apart along it.
    direction: Vec<f32>,
    /// The midpoint between the two means, along `direction`.
    middle: f32,
    /// Mean cosine between tool examples and no-tool examples.
    background: f32,
    /// Inverse standard deviation of those cosines.
    inverse_spread: f32,
}

impl Gate {
    pub fn new(parameters: GateParameters) -> Self {
        Self { parameters, words: word_odds(), model: None, head: None, turn_head: None }
    }

    /// Creates a gate for a model. If the model has no trained head, [`Gate::teach`] must follow.
    pub fn for_model(model: &str) -> Self {
        Self { head: GateHead::of(model), turn_head: TurnHead::of(model), ..Self::default() }
    }

    /// Whether the gate needs [`Gate::teach`].
    pub fn wants_examples(&self) -> bool {
        self.head.is_none()
    }

    /// The cosine below which a result for a message with this verdict is weak; `None` while the gate can't judge the model's cosines.
    pub fn weak_cosine(&self, verdict: GateVerdict) -> Option<f32> {
        match &self.head {
            Some(_) if verdict.margin < WEAK_MARGIN => Some(WEAK_COSINE_WITHOUT_NEED),
            Some(_) => Some(WEAK_COSINE),
            None => self.model.as_ref().map(|model| model.background + WEAK_SPREADS / model.inverse_spread),
        }
    }

    /// The example texts to embed for [`Gate::teach`], in order: tool examples, then no-tool examples.
    pub fn example_texts() -> impl Iterator<Item = &'static str> {
        TOOL_EXAMPLES.iter().chain(NO_TOOL_EXAMPLES).copied()
    }

    /// Learns the model-specific part from the unit vectors of [`Gate::example_texts`], in that order. If their number or lengths
    /// are wrong, returns `false` and leaves the gate lexical.
    pub fn teach(&mut self, vectors: &[impl AsRef<[f32]>]) -> bool {
        self.model = ModelPart::of(vectors);
        self.model.is_some()
    }

    /// Judges a message. The verdict is lexical if the message has no vector, no tool is embedded or [`Gate::teach`] is pending.
    pub fn judge(&self, evidence: &GateEvidence<'_>) -> GateVerdict {
        if evidence.tools == 0 {
            return NO_TOOLS;
        }
        if courtesy(evidence.message).is_some() {
            return COURTEOUS;
        }
        if evidence.asked == Some(Asked::Memory) {
            return GateVerdict::new(true, 0.0, GateRule::Asked);
        }
        self.weigh(evidence).shifted(evidence.shift())
    }

    /// Judges a message that depends on earlier turns, both alone and in context.
    pub fn judge_turn(&self, evidence: &TurnEvidence<'_>) -> GateVerdict {
        let (alone, in_context) = (&evidence.alone, &evidence.in_context);
        if alone.tools == 0 {
            return NO_TOOLS;
        }
        match courtesy(alone.message) {
            Some(Courtesy::Assent) if evidence.left_open.is_any() => {
                return GateVerdict::new(true, 0.0, GateRule::Courtesy);
            }
            Some(Courtesy::Both) if evidence.left_open.is_any() => {}
            // "Do it" may also ask for what the assistant has suggested.
            Some(Courtesy::Assent) if is_untrained_reply(alone.message) => {}
            Some(_) => return COURTEOUS,
            None => {}
        }
        if alone.asked == Some(Asked::Memory) {
            return GateVerdict::new(true, 0.0, GateRule::Asked);
        }
        if let Some(margin) = self.turn_head.as_ref().and_then(|head| head.margin(&self.turn(evidence)?)) {
            return GateVerdict::new(margin >= 0.0, margin, GateRule::TurnHead).shifted(evidence.shift());
        }
        let with_context = self.weigh(in_context);
        let by_itself = self.weigh(&evidence.by_itself());
        let is_near = with_context.needs_tool && by_itself.margin >= -CONTEXT_ALLOWANCE;
        let margin = if is_near { by_itself.margin.max(0.0) } else { by_itself.margin };
        GateVerdict::new(by_itself.needs_tool || is_near, margin, by_itself.by).shifted(evidence.shift())
    }

    /// The inputs of the turn head; `None` without vectors.
    fn turn<'a>(&self, evidence: &TurnEvidence<'a>) -> Option<Turn<'a>> {
        let (alone, in_context) = (&evidence.alone, &evidence.in_context);
        let (message, context) = (alone.vector?, in_context.vector?);
        let (by_itself, with_context) = (self.weigh(alone), self.weigh(in_context));
        Some(Turn {
            alone: self.signals(alone),
            in_context: self.signals(in_context),
            last: TurnSignals::new(evidence.left_open, alone.message, by_itself.margin, with_context.margin),
            text: alone.message,
            message,
            context,
        })
    }

    /// The signals behind a verdict on a message by itself. Their weighted sum is the margin. Empty if no signals were weighed.
    pub fn weighed(&self, verdict: GateVerdict, evidence: &GateEvidence<'_>) -> Vec<WeighedSignal> {
        let mut signals = match (verdict.by, &self.head) {
            (GateRule::Head, Some(head)) => head.weighed(evidence, &self.signals(evidence)),
            (GateRule::Examples | GateRule::Words, _) => self.weighed_values(evidence),
            _ => return Vec::new(),
        };
        signals.extend(verdict.shifts());
        signals
    }

    /// Like [`Self::weighed`], for a message that depends on earlier turns.
    pub fn weighed_turn(&self, verdict: GateVerdict, evidence: &TurnEvidence<'_>) -> Vec<WeighedSignal> {
        if let (GateRule::TurnHead, Some(head), Some(turn)) = (verdict.by, &self.turn_head, self.turn(evidence)) {
            let mut signals = head.weighed(&turn);
            signals.extend(verdict.shifts());
            return signals;
        }
        let by_itself = evidence.by_itself();
        let mut signals = self.weighed(verdict, &by_itself);
        if !signals.is_empty() {
            let by_itself = self.weigh(&by_itself).shifted(verdict.shift).at(verdict.strictness);
            signals.push(WeighedSignal::sum("context", verdict.margin - by_itself.margin));
        }
        signals
    }

    fn weighed_values(&self, evidence: &GateEvidence<'_>) -> Vec<WeighedSignal> {
        let (_, weights, values) = self.values(evidence);
        let mut signals: Vec<WeighedSignal> = WeighedSignal::all("", GateWeights::NAMES, values, weights.of_values()).collect();
        let foreign = f32::from(u8::from(is_foreign(evidence.message)));
        signals.push(WeighedSignal::new("foreign", foreign, self.parameters.foreign_allowance));
        signals.extend(WeighedSignal::constants(weights.bias, weights.threshold));
        signals
    }

    /// The features of the turn head other than vectors, for training.
    pub fn turn_signals(&self, evidence: &TurnEvidence<'_>) -> [serde_json::Value; 3] {
        let (alone, in_context) = (&evidence.alone, &evidence.in_context);
        let turn = TurnSignals::new(evidence.left_open, alone.message, self.weigh(alone).margin, self.weigh(in_context).margin);
        [serde_json::json!(self.signals(alone)), serde_json::json!(self.signals(in_context)), serde_json::json!(turn)]
    }

    fn weigh(&self, evidence: &GateEvidence<'_>) -> GateVerdict {
        if let Some(margin) = self.head.as_ref().and_then(|head| head.margin(evidence, &self.signals(evidence))) {
            return GateVerdict::new(margin >= 0.0, margin, GateRule::Head);
        }
        let (by, weights, values) = self.values(evidence);
        let sum = values.iter().zip(weights.of_values()).fold(weights.bias, |sum, (value, weight)| sum + weight * value);
        let threshold = weights.threshold - if is_foreign(evidence.message) { self.parameters.foreign_allowance } else { 0.0 };
        // Without vectors, a message that shares no word with any tool needs none.
        let needs_tool = sum >= threshold && (by == GateRule::Examples || lexical(evidence) > 0.0);
        GateVerdict::new(needs_tool, sum - threshold, by)
    }

    /// The features for models without a trained head, in the order of [`GateWeights::of_values`], and their weights.
    fn values(&self, evidence: &GateEvidence<'_>) -> (GateRule, &GateWeights, [f32; 6]) {
        let seen = evidence
            .vector
            .zip(evidence.best_dense)
            .zip(self.model.as_ref())
            .and_then(|((vector, best), model)| Some((model.direction(vector)?, (best - model.background) * model.inverse_spread)));
        let (by, weights, (direction, dense)) = match seen {
            Some(seen) => (GateRule::Examples, &self.parameters.with_vectors, seen),
            None => (GateRule::Words, &self.parameters.without_vectors, (0.0, 0.0)),
        };
        let reference = f32::from(u8::from(names_resource(evidence.message)));
        let tools = (evidence.tools as f32).ln();
        (by, weights, [direction, dense, lexical(evidence), self.wording(evidence.message), tools, reference])
    }

    /// The features of the trained head.
    pub fn signals(&self, evidence: &GateEvidence<'_>) -> Signals {
        let tools = evidence.tools.max(1) as f32;
        let five = evidence.best_five;
        let best = evidence.best_dense.unwrap_or(0.0);
        Signals {
            best,
            second: five.get(1).copied().unwrap_or(best),
            five: if five.is_empty() { best } else { five.iter().sum::<f32>() / five.len() as f32 },
            lexical: lexical(evidence),
            wording: self.wording(evidence.message),
            tools: tools.ln(),
            reference: f32::from(u8::from(names_resource(evidence.message))),
            agreement: evidence.agreement,
            length: (1.0 + evidence.message.unicode_words().take(WORDS_READ).count() as f32).ln(),
            foreign: f32::from(u8::from(is_foreign(evidence.message))),
        }
    }

    fn wording(&self, message: &str) -> f32 {
        let words = distinct_words(message);
        let sum: f32 = words.iter().filter_map(|word| self.words.get(word.as_str())).sum();
        sum / (1.0 + words.len() as f32).sqrt()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(GateParameters::default())
    }
}

impl ModelPart {
    fn of(vectors: &[impl AsRef<[f32]>]) -> Option<Self> {
        let (tool, no_tool) = vectors.split_at_checked(TOOL_EXAMPLES.len())?;
        let dimension = tool.first()?.as_ref().len();
        let regular = vectors.iter().all(|vector| vector.as_ref().len() == dimension);
        if no_tool.len() != NO_TOOL_EXAMPLES.len() || !regular {
            return None;
        }
        let (tool_mean, no_tool_mean) = (mean(tool, dimension), mean(no_tool, dimension));
        let mut direction: Vec<f32> = tool_mean.iter().zip(&no_tool_mean).map(|(a, b)| a - b).collect();
        let length = dot(&direction, &direction);
        let cosines = || tool.iter().flat_map(|a| no_tool.iter().map(|b| dot(a.as_ref(), b.as_ref())));
        let pairs = (tool.len() * no_tool.len()) as f32;
        let background = cosines().sum::<f32>() / pairs;
        let spread = (cosines().map(|cosine| (cosine - background).powi(2)).sum::<f32>() / pairs).sqrt();
        if !(length > 1e-9 && spread > 1e-9) {
            return None;
        }
        for value in &mut direction {
            *value *= 2.0 / length;
        }
        let middle = dot(&direction, &tool_mean).midpoint(dot(&direction, &no_tool_mean));
        Some(Self { direction, middle, background, inverse_spread: spread.recip() })
    }

    fn direction(&self, vector: &[f32]) -> Option<f32> {
        (vector.len() == self.direction.len()).then(|| dot(vector, &self.direction) - self.middle)
    }
}

fn mean(vectors: &[impl AsRef<[f32]>], dimension: usize) -> Vec<f32> {
    let mut mean = vec![0.0; dimension];
    for vector in vectors {
        for (sum, value) in mean.iter_mut().zip(vector.as_ref()) {
            *sum += value / vectors.len() as f32;
        }
    }
    mean
}

/// Naive Bayes over the presence of words, smoothed with half a count per class.
fn word_odds() -> HashMap<String, f32> {
    let mut counts: HashMap<String, [f32; 2]> = HashMap::new();
    for (class, examples) in [TOOL_EXAMPLES, NO_TOOL_EXAMPLES].into_iter().enumerate() {
        for word in examples.iter().flat_map(|example| distinct_words(example)) {
            counts.entry(word).or_default()[class] += 1.0;
        }
    }
    let odds = |seen: f32, examples: &[&str]| ((seen + 0.5) / (examples.len() as f32 + 1.0)).ln();
    counts.into_iter().map(|(word, [tool, no_tool])| (word, odds(tool, TOOL_EXAMPLES) - odds(no_tool, NO_TOOL_EXAMPLES))).collect()
}

/// The best BM25 score, divided by the largest possible idf: ln(1 + (N - n + 0.5) / (n + 0.5)) at n = 0.
fn lexical(evidence: &GateEvidence<'_>) -> f32 {
    evidence.best_lexical.max(0.0) / (2.0 * evidence.tools as f32 + 2.0).ln()
}

fn is_foreign(message: &str) -> bool {
    message.chars().any(|character| !character.is_ascii() && character.is_alphabetic())
}

/// The distinct words among the first [`WORDS_READ`] of a message, in lower case.
fn distinct_words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = text.unicode_words().take(WORDS_READ).map(str::to_lowercase).collect();
    words.sort_unstable();
    words.dedup();
    words
}

/// Maximum number of words examined: enough to recognise the kind of message, and cheap for a pasted book.
const WORDS_READ: usize = 200;

#[cfg(test)]
mod tests {
    use super::super::turn::LeftOpen;
    use super::{ACCEPTANCE_SHIFT, Gate, GateEvidence, TurnEvidence};

    #[test]
    fn an_acceptance_that_goes_on_weighs_after_an_offer_only() {
        let margin = |message, offers| {
            let alone = GateEvidence { message, best_lexical: 1.0, tools: 50, ..GateEvidence::default() };
            let left_open = LeftOpen { asks: true, offers };
            Gate::default().judge_turn(&TurnEvidence { alone, in_context: alone, left_open }).margin
        };
        let gain = |message| margin(message, true) - margin(message, false);
        assert!((gain("oui, mais écris 20h") - ACCEPTANCE_SHIFT).abs() < 1e-6);
        for message in ["oui, je m'en doutais", "oui merci, mais je le ferai moi-même", "et demain à 20h"] {
            assert!(gain(message).abs() < 1e-6, "{message}");
        }
    }
}

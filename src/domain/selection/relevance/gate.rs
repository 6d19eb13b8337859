//! Decides whether a message needs a tool at all.
//!
//! A fused score can't decide that: normalised over the candidates, it always has a winner. The gate uses absolute evidence
//! instead, and the kind of message, learnt from two short lists of examples (see [`super::examples`]):
//!
//! - **direction**: the position of the message's vector between the mean of the no-tool examples (-1) and that of the tool
//!   examples (+1): a nearest-centroid classifier. It is computed from the examples' vectors, for any model.
//! - **dense**: the best cosine with a tool, in standard deviations above the cosines between unrelated examples.
//! - **lexical**: the best BM25 score over the largest possible idf, roughly the number of rare words in common.
//! - **wording**: naive Bayes log-odds of the message's words (function words count here: "explain what …"), divided by the
//!   square root of the message's length.
//! - **reference**: whether the message contains a file name, a path, an address or a handle: 14 % of the messages that
//!   need a tool do, and none of the others.
//! - **tools**: the logarithm of the number of tools, because the best of many is higher by chance.
//!
//! The weights are a logistic regression (**reference**: set by hand) over 22 catalogues of 19 to 2,989 tools from real
//! servers; the training messages differ from the examples. While it keeps 98 % of the messages that need a tool, the gate
//! stops 83 % of those that need none. Of the hard ones, which mention topics of tools, it stops 67 %. The best cosine
//! alone stops 49 % and 32 %; the gate without vectors 49 % and 40 %.
//!
//! Known limits: it misses a short request after a part that needs no tool ("write a poem and print it"), and small talk
//! that happens to resemble a tool of a small catalogue.

use std::collections::HashMap;

use unicode_segmentation::UnicodeSegmentation;

use super::courtesies::{Courtesy, courtesy};
use super::examples::{NO_TOOL_EXAMPLES, TOOL_EXAMPLES};
use super::gate_head::{GateHead, Signals};
use super::turn::TurnEvidence;
use super::turn_head::{Turn, TurnHead, TurnSignals};

/// Logistic regression weights with vectors; see the module documentation.
pub(crate) const DENSE_WEIGHTS: GateWeights =
    GateWeights { bias: -2.55, direction: 2.25, dense: 1.23, lexical: 0.5, wording: 0.98, tools: -0.58, reference: 2.5, threshold: -1.75 };

/// Logistic regression weights for messages or catalogues without vectors.
pub(crate) const LEXICAL_WEIGHTS: GateWeights =
    GateWeights { bias: -1.43, direction: 0.0, dense: 0.0, lexical: 2.05, wording: 1.47, tools: -0.27, reference: 2.5, threshold: -2.1 };

/// How far the threshold is lowered for a message with non-ASCII letters. The built-in model and the examples are mostly
/// English: at the common threshold, 93 % of such messages that need a tool are kept, with this 98 %.
pub(crate) const FOREIGN_ALLOWANCE: f32 = 2.0;

/// A message that depends on earlier turns may lie this far below the threshold by itself, in log-odds, if it lies above
/// the threshold in context. Only for models without a trained head.
pub(crate) const CONTEXT_ALLOWANCE: f32 = 4.0;

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

/// Weights of both classifiers.
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

/// The evidence about one message.
#[derive(Debug, Clone, Copy)]
pub struct GateEvidence<'a> {
    /// The whole message.
    pub message: &'a str,
    /// Its unit vector, from the model that the gate was taught with.
    pub vector: Option<&'a [f32]>,
    /// The best raw cosine of any candidate over all search texts.
    pub best_dense: Option<f32>,
    /// The five best raw cosines of candidates, descending; fewer if there are fewer.
    pub best_five: &'a [f32],
    /// The share of the five best candidates on the same server as the first.
    pub agreement: f32,
    /// The best raw BM25 score of any candidate over all search texts; 0 without a match.
    pub best_lexical: f32,
    /// The number of searched tools.
    pub tools: usize,
}

/// The gate's decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GateVerdict {
    pub needs_tool: bool,
    /// Distance of the evidence from the threshold, in log-odds; negative below it.
    pub margin: f32,
}

/// For a purely polite message, detected by a list.
const COURTEOUS: GateVerdict = GateVerdict { needs_tool: false, margin: -10.0 };

/// Judges messages. Created once; [`Gate::teach`] adds the model-specific part when the vectors of the examples are
/// available.
#[derive(Debug, Clone)]
pub struct Gate {
    parameters: GateParameters,
    /// Log-odds that a word indicates the need for a tool.
    words: HashMap<String, f32>,
    model: Option<ModelPart>,
    /// Takes precedence if the message has a vector.
    head: Option<GateHead>,
    /// The same for a message that depends on earlier turns.
    turn_head: Option<TurnHead>,
}

/// Model-specific statistics of the examples' vectors.
#[derive(Debug, Clone)]
struct ModelPart {
    /// Mean of the tool examples minus mean of the others, scaled so that the two are 2 apart along it.
    direction: Vec<f32>,
    /// The midpoint between the two means, along `direction`.
    middle: f32,
    /// Mean of the cosines between examples of different lists.
    background: f32,
    /// Inverse of their standard deviation.
    inverse_spread: f32,
}

impl Gate {
    pub fn new(parameters: GateParameters) -> Self {
        Self { parameters, words: word_odds(), model: None, head: None, turn_head: None }
    }

    /// A gate for a model's vectors: with a trained head if the model has one, otherwise [`Gate::teach`] is needed.
    pub fn for_model(model: &str) -> Self {
        Self { head: GateHead::of(model), turn_head: TurnHead::of(model), ..Self::default() }
    }

    /// Whether [`Gate::teach`] would have an effect.
    pub fn wants_examples(&self) -> bool {
        self.head.is_none()
    }

    /// The texts whose vectors [`Gate::teach`] needs, in order: tool examples, then no-tool examples.
    pub fn example_texts() -> impl Iterator<Item = &'static str> {
        TOOL_EXAMPLES.iter().chain(NO_TOOL_EXAMPLES).copied()
    }

    /// Learns the model-specific part from the unit vectors of [`Gate::example_texts`], in that order. Returns false, and
    /// leaves the gate lexical, if their number or lengths are wrong.
    pub fn teach(&mut self, vectors: &[impl AsRef<[f32]>]) -> bool {
        self.model = ModelPart::of(vectors);
        self.model.is_some()
    }

    /// Judges a message. Lexical only without a vector, before [`Gate::teach`], and before any tool is embedded.
    pub fn judge(&self, evidence: &GateEvidence<'_>) -> GateVerdict {
        if evidence.tools == 0 {
            return GateVerdict { needs_tool: false, margin: f32::NEG_INFINITY };
        }
        if courtesy(evidence.message).is_some() {
            return COURTEOUS;
        }
        self.weigh(evidence)
    }

    /// Judges a message that depends on earlier turns, in its context and by its kind.
    pub fn judge_turn(&self, evidence: &TurnEvidence<'_>) -> GateVerdict {
        let (alone, in_context) = (&evidence.alone, &evidence.in_context);
        if alone.tools == 0 {
            return GateVerdict { needs_tool: false, margin: f32::NEG_INFINITY };
        }
        match courtesy(alone.message) {
            Some(Courtesy::Assent) if evidence.left_open.is_any() => return GateVerdict { needs_tool: true, margin: 0.0 },
            Some(Courtesy::Both) if evidence.left_open.is_any() => {}
            Some(_) => return COURTEOUS,
            None => {}
        }
        let (by_itself, with_context) = (self.weigh(alone), self.weigh(in_context));
        let by_head = || {
            let head = self.turn_head.as_ref().filter(|_| is_readable(alone.message))?;
            let turn = Turn {
                alone: self.signals(alone),
                in_context: self.signals(in_context),
                last: TurnSignals::new(evidence.left_open, alone.message, by_itself.margin, with_context.margin),
                text: alone.message,
                message: alone.vector?,
                context: in_context.vector?,
            };
            head.margin(&turn)
        };
        if let Some(margin) = by_head() {
            return GateVerdict { needs_tool: margin >= 0.0, margin };
        }
        let by_itself = self.weigh(&GateEvidence { message: alone.message, vector: alone.vector, ..*in_context });
        let is_near = with_context.needs_tool && by_itself.margin >= -CONTEXT_ALLOWANCE;
        let margin = if is_near { by_itself.margin.max(0.0) } else { by_itself.margin };
        GateVerdict { needs_tool: by_itself.needs_tool || is_near, margin }
    }

    /// The features of the turn head besides the vectors, for training.
    pub fn turn_signals(&self, evidence: &TurnEvidence<'_>) -> [serde_json::Value; 3] {
        let (alone, in_context) = (&evidence.alone, &evidence.in_context);
        let turn = TurnSignals::new(evidence.left_open, alone.message, self.weigh(alone).margin, self.weigh(in_context).margin);
        [serde_json::json!(self.signals(alone)), serde_json::json!(self.signals(in_context)), serde_json::json!(turn)]
    }

    fn weigh(&self, evidence: &GateEvidence<'_>) -> GateVerdict {
        let tools = evidence.tools as f32;
        let lexical = lexical(evidence);
        if self.head.is_some() && !is_readable(evidence.message) {
            return GateVerdict { needs_tool: true, margin: 0.0 };
        }
        if let Some(margin) = self.head.as_ref().and_then(|head| head.margin(evidence, &self.signals(evidence))) {
            return GateVerdict { needs_tool: margin >= 0.0, margin };
        }
        let seen = evidence
            .vector
            .zip(evidence.best_dense)
            .zip(self.model.as_ref())
            .and_then(|((vector, best), model)| Some((model.direction(vector)?, (best - model.background) * model.inverse_spread)));
        let (weights, (direction, dense)) = match seen {
            Some(seen) => (&self.parameters.with_vectors, seen),
            None => (&self.parameters.without_vectors, (0.0, 0.0)),
        };
        let sum = weights.bias
            + weights.direction * direction
            + weights.dense * dense
            + weights.lexical * lexical
            + weights.wording * self.wording(evidence.message)
            + weights.tools * tools.ln()
            + if names_resource(evidence.message) { weights.reference } else { 0.0 };
        let threshold = weights.threshold - if is_foreign(evidence.message) { self.parameters.foreign_allowance } else { 0.0 };
        // Without vectors, a message without any word of a tool has nothing to match.
        let needs_tool = sum >= threshold && (seen.is_some() || lexical > 0.0);
        GateVerdict { needs_tool, margin: sum - threshold }
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

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Naive Bayes over the presence of words, with half a count of smoothing per class.
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

/// The best BM25 score over the largest possible idf: idf = ln(1 + (N - n + 0.5) / (n + 0.5)) is largest at n = 0.
fn lexical(evidence: &GateEvidence<'_>) -> f32 {
    evidence.best_lexical.max(0.0) / (2.0 * evidence.tools as f32 + 2.0).ln()
}

fn is_foreign(message: &str) -> bool {
    message.chars().any(|character| !character.is_ascii() && character.is_alphabetic())
}

/// Whether the head's model knows the script: most letters are Latin. Otherwise the head must not suppress the message.
fn is_readable(message: &str) -> bool {
    let letters = || message.chars().filter(|character| character.is_alphabetic());
    let latin = letters().filter(|letter| u32::from(*letter) < 0x0250).count();
    2 * latin >= letters().count()
}

/// Whether a word of the message is a file name, a path, a URL, an e-mail address or a handle.
fn names_resource(message: &str) -> bool {
    message.split_whitespace().any(|word| {
        let word = word.trim_matches(|character: char| ".,;:!?()\"'`".contains(character));
        let starts_with_word = |text: &str| text.starts_with(|character: char| character.is_alphanumeric() || character == '_');
        let extension = || {
            word.rsplit_once('.').is_some_and(|(stem, ending)| {
                stem.ends_with(|character: char| character.is_alphanumeric() || character == '_')
                    && (2..=5).contains(&ending.len())
                    && ending.starts_with(|character: char| character.is_ascii_alphabetic())
                    && ending.chars().all(|character| character.is_ascii_alphanumeric())
            })
        };
        let path = || ["/", "~/"].iter().any(|root| word.strip_prefix(root).is_some_and(starts_with_word));
        let handle = || word.split_once('@').is_some_and(|(_, name)| starts_with_word(name));
        word.contains("://") || path() || handle() || extension()
    })
}

/// The distinct words of a message in lower case, among the first [`WORDS_READ`].
fn distinct_words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = text.unicode_words().take(WORDS_READ).map(str::to_lowercase).collect();
    words.sort_unstable();
    words.dedup();
    words
}

/// Enough to recognise the kind of message, and cheap for a pasted book.
const WORDS_READ: usize = 200;

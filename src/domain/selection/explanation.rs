//! Explains a selection: the evidence about every candidate, and what decided. The code that decides fills it in.

use serde::{Serialize, Serializer};

use crate::domain::selection::relevance::{CutReason, GateRule, WeighedSignal};

/// Why a message got its tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// The language of the message in English, if its function words leave no doubt.
    pub language: Option<String>,
    /// The searched texts: the message, then its sentences, clauses, or the message in context. Cosines have the same order.
    pub parts: Vec<String>,
    /// Absent if nothing was ranked.
    pub gate: Option<GateExplanation>,
    /// All ranked tools, best first.
    pub candidates: Vec<CandidateExplanation>,
    /// Functions that stay whatever the message is.
    pub kept: Vec<KeptExplanation>,
}

/// Whether the message needs a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateExplanation {
    pub needs_tool: bool,
    /// Distance from the threshold in log-odds; `null` if nothing was weighed.
    pub margin: Option<f32>,
    /// What decided.
    #[serde(serialize_with = "by_name")]
    pub by: GateRule,
    /// The signals with their weights. Their weighted sum is the margin. Empty if no signals were weighed.
    pub signals: Vec<WeighedSignal>,
}

/// A ranked tool, with everything that decided about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CandidateExplanation {
    pub name: String,
    /// Absent for a foreign function.
    pub server: Option<String>,
    pub tool: Option<String>,
    /// The position in the ranking, starting at 1.
    pub rank: usize,
    /// The position in the answer of a language model, starting at 1.
    pub judged_rank: Option<usize>,
    /// The cosine with each searched text; `null` if the tool was not among the best for it.
    pub cosines: Vec<Option<f32>>,
    /// The best BM25 score of all searched texts.
    pub lexical: f32,
    /// The tool's words that the message also contains, has as a translation or synonym, or has misspelt.
    pub words: Vec<String>,
    /// How well a message of several parts matches the tool's server (a z-score).
    pub server_score: f32,
    /// Positions of the searched texts for which this is the best tool.
    pub covers: Vec<usize>,
    pub fused: f32,
    pub score: f32,
    /// What learning added to the fused score.
    pub learned: f32,
    /// Whether the tool is selected. In shadow mode and for static callers, the model gets the other tools too.
    pub sent: bool,
    /// Why it was not selected; `null` if it was, or if the chat already has a tool that is about as good.
    #[serde(serialize_with = "cut_by_name")]
    pub cut: Option<CutReason>,
}

/// A function that stays, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeptExplanation {
    pub name: String,
    pub reason: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde wants")]
fn by_name<S: Serializer>(rule: &GateRule, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(rule.name())
}

#[expect(clippy::trivially_copy_pass_by_ref, clippy::ref_option, reason = "the signature that serde wants")]
fn cut_by_name<S: Serializer>(cut: &Option<CutReason>, serializer: S) -> Result<S::Ok, S::Error> {
    cut.map(CutReason::name).serialize(serializer)
}

//! What the gate knows about a message.

/// What the words of a message ask for, in any language, if a tool for that is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// To remember or to forget something.
    Memory,
    /// The time or the date.
    Time,
}

/// The evidence about one message, from which the gate decides.
#[derive(Debug, Clone, Copy, Default)]
pub struct GateEvidence<'a> {
    /// The whole message.
    pub message: &'a str,
    /// The message's unit vector, from the same model as the examples' vectors.
    pub vector: Option<&'a [f32]>,
    /// The best cosine of any candidate over all search texts.
    pub best_dense: Option<f32>,
    /// Up to five of the best cosines of candidates, descending.
    pub best_five: &'a [f32],
    /// The share of the five best candidates that are on the server of the best one.
    pub agreement: f32,
    /// The best BM25 score of any candidate over all search texts; 0 without a match.
    pub best_lexical: f32,
    /// The number of tools searched.
    pub tools: usize,
    pub asked: Option<Asked>,
    /// Whether the message contains a text to work on, which the other evidence ignores, and names no product.
    pub has_text: bool,
}

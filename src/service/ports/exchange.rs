//! What requests to language models consume.

/// The result of a request to a language model, and what the request consumed.
#[derive(Clone, Debug)]
pub struct Answered<T> {
    pub result: T,
    /// `None` if the model sent no completion. An invalid completion costs tokens too.
    pub exchange: Option<Exchange>,
}

/// A request that a language model answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The name of the model in the settings.
    pub model: String,
    pub tokens: ExchangeTokens,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeTokens {
    /// The counts in the response.
    Reported { input: u64, output: u64 },
    /// The response contains no counts, so they must be estimated from the texts.
    Unreported { prompt: String, answer: String },
}

impl<T> Answered<T> {
    /// A result without an answer from the model.
    pub fn unanswered(result: T) -> Self {
        Self { result, exchange: None }
    }
}

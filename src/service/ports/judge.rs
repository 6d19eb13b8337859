//! Language models that choose tools.

use async_trait::async_trait;
use secrecy::SecretString;

use crate::domain::selection::judgement::{AnswerProblem, Choice, Provider, Question};
use crate::service::ports::Answered;

/// Requests a choice of tools for a task from a language model.
#[async_trait]
pub trait Judge: Send + Sync {
    /// Returns the chosen tools, best first, validated by `Question::read`. Sends one request, without a time limit; dropping
    /// the future cancels the request.
    ///
    /// # Errors
    /// The result is a [`JudgeError`], which contains no part of the request or the answer.
    async fn judge(&self, advisor: &Advisor, question: &Question) -> Answered<Result<Vec<Choice>, JudgeError>>;
}

/// A language model, with the account that pays for it.
#[derive(Clone, Debug)]
pub enum Advisor {
    /// The model configured in the settings.
    Configured,
    /// A provider's model, used with the user's own key.
    Own { provider: Provider, key: SecretString },
}

impl Advisor {
    /// Whether the user pays, with a key of their own.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Own { .. })
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Own { provider, .. } => provider.name(),
        }
    }
}

/// The reason why there is no judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JudgeError {
    #[error("it is not configured")]
    NotConfigured,
    #[error("it rejected the key")]
    Unauthorized,
    #[error("its rate limit was exceeded")]
    RateLimited,
    #[error("it rejected the request with HTTP status {0}")]
    Refused(u16),
    #[error("it did not answer in time")]
    Timeout,
    #[error("it can't be reached")]
    Unreachable,
    #[error("its answer was {0}")]
    Answer(#[from] AnswerProblem),
}

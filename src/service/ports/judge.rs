//! Language models that choose tools.

use async_trait::async_trait;
use secrecy::SecretString;

use crate::domain::selection::judgement::{AnswerProblem, Choice, Provider, Question};

/// Queries a language model for the tools that a task needs.
#[async_trait]
pub trait Judge: Send + Sync {
    /// The chosen tools, best first, validated by [`Question::read`]. Sends one request without a timeout of its own: dropping
    /// the future ends the request.
    ///
    /// # Errors
    /// [`JudgeError`], which contains nothing of the request or the answer.
    async fn judge(&self, advisor: &Advisor, question: &Question) -> Result<Vec<Choice>, JudgeError>;
}

/// The language model and the account that pays for it.
#[derive(Clone, Debug)]
pub enum Advisor {
    /// The model in the settings.
    Configured,
    /// A provider's model, with the user's own key.
    Own { provider: Provider, key: SecretString },
}

impl Advisor {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Own { provider, .. } => provider.name(),
        }
    }
}

/// Why there is no judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JudgeError {
    #[error("it is not configured")]
    NotConfigured,
    #[error("it refused the key")]
    Unauthorized,
    #[error("it had too many requests")]
    RateLimited,
    #[error("it refused the request with HTTP status {0}")]
    Refused(u16),
    #[error("it did not answer in time")]
    Timeout,
    #[error("it can't be reached")]
    Unreachable,
    #[error("its answer was {0}")]
    Answer(#[from] AnswerProblem),
}

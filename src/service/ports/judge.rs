//! Language models that choose.

use async_trait::async_trait;
use secrecy::SecretString;

use crate::domain::selection::judgement::{AnswerProblem, Choice, Provider, Question};

/// Asks a language model which tools a task needs.
#[async_trait]
pub trait Judge: Send + Sync {
    /// The tools that the model chose, best first, as [`Question::read`] has checked them. Asks once; how long it may
    /// take is the caller's affair: dropping the future ends the request.
    ///
    /// # Errors
    /// [`JudgeError`], which holds nothing of what was asked or answered.
    async fn judge(&self, advisor: &Advisor, question: &Question) -> Result<Vec<Choice>, JudgeError>;
}

/// Which language model is asked, and on whose account.
#[derive(Clone, Debug)]
pub enum Advisor {
    /// The one in the settings.
    Configured,
    /// One of a provider, with the key of the person who asks.
    Own { provider: Provider, key: SecretString },
}

impl Advisor {
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Own { provider, .. } => provider.name(),
        }
    }
}

/// Why a language model brought no judgement.
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

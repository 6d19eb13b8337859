//! Language models that enrich tools.

use async_trait::async_trait;

use crate::domain::selection::enrichment::{Brief, Enrichment, EnrichmentProblem};
use crate::service::ports::JudgeError;

/// Queries a language model for additional search texts.
#[async_trait]
pub trait Enricher: Send + Sync {
    /// The texts, validated by [`Brief::read`]. Sends one request without a timeout of its own: dropping the future ends the
    /// request.
    ///
    /// # Errors
    /// [`EnrichError`], which contains nothing of the request or the answer.
    async fn enrich(&self, brief: &Brief) -> Result<Enrichment, EnrichError>;
}

/// Why there is no valid enrichment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrichError {
    #[error(transparent)]
    Model(#[from] JudgeError),
    #[error("its answer has {0}")]
    Answer(#[from] EnrichmentProblem),
}

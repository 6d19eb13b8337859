//! Language models that enrich tools.

use async_trait::async_trait;

use crate::domain::selection::enrichment::{Brief, Enrichment, EnrichmentProblem};
use crate::service::ports::{Answered, JudgeError};

/// Requests additional search texts from a language model.
#[async_trait]
pub trait Enricher: Send + Sync {
    /// Returns texts validated by [`Brief::read`]. Sends one request, without a time limit; dropping the future cancels the
    /// request.
    ///
    /// # Errors
    /// The result is an [`EnrichError`], which contains no part of the request or the answer.
    async fn enrich(&self, brief: &Brief) -> Answered<Result<Enrichment, EnrichError>>;
}

/// The reason why there is no valid enrichment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrichError {
    #[error(transparent)]
    Model(#[from] JudgeError),
    #[error("its answer has {0}")]
    Answer(#[from] EnrichmentProblem),
}

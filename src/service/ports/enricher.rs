//! Language models that write about tools.

use async_trait::async_trait;

use crate::domain::selection::enrichment::{Brief, Enrichment, EnrichmentProblem};
use crate::service::ports::JudgeError;

/// Has a language model write what a tool is found by.
#[async_trait]
pub trait Enricher: Send + Sync {
    /// What the model wrote, as [`Brief::read`] has checked it. Asks once; how long it may take is the caller's affair:
    /// dropping the future ends the request.
    ///
    /// # Errors
    /// [`EnrichError`], which holds nothing of what was asked or answered.
    async fn enrich(&self, brief: &Brief) -> Result<Enrichment, EnrichError>;
}

/// Why a language model wrote nothing that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrichError {
    #[error(transparent)]
    Model(#[from] JudgeError),
    #[error("its answer has {0}")]
    Answer(#[from] EnrichmentProblem),
}

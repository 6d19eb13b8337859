//! Embeds what calls are about.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::domain::learning::vector::MessageVector;
use crate::service::ports::Embedder;

/// Maximum number of calls whose words are embedded at the same time. Further calls teach nothing by their words.
const MOST_EMBEDDED: usize = 16;

#[derive(Clone)]
pub(super) struct CallWords {
    embedder: Arc<dyn Embedder>,
    places: Arc<Semaphore>,
}

impl CallWords {
    pub(super) fn new(embedder: Arc<dyn Embedder>) -> Self {
        Self { embedder, places: Arc::new(Semaphore::new(MOST_EMBEDDED)) }
    }

    /// A place for one call; `None` if too many are embedded now.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    pub(super) async fn vector(&self, text: &str) -> Option<MessageVector> {
        match self.embedder.embed_queries(&[text]).await {
            Ok(vectors) => vectors.first().and_then(|vector| MessageVector::of(vector)),
            Err(error) => {
                tracing::debug!(%error, "the words of a call were not embedded and teach nothing");
                None
            }
        }
    }
}

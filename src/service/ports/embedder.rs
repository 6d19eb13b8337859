//! Embedders: models that turn texts into vectors.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

/// Computes unit vectors for texts.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// The name, version and variant of the model. Part of the cache key of every vector.
    fn model(&self) -> &str;

    /// Length of the vectors; 0 until it is known.
    fn dimension(&self) -> usize;

    /// Embeds queries: few short texts, with low latency.
    async fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Arc<[f32]>>, EmbedError>;

    /// Embeds texts of tools: many texts in the background, on all cores.
    async fn embed_passages(&self, texts: Vec<String>) -> Result<Vec<Arc<[f32]>>, EmbedError>;

    /// The reason why embedding fails now, if known, for `/readyz`. Contains no secrets.
    fn fault(&self) -> Option<String> {
        None
    }

    /// A receiver that is notified when the embedder recovers from a failure; `None` if it never fails.
    fn recoveries(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// Waits for the next recovery of an embedder. `recoveries` comes from [`Embedder::recoveries`].
pub async fn recovered(recoveries: &mut Option<watch::Receiver<u64>>) {
    if let Some(recoveries) = recoveries
        && recoveries.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    #[error("the embedder failed: {0}")]
    Failed(String),
}

//! Embedders: models that turn texts into vectors.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

/// Computes unit vectors for texts.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// Name, version and variant of the model: part of the cache key of every vector.
    fn model(&self) -> &str;

    /// Length of the vectors; 0 until it is known.
    fn dimension(&self) -> usize;

    /// Vectors of queries: few short texts, with low latency.
    async fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Arc<[f32]>>, EmbedError>;

    /// Vectors of tool texts: many, in the background, on all cores.
    async fn embed_passages(&self, texts: Vec<String>) -> Result<Vec<Arc<[f32]>>, EmbedError>;

    /// Why it can't embed now, if known; for `/readyz`. Free of secrets.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Changes whenever the embedder recovers from a failure. `None`: it never fails.
    fn recoveries(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// Waits until the embedder of these [`Embedder::recoveries`] recovers.
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

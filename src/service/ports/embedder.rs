//! What turns texts into vectors.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

/// Turns texts into unit vectors.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// Name and version of the model and its form: part of every key under which a vector is kept.
    fn model(&self) -> &str;

    /// Length of the vectors; 0 until it is known.
    fn dimension(&self) -> usize;

    /// The vectors of queries: few short texts, now.
    ///
    /// # Errors
    /// [`EmbedError`]
    async fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Arc<[f32]>>, EmbedError>;

    /// The vectors of tool texts: many, in the background, all cores.
    ///
    /// # Errors
    /// [`EmbedError`]
    async fn embed_passages(&self, texts: Vec<String>) -> Result<Vec<Arc<[f32]>>, EmbedError>;

    /// Why it can't embed anything now, as far as that is known; for `/readyz`. Free of secrets.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Changes whenever it can embed what it could not before. `None`: it always can.
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

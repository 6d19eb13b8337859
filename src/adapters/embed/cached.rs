//! An embedder that caches the vectors of messages.

use std::sync::Arc;

use async_trait::async_trait;
use moka::sync::Cache;
use tokio::sync::watch;

use crate::service::ports::{EmbedError, Embedder};
use crate::service::records::metrics::CacheMeter;

pub struct CachedEmbedder {
    inner: Arc<dyn Embedder>,
    messages: Cache<Arc<str>, Arc<[f32]>>,
    meter: CacheMeter,
}

impl CachedEmbedder {
    /// Creates a cache of at most `bytes` of vectors.
    pub fn new(inner: Arc<dyn Embedder>, bytes: u64) -> Self {
        let weight =
            |text: &Arc<str>, vector: &Arc<[f32]>| u32::try_from(text.len() + vector.len() * size_of::<f32>() + 64).unwrap_or(u32::MAX);
        Self { inner, messages: Cache::builder().max_capacity(bytes).weigher(weight).build(), meter: CacheMeter::default() }
    }

    /// Counts cache hits and misses with this meter.
    #[must_use]
    pub fn with_meter(self, meter: CacheMeter) -> Self {
        Self { meter, ..self }
    }
}

#[async_trait]
impl Embedder for CachedEmbedder {
    fn model(&self) -> &str {
        self.inner.model()
    }

    fn dimension(&self) -> usize {
        self.inner.dimension()
    }

    async fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        let mut vectors: Vec<Option<Arc<[f32]>>> = texts.iter().map(|text| self.messages.get(*text)).collect();
        let missing: Vec<&str> = texts.iter().zip(&vectors).filter(|(_, vector)| vector.is_none()).map(|(text, _)| *text).collect();
        self.meter.hits(texts.len() - missing.len());
        self.meter.misses(missing.len());
        if !missing.is_empty() {
            let embedded = self.inner.embed_queries(&missing).await?;
            let mut embedded = missing.into_iter().zip(embedded);
            for vector in vectors.iter_mut().filter(|vector| vector.is_none()) {
                if let Some((text, made)) = embedded.next() {
                    self.messages.insert(Arc::from(text), Arc::clone(&made));
                    *vector = Some(made);
                }
            }
        }
        Ok(vectors.into_iter().flatten().collect())
    }

    async fn embed_passages(&self, texts: Vec<String>) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        self.inner.embed_passages(texts).await
    }

    fn fault(&self) -> Option<String> {
        self.inner.fault()
    }

    fn recoveries(&self) -> Option<watch::Receiver<u64>> {
        self.inner.recoveries()
    }
}

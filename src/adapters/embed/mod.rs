//! Turns texts into vectors: the port over the built-in encoder, with a cache for messages.

pub mod builtin;

use std::sync::Arc;

use async_trait::async_trait;
use moka::sync::Cache;

use crate::adapters::embed::builtin::{Encoder, ModelError};
use crate::service::ports::{EmbedError, Embedder};
use crate::settings::BuiltinModel;

/// Memory for the vectors of messages, in bytes.
const CACHE_BYTES: u64 = 4 << 20;
/// Characters that are encoded right where they are asked for (a few milliseconds); more goes to the blocking pool.
const INLINE_CHARACTERS: usize = 1_000;

/// The built-in model behind the port.
pub struct BuiltinEmbedder {
    encoder: Arc<Encoder>,
    messages: Cache<Arc<str>, Arc<[f32]>>,
}

impl BuiltinEmbedder {
    /// Takes the weights that are compiled in.
    ///
    /// # Errors
    /// The weights are broken: a fault of the build.
    pub fn new(model: BuiltinModel) -> Result<Self, ModelError> {
        Ok(Self::with(Encoder::built_in(model)?))
    }

    /// Takes other weights for the same encoder.
    #[must_use]
    pub fn with(encoder: Encoder) -> Self {
        let bytes =
            |text: &Arc<str>, vector: &Arc<[f32]>| u32::try_from(text.len() + vector.len() * size_of::<f32>() + 64).unwrap_or(u32::MAX);
        let messages = Cache::builder().max_capacity(CACHE_BYTES).weigher(bytes).build();
        Self { encoder: Arc::new(encoder), messages }
    }
}

#[async_trait]
impl Embedder for BuiltinEmbedder {
    fn model(&self) -> &str {
        self.encoder.model_id()
    }

    fn dimension(&self) -> usize {
        self.encoder.dimension()
    }

    async fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        let mut vectors: Vec<Option<Arc<[f32]>>> = texts.iter().map(|text| self.messages.get(*text)).collect();
        let missing: Vec<&str> = texts.iter().zip(&vectors).filter(|(_, vector)| vector.is_none()).map(|(text, _)| *text).collect();
        if !missing.is_empty() {
            let encoded = if missing.iter().map(|text| text.len()).sum::<usize>() <= INLINE_CHARACTERS {
                self.encoder.encode(&missing)
            } else {
                let missing: Vec<String> = missing.iter().map(|text| (*text).to_owned()).collect();
                self.encode_elsewhere(missing).await?
            };
            let mut encoded = missing.iter().zip(encoded);
            for vector in vectors.iter_mut().filter(|vector| vector.is_none()) {
                if let Some((text, made)) = encoded.next() {
                    let made: Arc<[f32]> = made.into();
                    self.messages.insert(Arc::from(*text), Arc::clone(&made));
                    *vector = Some(made);
                }
            }
        }
        Ok(vectors.into_iter().flatten().collect())
    }

    async fn embed_passages(&self, texts: Vec<String>) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        Ok(self.encode_elsewhere(texts).await?.into_iter().map(Arc::from).collect())
    }
}

impl BuiltinEmbedder {
    async fn encode_elsewhere(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedError> {
        let encoder = Arc::clone(&self.encoder);
        tokio::task::spawn_blocking(move || encoder.encode(&texts.iter().map(String::as_str).collect::<Vec<&str>>()))
            .await
            .map_err(|error| EmbedError::Failed(error.to_string()))
    }
}

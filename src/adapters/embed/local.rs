//! Implements the embedder port with the local encoder.

use std::sync::Arc;

use async_trait::async_trait;

use crate::adapters::embed::builtin::{Encoder, ModelError};
use crate::service::ports::{EmbedError, Embedder};

/// Maximum length of a text that is encoded on the calling thread (a few milliseconds). Others use the blocking pool.
const INLINE_CHARACTERS: usize = 1_000;

pub struct BuiltinEmbedder {
    encoder: Arc<Encoder>,
}

impl BuiltinEmbedder {
    /// Uses the built-in weights.
    ///
    /// # Errors
    /// The compiled-in weights are invalid, which is a build error.
    pub fn new() -> Result<Self, ModelError> {
        Ok(Self::with(Encoder::built_in()?))
    }

    /// Uses this encoder instead of a built-in one.
    pub fn with(encoder: Encoder) -> Self {
        Self { encoder: Arc::new(encoder) }
    }

    /// Encodes texts on a thread of their own, with `encode`.
    async fn encode_elsewhere(
        &self,
        texts: Vec<String>,
        encode: fn(&Encoder, &[&str]) -> Vec<Vec<f32>>,
    ) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        let encoder = Arc::clone(&self.encoder);
        let vectors = tokio::task::spawn_blocking(move || encode(&encoder, &texts.iter().map(String::as_str).collect::<Vec<&str>>()))
            .await
            .map_err(|error| EmbedError::Failed(error.to_string()))?;
        Ok(vectors.into_iter().map(Arc::from).collect())
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
        let prompt = &self.encoder.prompts().query;
        let is_short = texts.iter().map(|text| text.len()).sum::<usize>() <= INLINE_CHARACTERS;
        if is_short && prompt.is_empty() {
            return Ok(self.encoder.encode(texts).into_iter().map(Arc::from).collect());
        }
        let texts: Vec<String> = texts.iter().map(|text| format!("{prompt}{text}")).collect();
        if is_short {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            return Ok(self.encoder.encode(&texts).into_iter().map(Arc::from).collect());
        }
        self.encode_elsewhere(texts, Encoder::encode).await
    }

    async fn embed_passages(&self, mut texts: Vec<String>) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        let prompt = &self.encoder.prompts().document;
        if !prompt.is_empty() {
            for text in &mut texts {
                text.insert_str(0, prompt);
            }
        }
        // Tools need nearly all weights, and the messages after them only a part.
        let encode = |encoder: &Encoder, texts: &[&str]| {
            let vectors = encoder.encode(texts);
            encoder.release();
            vectors
        };
        self.encode_elsewhere(texts, encode).await
    }
}

//! Cached computations, keyed by a hash: vectors of texts and token counts of definitions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::text::canonical::Fingerprint;

#[async_trait]
pub trait ComputedStore: Send + Sync {
    /// The known vectors of these texts, by the hash of the text.
    async fn vectors(&self, model: &str, texts: &[Fingerprint]) -> Result<HashMap<Fingerprint, Arc<[f32]>>, StoreError>;

    async fn save_vectors(&self, model: &str, vectors: &[(Fingerprint, Arc<[f32]>)]) -> Result<(), StoreError>;

    /// Known token counts of function definitions, by the hash of the minified definition.
    async fn token_counts(&self, definitions: &[Fingerprint]) -> Result<HashMap<Fingerprint, u32>, StoreError>;

    async fn save_token_counts(&self, counts: &[(Fingerprint, u32)]) -> Result<(), StoreError>;

    /// Marks these texts of the model and these definitions as used now. Then removes every vector, of any model, and every count that
    /// was last used before `since`; returns how many.
    async fn forget_unused(
        &self,
        model: &str,
        texts: &[Fingerprint],
        definitions: &[Fingerprint],
        since: SystemTime,
    ) -> Result<u64, StoreError>;
}

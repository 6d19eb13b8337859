//! Cached computed values: vectors of texts and token counts of definitions, both by hash.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::text::canonical::Fingerprint;

#[async_trait]
pub trait ComputedStore: Send + Sync {
    /// The stored vectors of these texts, by hash of the text.
    async fn vectors(&self, model: &str, texts: &[Fingerprint]) -> Result<HashMap<Fingerprint, Arc<[f32]>>, StoreError>;

    async fn save_vectors(&self, model: &str, vectors: &[(Fingerprint, Arc<[f32]>)]) -> Result<(), StoreError>;

    /// The stored token counts of function definitions, by hash of the minified definition.
    async fn token_counts(&self, definitions: &[Fingerprint]) -> Result<HashMap<Fingerprint, u32>, StoreError>;

    async fn save_token_counts(&self, counts: &[(Fingerprint, u32)]) -> Result<(), StoreError>;

    /// Marks these texts of the model and these definitions as used now. Then deletes all vectors, of any model, and token counts
    /// that were last used before `since`. Returns their number.
    async fn forget_unused(
        &self,
        model: &str,
        texts: &[Fingerprint],
        definitions: &[Fingerprint],
        since: SystemTime,
    ) -> Result<u64, StoreError>;
}

//! Enrichments by models and admins.

use std::collections::HashMap;
use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::selection::enrichment::{Author, Written};
use crate::domain::text::canonical::Fingerprint;

#[async_trait]
pub trait EnrichmentStore: Send + Sync {
    /// The enrichments of the tools with these keys ([`crate::domain::selection::enrichment::key`]). For each tool, an admin's
    /// takes precedence over the model's.
    async fn enrichments(&self, model: Option<&str>, tools: &[Fingerprint]) -> Result<HashMap<Fingerprint, Written>, StoreError>;

    /// Stores an enrichment. Replaces that of the same author. Durable if the author is an admin.
    async fn save_enrichment(&self, tool: &Fingerprint, written: &Written) -> Result<(), StoreError>;

    /// Deletes this author's enrichment of a tool. Returns whether there was one. Durable.
    async fn remove_enrichment(&self, tool: &Fingerprint, author: &Author) -> Result<bool, StoreError>;

    /// Marks the enrichments of these tools, by an admin or this model, as used now. Then deletes all enrichments, by any author,
    /// that were last used before `since`. Returns their number.
    async fn forget_unused_enrichments(&self, model: Option<&str>, tools: &[Fingerprint], since: SystemTime) -> Result<u64, StoreError>;
}

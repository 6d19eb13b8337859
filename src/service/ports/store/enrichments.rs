//! Enrichments of models and admins.

use std::collections::HashMap;
use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::selection::enrichment::{Author, Written};
use crate::domain::text::canonical::Fingerprint;

#[async_trait]
pub trait EnrichmentStore: Send + Sync {
    /// The enrichments of the tools with these keys ([`crate::domain::selection::enrichment::key`]): an admin's, or else this
    /// model's.
    async fn enrichments(&self, model: Option<&str>, tools: &[Fingerprint]) -> Result<HashMap<Fingerprint, Written>, StoreError>;

    /// Replaces the same author's enrichment of the tool. Durable if the author is an admin.
    async fn save_enrichment(&self, tool: &Fingerprint, written: &Written) -> Result<(), StoreError>;

    /// Removes this author's enrichment of the tool. Returns whether there was one. Durable.
    async fn remove_enrichment(&self, tool: &Fingerprint, author: &Author) -> Result<bool, StoreError>;

    /// Marks the enrichments of these tools, by an admin or this model, as used now. Then removes all, of any author, that were
    /// last used before `since`; returns how many.
    async fn forget_unused_enrichments(&self, model: Option<&str>, tools: &[Fingerprint], since: SystemTime) -> Result<u64, StoreError>;
}

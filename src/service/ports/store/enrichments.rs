//! What models and admins write about tools, for search.

use std::collections::HashMap;
use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::selection::enrichment::{Author, Written};
use crate::domain::text::canonical::Fingerprint;

#[async_trait]
pub trait EnrichmentStore: Send + Sync {
    /// What an admin, or else this model, wrote about the tools with these keys ([`crate::domain::selection::enrichment::key`]).
    async fn enrichments(&self, model: Option<&str>, tools: &[Fingerprint]) -> Result<HashMap<Fingerprint, Written>, StoreError>;

    /// Replaces what the same author wrote about the tool. Durable if the author is an admin.
    async fn save_enrichment(&self, tool: &Fingerprint, written: &Written) -> Result<(), StoreError>;

    /// Removes what this author wrote about the tool. Returns whether there was anything. Durable.
    async fn remove_enrichment(&self, tool: &Fingerprint, author: &Author) -> Result<bool, StoreError>;

    /// Marks what an admin or this model wrote about these tools as used now. Then removes everything, of any author, that was last
    /// used before `since`; returns how many.
    async fn forget_unused_enrichments(&self, model: Option<&str>, tools: &[Fingerprint], since: SystemTime) -> Result<u64, StoreError>;
}

//! Sums over events.

use async_trait::async_trait;

use super::StoreError;
use crate::domain::records::conversation_figures::{ConversationQuery, ConversationReport};
use crate::domain::records::usage::{Usage, UsageQuery};

#[async_trait]
pub trait UsageStore: Send + Sync {
    /// Sums over the days (UTC) that overlap the period of the query.
    async fn usage(&self, query: &UsageQuery) -> Result<Usage, StoreError>;

    /// Metrics of the conversations last used in the period of the query.
    async fn conversation_figures(&self, query: &ConversationQuery) -> Result<ConversationReport, StoreError>;
}

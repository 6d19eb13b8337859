//! Sums over the events.

use async_trait::async_trait;

use super::StoreError;
use crate::domain::records::conversation_figures::{ConversationQuery, ConversationReport};
use crate::domain::records::usage::{Usage, UsageQuery};

#[async_trait]
pub trait UsageStore: Send + Sync {
    /// Sums over the UTC days that overlap this period.
    async fn usage(&self, query: &UsageQuery) -> Result<Usage, StoreError>;

    /// Figures of the conversations that were last used in this period.
    async fn conversation_figures(&self, query: &ConversationQuery) -> Result<ConversationReport, StoreError>;
}

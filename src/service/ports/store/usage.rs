//! Sums over events.

use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::principal::PrincipalId;
use crate::domain::records::conversation_figures::{ConversationQuery, ConversationReport};
use crate::domain::records::costs::CostRow;
use crate::domain::records::usage::{Usage, UsageQuery};

#[async_trait]
pub trait UsageStore: Send + Sync {
    /// Sums over the days (UTC) that overlap the period of the query.
    async fn usage(&self, query: &UsageQuery) -> Result<Usage, StoreError>;

    /// Sums of costs over the days (UTC) that overlap the period: those over all callers per day, the others over the whole
    /// period.
    async fn costs(&self, since: SystemTime, until: SystemTime) -> Result<Vec<CostRow>, StoreError>;

    /// Deletes the sums of one user or named key. Returns the number of rows. Durable.
    async fn forget_usage_of(&self, owner: &PrincipalId) -> Result<u64, StoreError>;

    /// Metrics of the conversations last used in the period of the query.
    async fn conversation_figures(&self, query: &ConversationQuery) -> Result<ConversationReport, StoreError>;
}

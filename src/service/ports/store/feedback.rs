//! Verdicts of callers on selections.

use async_trait::async_trait;

use super::StoreError;
use crate::service::ports::{Feedback, SelectionName};

#[async_trait]
pub trait FeedbackStore: Send + Sync {
    /// The id of a selection made for this principal; of a chat the last one.
    async fn selection(&self, principal: &str, named: &SelectionName) -> Result<Option<String>, StoreError>;

    /// Replaces the former verdict on this tool in this selection. Durable.
    async fn save_feedback(&self, feedback: &Feedback) -> Result<(), StoreError>;
}

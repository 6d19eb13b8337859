//! Feedback from callers on selections.

use async_trait::async_trait;

use super::StoreError;
use crate::service::ports::{Feedback, SelectionName};

#[async_trait]
pub trait FeedbackStore: Send + Sync {
    /// The id of a selection made for this principal, given its id or its chat. For a chat, the last selection. `key` is the id of the
    /// named key that authenticated the principal; users of different keys may have the same id.
    async fn selection(&self, principal: &str, key: Option<&str>, named: &SelectionName) -> Result<Option<String>, StoreError>;

    /// Stores feedback. Replaces earlier feedback on the same tool in the same selection. Durable.
    async fn save_feedback(&self, feedback: &Feedback) -> Result<(), StoreError>;
}

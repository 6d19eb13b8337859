//! The record of selections and calls, and its retention.

use std::time::SystemTime;

use async_trait::async_trait;

use super::StoreError;
use crate::service::ports::SelectionEvent;

#[async_trait]
pub trait EventStore: Send + Sync {
    /// Adds events, also to the sums of their days and sessions.
    async fn record(&self, events: &[SelectionEvent]) -> Result<(), StoreError>;

    /// Removes chats that were last saved before `chats`, and events and feedback before `events`; returns how many rows.
    async fn forget_before(&self, chats: SystemTime, events: SystemTime) -> Result<u64, StoreError>;

    /// Removes the sums of days before `time`, and of sessions that were last used before it; returns how many rows.
    async fn forget_usage_before(&self, time: SystemTime) -> Result<u64, StoreError>;
}

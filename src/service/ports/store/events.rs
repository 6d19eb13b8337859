//! The record of selections, searches and calls.

use std::time::SystemTime;

use async_trait::async_trait;
use uuid::Uuid;

use super::StoreError;
use crate::service::ports::{EventQuery, SelectionEvent, StoredEvent};

#[async_trait]
pub trait EventStore: Send + Sync {
    /// Stores a batch of events and adds them to the sums of their days and conversations, unless a batch with this id has been
    /// stored before.
    async fn record_once(&self, batch: Uuid, events: &[SelectionEvent]) -> Result<(), StoreError>;

    async fn record(&self, events: &[SelectionEvent]) -> Result<(), StoreError> {
        self.record_once(Uuid::now_v7(), events).await
    }

    /// Returns matching events, newest first.
    async fn events(&self, query: &EventQuery) -> Result<Vec<StoredEvent>, StoreError>;

    /// The number of matching events, without the query's limit.
    async fn count_events(&self, query: &EventQuery) -> Result<u64, StoreError>;

    /// Deletes chats last saved before `chats`, and events and feedback from before `events`. Returns the number of rows.
    async fn forget_before(&self, chats: SystemTime, events: SystemTime) -> Result<u64, StoreError>;

    /// Deletes the sums of days before `time`, and of conversations last used before it. Returns the number of rows.
    async fn forget_usage_before(&self, time: SystemTime) -> Result<u64, StoreError>;
}

//! Reads the record of selections, searches and calls.

use std::sync::Arc;

use crate::service::ports::{EventQuery, EventStore, StoreError, StoredEvent};

pub(crate) struct Activity {
    pub store: Arc<dyn EventStore>,
}

impl Activity {
    /// Returns matching events, newest first. Events from the last half second may be missing.
    pub(crate) async fn find(&self, query: &EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        self.store.events(query).await
    }
}

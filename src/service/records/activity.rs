//! Reads the record of selections, searches and calls, and follows it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::service::ports::{EventQuery, EventStore, StoreError, StoredEvent};

/// Maximum number of readers that follow the record at a time.
pub(crate) const FOLLOWERS: usize = 32;
/// How often a follower looks for new events.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// Maximum number of events that a follower gets at a time. Those of a slower reader are counted, and left out.
const MOST: usize = 500;

pub(crate) struct Activity {
    store: Arc<dyn EventStore>,
    places: Arc<Semaphore>,
}

impl Activity {
    pub(crate) fn new(store: Arc<dyn EventStore>) -> Self {
        Self { store, places: Arc::new(Semaphore::new(FOLLOWERS)) }
    }

    /// Returns matching events, newest first. Events from the last half second may be missing.
    pub(crate) async fn find(&self, query: &EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        self.store.events(query).await
    }

    /// The event with this number, if it is still stored.
    pub(crate) async fn event(&self, id: u64) -> Result<Option<StoredEvent>, StoreError> {
        let query = EventQuery { after: Some(id.saturating_sub(1)), before: Some(id.saturating_add(1)), limit: 1, ..EventQuery::default() };
        Ok(self.find(&query).await?.pop())
    }

    /// The text of the message to which an event belongs, if it is stored: its own, or that of the selection before it.
    pub(crate) async fn message(&self, event: &StoredEvent) -> Result<Option<String>, StoreError> {
        let (None, Some(selection)) = (&event.message, &event.selection) else { return Ok(event.message.clone()) };
        let query = EventQuery { selection: Some(selection.clone()), limit: 1, ..EventQuery::default() };
        Ok(self.find(&query).await?.pop().and_then(|selected| selected.message))
    }

    /// Follows the events that match the filters of a query, and that are newer than `after`; by default, than all events of now.
    /// Returns `None` if too many readers follow the record already.
    pub(crate) async fn follow(&self, query: EventQuery, after: Option<u64>) -> Result<Option<Following>, StoreError> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return Ok(None) };
        let newest = newest(&*self.store).await?;
        // A number from the future is one of another store.
        let floor = after.filter(|after| *after <= newest).unwrap_or(newest);
        let store = Arc::clone(&self.store);
        Ok(Some(Following { store, query, floor, top: floor, sent: BTreeSet::new(), _place: place }))
    }
}

/// A reader of new events, of all services on the store. It reads the store itself, so it slows nobody, however slow it is.
pub(crate) struct Following {
    store: Arc<dyn EventStore>,
    query: EventQuery,
    /// Events up to this number are done. It is the newest number of the look before the last one: another service may commit a
    /// smaller number later than a larger one.
    floor: u64,
    /// The newest number of the last look.
    top: u64,
    /// The numbers above `floor` that were returned.
    sent: BTreeSet<u64>,
    _place: OwnedSemaphorePermit,
}

/// What is new since the last look.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Number of matching events that are left out, because there were too many.
    pub lost: u64,
    /// The newest events, oldest first.
    pub events: Vec<StoredEvent>,
}

impl Following {
    /// Looks for new events.
    ///
    /// # Errors
    /// The store can't be read. The next look returns what this one would have returned.
    pub(crate) async fn look(&mut self) -> Result<News, StoreError> {
        // Before the events, so that none of them is skipped.
        let newest = newest(&*self.store).await?;
        if newest < self.floor {
            // Everything was deleted, and the numbers may begin again.
            (self.floor, self.top) = (newest, newest);
            self.sent.clear();
        }
        let limit = MOST + self.sent.len();
        let query = EventQuery { after: Some(self.floor), limit, ..self.query.clone() };
        let mut events = self.store.events(&query).await?;
        let mut lost = 0;
        if let Some(oldest) = events.last().filter(|_| events.len() == limit).map(|event| event.id) {
            let older = self.store.count_events(&EventQuery { before: Some(oldest), ..query }).await?;
            lost = older.saturating_sub(self.sent.range(..oldest).count() as u64);
        }
        events.retain(|event| !self.sent.contains(&event.id));
        events.reverse();
        self.sent.extend(events.iter().map(|event| event.id));
        if lost > 0 {
            // What is older is counted as lost, and isn't returned later.
            self.floor = self.top.max(events.first().map_or(0, |event| event.id.saturating_sub(1)));
        } else {
            self.floor = self.top;
        }
        self.top = self.top.max(newest);
        self.sent = self.sent.split_off(&self.floor.saturating_add(1));
        Ok(News { lost, events })
    }
}

/// The largest number of all events; 0 without any.
async fn newest(store: &dyn EventStore) -> Result<u64, StoreError> {
    let newest = store.events(&EventQuery { limit: 1, ..EventQuery::default() }).await?;
    Ok(newest.first().map_or(0, |event| event.id))
}

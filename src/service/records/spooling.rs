//! Writes records to the store, and to the spool while the store is away.
//!
//! Every batch has an id, with which the store refuses to take it twice: after an outage in the middle of a commit, nobody knows
//! whether the batch is in the store, so it is sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::service::ports::{Spool, SpoolState, StoreError};
use crate::service::supervision::Supervised;

/// How long a batch may take until the spool keeps it too. Until then, only memory has it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause until the next attempt.
const RETRY: Duration = Duration::from_millis(500);

/// Stores a batch, unless it has been stored before.
pub(super) type SaveBatch<T> = Box<dyn for<'a> Fn(Uuid, &'a [T]) -> BoxFuture<'a, Result<(), StoreError>> + Send + Sync>;

/// A batch with its id, or the reason why a line is none.
pub(super) type Decoded<T> = Result<(Uuid, Vec<T>), serde_json::Error>;

/// How batches of a kind of records are written.
pub(super) struct Kind<T> {
    pub name: &'static str,
    pub save: SaveBatch<T>,
    /// Writes a batch as one line.
    pub encode: fn(Uuid, &[T]) -> Result<Vec<u8>, serde_json::Error>,
    pub decode: fn(&[u8]) -> Decoded<T>,
}

/// The spool of one kind of records, if there is one.
pub(super) struct Spooling<T> {
    kind: Kind<T>,
    spool: Option<Arc<dyn Spool>>,
    /// Notified when a batch was appended.
    appended: Notify,
    lost: AtomicU64,
    stop: CancellationToken,
}

impl<T: Send + Sync + 'static> Spooling<T> {
    /// Starts storing what the spool contains, until `stop`.
    pub(super) fn start(kind: Kind<T>, spool: Option<Arc<dyn Spool>>, stop: CancellationToken) -> (Arc<Self>, JoinHandle<()>) {
        let spooling = Arc::new(Self { kind, spool, appended: Notify::new(), lost: AtomicU64::new(0), stop });
        let replaying = Arc::clone(&spooling);
        let task = tokio::spawn(async move {
            let mut part = Supervised::new("spool");
            while part.panicked(replaying.follow()).await {}
        });
        (spooling, task)
    }

    /// Number of records in the spool that could not be stored.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn state(&self) -> SpoolState {
        self.spool.as_ref().map(|spool| spool.state()).unwrap_or_default()
    }

    /// Stores a batch, or keeps it in the spool. Returns `false` if it is lost. While neither has room, waits: the queue keeps what
    /// follows as long as it can.
    pub(super) async fn save(&self, items: &[T]) -> bool {
        let (id, name) = (Uuid::now_v7(), self.kind.name);
        let (mut encoded, mut is_reported) = (None, false);
        loop {
            // What waits comes first.
            if self.spool.as_ref().is_none_or(|spool| spool.is_empty()) {
                match self.send(id, items).await {
                    Ok(()) => {
                        if is_reported && let Some(spool) = &self.spool {
                            spool.forget_error();
                        }
                        return true;
                    }
                    Err(error @ StoreError::Failed { .. }) => {
                        tracing::error!(%error, source = source(&error), name, "records could not be stored");
                        return false;
                    }
                    Err(error) => tracing::debug!(%error, source = source(&error), name, "records are kept in the spool"),
                }
            }
            let Some(spool) = &self.spool else { return false };
            let Ok(line) = encoded.take().map_or_else(|| (self.kind.encode)(id, items), Ok) else {
                tracing::error!(name, "records could not be written as JSON");
                return false;
            };
            match spool.append(line.clone()).await {
                Ok(()) => {
                    self.appended.notify_one();
                    return true;
                }
                Err(error) if !is_reported => {
                    is_reported = true;
                    tracing::error!(%error, name, "records wait in memory: the store is away, and the spool does not take them");
                }
                Err(_) => {}
            }
            encoded = Some(line);
            if self.stop.run_until_cancelled(tokio::time::sleep(RETRY)).await.is_none() {
                return false;
            }
        }
    }

    async fn send(&self, id: Uuid, items: &[T]) -> Result<(), StoreError> {
        let sending = (self.kind.save)(id, items);
        if self.spool.is_none() {
            return sending.await;
        }
        let silent = || StoreError::Away { action: "save records", is_unsure: true, source: "no response within a second".into() };
        timeout(PATIENCE, sending).await.unwrap_or_else(|_| Err(silent()))
    }

    async fn follow(&self) {
        let Some(spool) = &self.spool else { return };
        loop {
            if let Some(segment) = spool.oldest().await.inspect_err(|error| tracing::error!(%error, "the spool")).unwrap_or_default() {
                let count = segment.batches.len();
                for batch in segment.batches {
                    if !self.store(&batch).await {
                        return;
                    }
                }
                match spool.remove(segment.number).await {
                    Ok(()) => tracing::info!(batches = count, name = self.kind.name, "records from the spool were stored"),
                    Err(error) => {
                        // The store refuses the batches when they come again.
                        tracing::error!(%error, "records in the spool are stored, but can't be removed");
                        if self.stop.run_until_cancelled(tokio::time::sleep(RETRY)).await.is_none() {
                            return;
                        }
                    }
                }
            } else if self.stop.run_until_cancelled(self.appended.notified()).await.is_none() {
                return;
            }
        }
    }

    /// Stores a batch from the spool as soon as the store takes it. Returns `false` at the end of the service.
    async fn store(&self, batch: &[u8]) -> bool {
        let name = self.kind.name;
        let (id, items) = match (self.kind.decode)(batch) {
            Ok(decoded) => decoded,
            Err(error) => {
                tracing::error!(%error, name, "records in the spool can't be read, and are lost");
                self.lost.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        };
        let mut is_reported = false;
        loop {
            let Some(done) = self.stop.run_until_cancelled((self.kind.save)(id, &items)).await else { return false };
            match done {
                Ok(()) => return true,
                Err(error @ StoreError::Failed { .. }) => {
                    tracing::error!(%error, source = source(&error), name, "records from the spool could not be stored, and are lost");
                    self.lost.fetch_add(items.len() as u64, Ordering::Relaxed);
                    return true;
                }
                Err(error) if !is_reported => {
                    is_reported = true;
                    tracing::warn!(%error, source = source(&error), name, "records wait in the spool until the store is back");
                }
                Err(_) => {}
            }
            if self.stop.run_until_cancelled(tokio::time::sleep(RETRY)).await.is_none() {
                return false;
            }
        }
    }
}

/// Reads the id of a batch.
pub(super) fn parsed(id: &str) -> Result<Uuid, serde_json::Error> {
    Uuid::try_parse(id).map_err(serde::de::Error::custom)
}

fn source(error: &StoreError) -> Option<String> {
    std::error::Error::source(error).map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use async_trait::async_trait;
    use parking_lot::Mutex;

    use super::*;
    use crate::service::ports::{SpoolError, SpoolSegment};

    /// A spool in memory, with room for a number of batches.
    #[derive(Default)]
    struct Memory {
        batches: Mutex<Vec<Vec<u8>>>,
        room: usize,
    }

    #[async_trait]
    impl Spool for Memory {
        fn is_empty(&self) -> bool {
            self.batches.lock().is_empty()
        }

        async fn append(&self, batch: Vec<u8>) -> Result<(), SpoolError> {
            let mut batches = self.batches.lock();
            if batches.len() == self.room {
                return Err(SpoolError::Full);
            }
            batches.push(batch);
            Ok(())
        }

        async fn oldest(&self) -> Result<Option<SpoolSegment>, SpoolError> {
            let batches = self.batches.lock();
            Ok(batches.first().map(|first| SpoolSegment { number: 0, batches: vec![first.clone()] }))
        }

        async fn remove(&self, _: u64) -> Result<(), SpoolError> {
            self.batches.lock().remove(0);
            Ok(())
        }

        fn state(&self) -> SpoolState {
            SpoolState::default()
        }

        fn forget_error(&self) {}
    }

    /// A store that is away at times, and may fail after it has stored a batch.
    #[derive(Default)]
    struct Flaky {
        is_away: AtomicBool,
        forgets_to_answer: AtomicBool,
        stored: Mutex<Vec<(Uuid, Vec<u32>)>>,
    }

    impl Flaky {
        fn save(&self, id: Uuid, items: &[u32]) -> Result<(), StoreError> {
            let away = || StoreError::Away { action: "save", is_unsure: true, source: "away".into() };
            if self.is_away.load(Ordering::Relaxed) {
                return Err(away());
            }
            if items.contains(&13) {
                return Err(StoreError::Failed { action: "save", source: "not this one".into() });
            }
            let mut stored = self.stored.lock();
            if stored.iter().all(|(known, _)| *known != id) {
                stored.push((id, items.to_vec()));
            }
            if self.forgets_to_answer.swap(false, Ordering::Relaxed) { Err(away()) } else { Ok(()) }
        }

        fn items(&self) -> Vec<u32> {
            self.stored.lock().iter().flat_map(|(_, items)| items.clone()).collect()
        }
    }

    fn start(room: usize) -> (Arc<Flaky>, Arc<Memory>, Arc<Spooling<u32>>) {
        let (store, spool) = (Arc::<Flaky>::default(), Arc::new(Memory { room, ..Memory::default() }));
        let saving = Arc::clone(&store);
        let save: SaveBatch<u32> = Box::new(move |id, items| {
            let store = Arc::clone(&saving);
            Box::pin(async move { store.save(id, items) })
        });
        let encode = |id: Uuid, items: &[u32]| serde_json::to_vec(&(id.to_string(), items));
        let decode = |line: &[u8]| {
            let (id, items) = serde_json::from_slice::<(String, Vec<u32>)>(line)?;
            Ok((parsed(&id)?, items))
        };
        let kind = Kind { name: "test", save, encode, decode };
        let (spooling, _) = Spooling::start(kind, Some(Arc::clone(&spool) as _), CancellationToken::new());
        (store, spool, spooling)
    }

    async fn until(store: &Flaky, items: &[u32]) {
        while store.items() != items {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    #[tokio::test]
    async fn records_come_in_their_order_and_once() {
        let (store, spool, spooling) = start(10);
        assert!(spooling.save(&[1]).await);
        store.forgets_to_answer.store(true, Ordering::Relaxed);
        assert!(spooling.save(&[2]).await, "it is in the store, and in the spool");
        store.is_away.store(true, Ordering::Relaxed);
        for number in 3..6 {
            assert!(spooling.save(&[number]).await);
        }
        assert!(!spool.is_empty());
        store.is_away.store(false, Ordering::Relaxed);
        assert!(spooling.save(&[6]).await);
        until(&store, &[1, 2, 3, 4, 5, 6]).await;
        assert_eq!(spooling.lost(), 0);
    }

    #[tokio::test]
    async fn a_full_spool_makes_records_wait() {
        let (store, _, spooling) = start(1);
        store.is_away.store(true, Ordering::Relaxed);
        assert!(spooling.save(&[1]).await);
        let waiting = tokio::spawn(async move { (spooling.save(&[2]).await, spooling) });
        tokio::time::sleep(RETRY * 3).await;
        assert!(!waiting.is_finished());
        store.is_away.store(false, Ordering::Relaxed);
        let (is_kept, spooling) = waiting.await.unwrap();
        assert!(is_kept);
        until(&store, &[1, 2]).await;
        assert_eq!(spooling.lost(), 0);
    }

    #[tokio::test]
    async fn records_that_the_store_refuses_for_good_block_no_others() {
        let (store, _, spooling) = start(10);
        assert!(!spooling.save(&[13]).await);
        store.is_away.store(true, Ordering::Relaxed);
        assert!(spooling.save(&[13]).await && spooling.save(&[1]).await);
        store.is_away.store(false, Ordering::Relaxed);
        until(&store, &[1]).await;
        assert_eq!(spooling.lost(), 1);
    }
}

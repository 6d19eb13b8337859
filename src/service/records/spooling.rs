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

/// How batches of a kind of records are written.
pub(super) struct Kind<T> {
    pub name: &'static str,
    pub save: SaveBatch<T>,
    /// Writes a batch as one line.
    pub encode: fn(Uuid, &[T]) -> Result<Vec<u8>, serde_json::Error>,
    pub decode: fn(&[u8]) -> Result<(Uuid, Vec<T>), serde_json::Error>,
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
                    Ok(()) => return true,
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

fn source(error: &StoreError) -> Option<String> {
    std::error::Error::source(error).map(ToString::to_string)
}

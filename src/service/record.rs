//! Writes down what happened to selections, behind the request that caused it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::service::ports::{SelectionEvent, Store};

/// Events that may wait. More than that means that the store is stuck; then the newest are dropped and counted.
const QUEUE: usize = 4_096;
/// Events written in one transaction.
const BATCH: usize = 256;

/// Takes events without waiting.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<SelectionEvent>,
}

impl Recorder {
    /// Starts the writer. It ends after `stop`, when everything that was queued is written.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, retention: Retention, stop: CancellationToken) -> (Self, tokio::task::JoinHandle<()>) {
        let (queue, events) = mpsc::channel(QUEUE);
        let task = tokio::spawn(write(store, events, retention, stop));
        (Self { queue }, task)
    }

    pub fn record(&self, event: SelectionEvent) {
        if self.queue.try_send(event).is_err() {
            tracing::warn!("a selection event was dropped: the store does not keep up");
        }
    }
}

/// How long things are kept.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    pub chats: Duration,
    pub events: Duration,
}

async fn write(store: Arc<dyn Store>, mut events: mpsc::Receiver<SelectionEvent>, retention: Retention, stop: CancellationToken) {
    const SWEEP: Duration = Duration::from_hours(1);
    let mut sweep = tokio::time::interval(SWEEP);
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            biased;
            count = events.recv_many(&mut batch, BATCH) => {
                if count == 0 {
                    return;
                }
                save(store.as_ref(), &mut batch).await;
            }
            _ = sweep.tick() => forget(store.as_ref(), retention).await,
            () = stop.cancelled() => {
                events.close();
                while events.recv_many(&mut batch, BATCH).await > 0 {
                    save(store.as_ref(), &mut batch).await;
                }
                return;
            }
        }
    }
}

async fn save(store: &dyn Store, batch: &mut Vec<SelectionEvent>) {
    if let Err(error) = store.record(batch).await {
        tracing::warn!(error = %error, events = batch.len(), "selection events were not stored");
    }
    batch.clear();
}

async fn forget(store: &dyn Store, retention: Retention) {
    let before = |age: Duration| SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    match store.forget_before(before(retention.chats), before(retention.events)).await {
        Ok(0) => {}
        Ok(rows) => tracing::info!(rows, "chats and events past their retention were removed"),
        Err(error) => tracing::warn!(error = %error, "old chats and events were not removed"),
    }
}

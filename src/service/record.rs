//! Writes down what happened to selections, behind the request that caused it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::domain::tool::ToolId;
use crate::service::execute::Caller;
use crate::service::ports::{SelectionEvent, SelectionEventKind, Store};

/// Events that may wait. More than that means that the store does not keep up; then the newest are dropped and counted.
const QUEUE: usize = 16_384;
/// Events written in one transaction.
const BATCH: usize = 4_096;
/// How long an event may wait for company: one transaction for many costs a call next to nothing.
const GATHER: Duration = Duration::from_millis(500);
/// Events for which room is kept between two batches.
const GATHERED: usize = 64;

/// Takes events without waiting.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<SelectionEvent>,
    dropped: Arc<AtomicU64>,
}

impl Recorder {
    /// Starts the writer. It ends after `stop`, when everything that was queued is written.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, retention: Retention, stop: CancellationToken) -> (Self, tokio::task::JoinHandle<()>) {
        let (queue, events) = mpsc::channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = Writer { store, retention, dropped: Arc::clone(&dropped) };
        let task = tokio::spawn(writer.run(events, stop));
        (Self { queue, dropped }, task)
    }

    pub fn record(&self, event: SelectionEvent) {
        if self.queue.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes what a caller's search brought. What was searched for is not kept.
    pub fn searched(&self, caller: &Caller, model: &str, tools: Vec<ToolId>) {
        self.record(SelectionEvent {
            at: SystemTime::now(),
            selection: caller.selection.clone(),
            principal: caller.principal.id.as_str().to_owned(),
            chat: caller.chat.clone(),
            kind: SelectionEventKind::Searched { model: model.into(), vector: None, tools },
        });
    }
}

/// How long things are kept.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    pub chats: Duration,
    pub events: Duration,
}

struct Writer {
    store: Arc<dyn Store>,
    retention: Retention,
    dropped: Arc<AtomicU64>,
}

impl Writer {
    async fn run(self, mut events: mpsc::Receiver<SelectionEvent>, stop: CancellationToken) {
        const SWEEP: Duration = Duration::from_hours(1);
        let mut sweep = tokio::time::interval(SWEEP);
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                count = events.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        return;
                    }
                    tokio::select! {
                        () = tokio::time::sleep(GATHER) => {}
                        () = stop.cancelled() => {}
                    }
                    while batch.len() < BATCH
                        && let Ok(event) = events.try_recv()
                    {
                        batch.push(event);
                    }
                    self.save(&mut batch).await;
                }
                _ = sweep.tick() => self.forget().await,
                () = stop.cancelled() => {
                    events.close();
                    while events.recv_many(&mut batch, BATCH).await > 0 {
                        self.save(&mut batch).await;
                    }
                    return;
                }
            }
        }
    }

    async fn save(&self, batch: &mut Vec<SelectionEvent>) {
        if let Err(error) = self.store.record(batch).await {
            tracing::warn!(error = %error, events = batch.len(), "selection events were not stored");
        }
        batch.clear();
        batch.shrink_to(GATHERED);
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(dropped, "selection events were dropped: the store does not keep up");
        }
    }

    async fn forget(&self) {
        let before = |age: Duration| SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        match self.store.forget_before(before(self.retention.chats), before(self.retention.events)).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "chats and events past their retention were removed"),
            Err(error) => tracing::warn!(error = %error, "old chats and events were not removed"),
        }
    }
}

//! Write-behind: requests queue what a task writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::service::supervision::Supervised;

/// How often old items are removed.
const SWEEP: Duration = Duration::from_hours(1);
/// Capacity kept between two batches.
const KEPT: usize = 64;

/// Items for a writer, queued without waiting. If the writer is too slow, items are lost and counted.
#[derive(Clone)]
pub(in crate::service) struct Queue<T> {
    sender: mpsc::Sender<T>,
    lost: Arc<Lost>,
}

impl<T> Queue<T> {
    pub(in crate::service) fn push(&self, item: T) {
        if self.sender.try_send(item).is_err() {
            self.lost.add(1);
        }
    }

    /// Number of items lost since the start, because the store was slow or failed.
    pub(in crate::service) fn lost(&self) -> u64 {
        self.lost.total()
    }
}

/// Writes queued items in batches.
pub(in crate::service) trait BatchWriter: Send + Sync + Sized + 'static {
    type Item: Send + Sync + 'static;

    const NAME: &str;
    /// Maximum number of queued items.
    const CAPACITY: usize;
    /// Maximum number of items per batch.
    const BATCH: usize;
    /// How long items are collected for a batch.
    const GATHER: Duration;

    /// Writes a batch. Returns `false` if it is lost.
    fn save(&self, batch: &[Self::Item]) -> impl Future<Output = bool> + Send;

    /// Removes old items.
    fn forget(&self) -> impl Future<Output = ()> + Send;

    /// Logs how many items were lost since the last report.
    fn report_lost(lost: u64);

    /// Starts the writer. After `stop`, it drains the queue and ends.
    fn start(self, stop: CancellationToken) -> (Queue<Self::Item>, JoinHandle<()>) {
        let (sender, queue) = mpsc::channel(Self::CAPACITY);
        let lost = Arc::<Lost>::default();
        let batches = Batches { queue, most: Self::BATCH, gather: Self::GATHER, stop };
        (Queue { sender, lost: Arc::clone(&lost) }, tokio::spawn(run(self, batches, lost)))
    }
}

async fn run<W: BatchWriter>(writer: W, mut batches: Batches<W::Item>, lost: Arc<Lost>) {
    let mut part = Supervised::new(W::NAME);
    while part.panicked(write(&writer, &mut batches, &lost)).await {}
}

async fn write<W: BatchWriter>(writer: &W, batches: &mut Batches<W::Item>, lost: &Lost) {
    let mut sweep = tokio::time::interval(SWEEP);
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            more = batches.next(&mut batch) => {
                if !more {
                    return;
                }
                if !writer.save(&batch).await {
                    lost.add(batch.len());
                }
                batch.clear();
                batch.shrink_to(KEPT);
                match lost.unreported() {
                    0 => {}
                    lost => W::report_lost(lost),
                }
            }
            _ = sweep.tick() => writer.forget().await,
        }
    }
}

/// Queued items, taken in batches: one transaction for many costs a request next to nothing.
struct Batches<T> {
    queue: mpsc::Receiver<T>,
    most: usize,
    gather: Duration,
    stop: CancellationToken,
}

impl<T> Batches<T> {
    /// Fills `batch`. Returns `false` if the queue is empty and closed. Cancel-safe if called again with the same `batch`, which
    /// contains all items read so far.
    async fn next(&mut self, batch: &mut Vec<T>) -> bool {
        if batch.is_empty() {
            tokio::select! {
                count = self.queue.recv_many(batch, self.most) => {
                    if count == 0 {
                        return false;
                    }
                }
                () = self.stop.cancelled() => {
                    self.queue.close();
                    return self.queue.recv_many(batch, self.most).await > 0;
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(self.gather) => {}
            () = self.stop.cancelled() => {}
        }
        while batch.len() < self.most
            && let Ok(one) = self.queue.try_recv()
        {
            batch.push(one);
        }
        true
    }
}

/// The next queued item; `None` after `stop`, or if all senders are gone.
pub(in crate::service) async fn next<T>(queue: &mut mpsc::Receiver<T>, stop: &CancellationToken) -> Option<T> {
    tokio::select! {
        biased;
        one = queue.recv() => one,
        () = stop.cancelled() => None,
    }
}

/// Counts items that were dropped.
#[derive(Debug, Default)]
struct Lost {
    total: AtomicU64,
    /// Number of items already reported in the log.
    reported: AtomicU64,
}

impl Lost {
    fn add(&self, count: usize) {
        self.total.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Number of items since the start.
    fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Number of items since the last call of this method.
    fn unreported(&self) -> u64 {
        let total = self.total();
        total.saturating_sub(self.reported.swap(total, Ordering::Relaxed))
    }
}

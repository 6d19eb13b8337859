//! Write-behind: requests queue what a task writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::domain::access::rate::{Pace, Pacer};
use crate::service::ports::StoreError;
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

    /// Writes a batch.
    ///
    /// # Errors
    /// The batch is lost. Contains the reason, unless it is in the log already.
    fn save(&self, batch: &[Self::Item]) -> impl Future<Output = Result<(), Option<StoreError>>> + Send;

    /// Removes old items.
    fn forget(&self) -> impl Future<Output = ()> + Send;

    /// Logs how many items were lost since the last report, and why the last ones were. Called at most once a minute, and at the end:
    /// as long as the store fails, every batch is lost.
    fn report_lost(&self, lost: u64, reason: Option<&StoreError>);

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
    let reports = Reports::default();
    while part.panicked(write(&writer, &mut batches, &lost, &reports)).await {}
}

async fn write<W: BatchWriter>(writer: &W, batches: &mut Batches<W::Item>, lost: &Lost, reports: &Reports) {
    let mut sweep = tokio::time::interval(SWEEP);
    let (mut batch, mut reason) = (Vec::new(), None);
    loop {
        tokio::select! {
            more = batches.next(&mut batch) => {
                if more && let Err(error) = writer.save(&batch).await {
                    lost.add(batch.len());
                    reason = error;
                }
                if lost.has_unreported() && (!more || reports.is_due()) {
                    writer.report_lost(lost.unreported(), reason.take().as_ref());
                }
                if !more {
                    return;
                }
                batch.clear();
                batch.shrink_to(KEPT);
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

/// When lost items are reported.
struct Reports {
    started: Instant,
    /// `None` means no limit.
    pacer: Option<Pacer>,
}

impl Default for Reports {
    fn default() -> Self {
        Self { started: Instant::now(), pacer: Pace::new(1, 1).map(Pacer::new) }
    }
}

impl Reports {
    /// Whether another report may be made now, which then counts.
    fn is_due(&self) -> bool {
        self.is_due_at(self.started.elapsed())
    }

    fn is_due_at(&self, now: Duration) -> bool {
        self.pacer.as_ref().is_none_or(|pacer| pacer.take(now).is_ok())
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

    fn has_unreported(&self) -> bool {
        self.total() > self.reported.load(Ordering::Relaxed)
    }

    /// Number of items since the last call of this method.
    fn unreported(&self) -> u64 {
        let total = self.total();
        total.saturating_sub(self.reported.swap(total, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// A store that takes nothing.
    struct Failing {
        reports: Arc<Mutex<Vec<(u64, bool)>>>,
        saves: Arc<AtomicU64>,
    }

    impl BatchWriter for Failing {
        type Item = u32;

        const NAME: &str = "test";
        const CAPACITY: usize = 100;
        const BATCH: usize = 1;
        const GATHER: Duration = Duration::from_millis(1);

        async fn save(&self, _: &[u32]) -> Result<(), Option<StoreError>> {
            self.saves.fetch_add(1, Ordering::Relaxed);
            Err(Some(StoreError::Failed { action: "save", source: "the disk is full".into() }))
        }

        async fn forget(&self) {}

        fn report_lost(&self, lost: u64, reason: Option<&StoreError>) {
            self.reports.lock().push((lost, reason.is_some()));
        }
    }

    #[tokio::test]
    async fn a_store_that_keeps_failing_is_reported_at_once_and_then_seldom() {
        let (reports, saves, stop) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicU64>::default(), CancellationToken::new());
        let (queue, task) = Failing { reports: Arc::clone(&reports), saves: Arc::clone(&saves) }.start(stop.clone());
        for number in 0..20 {
            queue.push(number);
        }
        while saves.load(Ordering::Relaxed) < 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stop.cancel();
        task.await.unwrap();
        assert_eq!(*reports.lock(), [(1, true), (19, true)], "the first one, and all others at the end");
        assert_eq!(queue.lost(), 20);
    }

    #[test]
    fn a_report_is_due_once_a_minute() {
        let reports = Reports::default();
        let due = [0, 300, 59_900, 60_000, 60_300, 120_000, 600_000].map(|at| reports.is_due_at(Duration::from_millis(at)));
        assert_eq!(due, [true, false, false, true, false, true, true]);
    }
}

//! Shared code for write-behind queues.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Reads queued items in batches. With many items per transaction, a request costs next to nothing.
pub(super) struct Batches<T> {
    pub(super) queue: mpsc::Receiver<T>,
    /// Maximum number of items per batch.
    pub(super) most: usize,
    /// How long items are collected for a batch.
    pub(super) gather: Duration,
    pub(super) stop: CancellationToken,
}

impl<T> Batches<T> {
    /// Fills `batch`. Returns `false` if the queue is empty and closed. Cancel-safe if called again with the same `batch`, which
    /// contains all items read so far.
    pub(super) async fn next(&mut self, batch: &mut Vec<T>) -> bool {
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
pub(super) struct Lost {
    total: AtomicU64,
    /// Number of items already reported in the log.
    reported: AtomicU64,
}

impl Lost {
    pub(super) fn add(&self, count: usize) {
        self.total.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Number of items since the start.
    pub(super) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Number of items since the last call of this method.
    pub(super) fn unreported(&self) -> u64 {
        let total = self.total();
        total.saturating_sub(self.reported.swap(total, Ordering::Relaxed))
    }
}

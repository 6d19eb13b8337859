//! What the use cases have in common that write behind the requests that caused it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// What waits to be written, in batches: one transaction for many costs a request next to nothing.
pub(super) struct Batches<T> {
    pub(super) queue: mpsc::Receiver<T>,
    /// The most of one batch.
    pub(super) most: usize,
    /// How long one may wait for company.
    pub(super) gather: Duration,
    pub(super) stop: CancellationToken,
}

impl<T> Batches<T> {
    /// Fills `batch`; `false`: nothing is left, and nothing comes any more. Whoever drops the future and asks again loses
    /// nothing: what was taken is in `batch`.
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

/// The next of what waits; `None` after `stop`, or when nobody is left who could send.
pub(in crate::service) async fn next<T>(queue: &mut mpsc::Receiver<T>, stop: &CancellationToken) -> Option<T> {
    tokio::select! {
        biased;
        one = queue.recv() => one,
        () = stop.cancelled() => None,
    }
}

/// How many were not written.
#[derive(Debug, Default)]
pub(super) struct Lost {
    total: AtomicU64,
    /// Those of which the log has spoken.
    told: AtomicU64,
}

impl Lost {
    pub(super) fn add(&self, count: usize) {
        self.total.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Since the start.
    pub(super) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Since this was asked last.
    pub(super) fn untold(&self) -> u64 {
        let total = self.total();
        total.saturating_sub(self.told.swap(total, Ordering::Relaxed))
    }
}

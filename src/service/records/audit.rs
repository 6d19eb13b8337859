//! The audit log: who called or changed what, the decision and the outcome. It contains no arguments and no results.
//!
//! Entries are written behind, in batches. If the store is too slow, entries are dropped rather than calls delayed. The log of
//! the process reports their number.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::service::ports::{AuditEntry, AuditQuery, AuditStore, StoreError, StoredAuditEntry};
use crate::service::records::write_behind::{Batches, Lost};
use crate::service::supervision::Supervised;

/// Maximum number of queued entries.
const QUEUE: usize = 65_536;
const BATCH: usize = 1_024;
/// How long entries are collected before they are written.
const GATHER: Duration = Duration::from_millis(100);
const SWEEP: Duration = Duration::from_hours(1);

#[derive(Clone)]
pub struct Audit {
    queue: mpsc::Sender<AuditEntry>,
    lost: Arc<Lost>,
    store: Arc<dyn AuditStore>,
}

impl Audit {
    /// Starts the writer. After `stop`, it writes the queued entries and ends.
    #[must_use]
    pub fn start(store: Arc<dyn AuditStore>, retention: Duration, stop: CancellationToken) -> (Self, JoinHandle<()>) {
        let (queue, entries) = mpsc::channel(QUEUE);
        let lost = Arc::<Lost>::default();
        let writer = Writer { store: Arc::clone(&store), retention, lost: Arc::clone(&lost) };
        (Self { queue, lost, store }, tokio::spawn(writer.run(Batches { queue: entries, most: BATCH, gather: GATHER, stop })))
    }

    pub fn record(&self, entry: AuditEntry) {
        if self.queue.try_send(entry).is_err() {
            self.lost.add(1);
        }
    }

    /// Number of entries dropped since the start.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.total()
    }

    /// Returns matching entries, newest first.
    pub async fn find(&self, query: &AuditQuery) -> Result<Vec<StoredAuditEntry>, StoreError> {
        self.store.audit(query).await
    }
}

struct Writer {
    store: Arc<dyn AuditStore>,
    retention: Duration,
    lost: Arc<Lost>,
}

impl Writer {
    async fn run(self, mut entries: Batches<AuditEntry>) {
        let mut part = Supervised::new("audit log");
        while part.panicked(self.write(&mut entries)).await {}
    }

    async fn write(&self, entries: &mut Batches<AuditEntry>) {
        let mut sweep = tokio::time::interval(SWEEP);
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                more = entries.next(&mut batch) => {
                    if !more {
                        return;
                    }
                    self.save(&mut batch).await;
                }
                _ = sweep.tick() => self.forget().await,
            }
        }
    }

    async fn save(&self, batch: &mut Vec<AuditEntry>) {
        if let Err(error) = self.store.save_audit(batch).await {
            self.lost.add(batch.len());
            tracing::error!(error = %error, "the audit log could not be written");
        }
        batch.clear();
        let lost = self.lost.unreported();
        if lost > 0 {
            tracing::error!(lost, "entries of the audit log were lost");
        }
    }

    async fn forget(&self) {
        let before = SystemTime::now().checked_sub(self.retention).unwrap_or(SystemTime::UNIX_EPOCH);
        match self.store.forget_audit_before(before).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "entries of the audit log past their retention were removed"),
            Err(error) => tracing::warn!(error = %error, "old entries of the audit log were not removed"),
        }
    }
}

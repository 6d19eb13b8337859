//! The audit log: who called or changed what, the decision and the outcome. It contains no arguments and no results.
//!
//! Entries are written behind, in batches. If the store is too slow, entries are dropped rather than calls delayed. The log of
//! the process reports their number.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::service::ports::{AuditEntry, AuditQuery, AuditStore, StoreError, StoredAuditEntry};
use crate::service::write_behind::{BatchWriter, Queue};

#[derive(Clone)]
pub(crate) struct Audit {
    queue: Queue<AuditEntry>,
    store: Arc<dyn AuditStore>,
}

impl Audit {
    /// Starts the writer. After `stop`, it writes the queued entries and ends.
    pub(crate) fn start(store: Arc<dyn AuditStore>, retention: Duration, stop: CancellationToken) -> (Self, JoinHandle<()>) {
        let (queue, writing) = Writer { store: Arc::clone(&store), retention }.start(stop);
        (Self { queue, store }, writing)
    }

    pub(crate) fn record(&self, entry: AuditEntry) {
        self.queue.push(entry);
    }

    /// Number of entries dropped since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.queue.lost()
    }

    /// Returns matching entries, newest first.
    pub(crate) async fn find(&self, query: &AuditQuery) -> Result<Vec<StoredAuditEntry>, StoreError> {
        self.store.audit(query).await
    }
}

struct Writer {
    store: Arc<dyn AuditStore>,
    retention: Duration,
}

impl BatchWriter for Writer {
    type Item = AuditEntry;

    const NAME: &str = "audit log";
    const CAPACITY: usize = 65_536;
    const BATCH: usize = 1_024;
    const GATHER: Duration = Duration::from_millis(100);

    fn report_lost(lost: u64) {
        tracing::error!(lost, "entries of the audit log were lost");
    }

    async fn save(&self, batch: &[AuditEntry]) -> bool {
        let saved = self.store.save_audit(batch).await;
        saved.inspect_err(|error| tracing::error!(error = %error, "the audit log could not be written")).is_ok()
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

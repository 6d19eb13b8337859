//! The audit log: who called or changed what, the decision and the outcome. It contains no arguments and no results.
//!
//! Entries are written behind, in batches. While the store is away, they wait in the spool. If that is full too, entries are dropped
//! rather than calls delayed. The log of the process reports their number.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::service::leading::Leading;
use crate::service::ports::{AuditEntry, AuditQuery, AuditStore, Spool, SpoolState, StoreError, StoredAuditEntry};
use crate::service::records::spooling::{Kind, SaveBatch, Spooling, parsed};
use crate::service::write_behind::{BatchWriter, Queue};

#[derive(Clone)]
pub(crate) struct Audit {
    queue: Queue<AuditEntry>,
    store: Arc<dyn AuditStore>,
    spooling: Arc<Spooling<AuditEntry>>,
}

impl Audit {
    /// Starts the writer. After `stop`, it writes the queued entries and ends. Only the leading service deletes old entries.
    pub(crate) fn start(
        store: Arc<dyn AuditStore>,
        spool: Arc<dyn Spool>,
        (retention, leading): (Duration, Leading),
        stop: CancellationToken,
    ) -> (Self, JoinHandle<()>) {
        let saving = Arc::clone(&store);
        let save: SaveBatch<AuditEntry> = Box::new(move |batch, entries| {
            let store = Arc::clone(&saving);
            Box::pin(async move { store.save_audit_once(batch, entries).await })
        });
        let encode = |id: Uuid, entries: &[AuditEntry]| serde_json::to_vec(&(id.to_string(), entries));
        let decode = |line: &[u8]| {
            let (id, entries) = serde_json::from_slice::<(String, Vec<AuditEntry>)>(line)?;
            Ok((parsed(&id)?, entries))
        };
        let kind = Kind { name: "audit log", save, encode, decode };
        let (spooling, _) = Spooling::start(kind, Some(spool), stop.clone());
        let writer = Writer { store: Arc::clone(&store), spooling: Arc::clone(&spooling), retention, leading };
        let (queue, writing) = writer.start(stop);
        (Self { queue, store, spooling }, writing)
    }

    /// What waits on the disk.
    pub(crate) fn spool(&self) -> SpoolState {
        self.spooling.state()
    }

    pub(crate) fn record(&self, entry: AuditEntry) {
        self.queue.push(entry);
    }

    /// Number of entries dropped since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.queue.lost() + self.spooling.lost()
    }

    /// Returns matching entries, newest first.
    pub(crate) async fn find(&self, query: &AuditQuery) -> Result<Vec<StoredAuditEntry>, StoreError> {
        self.store.audit(query).await
    }
}

struct Writer {
    store: Arc<dyn AuditStore>,
    spooling: Arc<Spooling<AuditEntry>>,
    retention: Duration,
    leading: Leading,
}

impl BatchWriter for Writer {
    type Item = AuditEntry;

    const NAME: &str = "audit log";
    const CAPACITY: usize = 65_536;
    const BATCH: usize = 1_024;
    const GATHER: Duration = Duration::from_millis(100);

    fn report_lost(&self, lost: u64, _reason: Option<&StoreError>) {
        tracing::error!(lost, "entries of the audit log were lost");
    }

    async fn save(&self, batch: &[AuditEntry]) -> Result<(), Option<StoreError>> {
        // The log contains the reason already.
        if self.spooling.save(batch).await { Ok(()) } else { Err(None) }
    }

    async fn forget(&self) {
        if !self.leading.leads() {
            return;
        }
        let before = SystemTime::now().checked_sub(self.retention).unwrap_or(SystemTime::UNIX_EPOCH);
        match self.store.forget_audit_before(before).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "entries of the audit log past their retention were removed"),
            Err(error) => tracing::warn!(error = %error, "old entries of the audit log were not removed"),
        }
    }
}

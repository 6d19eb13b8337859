//! Empties the write-ahead log, which still contains what was deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sqlx::SqlitePool;

/// How long to wait before the next attempt while others read or write.
const PAUSE: Duration = Duration::from_secs(1);
/// A backup of a large file reads for minutes.
const ATTEMPTS: usize = 600;

#[derive(Debug)]
pub(super) struct Emptying {
    /// Its connection waits for nobody.
    pool: SqlitePool,
    /// Number of times that the log was to be emptied.
    wanted: AtomicU64,
    is_waiting: AtomicBool,
}

impl Emptying {
    pub(super) fn new(pool: SqlitePool) -> Self {
        Self { pool, wanted: AtomicU64::new(0), is_waiting: AtomicBool::new(false) }
    }

    /// Empties the log now or, while others read or write, in the background.
    pub(super) async fn empty(self: &Arc<Self>) {
        self.wanted.fetch_add(1, Ordering::AcqRel);
        if self.attempt().await.is_err() && !self.is_waiting.swap(true, Ordering::AcqRel) {
            tokio::spawn(Arc::clone(self).wait());
        }
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    async fn wait(self: Arc<Self>) {
        let mut reason = String::new();
        for _ in 0..ATTEMPTS {
            tokio::time::sleep(PAUSE).await;
            if self.pool.is_closed() {
                return;
            }
            let before = self.wanted.load(Ordering::Acquire);
            if let Err(error) = self.attempt().await {
                reason = error;
                continue;
            }
            self.is_waiting.store(false, Ordering::Release);
            // Something may have been deleted just now, by somebody who saw that the log is about to be emptied.
            let is_done = self.wanted.load(Ordering::Acquire) == before;
            if is_done || self.is_waiting.swap(true, Ordering::AcqRel) {
                return;
            }
        }
        self.is_waiting.store(false, Ordering::Release);
        tracing::warn!(reason, "deleted data can be read from the database's write-ahead log until the service stops or deletes again");
    }

    /// Returns why the log is not empty.
    async fn attempt(&self) -> Result<(), String> {
        let checkpoint = sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&self.pool).await;
        match checkpoint {
            Ok((0, _, _)) => Ok(()),
            Ok::<(i64, i64, i64), _>(_) => Err("a long read is running".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

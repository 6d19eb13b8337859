//! Maintenance of the whole file.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::SqliteStore;
use crate::service::ports::{StoreError, StoreFailures, UpkeepStore};

/// Number of pages released per transaction (4 MiB), and number of transactions per call.
const SHRINK_PAGES: u32 = 1_000;
const SHRINK_ROUNDS: usize = 256;
/// Maximum size of a file that is rewritten at startup so that it can shrink, in bytes. Rewriting takes half a second.
const REWRITTEN_BYTES: u64 = 256 << 20;

#[async_trait]
impl UpkeepStore for SqliteStore {
    /// Reads the installation's id. An invalid one becomes the nil UUID, which no folder has.
    async fn installation(&self) -> Result<Option<Uuid>, StoreError> {
        let query = sqlx::query_scalar("SELECT id FROM installation");
        let id: Option<String> = self.read("read the id of the installation", query.fetch_one(&self.readers)).await?;
        Ok(id.map(|id| Uuid::try_parse(&id).unwrap_or_default()))
    }

    async fn set_installation(&self, id: Uuid) -> Result<(), StoreError> {
        let query = sqlx::query("UPDATE installation SET id = ?").bind(id.to_string());
        self.durable("save the id of the installation", async |writer| query.execute(writer).await.map(drop)).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.is_there().map_err(|gone| StoreError::Failed { action: "answer", source: gone.into() })?;
        let query = sqlx::query("SELECT 1 FROM listing LIMIT 1");
        self.read("answer", query.execute(&self.readers)).await.map(drop)
    }

    async fn shrink(&self) -> Result<(), StoreError> {
        for _ in 0..SHRINK_ROUNDS {
            let free: i64 = self.read("shrink", sqlx::query_scalar("PRAGMA freelist_count").fetch_one(&self.readers)).await?;
            if free == 0 {
                break;
            }
            let vacuum = sqlx::raw_sql(AssertSqlSafe(format!("PRAGMA incremental_vacuum({SHRINK_PAGES})")));
            self.write("shrink", async |writer| vacuum.execute(writer).await.map(drop)).await?;
        }
        Ok(())
    }

    fn failures(&self) -> StoreFailures {
        StoreFailures { reads: self.failed_reads.load(Ordering::Relaxed), writes: self.failed_writes.load(Ordering::Relaxed) }
    }
}

impl SqliteStore {
    /// Rewrites a file of an older version so that it can shrink, if it is small and there is enough space. Blocks writers, so
    /// call it before the service starts.
    pub async fn make_shrinkable(&self) {
        let rewrite = async {
            let mode: i64 = sqlx::query_scalar("PRAGMA auto_vacuum").fetch_one(&self.writer).await?;
            let size = std::fs::metadata(&self.path).map_or(0, |file| file.len());
            if mode == 0 && size <= REWRITTEN_BYTES {
                sqlx::raw_sql("PRAGMA auto_vacuum = INCREMENTAL; VACUUM").execute(&self.writer).await?;
            }
            Ok(mode == 0 && size > REWRITTEN_BYTES)
        };
        match rewrite.await {
            Ok(false) => {}
            Ok(true) => tracing::info!(
                "{0} does not shrink: to make it one that does, stop the service and run: sqlite3 {0} 'PRAGMA auto_vacuum = 2; VACUUM'",
                self.path.display()
            ),
            Err::<_, sqlx::Error>(error) => tracing::warn!(%error, "the database did not return unused space"),
        }
    }
}

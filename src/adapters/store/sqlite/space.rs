//! The space that the file takes.

use sqlx::{AssertSqlSafe, SqliteConnection};

use super::SqliteStore;
use crate::service::ports::StoreError;

/// Number of pages released per transaction (4 MiB), and number of transactions per call.
const SHRINK_PAGES: u32 = 1_000;
const SHRINK_ROUNDS: usize = 256;
/// Maximum size of a file that is rewritten at startup so that it can shrink, in bytes. Rewriting takes half a second.
const REWRITTEN_BYTES: u64 = 256 << 20;

impl SqliteStore {
    /// Returns unused space to the file system, as far as this is quick.
    pub(super) async fn compact(&self) -> Result<(), StoreError> {
        for _ in 0..SHRINK_ROUNDS {
            let free: i64 = self.read("shrink", sqlx::query_scalar("PRAGMA freelist_count").fetch_one(&self.readers)).await?;
            if free == 0 {
                break;
            }
            let vacuum = || sqlx::raw_sql(AssertSqlSafe(format!("PRAGMA incremental_vacuum({SHRINK_PAGES})")));
            self.write("shrink", || async move |writer: &mut SqliteConnection| vacuum().execute(writer).await.map(drop)).await?;
        }
        Ok(())
    }

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

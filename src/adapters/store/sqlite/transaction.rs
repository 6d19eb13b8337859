//! Write transactions. All writes use them.
//!
//! The commit is part of the write. A statement with `RETURNING` returns its row before the commit. So the row alone proves
//! nothing: with a full disk or a failed flush, the commit fails after the row was returned.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqlitePool;
use sqlx::{AssertSqlSafe, Sqlite, SqliteConnection, raw_sql};

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// After the operating system has it: survives a killed process.
    Process,
    /// After the disk has it: survives a power cut.
    Disk,
}

/// A transaction that holds the write lock from its start, so that another writer can't make it fail halfway. Rolls back if
/// dropped before its end.
pub(super) struct Write {
    connection: PoolConnection<Sqlite>,
    is_over: bool,
}

impl Write {
    pub(super) async fn begin(writer: &SqlitePool, durability: Durability) -> Result<Self, sqlx::Error> {
        let flush = match durability {
            Durability::Process => "NORMAL",
            Durability::Disk => "FULL",
        };
        let connection = writer.acquire().await?;
        let mut write = Self { connection, is_over: false };
        write.run(&format!("PRAGMA synchronous = {flush}; BEGIN IMMEDIATE")).await?;
        Ok(write)
    }

    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        let committed = self.run("COMMIT").await;
        if committed.is_err() {
            self.take_back().await;
        }
        self.is_over = committed.is_ok();
        committed
    }

    /// After a failed flush the log contains the transaction as if it were committed, and after a kill the next start would apply
    /// it. So another write overwrites it in the log, and the log is moved into the file, because it is unknown which of its
    /// pages are on disk.
    async fn take_back(&mut self) {
        for statements in
            ["ROLLBACK", "PRAGMA synchronous = NORMAL; UPDATE installation SET refused = refused + 1", "PRAGMA wal_checkpoint(TRUNCATE)"]
        {
            if let Err(error) = self.run(statements).await {
                tracing::debug!(%error, statements, "after a failed commit");
            }
        }
    }

    async fn run(&mut self, statements: &str) -> Result<(), sqlx::Error> {
        raw_sql(AssertSqlSafe(statements)).execute(&mut *self.connection).await.map(drop)
    }
}

impl Deref for Write {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for Write {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

/// Closing the connection rolls back, whatever state SQLite left the transaction in: some errors end it, others do not.
impl Drop for Write {
    fn drop(&mut self) {
        if !self.is_over {
            self.connection.close_on_drop();
        }
    }
}

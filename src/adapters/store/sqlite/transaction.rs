//! Write transactions, which all writes use.
//!
//! The commit is part of the write. A statement with `RETURNING` returns its row before the commit, so the row alone proves
//! nothing: on a full disk or after a failed flush, the commit still fails.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqlitePool;
use sqlx::{AssertSqlSafe, Sqlite, SqliteConnection, raw_sql};

/// The time at which a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// Once the operating system has the data, which then survives a killed process.
    Process,
    /// Once the disk has the data, which then survives a power cut.
    Disk,
}

/// A transaction that holds the write lock from its start, so that it can't fail halfway because of another writer. Dropping it
/// before its end rolls it back.
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

    /// Undoes a commit whose flush failed. The log then contains the transaction as if it were committed, and the next start
    /// after a kill would apply it. So another write overwrites it, and a checkpoint moves the log into the file, because it is
    /// unknown which of its pages are on disk.
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

/// Closes the connection, which rolls back reliably: some SQLite errors end the transaction, others do not.
impl Drop for Write {
    fn drop(&mut self) {
        if !self.is_over {
            self.connection.close_on_drop();
        }
    }
}

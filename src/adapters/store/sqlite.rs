//! Implements the port [`Store`](crate::service::ports::Store) with one SQLite file. Each module implements the trait of one
//! noun, using three methods of [`SqliteStore`]: `read`, `write` and `durable`.
//!
//! **Durability.** The file uses a write-ahead log with `synchronous = NORMAL`. A commit is acknowledged once the operating
//! system has it, so a killed process loses no acknowledged data. A power cut or a crash of the operating system can lose the
//! last commits, but never damages the file. `write` is for derived data (listings, vectors, counts) and for data whose loss
//! costs only a warning (chats, events), which don't justify a disk flush per commit. `durable` flushes the data that people
//! write or rely on: keys, the policy, toolsets, tool overrides, approvals, secrets, sessions and their loaded groups, feedback.
//!
//! **Connections.** One connection writes and a few read; with the write-ahead log, they do not wait for each other. Each
//! connection has its own thread and page cache, so both numbers are small. If another process locks the file, connections wait
//! for it.

mod audit;
mod chats;
mod computed;
mod conversation_figures;
mod costs;
mod definitions;
mod errors;
mod feedback;
mod file;
mod learning;
mod listings;
mod policy;
mod secrets;
mod connections;
mod sessions;
mod tool_facts;
mod toolsets;
mod transaction;
mod enrichments;
mod upkeep;
mod usage;
mod events;
mod keys;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use sqlx::migrate::Migrator;
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};

use self::errors::GoneError;
use self::file::Identity;
use self::transaction::{Durability, Write};
use crate::adapters::installation::AccessMark;
use crate::adapters::store::encoding::from_millis;
use crate::service::ports::{StoreError, UpkeepStore};
pub use errors::StoreOpenError;
pub use file::{BackupError, CopyContents, CopyError, back_up, inspect};

static MIGRATIONS: Migrator = sqlx::migrate!("src/adapters/store/migrations/sqlite");

/// `PRAGMA application_id` of the store's files, set by the first migration.
const APPLICATION_ID: i32 = 1_414_744_406;

const READERS: u32 = 2;
/// Size of a connection's page cache. In this pragma, a negative number means KiB.
const CACHE_KIB: &str = "-512";
/// Maximum size of the write-ahead log after a checkpoint, in bytes.
const LOG_LIMIT_BYTES: &str = "4194304";
/// Number of rows that a query may read in advance. With a small number, the two threads wait for each other at every step.
const ROW_BUFFER: usize = CHUNK;
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of values in an `IN (…)` list and of rows in an `INSERT`, far below SQLite's limit on bound values.
const CHUNK: usize = 250;

/// A store in a SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    /// Identifies the opened file, because its path may later refer to another file.
    identity: Identity,
    mark: Option<AccessMark>,
    writer: SqlitePool,
    readers: SqlitePool,
    failed_reads: AtomicU64,
    failed_writes: AtomicU64,
}

impl SqliteStore {
    /// Opens the file and migrates its tables to this version. Creates the file if it is missing.
    ///
    /// A new file is readable only by its owner.
    ///
    /// # Errors
    /// [`StoreOpenError`], with a remedy.
    pub async fn open(path: &Path) -> Result<Self, StoreOpenError> {
        let uncreated = |source| StoreOpenError::Create { path: path.to_owned(), source };
        file::create_private(path).map_err(uncreated)?;
        let identity = Identity::of(path).map_err(uncreated)?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(BUSY_TIMEOUT)
            .foreign_keys(true)
            .pragma("cache_size", CACHE_KIB)
            .row_buffer_size(ROW_BUFFER)
            .disable_statement_logging();
        let writing = options
            .clone()
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .pragma("journal_size_limit", LOG_LIMIT_BYTES);

        let opening = |source| StoreOpenError::of(path, source);
        if std::fs::metadata(path).is_ok_and(|file| file.len() == 0) {
            // Set only once, because it is a write: allows the file to shrink by a few pages at a time.
            let first = options.clone().auto_vacuum(SqliteAutoVacuum::Incremental).journal_mode(SqliteJournalMode::Wal);
            first.connect().await.map_err(opening)?.close().await.map_err(opening)?;
        }
        let writer = pool(1).connect_with(writing).await.map_err(opening)?;
        if !belongs_to_us(&writer).await.map_err(opening)? {
            return Err(StoreOpenError::Foreign { path: path.to_owned() });
        }
        MIGRATIONS.run(&writer).await.map_err(|source| StoreOpenError::of_migration(path, source))?;
        let readers = pool(READERS).connect_lazy_with(options.read_only(true));
        Ok(Self {
            path: path.to_owned(),
            identity,
            mark: None,
            writer,
            readers,
            failed_reads: AtomicU64::new(0),
            failed_writes: AtomicU64::new(0),
        })
    }

    /// Sets this mark beside the file before the first key, policy, toolset, tool override or approval is saved. The mark means
    /// that the store contains data whose loss must be detected.
    #[must_use]
    pub fn with_mark(self, mark: AccessMark) -> Self {
        Self { mark: Some(mark), ..self }
    }

    /// Waits for running statements, moves the write-ahead log into the file (checkpoint) and closes it. If this is not called,
    /// the next start does the checkpoint.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    async fn read<T>(&self, action: &'static str, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
        work.await.map_err(self.failed(action)).inspect_err(|_| note(&self.failed_reads))
    }

    /// Reads rows and converts each of them.
    async fn read_all<R, T>(
        &self,
        action: &'static str,
        rows: impl Future<Output = sqlx::Result<Vec<R>>>,
        value: impl Fn(R) -> sqlx::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        self.read(action, async { rows.await?.into_iter().map(value).collect() }).await
    }

    /// Writes in one transaction. An error leaves the store unchanged.
    async fn write<T>(
        &self,
        action: &'static str,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        self.transact(Durability::Process, action, work).await
    }

    /// Like [`Self::write`], but returns only after the data is flushed to disk.
    async fn durable<T>(
        &self,
        action: &'static str,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        self.transact(Durability::Disk, action, work).await
    }

    async fn transact<T>(
        &self,
        durability: Durability,
        action: &'static str,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let write = async {
            self.is_there().map_err(|gone| StoreError::Failed { action, source: gone.into() })?;
            let transaction = async {
                let mut transaction = Write::begin(&self.writer, durability).await?;
                let done = work(&mut transaction).await?;
                transaction.commit().await?;
                Ok(done)
            };
            transaction.await.map_err(self.failed(action))
        };
        write.await.inspect_err(|_| note(&self.failed_writes))
    }

    /// Sets the mark, after storing the installation id in the database: the mark must never exist without the id.
    async fn mark(&self) -> Result<(), StoreError> {
        let Some((mark, id)) = self.mark.as_ref().and_then(|mark| Some((mark, mark.missing()?))) else { return Ok(()) };
        self.set_installation(id).await?;
        mark.set().map_err(|error| StoreError::Failed { action: "record that it contains data to protect", source: error.into() })
    }

    /// Fails if the file was removed: writes into it would be lost when the process ends.
    fn is_there(&self) -> Result<(), GoneError> {
        let is_same = Identity::of(&self.path).is_ok_and(|found| found == self.identity);
        if is_same { Ok(()) } else { Err(GoneError { path: self.path.clone() }) }
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        let path = self.path.clone();
        move |source| StoreError::Failed { action, source: errors::during_use(&path, source) }
    }
}

/// Counts a failure.
fn note(failures: &AtomicU64) {
    failures.fetch_add(1, Ordering::Relaxed);
}

/// Reads a column as a time.
fn time(row: &SqliteRow, column: &str) -> Result<SystemTime, sqlx::Error> {
    row.try_get(column).map(from_millis)
}

/// Reads a column as a count, which is never negative.
fn count(row: &SqliteRow, column: &str) -> Result<u64, sqlx::Error> {
    row.try_get::<i64, _>(column).map(i64::unsigned_abs)
}

fn optional_time(row: &SqliteRow, column: &str) -> Result<Option<SystemTime>, sqlx::Error> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(from_millis))
}

fn pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(Duration::from_secs(10))
        // Connections live as long as the store, because a file does not disconnect like a server.
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

/// Whether the file is empty or belongs to this service. A process killed before the first migration leaves only sqlx's own
/// table.
async fn belongs_to_us(writer: &SqlitePool) -> Result<bool, sqlx::Error> {
    const QUERY: &str = "SELECT application_id, (SELECT count(*) FROM sqlite_schema WHERE tbl_name <> '_sqlx_migrations') \
                         FROM pragma_application_id";
    let (id, tables): (i32, i64) = sqlx::query_as(QUERY).fetch_one(writer).await?;
    Ok(id == APPLICATION_ID || (id == 0 && tables == 0))
}

//! The port [`Store`](crate::service::ports::Store) on one SQLite file. Each module implements the trait of one noun, with the three
//! helpers of [`SqliteStore`]: `read`, `write` and `durable`.
//!
//! **Durability.** Write-ahead log with `synchronous = NORMAL`: a commit is acknowledged after the operating system has taken it,
//! so a killed process loses nothing that was acknowledged. A power cut or a crash of the operating system can lose the last
//! commits, but never the file's integrity. `write` is for derived data (listings, vectors, counts) and for data whose loss costs
//! only a warning (chats, events): these are not worth a disk flush per commit. `durable` flushes what people write or rely on:
//! keys, the policy, toolsets, tool overrides, approvals, secrets, sessions and what they load, feedback.
//!
//! **Connections.** One writes, a few read; in write-ahead mode they do not wait for each other. Each has a thread and a page cache of
//! its own, so both are kept small. If another process has the file open, they wait for it.

mod audit;
mod chats;
mod computed;
mod conversation_figures;
mod definitions;
mod errors;
mod feedback;
mod file;
mod listings;
mod policy;
mod secrets;
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
pub use file::{BackupError, back_up};

static MIGRATIONS: Migrator = sqlx::migrate!("src/adapters/store/migrations/sqlite");

/// `PRAGMA application_id` of our files, set by the first migration.
const APPLICATION_ID: i32 = 1_414_744_406;

const READERS: u32 = 2;
/// Page cache of one connection. A negative number of the pragma means KiB.
const CACHE_KIB: &str = "-512";
/// What remains of the write-ahead log after a large batch was moved into the file.
const LOG_LIMIT_BYTES: &str = "4194304";
/// Rows that a query may run ahead of its reader. With few of them, the two threads wait for each other at every step.
const ROW_BUFFER: usize = CHUNK;
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Values of one `IN (…)` list and rows of one `INSERT`: far below SQLite's limit of bound values.
const CHUNK: usize = 250;

/// A SQLite file as the store.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    /// Of the opened file: its path may refer to another file later.
    identity: Identity,
    mark: Option<AccessMark>,
    writer: SqlitePool,
    readers: SqlitePool,
}

impl SqliteStore {
    /// Opens the file, creates it if it is missing, and migrates its tables to this version.
    ///
    /// A new file is readable by its owner only.
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
            // Lets the file shrink by a few pages at a time. Setting this is a write, so it is set only once.
            let first = options.clone().auto_vacuum(SqliteAutoVacuum::Incremental).journal_mode(SqliteJournalMode::Wal);
            first.connect().await.map_err(opening)?.close().await.map_err(opening)?;
        }
        let writer = pool(1).connect_with(writing).await.map_err(opening)?;
        if !belongs_to_us(&writer).await.map_err(opening)? {
            return Err(StoreOpenError::Foreign { path: path.to_owned() });
        }
        MIGRATIONS.run(&writer).await.map_err(|source| StoreOpenError::of_migration(path, source))?;
        let readers = pool(READERS).connect_lazy_with(options.read_only(true));
        Ok(Self { path: path.to_owned(), identity, mark: None, writer, readers })
    }

    /// Before the first key, policy, toolset, tool override or approval is saved, sets this mark beside the file: data can be
    /// lost from now on.
    #[must_use]
    pub fn with_mark(self, mark: AccessMark) -> Self {
        Self { mark: Some(mark), ..self }
    }

    /// Waits for running statements, moves the write-ahead log into the file and closes it. Without this, the next start moves
    /// the log.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    async fn read<T>(&self, action: &'static str, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
        work.await.map_err(self.failed(action))
    }

    /// Reads rows and converts each.
    async fn read_all<R, T>(
        &self,
        action: &'static str,
        rows: impl Future<Output = sqlx::Result<Vec<R>>>,
        value: impl Fn(R) -> sqlx::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        self.read(action, async { rows.await?.into_iter().map(value).collect() }).await
    }

    /// Writes in one transaction. On an error nothing has changed.
    async fn write<T>(
        &self,
        action: &'static str,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        self.transact(Durability::Process, action, work).await
    }

    /// The same for a durable write: it is on disk when this returns.
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
        self.is_there().map_err(|gone| StoreError::Failed { action, source: gone.into() })?;
        let write = async {
            let mut transaction = Write::begin(&self.writer, durability).await?;
            let done = work(&mut transaction).await?;
            transaction.commit().await?;
            Ok(done)
        };
        write.await.map_err(self.failed(action))
    }

    /// Writes the id into the file first, so that the mark never claims more than the file.
    async fn mark(&self) -> Result<(), StoreError> {
        let Some((mark, id)) = self.mark.as_ref().and_then(|mark| Some((mark, mark.missing()?))) else { return Ok(()) };
        self.set_installation(id).await?;
        mark.set().map_err(|error| StoreError::Failed { action: "note that there is something to lose", source: error.into() })
    }

    /// Writes into a removed file would be lost with the process.
    fn is_there(&self) -> Result<(), GoneError> {
        let is_same = Identity::of(&self.path).is_ok_and(|found| found == self.identity);
        if is_same { Ok(()) } else { Err(GoneError { path: self.path.clone() }) }
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        let path = self.path.clone();
        move |source| StoreError::Failed { action, source: errors::during_use(&path, source) }
    }
}

/// A column with a time.
fn time(row: &SqliteRow, column: &str) -> Result<SystemTime, sqlx::Error> {
    row.try_get(column).map(from_millis)
}

/// A column with a count, which is never negative.
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
        // A file does not go away like a server: connections live as long as the store.
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

/// Whether the file is empty or already belongs to this service. A process that was killed before the first migration leaves sqlx's
/// own table alone.
async fn belongs_to_us(writer: &SqlitePool) -> Result<bool, sqlx::Error> {
    const QUERY: &str = "SELECT application_id, (SELECT count(*) FROM sqlite_schema WHERE tbl_name <> '_sqlx_migrations') \
                         FROM pragma_application_id";
    let (id, tables): (i32, i64) = sqlx::query_as(QUERY).fetch_one(writer).await?;
    Ok(id == APPLICATION_ID || (id == 0 && tables == 0))
}

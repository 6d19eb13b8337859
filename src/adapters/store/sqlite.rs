//! Implements the port [`Store`](crate::service::ports::Store) with one SQLite file. [`tables`] has the statements.
//!
//! **Durability.** The file uses a write-ahead log with `synchronous = NORMAL`. A commit is acknowledged once the operating
//! system has it, so a killed process loses no acknowledged data. A power cut or a crash of the operating system can lose the
//! last commits, but never damages the file. So `write`, which is for data that costs at most a warning, doesn't flush the disk at
//! each commit, and `durable` does.
//!
//! **Connections.** One connection writes and a few read; with the write-ahead log, they do not wait for each other. Each
//! connection has its own thread and page cache, so both numbers are small. If another process locks the file, connections wait
//! for it.

mod emptying;
mod errors;
mod file;
mod space;
mod transaction;
#[path = "tables/mod.rs"]
mod tables;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, QueryBuilder, Sqlite, SqliteConnection, Transaction};
use tokio::sync::watch;
use uuid::Uuid;

use self::emptying::Emptying;
use self::errors::GoneError;
use self::file::Identity;
use self::tables::Failures;
use self::transaction::{Durability, Write};
use crate::adapters::data_dir;
use crate::adapters::installation::AccessMark;
use crate::adapters::store::encoding::signed;
use crate::adapters::store::migrating;
use crate::adapters::store::rows::Table;
use crate::service::ports::{ChangeStore, LeaderStore, RateReport, RateStore, SharedRates, StateVersions, StoreError};
pub use errors::SqliteOpenError;
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
const ROW_BUFFER: usize = 250;
/// Below this space, the disk counts as full after a write has failed, in bytes.
const SMALLEST_SPACE: u64 = 1 << 20;
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

// The types of this database, for `tables`.
type SqlStore = SqliteStore;
type Db = Sqlite;
type DbConnection = SqliteConnection;
type DbPool = SqlitePool;
type DbRow = SqliteRow;

/// A store in a SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    /// Identifies the opened file, because its path may later refer to another file.
    identity: Identity,
    mark: OnceLock<AccessMark>,
    writer: SqlitePool,
    readers: SqlitePool,
    emptying: Arc<Emptying>,
    failures: Failures,
}

impl SqliteStore {
    /// Opens the file and migrates its tables to this version. Creates the file if it is missing.
    ///
    /// A new file is readable only by its owner.
    ///
    /// # Errors
    /// [`SqliteOpenError`], with a remedy.
    pub async fn open(path: &Path) -> Result<Self, SqliteOpenError> {
        file::create_private(path).map_err(|source| SqliteOpenError::Create { path: path.to_owned(), source })?;
        let is_new = file::is_empty(path);
        let opened = async { Self::connect(path).await?.migrated().await }.await;
        if is_new && opened.as_ref().is_err_and(|error| !matches!(error, SqliteOpenError::Busy { .. })) {
            // With a part of its tables, it would look like the file of an earlier version.
            file::remove_with_log(path);
        }
        opened
    }

    /// Opens the file, but neither creates nor migrates anything: an earlier version may be using the file. Returns `None` if there are no
    /// tables yet.
    ///
    /// # Errors
    /// [`SqliteOpenError`], with a remedy: [`SqliteOpenError::Older`] if this version would have to migrate the tables.
    pub async fn open_present(path: &Path) -> Result<Option<Self>, SqliteOpenError> {
        let found = data_dir::present(path).map_err(|error| SqliteOpenError::NoAccess { path: path.to_owned(), source: error.into() })?;
        if found.is_none_or(|file| file.len() == 0) {
            return Ok(None);
        }
        let store = Self::connect(path).await?;
        let migration = schema(&store.writer).await.map_err(|source| SqliteOpenError::of(path, source))?;
        if migration.is_some_and(|migration| migration >= migrating::newest(&MIGRATIONS)) {
            return store.migrated().await.map(Some);
        }
        store.close().await;
        if migration.is_some() { Err(SqliteOpenError::Older { path: path.to_owned() }) } else { Ok(None) }
    }

    async fn connect(path: &Path) -> Result<Self, SqliteOpenError> {
        let identity = Identity::of(path).map_err(|source| SqliteOpenError::Create { path: path.to_owned(), source })?;
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
            // Zeroes what is deleted, so that it can't be read from the file any more.
            .pragma("secure_delete", "ON")
            .pragma("journal_size_limit", LOG_LIMIT_BYTES);

        let opening = |source| SqliteOpenError::of(path, source);
        if file::is_empty(path) {
            // Set only once, because it is a write: allows the file to shrink by a few pages at a time.
            let first = options.clone().auto_vacuum(SqliteAutoVacuum::Incremental).journal_mode(SqliteJournalMode::Wal);
            first.connect().await.map_err(opening)?.close().await.map_err(opening)?;
        }
        let writer = pool(1).connect_with(writing).await.map_err(opening)?;
        if !belongs_to_us(&writer).await.map_err(opening)? {
            return Err(SqliteOpenError::Foreign { path: path.to_owned() });
        }
        let emptying = Arc::new(Emptying::new(pool(1).connect_lazy_with(options.clone().busy_timeout(Duration::ZERO))));
        let readers = pool(READERS).connect_lazy_with(options.read_only(true));
        Ok(Self { path: path.to_owned(), identity, mark: OnceLock::new(), writer, readers, emptying, failures: Failures::default() })
    }

    async fn migrated(self) -> Result<Self, SqliteOpenError> {
        if let Err(source) = migrate(&self.writer).await {
            self.close().await;
            return Err(SqliteOpenError::of_migration(&self.path, source));
        }
        Ok(self)
    }

    /// Gives the store the mark that it sets beside the file before the first key, policy, toolset, tool override or approval is saved. The
    /// mark means that the store contains data whose loss must be detected.
    pub fn set_mark(&self, mark: AccessMark) {
        // There is one mark per start.
        let _ = self.mark.set(mark);
    }

    /// Ends all claims to refresh a sign-in. Only for the process that holds the lock of the data folder: whoever made the claims was
    /// killed, and calls would wait until the claims expire.
    pub async fn end_claims(&self) {
        let query = || sqlx::query("UPDATE connection SET claimed_until = NULL WHERE claimed_until IS NOT NULL");
        let end = || async move |writer: &mut SqliteConnection| query().execute(writer).await.map(drop);
        if let Err(error) = self.write("end the claims of a killed process", end).await {
            tracing::warn!(%error, "some calls wait until the claim of a killed process expires");
        }
    }

    /// Waits for running statements, moves the write-ahead log into the file (checkpoint) and closes it. If this is not called,
    /// the next start does the checkpoint.
    pub async fn close(&self) {
        self.emptying.close().await;
        self.readers.close().await;
        self.writer.close().await;
    }

    fn readers(&self) -> &SqlitePool {
        &self.readers
    }

    async fn reading<T>(&self, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
        work.await
    }

    /// Writes in one transaction. An error leaves the store unchanged.
    async fn write<T, W: AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>>(
        &self,
        action: &'static str,
        work: impl Fn() -> W,
    ) -> Result<T, StoreError> {
        self.transact(Durability::Process, action, work).await
    }

    /// Like [`Self::write`], but returns only after the data is flushed to disk.
    async fn durable<T, W: AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>>(
        &self,
        action: &'static str,
        work: impl Fn() -> W,
    ) -> Result<T, StoreError> {
        self.transact(Durability::Disk, action, work).await
    }

    /// Runs the work once: this process is the only writer.
    async fn transact<T, W: AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>>(
        &self,
        durability: Durability,
        action: &'static str,
        work: impl Fn() -> W,
    ) -> Result<T, StoreError> {
        let write = async {
            self.available(action)?;
            let transaction = async {
                let mut transaction = Write::begin(&self.writer, durability).await?;
                let done = work()(&mut transaction).await?;
                transaction.commit().await?;
                Ok(done)
            };
            let done = transaction.await;
            if done.as_ref().is_err_and(|error| !errors::is_locked(error)) {
                self.failures.note_refused();
            }
            done.map_err(self.failed(action))
        };
        write.await.inspect_err(|_| self.failures.note_write())
    }

    /// Empties the write-ahead log, which still contains what was deleted. Waits for nobody: while others read or write, it is tried again
    /// in the background.
    async fn empty_log(&self) {
        self.emptying.empty().await;
    }

    /// Does nothing: there are no other services.
    #[expect(clippy::unused_async, reason = "PostgreSQL stores it")]
    async fn note_forgotten(&self, _: &mut SqliteConnection, _what: &str) -> Result<(), sqlx::Error> {
        Ok(())
    }

    #[expect(clippy::unused_async, reason = "PostgreSQL is asked")]
    async fn forgotten_elsewhere(&self, _: &mut SqliteConnection, _after: u64) -> Result<Vec<String>, sqlx::Error> {
        Ok(Vec::new())
    }

    /// Whether other services may use the store too.
    const IS_SHARED: bool = false;

    #[expect(clippy::unused_async, reason = "PostgreSQL stores it")]
    async fn note_unfollowed(&self, _: &mut SqliteConnection, _what: &str) -> Result<(), sqlx::Error> {
        Ok(())
    }

    #[expect(clippy::unused_async, reason = "PostgreSQL is asked")]
    async fn unfollowed_elsewhere(&self) -> Result<Vec<(i64, String)>, sqlx::Error> {
        Ok(Vec::new())
    }

    #[expect(clippy::unused_async, reason = "PostgreSQL removes them")]
    async fn remove_unfollowed(&self, _: &mut SqliteConnection, _numbers: &[i64]) -> Result<Vec<i64>, sqlx::Error> {
        Ok(Vec::new())
    }

    /// Fails if the file was removed: writes into it would be lost when the process ends.
    fn available(&self, action: &'static str) -> Result<(), StoreError> {
        let is_same = Identity::of(&self.path).is_ok_and(|found| found == self.identity);
        let gone = || GoneError { path: self.path.clone() };
        if is_same { Ok(()) } else { Err(StoreError::Away { action, is_unsure: false, source: gone().into() }) }
    }

    /// Fails if the disk has no space left.
    fn room(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let is_full = file::space(&self.path).is_some_and(|space| space < SMALLEST_SPACE);
        if is_full { Err(errors::FullError { path: self.path.clone() }.into()) } else { Ok(()) }
    }

    /// Begins a transaction that stores a copy.
    async fn importing(&self) -> Result<Write, sqlx::Error> {
        Write::begin(&self.writer, Durability::Disk).await
    }

    /// Does nothing: a new row gets the number after the highest one.
    #[expect(clippy::unused_async, reason = "PostgreSQL is asked")]
    async fn continue_numbers(&self, _: &mut SqliteConnection, _: &Table) -> Result<(), sqlx::Error> {
        Ok(())
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        let path = self.path.clone();
        move |source| {
            let (is_passing, source) = (errors::is_passing(&source), errors::during_use(&path, source));
            if is_passing { StoreError::Away { action, is_unsure: false, source } } else { StoreError::Failed { action, source } }
        }
    }
}

/// One process at a time opens the file, so nobody else changes anything.
#[async_trait]
impl ChangeStore for SqliteStore {
    fn changes(&self) -> Option<watch::Receiver<()>> {
        None
    }

    async fn state_versions(&self) -> Result<StateVersions, StoreError> {
        Ok(StateVersions::default())
    }
}

#[async_trait]
impl RateStore for SqliteStore {
    fn shares_rates(&self) -> bool {
        false
    }

    async fn exchange_rates(&self, _service: Uuid, _reports: &[RateReport], _parts: u32, _since: u64) -> Result<SharedRates, StoreError> {
        Ok(SharedRates::default())
    }

    async fn forget_rates(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl LeaderStore for SqliteStore {
    fn leads(&self) -> watch::Receiver<bool> {
        watch::channel(true).1
    }
}

/// Begins a transaction whose queries all see the same state.
async fn snapshot(readers: &SqlitePool) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
    readers.begin().await
}

/// Lets transactions with this name wait for each other. Here all writes do.
async fn one_at_a_time(_: &mut SqliteConnection, _: &str) -> Result<(), sqlx::Error> {
    Ok(())
}

/// Lifts the time limit of statements until the end of the transaction. Here is none.
async fn unhurried(_: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    Ok(())
}

/// Inserts this number of rows. Returns their numbers in the order of the values. `is_kept` tells whether to keep the prepared
/// statement.
async fn insert_numbered(
    writer: &mut SqliteConnection,
    mut insert: QueryBuilder<Sqlite>,
    rows: usize,
    is_kept: bool,
) -> Result<Vec<i64>, sqlx::Error> {
    let inserted = insert.build().persistent(is_kept).execute(writer).await?;
    // SQLite numbers the rows of one statement in the order of the values, without gaps. Reading the numbers back
    // (`RETURNING id`) would cost a message between threads per row.
    let last = inserted.last_insert_rowid();
    Ok((0..rows).rev().map(|back| last - signed(back)).collect())
}

/// The text as the database can store it.
fn text(text: &str) -> Cow<'_, str> {
    text.into()
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

/// Migrates the tables to this version, or leaves those that a newer version has migrated and this one may use.
async fn migrate(writer: &SqlitePool) -> Result<(), MigrateError> {
    let Err(error) = MIGRATIONS.run(writer).await else { return Ok(()) };
    let compatible_from = sqlx::query_scalar(migrating::COMPATIBLE_FROM).fetch_one(writer).await.ok();
    if !migrating::is_bearable(&error, &MIGRATIONS, compatible_from) {
        return Err(error);
    }
    migrating::lenient(&MIGRATIONS).run(writer).await
}

/// The number of the last migration; `None` without tables.
async fn schema(writer: &SqlitePool) -> Result<Option<i64>, sqlx::Error> {
    const HAS_MIGRATIONS: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '_sqlx_migrations'";
    let has_migrations: i64 = sqlx::query_scalar(HAS_MIGRATIONS).fetch_one(writer).await?;
    if has_migrations == 0 {
        return Ok(None);
    }
    sqlx::query_scalar(migrating::NEWEST).fetch_one(writer).await
}

/// Whether the file is empty or belongs to this service. A process killed before the first migration leaves only sqlx's own
/// table.
async fn belongs_to_us(writer: &SqlitePool) -> Result<bool, sqlx::Error> {
    const QUERY: &str = "SELECT application_id, (SELECT count(*) FROM sqlite_schema WHERE tbl_name <> '_sqlx_migrations') \
                         FROM pragma_application_id";
    let (id, tables): (i32, i64) = sqlx::query_as(QUERY).fetch_one(writer).await?;
    Ok(id == APPLICATION_ID || (id == 0 && tables == 0))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use crate::adapters::installation::InstallationFile;
    use crate::adapters::store::OpenedStore;
    use crate::domain::access::principal::PrincipalId;
    use crate::domain::catalog::tool::ToolId;
    use crate::domain::learning::evidence::{Evidence, EvidenceKind, Minute};
    use crate::domain::learning::memory::RememberedMessage;
    use crate::domain::learning::scope::Scope;
    use crate::domain::learning::vector::MessageVector;
    use crate::service::ports::{Forgotten, LearnedUse, LearningStore as _, PolicyStore as _, UpkeepStore as _};

    use super::*;

    /// Regression test: what was forgotten stayed readable in free pages and in the write-ahead log.
    #[tokio::test]
    async fn what_is_forgotten_is_gone_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("toolsieve.db");
        let store = SqliteStore::open(&path).await.unwrap();
        let used = |person: &str, number: usize| LearnedUse {
            message: RememberedMessage {
                id: format!("message-{person}-{number}").into(),
                vector: MessageVector::of(&[0.25; 384]).unwrap(),
                rivals: [].into(),
            },
            principal: format!("user:{person}").into(),
            scopes: Scope::read(&format!("-/caller=user:{person}")).into_iter().collect(),
            evidence: Evidence { tool: ToolId::new("server", "tool"), kind: EvidenceKind::Called, at: Minute(1_000) },
        };
        let uses: Vec<LearnedUse> = (0..300).flat_map(|number| [used("anna", number), used("ben", number)]).collect();
        store.save_learned("model", &uses).await.unwrap();
        let found = |text: &str| {
            let files = ["toolsieve.db", "toolsieve.db-wal"].map(|name| std::fs::read(folder.path().join(name)).unwrap_or_default());
            files.concat().windows(text.len()).any(|bytes| bytes == text.as_bytes())
        };
        assert!(found("message-anna-1") && found("user:ben"));
        assert_eq!(store.forget_learned(&Forgotten::Caller(PrincipalId::new("user:anna"))).await.unwrap(), 300);
        // SQLite doesn't zero keys of an index that moved to another page, so a name may remain.
        assert!(!found("message-anna") && found("message-ben-1"));
        assert_eq!(store.forget_learned(&Forgotten::All).await.unwrap(), 300);
        assert!(!found("message-ben"));
    }

    /// Regression test: a deletion waited for others' reads, and so did all writes after it.
    #[tokio::test]
    async fn a_long_read_delays_no_deletion() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("toolsieve.db");
        let store = SqliteStore::open(&path).await.unwrap();
        let log = || std::fs::metadata(folder.path().join("toolsieve.db-wal")).unwrap().len();
        // As a backup does.
        let mut read = store.readers.begin().await.unwrap();
        sqlx::query("SELECT count(*) FROM learned_message").execute(&mut *read).await.unwrap();
        let begun = Instant::now();
        store.forget_learned(&Forgotten::All).await.unwrap();
        assert!(begun.elapsed() < BUSY_TIMEOUT / 2 && log() > 0);
        read.rollback().await.unwrap();
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if log() == 0 {
                return store.close().await;
            }
        }
        panic!("the log was not emptied after the read");
    }

    #[tokio::test]
    async fn looking_at_a_file_changes_no_tables() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("toolsieve.db");
        assert!(SqliteStore::open_present(&path).await.unwrap().is_none() && !path.exists());
        SqliteStore::open(&path).await.unwrap().close().await;
        let store = SqliteStore::open_present(&path).await.unwrap().unwrap();

        let circle = folder.path().join("circle");
        std::os::unix::fs::symlink(&circle, &circle).unwrap();
        let refused = SqliteStore::open_present(&circle.join("toolsieve.db")).await.unwrap_err();
        assert!(matches!(refused, SqliteOpenError::NoAccess { .. }), "{refused}");

        // As an earlier version has left it.
        let newest = migrating::newest(&MIGRATIONS);
        sqlx::query("DELETE FROM _sqlx_migrations WHERE version = ?").bind(newest).execute(&store.writer).await.unwrap();
        store.close().await;
        let refused = SqliteStore::open_present(&path).await.unwrap_err();
        assert!(matches!(refused, SqliteOpenError::Older { .. }), "{refused}");
        let store = SqliteStore::connect(&path).await.unwrap();
        assert!(schema(&store.writer).await.unwrap().unwrap() < newest);
        store.close().await;
    }

    #[tokio::test]
    async fn a_mark_that_can_not_be_set_lets_the_caller_try_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("toolsieve.db")).await.unwrap();
        // A missing folder takes no file, as a full disk doesn't.
        let file = InstallationFile::new(folder.path().join("missing/installation"));
        let id = store.claim_installation(Uuid::from_u128(1)).await.unwrap();
        store.set_mark(AccessMark::new(file, id, false));
        let refused = store.save_policy(0, "{}").await.unwrap_err();
        assert!(matches!(refused, StoreError::Away { is_unsure: false, .. }), "{refused}");
        assert!(store.policy().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_store_that_took_no_write_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("toolsieve.db")).await.unwrap();
        let run = async |statement: &'static str| sqlx::raw_sql(statement).execute(&store.writer).await.map(drop).unwrap();
        run("CREATE TRIGGER refuse BEFORE UPDATE ON installation BEGIN SELECT RAISE(ABORT, 'no room'); END").await;
        assert!(store.check_writes().await.is_ok(), "nothing has failed yet");
        assert!(store.claim_installation(Uuid::from_u128(1)).await.is_err());
        assert!(store.check().await.is_ok(), "it can still be read");
        assert!(store.check_writes().await.is_err());
        run("DROP TRIGGER refuse").await;
        assert!(store.check_writes().await.is_ok());
        assert!(!store.failures.takes_no_writes());
    }

    #[tokio::test]
    async fn a_file_without_access_is_named_with_what_it_needs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("toolsieve.db");
        SqliteStore::open(&path).await.unwrap().close().await;
        // SQLite can't create this file now, not even for root.
        std::fs::create_dir(folder.path().join("toolsieve.db-wal")).unwrap();
        let refused = SqliteStore::open(&path).await.unwrap_err();
        assert!(matches!(refused, SqliteOpenError::NoAccess { .. }), "{refused:?}");
        assert!(refused.to_string().contains("toolsieve.db-wal"), "{refused}");
    }

    #[tokio::test]
    async fn another_start_does_not_repair_a_damaged_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("toolsieve.db");
        std::fs::write(&path, "not a database, but longer than the header of one".repeat(9)).unwrap();
        assert!(OpenedStore::file(&path).await.unwrap_err().is_lasting());
        let copied = back_up(&path, &folder.path().join("backup.db")).await.unwrap_err().to_string();
        assert!(copied.contains("The database is damaged"), "{copied}");
    }
}

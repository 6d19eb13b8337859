//! Implements the port [`Store`](crate::service::ports::Store) with a PostgreSQL server, version 15 or later, which several
//! services may share. [`tables`] has the statements. All tables are in a schema of their own.
//!
//! **Durability.** A commit is acknowledged once the server has flushed it. So an acknowledged write survives a killed service, a
//! killed server and a power cut of either.
//!
//! **Other writers.** Transactions are `READ COMMITTED`. Whatever compares before it writes does both in one statement, or takes a
//! lock ([`one_at_a_time`]). A transaction that the server aborts because of another one runs again.
//!
//! **Another installation.** If somebody replaces the schema by one of another installation, all operations fail as in an outage
//! ([`changes`]), so that neither installation takes over anything from the other.
//!
//! **Outages.** Without a server, a pool of connections would keep every caller waiting for its time-out. So after the first
//! failure, operations fail at once until the server responds again ([`outage`]).

mod place;
mod errors;
mod opening;
mod outage;
mod changes;
mod leading;
mod rates;
mod files;
#[expect(clippy::duplicate_mod, reason = "compiled once per database, with its types")]
#[path = "tables/mod.rs"]
mod tables;

use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use sqlx::postgres::{PgPool, PgRow};
use sqlx::{AssertSqlSafe, PgConnection, Postgres, QueryBuilder, Transaction};
use tokio::time::error::Elapsed;
use uuid::Uuid;

use self::changes::Changes;
use self::errors::{is_conflict, is_lack, is_lost, is_passing};
use self::leading::Election;
use self::opening::Opened;
use self::outage::Outage;
use self::tables::Failures;
use crate::adapters::installation::AccessMark;
use crate::adapters::store::encoding::{odd, signed, to_millis};
use crate::adapters::store::rows::{Kind, Table};
use crate::service::ports::StoreError;
use crate::settings::PostgresSettings;
pub use errors::PostgresOpenError;
pub(super) use files::DatabaseFiles;
pub use place::PostgresPlace;

/// How often a transaction runs until it fails because of other ones.
const ATTEMPTS: u32 = 6;
/// How long the first repetition waits, at most. Each further one waits up to twice as long.
const PAUSE: Duration = Duration::from_millis(10);
/// How much longer a transaction may take than one statement.
const ROUND_TRIPS: Duration = Duration::from_secs(5);
/// How long to wait at the end for running statements.
const CLOSING: Duration = Duration::from_secs(5);
/// How long it is known what was forgotten. All services that run have forgotten it by then.
const FORGOTTEN_KEPT: Duration = Duration::from_hours(30 * 24);
/// What the database stores in place of NUL, which its texts can't contain.
const NUL: &str = "\u{fffd}";

// The types of this database, for `tables`.
type SqlStore = PostgresStore;
type Db = Postgres;
type DbConnection = PgConnection;
type DbPool = PgPool;
type DbRow = PgRow;

/// A store in a schema of a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore {
    place: Arc<PostgresPlace>,
    mark: OnceLock<AccessMark>,
    pool: PgPool,
    outage: Outage,
    changes: Changes,
    /// The id of the installation that the schema had at the start.
    installation: OnceLock<String>,
    election: Election,
    /// Distinguishes what this process has forgotten from what others have.
    service: String,
    /// How long an operation may take until the server counts as unreachable.
    patience: Duration,
    failures: Failures,
}

impl PostgresStore {
    /// Connects, and migrates the schema to this version. Creates the schema if it is missing. Several services may do this at
    /// the same time.
    ///
    /// # Errors
    /// [`PostgresOpenError`], with a remedy.
    pub async fn open(settings: &PostgresSettings) -> Result<Self, PostgresOpenError> {
        Ok(Self::over(settings, opening::open(settings).await?))
    }

    /// Connects, but neither creates nor migrates anything: services of an earlier version may be using the schema. Returns `None` if there
    /// are no tables yet.
    ///
    /// # Errors
    /// [`PostgresOpenError`], with a remedy: [`PostgresOpenError::Older`] if this version would have to migrate the schema.
    pub async fn open_present(settings: &PostgresSettings) -> Result<Option<Self>, PostgresOpenError> {
        Ok(opening::open_present(settings).await?.map(|opened| Self::over(settings, opened)))
    }

    /// Checks that [`Self::open`] could create the tables in a database that has none. Leaves nothing behind.
    ///
    /// # Errors
    /// [`PostgresOpenError`], with a remedy.
    pub async fn check_creation(settings: &PostgresSettings) -> Result<(), PostgresOpenError> {
        opening::check_creation(settings).await
    }

    fn over(settings: &PostgresSettings, (place, pool, listening): Opened) -> Self {
        Self {
            mark: OnceLock::new(),
            installation: OnceLock::new(),
            outage: Outage::of(pool.clone()),
            election: Election::over(listening.clone(), place.schema.clone()),
            changes: Changes::over(listening),
            pool,
            patience: settings.connect_timeout + settings.statement_timeout + ROUND_TRIPS,
            failures: Failures::default(),
            service: Uuid::now_v7().to_string(),
            place,
        }
    }

    /// Gives the store the mark that it sets in the data folder before the first key, policy, toolset, tool override or approval is saved.
    /// The mark means that the store contains data whose loss must be detected.
    pub fn set_mark(&self, mark: AccessMark) {
        // There is one mark per start.
        let _ = self.mark.set(mark);
    }

    /// Where the store is, without the password.
    pub fn place(&self) -> &PostgresPlace {
        &self.place
    }

    /// Waits for running statements, and disconnects. Doesn't wait for a server that is away.
    pub async fn close(&self) {
        self.changes.close().await;
        if tokio::time::timeout(CLOSING, self.pool.close()).await.is_err() {
            tracing::warn!("the connections to the database did not end in time");
        }
    }

    fn readers(&self) -> &PgPool {
        &self.pool
    }

    /// Fails at once during an outage, and notices its beginning.
    async fn reading<T>(&self, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
        self.outage.check()?;
        let begun = Instant::now();
        let done = tokio::time::timeout(self.patience, work).await;
        self.noted(done, begun).await
    }

    /// Like [`Self::reading`], but also while the schema belongs to another installation.
    async fn responding<T>(&self, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
        self.outage.check_server()?;
        let begun = Instant::now();
        let done = tokio::time::timeout(self.patience, work).await;
        self.noted(done, begun).await
    }

    /// The result of an operation that had `begun`, after what it says about the server is noted.
    async fn noted<T>(&self, done: Result<Result<T, sqlx::Error>, Elapsed>, begun: Instant) -> Result<T, sqlx::Error> {
        let silent = || io::Error::new(io::ErrorKind::TimedOut, format!("no response within {} s", self.patience.as_secs()));
        let mut done = done.unwrap_or_else(|_| Err(silent().into()));
        if let Err(error) = done {
            done = Err(self.outage.reason(error, begun).await);
        }
        if let Err(error) = &done
            && is_lack(error)
        {
            self.outage.note_lack(error);
            self.failures.note_refused();
        }
        match &done {
            Ok(_) => self.outage.note_response(),
            Err(error) if is_lost(error) => self.outage.begin(error, begun),
            Err(_) => {}
        }
        done
    }

    /// Writes in one transaction. An error leaves the store unchanged, unless the connection is lost during the commit: then
    /// nobody knows whether it was committed.
    async fn write<T, W: AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>>(
        &self,
        action: &'static str,
        work: impl Fn() -> W,
    ) -> Result<T, StoreError> {
        let (mut attempt, is_committing) = (0, AtomicBool::new(false));
        let done = loop {
            let transaction = async {
                let mut transaction = self.pool.begin().await?;
                let done = work()(&mut transaction).await?;
                is_committing.store(true, Ordering::Relaxed);
                transaction.commit().await?;
                Ok(done)
            };
            match self.reading(transaction).await {
                Err(error) if attempt < ATTEMPTS && is_conflict(&error) => {
                    tokio::time::sleep((PAUSE * 2_u32.pow(attempt)).mul_f64(rand::random())).await;
                    attempt += 1;
                    is_committing.store(false, Ordering::Relaxed);
                }
                done => break done,
            }
        };
        if done.as_ref().is_err_and(|error| !is_lost(error) && !is_conflict(error)) {
            self.failures.note_refused();
        }
        // The server answers a commit that it refuses. Without an answer, nobody knows.
        let is_unsure = is_committing.into_inner() && done.as_ref().is_err_and(is_lost);
        let done = done.map_err(|error| match self.failed(action)(error) {
            StoreError::Away { action, source, .. } => StoreError::Away { action, is_unsure, source },
            error @ StoreError::Failed { .. } => error,
        });
        done.inspect_err(|_| self.failures.note_write())
    }

    /// The same as [`Self::write`]: every commit is flushed.
    async fn durable<T, W: AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>>(
        &self,
        action: &'static str,
        work: impl Fn() -> W,
    ) -> Result<T, StoreError> {
        self.write(action, work).await
    }

    /// Notes for other services what this one forgets.
    async fn note_forgotten(&self, writer: &mut PgConnection, what: &str) -> Result<(), sqlx::Error> {
        let now = SystemTime::now();
        let old = now.checked_sub(FORGOTTEN_KEPT).unwrap_or(SystemTime::UNIX_EPOCH);
        sqlx::query("DELETE FROM learned_forgotten WHERE at < $1").bind(to_millis(old)).execute(&mut *writer).await?;
        // Whoever could learn from it has mostly done so.
        sqlx::query("DELETE FROM learned_unfollowed").execute(&mut *writer).await?;
        let query = sqlx::query("INSERT INTO learned_forgotten (service, what, at) VALUES ($1, $2, $3)");
        query.bind(&self.service).bind(what).bind(to_millis(now)).execute(writer).await.map(drop)
    }

    /// What other services have forgotten with a later change than this one, in the order of the changes.
    async fn forgotten_elsewhere(&self, writer: &mut PgConnection, after: u64) -> Result<Vec<String>, sqlx::Error> {
        let query = sqlx::query_scalar("SELECT what FROM learned_forgotten WHERE number > $1 AND service <> $2 ORDER BY number");
        query.bind(signed(after)).bind(&self.service).fetch_all(writer).await
    }

    /// Whether other services may use the store too.
    const IS_SHARED: bool = true;

    /// Notes for other services what only they can learn from. The time is the server's, because clocks of services may differ.
    async fn note_unfollowed(&self, writer: &mut PgConnection, what: &str) -> Result<(), sqlx::Error> {
        let query = sqlx::query("INSERT INTO learned_unfollowed (service, what) VALUES ($1, $2)");
        query.bind(&self.service).bind(what).execute(writer).await.map(drop)
    }

    /// What other services have noted in the last minute. Deletes what is old.
    async fn unfollowed_elsewhere(&self) -> Result<Vec<(i64, String)>, sqlx::Error> {
        let query = "WITH old AS (DELETE FROM learned_unfollowed WHERE at < now() - interval '10 minutes') \
                     SELECT number, what FROM learned_unfollowed WHERE at >= now() - interval '1 minute' AND service <> $1 \
                     ORDER BY number LIMIT 4096";
        sqlx::query_as(query).bind(&self.service).fetch_all(&self.pool).await
    }

    async fn remove_unfollowed(&self, writer: &mut PgConnection, numbers: &[i64]) -> Result<Vec<i64>, sqlx::Error> {
        let query = sqlx::query_scalar("DELETE FROM learned_unfollowed WHERE number = ANY($1) RETURNING number");
        query.bind(numbers).fetch_all(writer).await
    }

    fn available(&self, action: &'static str) -> Result<(), StoreError> {
        self.outage.check().map_err(self.failed(action))
    }

    /// Does nothing: the server reuses the space itself (autovacuum).
    #[expect(clippy::unused_async, reason = "SQLite waits for its file")]
    async fn compact(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Does nothing: the server's log belongs to its administrators.
    #[expect(clippy::unused_async, reason = "SQLite empties its log")]
    async fn empty_log(&self) {}

    /// Fails for a while after the server has lacked space or connections: the write that shows whether it takes writes needs no more space.
    fn room(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.outage.lack(Instant::now()).map_or(Ok(()), |reason| Err(format!("{}: {reason}", self.place).into()))
    }

    /// Begins a transaction that stores a copy.
    async fn importing(&self) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
        self.pool.begin().await
    }

    /// Lets new rows of a table get the numbers after the highest one.
    async fn continue_numbers(&self, writer: &mut PgConnection, table: &Table) -> Result<(), sqlx::Error> {
        if !table.columns.contains(&("id".to_owned(), Kind::Integer)) {
            return Ok(());
        }
        let name = &table.name;
        let query = format!("SELECT setval(pg_get_serial_sequence('{name}', 'id'), max(id)) FROM {name} HAVING max(id) IS NOT NULL");
        sqlx::query(AssertSqlSafe(query)).execute(writer).await.map(drop)
    }

    /// All tables with their columns, except those that a file does not have. Referenced tables come first.
    pub(super) async fn tables(&self) -> Result<Vec<Table>, sqlx::Error> {
        // The table of a reference comes first in the alphabet: model and vector, session and session_group.
        let rows: Vec<(String, String, String)> = sqlx::query_as(
            "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns \
             WHERE table_schema = current_schema() AND table_name NOT IN ('installation', 'state_version', '_sqlx_migrations', \
             'shared_rate', 'service', 'stored_file', 'link_key', 'learned_forgotten', 'learned_unfollowed') \
             ORDER BY table_name COLLATE \"C\", ordinal_position",
        )
        .fetch_all(&self.pool)
        .await?;
        let mut tables: Vec<Table> = Vec::new();
        for (table, column, kind) in rows {
            let kind = match kind.as_str() {
                "text" => Kind::Text,
                "bytea" => Kind::Bytes,
                "bigint" => Kind::Integer,
                "boolean" => Kind::Flag,
                _ => return Err(odd("a column of a type that can't be copied")),
            };
            if tables.last().is_none_or(|last| last.name != table) {
                tables.push(Table { name: table, columns: Vec::new() });
            }
            if let Some(last) = tables.last_mut() {
                last.columns.push((column, kind));
            }
        }
        Ok(tables)
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        move |source| {
            let (is_passing, source) = (is_passing(&source), errors::during_use(&self.place, source));
            if is_passing { StoreError::Away { action, is_unsure: false, source } } else { StoreError::Failed { action, source } }
        }
    }
}

/// Begins a transaction whose queries all see the same state.
async fn snapshot(readers: &PgPool) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    readers.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await
}

/// Lets transactions with this name wait for each other, until they end.
async fn one_at_a_time(writer: &mut PgConnection, name: &str) -> Result<(), sqlx::Error> {
    let lock = sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || $1, 0))").bind(name);
    lock.execute(writer).await.map(drop)
}

/// Lifts the time limit of statements until the end of the transaction.
async fn unhurried(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let lift = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";
    sqlx::raw_sql(lift).execute(connection).await.map(drop)
}

/// Inserts this number of rows. Returns their numbers in the order of the values. `is_kept` tells whether to keep the prepared
/// statement.
async fn insert_numbered(
    writer: &mut PgConnection,
    mut insert: QueryBuilder<Postgres>,
    rows: usize,
    is_kept: bool,
) -> Result<Vec<i64>, sqlx::Error> {
    insert.push(" RETURNING id");
    let mut numbers: Vec<i64> = insert.build_query_scalar().persistent(is_kept).fetch_all(writer).await?;
    debug_assert_eq!(numbers.len(), rows);
    // The values are numbered in their order, but the server may return the rows in any order.
    numbers.sort_unstable();
    Ok(numbers)
}

/// The text as the database can store it.
fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', NUL).into() } else { text.into() }
}

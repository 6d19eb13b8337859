//! The tables and their statements, with one module per noun.
//!
//! The tables are the same in all databases, and so are the statements. Generic code over `sqlx`'s databases would repeat a dozen
//! bounds at each function. So this folder is compiled once per database instead: as `sqlite::tables` and as `postgres::tables`.
//! Its parent provides the database's types, and the few operations that differ:
//!
//! - `SqlStore` with `readers()`, `reading()`, `failed()`, `available()`, `compact()`, `write()` and `durable()`. `write` is for derived data (listings, vectors, counts)
//!   and for data whose loss costs only a warning (chats, events). `durable` is for data that people write or rely on: keys, the
//!   policy, toolsets, tool overrides, approvals, secrets, sessions and their loaded groups, feedback. Both may run the work again
//!   if another process was in the way.
//! - `empty_log()`, which follows the deletion of a person's data.
//! - `note_forgotten()`, `forgotten_elsewhere()`, `note_unfollowed()`, `unfollowed_elsewhere()` and `remove_unfollowed()`, for other services
//!   on the same database.
//! - `snapshot`, `one_at_a_time`, `insert_numbered` and `text`; for a copy `importing()`, `continue_numbers()` and `unhurried`.
//!
//! Statements number their parameters (`$1`), which both databases understand. They leave nothing to the database's order of rows
//! or to its types of results: sums are cast, and upserts name their table.

mod batches;
mod audit;
mod chats;
mod computed;
mod copying;
mod conversation_figures;
mod costs;
mod definitions;
mod feedback;
mod co_use;
mod parameters;
mod learning;
mod listings;
mod policy;
mod secrets;
mod connections;
mod servers;
mod sessions;
mod switches;
mod tool_facts;
mod toolsets;
mod enrichments;
mod upkeep;
mod usage;
mod events;
mod keys;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use sqlx::Row;

use super::{Db, DbConnection, DbPool, DbRow, SqlStore, insert_numbered, one_at_a_time, snapshot, text, unhurried};
use crate::adapters::store::encoding::{from_millis, signed, to_millis};
use crate::service::ports::{StoreError, StoreFailures, UpkeepStore};

/// Maximum number of values in an `IN (…)` list and of rows in an `INSERT`, far below the databases' limits on bound values.
const CHUNK: usize = 250;
/// Maximum number of rows that a transaction deletes, so that it ends before the database's limit on the time of a statement, and other
/// writes need not wait for long.
const DELETED: u64 = 5_000;

/// Counts the operations that failed.
#[derive(Debug, Default)]
pub(super) struct Failures {
    reads: AtomicU64,
    writes: AtomicU64,
    /// Whether a write has failed for another reason than a lock, a conflict or a lost connection, since the last check. On a full disk,
    /// small writes may still succeed.
    takes_no_writes: AtomicBool,
}

impl Failures {
    pub(super) fn note_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the store has not taken a write.
    pub(super) fn note_refused(&self) {
        self.takes_no_writes.store(true, Ordering::Relaxed);
    }

    /// Notes that a check has written.
    fn note_check(&self) {
        self.takes_no_writes.store(false, Ordering::Relaxed);
    }

    pub(super) fn takes_no_writes(&self) -> bool {
        self.takes_no_writes.load(Ordering::Relaxed)
    }

    fn note_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sums(&self) -> StoreFailures {
        StoreFailures { reads: self.reads.load(Ordering::Relaxed), writes: self.writes.load(Ordering::Relaxed) }
    }
}

impl SqlStore {
    pub(super) async fn read<T>(&self, action: &'static str, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
        self.reading(work).await.map_err(self.failed(action)).inspect_err(|_| self.failures.note_read())
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

    /// Deletes all rows from before a time, in several transactions. The statement's parameters are the time and a number of rows.
    async fn delete_in_parts(&self, action: &'static str, statement: &'static str, before: SystemTime) -> Result<u64, StoreError> {
        let mut all = 0;
        loop {
            let delete = || {
                async move |writer: &mut DbConnection| {
                    let delete = sqlx::query(statement).bind(to_millis(before)).bind(signed(DELETED));
                    Ok(delete.execute(writer).await?.rows_affected())
                }
            };
            let deleted = self.write(action, delete).await?;
            all += deleted;
            if deleted < DELETED {
                return Ok(all);
            }
        }
    }

    /// Sets the mark, after storing the installation id in the database: the mark must never exist without the id.
    async fn mark(&self) -> Result<(), StoreError> {
        let Some((mark, id)) = self.mark.get().and_then(|mark| Some((mark, mark.missing()?))) else { return Ok(()) };
        let action = "record that it contains data to protect";
        if self.claim_installation(id).await? != id {
            let source = "another service has begun to use it meanwhile: restart this one".into();
            return Err(StoreError::Failed { action, source });
        }
        // On a full disk, another attempt succeeds once there is space.
        mark.set().map_err(|error| {
            self.failures.note_refused();
            StoreError::Away { action, is_unsure: false, source: error.into() }
        })
    }
}

/// Reads a column as a time.
fn time(row: &DbRow, column: &str) -> Result<SystemTime, sqlx::Error> {
    row.try_get(column).map(from_millis)
}

/// Reads a column as a count, which is never negative.
fn count(row: &DbRow, column: &str) -> Result<u64, sqlx::Error> {
    row.try_get::<i64, _>(column).map(i64::unsigned_abs)
}

fn optional_time(row: &DbRow, column: &str) -> Result<Option<SystemTime>, sqlx::Error> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(from_millis))
}

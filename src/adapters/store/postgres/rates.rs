//! The rate limits that services share. One statement adds, reads and counts the services, so that an exchange is one round trip.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresStore;
use crate::adapters::store::encoding::odd;
use crate::service::ports::{RateKey, RateReport, RateStore, SharedRates, StoreError};

/// How long a service counts after its last exchange, in microseconds.
const PRESENT: i64 = 5_000_000;
/// How much earlier than the last exchange to look for changes: transactions become visible in another order than they begin.
const OVERLAP: i64 = 1_000_000;
/// How long what limits nobody any more is kept, in microseconds.
const KEPT: i64 = 60_000_000;

const EXCHANGE: &str = "\
    WITH clock AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at), \
    present AS (INSERT INTO service AS known (id, seen) SELECT $1::text::uuid, at FROM clock \
        ON CONFLICT (id) DO UPDATE SET seen = excluded.seen), \
    given AS (SELECT * FROM unnest($2::bytea[], $3::bigint[], $4::bigint[]) AS given (key, taken, ahead)), \
    counted AS (INSERT INTO shared_rate AS rate (key, due, taken, changed) \
        SELECT key, at + ahead + given.taken, given.taken, at FROM given, clock ORDER BY key \
        ON CONFLICT (key) DO UPDATE SET due = greatest(rate.due + excluded.taken, excluded.due), taken = excluded.taken, \
        changed = excluded.changed RETURNING key, due) \
    SELECT NULL::bytea AS key, at, (SELECT count(*) FROM service WHERE seen > at - $5 AND id <> $1::text::uuid) AS number FROM clock \
    UNION ALL SELECT key, at, due - at FROM counted, clock \
    UNION ALL SELECT key, at, due - at FROM shared_rate, clock WHERE changed > $6 AND key <> ALL ($2::bytea[])";

#[async_trait]
impl RateStore for PostgresStore {
    fn shares_rates(&self) -> bool {
        true
    }

    async fn exchange_rates(&self, service: Uuid, reports: &[RateReport], since: u64) -> Result<SharedRates, StoreError> {
        let keys: Vec<Vec<u8>> = reports.iter().map(|report| report.key.to_vec()).collect();
        let taken: Vec<i64> = reports.iter().map(|report| micros(report.taken)).collect();
        let ahead: Vec<i64> = reports.iter().map(|report| micros(report.ahead)).collect();
        let query = sqlx::query(EXCHANGE)
            .bind(service.to_string())
            .bind(keys)
            .bind(taken)
            .bind(ahead)
            .bind(PRESENT)
            .bind(i64::try_from(since).unwrap_or(i64::MAX).saturating_sub(OVERLAP));
        let rows = self.reading(query.fetch_all(&self.pool)).await;
        rows.and_then(|rows| read(&rows)).map_err(self.failed("exchange rate limits"))
    }

    async fn forget_rates(&self) -> Result<(), StoreError> {
        const FORGET: &str = "\
            WITH clock AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $1 AS oldest), \
            gone AS (DELETE FROM service USING clock WHERE seen < oldest) \
            DELETE FROM shared_rate USING clock WHERE due < oldest AND changed < oldest";
        let query = sqlx::query(FORGET).bind(KEPT);
        self.reading(query.execute(&self.pool)).await.map(drop).map_err(self.failed("forget old rate limits"))
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 4)
}

fn read(rows: &[PgRow]) -> Result<SharedRates, sqlx::Error> {
    let mut rates = SharedRates::default();
    for row in rows {
        let (key, number): (Option<Vec<u8>>, i64) = (row.try_get("key")?, row.try_get("number")?);
        rates.at = row.try_get::<i64, _>("at")?.unsigned_abs();
        let Some(key) = key else {
            rates.services = u32::try_from(number).unwrap_or(u32::MAX).saturating_add(1);
            continue;
        };
        let key: RateKey = key.try_into().map_err(|_| odd("a key of a rate limit of another length"))?;
        rates.ahead.push((key, Duration::from_micros(u64::try_from(number).unwrap_or(0))));
    }
    Ok(rates)
}

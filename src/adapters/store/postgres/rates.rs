//! The rate limits that services share. One statement adds, reserves, reads and counts the services, so that an exchange is one round trip.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresStore;
use crate::adapters::store::encoding::odd;
use crate::service::ports::{RateKey, RateReport, RateStore, SharedRate, SharedRates, StoreError};

/// How long a service counts after its last exchange, in microseconds.
const PRESENT: i64 = 5_000_000;
/// How much earlier than the last exchange to look for changes: transactions become visible in another order than they begin.
const OVERLAP: i64 = 1_000_000;
/// How long what limits nobody any more is kept, in microseconds.
const KEPT: i64 = 60_000_000;

/// `taken` is the number of the reserved requests after an update, and the negative position of the report after an insertion, by which an
/// update finds its report. A new row reserves nothing. Nothing makes callers wait for much longer than the limit allows at once: neither
/// what a service owes, nor a step of the server's clock.
const EXCHANGE: &str = "\
    WITH clock AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at), \
    present AS (INSERT INTO service AS known (id, seen) SELECT $1::text::uuid, at FROM clock \
        ON CONFLICT (id) DO UPDATE SET seen = excluded.seen), \
    given AS (SELECT * FROM unnest($2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) WITH ORDINALITY \
        AS given (key, pace, tolerance, ahead, owed, position)), \
    counted AS (INSERT INTO shared_rate AS rate (key, due, taken, changed) \
        SELECT key, at + least(ahead + owed * pace, 2 * tolerance + pace), -position, at FROM given, clock ORDER BY key \
        ON CONFLICT (key) DO UPDATE SET (due, taken, changed) = ( \
            SELECT base + reserved * pace, reserved, excluded.changed \
            FROM (SELECT ($3::bigint[])[-excluded.taken] AS pace, ($4::bigint[])[-excluded.taken] AS tolerance, \
                ($6::bigint[])[-excluded.taken] AS owed, ($7::bigint[])[-excluded.taken] AS returned, \
                ($8::bigint[])[-excluded.taken] AS waiting, ($9::bigint[])[-excluded.taken] AS extra) AS report, \
            LATERAL (SELECT least(greatest(rate.due - returned * pace, excluded.changed) + owed * pace, \
                excluded.changed + 2 * tolerance + pace) AS base) AS before, \
            LATERAL (SELECT CASE WHEN base - excluded.changed > tolerance THEN 0 \
                ELSE (tolerance - base + excluded.changed) / pace + 1 END AS room) AS rest, \
            LATERAL (SELECT least(waiting, room) + least(extra, greatest(room - waiting, 0) / $10) AS reserved) AS result) \
        RETURNING key, due, taken) \
    SELECT NULL::bytea AS key, at, (SELECT count(*) FROM service WHERE seen > at - $11 AND id <> $1::text::uuid) AS number, \
        0::bigint AS reserved FROM clock \
    UNION ALL SELECT key, at, due - at, taken FROM counted, clock \
    UNION ALL SELECT key, at, due - at, 0 FROM shared_rate, clock WHERE changed > $12 AND key <> ALL ($2::bytea[])";

#[async_trait]
impl RateStore for PostgresStore {
    fn shares_rates(&self) -> bool {
        true
    }

    async fn exchange_rates(&self, service: Uuid, reports: &[RateReport], parts: u32, since: u64) -> Result<SharedRates, StoreError> {
        let of = |value: fn(&RateReport) -> i64| -> Vec<i64> { reports.iter().map(value).collect() };
        let keys: Vec<Vec<u8>> = reports.iter().map(|report| report.key.to_vec()).collect();
        let query = sqlx::query(EXCHANGE)
            .bind(service.to_string())
            .bind(keys)
            // A division by zero would fail for everybody.
            .bind(of(|report| micros(report.interval).max(1)))
            .bind(of(|report| micros(report.tolerance)))
            .bind(of(|report| micros(report.ahead)))
            .bind(of(|report| report.owed.into()))
            .bind(of(|report| report.returned.into()))
            .bind(of(|report| report.waiting.into()))
            .bind(of(|report| report.extra.into()))
            .bind(i64::from(parts.max(1)))
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
        let ahead = Duration::from_micros(u64::try_from(number).unwrap_or(0));
        let reserved = u32::try_from(row.try_get::<i64, _>("reserved")?).unwrap_or(0);
        rates.rates.push(SharedRate { key, ahead, reserved });
    }
    Ok(rates)
}

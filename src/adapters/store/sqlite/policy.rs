//! The policy, with its last versions.

use std::time::SystemTime;

use sqlx::{SqliteConnection, SqlitePool};

use crate::adapters::store::encoding::to_millis;
use crate::service::ports::StoredPolicy;

/// Versions that are kept, so that somebody can look back.
const KEPT: i64 = 100;

pub(super) async fn load(readers: &SqlitePool) -> Result<Option<StoredPolicy>, sqlx::Error> {
    let row: Option<(i64, String)> =
        sqlx::query_as("SELECT version, body FROM policy ORDER BY version DESC LIMIT 1").fetch_optional(readers).await?;
    Ok(row.map(|(version, body)| StoredPolicy { version: version.unsigned_abs(), body }))
}

/// One statement decides, so that of two changes of one version the second finds itself too late.
pub(super) async fn save(writer: &mut SqliteConnection, expected: u64, body: &str) -> Result<Option<u64>, sqlx::Error> {
    let version: Option<i64> = sqlx::query_scalar(
        "INSERT INTO policy (version, body, saved_at) SELECT ?1 + 1, ?2, ?3 \
         WHERE (SELECT coalesce(max(version), 0) FROM policy) = ?1 RETURNING version",
    )
    .bind(i64::try_from(expected).unwrap_or(i64::MAX))
    .bind(body)
    .bind(to_millis(SystemTime::now()))
    .fetch_optional(&mut *writer)
    .await?;
    if let Some(version) = version {
        sqlx::query("DELETE FROM policy WHERE version <= ?").bind(version - KEPT).execute(writer).await?;
    }
    Ok(version.map(i64::unsigned_abs))
}

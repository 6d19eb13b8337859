//! Stores the policy and its previous versions.

use std::time::SystemTime;

use async_trait::async_trait;

use super::{DbConnection, SqlStore};
use crate::adapters::store::encoding::{signed, to_millis};
use crate::service::ports::{PolicyStore, StoreError, StoredPolicy};

/// Number of previous versions that are kept.
const KEPT: i64 = 100;

#[async_trait]
impl PolicyStore for SqlStore {
    async fn policy(&self) -> Result<Option<StoredPolicy>, StoreError> {
        let query = sqlx::query_as("SELECT version, body FROM policy ORDER BY version DESC LIMIT 1");
        let row: Option<(i64, String)> = self.read("read the policy", query.fetch_optional(self.readers())).await?;
        Ok(row.map(|(version, body)| StoredPolicy { version: version.unsigned_abs(), body }))
    }

    /// Compares and writes in one statement, so the second of two concurrent changes to the same version is rejected.
    async fn save_policy(&self, expected: u64, body: &str) -> Result<Option<u64>, StoreError> {
        self.mark().await?;
        let save = || {
            async move |writer: &mut DbConnection| {
                let version: Option<i64> = sqlx::query_scalar(
                    "INSERT INTO policy (version, body, saved_at) SELECT $1 + 1, $2, $3 \
                 WHERE (SELECT coalesce(max(version), 0) FROM policy) = $1 \
                 ON CONFLICT (version) DO NOTHING RETURNING version",
                )
                .bind(signed(expected))
                .bind(body)
                .bind(to_millis(SystemTime::now()))
                .fetch_optional(&mut *writer)
                .await?;
                if let Some(version) = version {
                    sqlx::query("DELETE FROM policy WHERE version <= $1").bind(version - KEPT).execute(writer).await?;
                }
                Ok(version.map(i64::unsigned_abs))
            }
        };
        self.durable("save the policy", save).await
    }
}

//! The ids of batches of records that are stored, so that a batch that is sent again after an outage is stored once.

use std::time::SystemTime;

use uuid::Uuid;

use super::DbConnection;
use crate::adapters::store::encoding::to_millis;

/// Notes the id of a batch that the transaction stores. Returns whether it is new.
pub(super) async fn is_new(writer: &mut DbConnection, batch: Uuid) -> Result<bool, sqlx::Error> {
    let insert = sqlx::query("INSERT INTO stored_batch (id, at) VALUES ($1, $2) ON CONFLICT DO NOTHING");
    let done = insert.bind(batch.as_bytes().to_vec()).bind(to_millis(SystemTime::now())).execute(writer).await?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn delete_before(writer: &mut DbConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query("DELETE FROM stored_batch WHERE at < $1").bind(to_millis(time)).execute(writer).await?.rows_affected())
}

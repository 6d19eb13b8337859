//! What callers said of tools and selections.

use std::time::SystemTime;

use sqlx::SqliteConnection;

use crate::adapters::store::encoding::to_millis;
use crate::service::ports::Feedback;

pub(super) async fn save(writer: &mut SqliteConnection, feedback: &Feedback) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO feedback (selection, server, tool, principal, at, verdict) VALUES (?, ?, ?, ?, ?, ?) \
         ON CONFLICT (selection, server, tool) DO UPDATE SET principal = excluded.principal, at = excluded.at, verdict = excluded.verdict",
    )
    .bind(&feedback.selection)
    .bind(feedback.tool.server.as_str())
    .bind(&*feedback.tool.name)
    .bind(&feedback.principal)
    .bind(to_millis(feedback.at))
    .bind(feedback.verdict.name())
    .execute(writer)
    .await
    .map(drop)
}

pub(super) async fn delete_before(writer: &mut SqliteConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    let done = sqlx::query("DELETE FROM feedback WHERE at < ?").bind(to_millis(time)).execute(writer).await?;
    Ok(done.rows_affected())
}

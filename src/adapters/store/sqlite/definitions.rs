//! The definitions of tools as they were seen first or approved last.

use std::sync::Arc;
use std::time::SystemTime;

use sqlx::{FromRow, QueryBuilder, Sqlite, SqliteConnection, SqlitePool};

use super::CHUNK;
use super::vectors::DAY;
use crate::adapters::store::encoding::{fingerprint_from_bytes, from_millis, to_millis};
use crate::domain::catalog::definition::LISTED;
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::StoredDefinition;

#[derive(FromRow)]
struct Row {
    server: String,
    tool: String,
    fingerprint: Vec<u8>,
    is_new: bool,
    first_seen: i64,
    noticed: Option<Vec<u8>>,
    noticed_at: Option<i64>,
    approved_at: Option<i64>,
}

pub(super) async fn all(readers: &SqlitePool) -> Result<Vec<StoredDefinition>, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT server, tool, fingerprint, is_new, first_seen, noticed, noticed_at, approved_at FROM definition ORDER BY server, tool",
    )
    .fetch_all(readers)
    .await?;
    rows.into_iter().map(Row::into_definition).collect()
}

pub(super) async fn text(readers: &SqlitePool, tool: &ToolId) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar("SELECT body FROM definition WHERE server = ? AND tool = ?")
        .bind(tool.server.as_str())
        .bind(&*tool.name)
        .fetch_optional(readers)
        .await
}

pub(super) async fn add(writer: &mut SqliteConnection, new: &[(StoredDefinition, String)]) -> Result<(), sqlx::Error> {
    for new in new.chunks(CHUNK) {
        let mut query =
            QueryBuilder::<Sqlite>::new("INSERT INTO definition (server, tool, fingerprint, body, is_new, first_seen, seen_at) ");
        query.push_values(new, |mut row, (definition, body)| {
            row.push_bind(definition.tool.server.as_str())
                .push_bind(&*definition.tool.name)
                .push_bind(&definition.fingerprint.as_bytes()[..])
                .push_bind(body)
                .push_bind(definition.is_new)
                .push_bind(to_millis(definition.first_seen))
                .push_bind(to_millis(SystemTime::now()));
        });
        query.push(" ON CONFLICT (server, tool) DO NOTHING");
        query.build().persistent(false).execute(&mut *writer).await?;
    }
    Ok(())
}

pub(super) async fn note(writer: &mut SqliteConnection, tool: &ToolId, other: &Fingerprint, at: SystemTime) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE definition SET noticed = ?, noticed_at = ? WHERE server = ? AND tool = ?")
        .bind(&other.as_bytes()[..])
        .bind(to_millis(at))
        .bind(tool.server.as_str())
        .bind(&*tool.name)
        .execute(writer)
        .await?;
    Ok(())
}

pub(super) async fn approve(
    writer: &mut SqliteConnection,
    tool: &ToolId,
    definition: &Fingerprint,
    body: &str,
    at: SystemTime,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO definition (server, tool, fingerprint, body, is_new, first_seen, approved_at, seen_at) VALUES (?1, ?2, ?3, ?4, 0, ?5, ?5, ?6) \
         ON CONFLICT (server, tool) DO UPDATE SET fingerprint = excluded.fingerprint, body = excluded.body, is_new = 0, \
         noticed = NULL, noticed_at = NULL, approved_at = excluded.approved_at, seen_at = excluded.seen_at",
    )
    .bind(tool.server.as_str())
    .bind(&*tool.name)
    .bind(&definition.as_bytes()[..])
    .bind(body)
    .bind(to_millis(at))
    .bind(to_millis(SystemTime::now()))
    .execute(writer)
    .await?;
    Ok(())
}

pub(super) async fn note_seen(
    writer: &mut SqliteConnection,
    server: &ServerName,
    tools: &[Arc<str>],
    at: SystemTime,
) -> Result<(), sqlx::Error> {
    let tools = serde_json::to_string(tools).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let at = to_millis(at);
    sqlx::query("UPDATE definition SET seen_at = ? WHERE seen_at < ? AND server = ? AND tool IN (SELECT value FROM json_each(?))")
        .bind(at)
        .bind(at - DAY)
        .bind(server.as_str())
        .bind(tools)
        .execute(writer)
        .await
        .map(drop)
}

/// Time alone takes no approval back, and makes no known server a fresh one.
pub(super) async fn delete_before(writer: &mut SqliteConnection, time: SystemTime) -> Result<Vec<ToolId>, sqlx::Error> {
    let gone: Vec<(String, String)> =
        sqlx::query_as("DELETE FROM definition WHERE seen_at < ? AND approved_at IS NULL AND instr(tool, ?) <> 1 RETURNING server, tool")
            .bind(to_millis(time))
            .bind(LISTED)
            .fetch_all(writer)
            .await?;
    Ok(gone.into_iter().map(|(server, tool)| ToolId::new(server.as_str(), tool)).collect())
}

impl Row {
    fn into_definition(self) -> Result<StoredDefinition, sqlx::Error> {
        let fingerprint =
            |bytes: &[u8]| fingerprint_from_bytes(bytes).ok_or_else(|| sqlx::Error::Decode("a hash of another length".into()));
        let noticed = self.noticed.as_deref().map(fingerprint).transpose()?;
        Ok(StoredDefinition {
            tool: ToolId::new(self.server.as_str(), self.tool),
            fingerprint: fingerprint(&self.fingerprint)?,
            is_new: self.is_new,
            first_seen: from_millis(self.first_seen),
            noticed: noticed.zip(self.noticed_at.map(from_millis)),
            approved: self.approved_at.map(from_millis),
        })
    }
}

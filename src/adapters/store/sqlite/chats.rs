//! The sets of the chats.

use std::time::SystemTime;

use sqlx::{SqliteConnection, SqlitePool};

use crate::adapters::store::encoding::to_millis;
use crate::domain::access::principal::PrincipalId;
use crate::domain::selection::chat::{ChatKey, ChatSet};
use crate::service::ports::StoredChat;

pub(super) async fn load(readers: &SqlitePool, key: &ChatKey) -> Result<Option<StoredChat>, sqlx::Error> {
    let row: Option<(String, i64)> = sqlx::query_as("SELECT tools, version FROM chat_set WHERE principal = ? AND chat = ?")
        .bind(key.principal.as_str())
        .bind(&key.chat)
        .fetch_optional(readers)
        .await?;
    let chat = |(tools, version): (String, i64)| {
        let set = serde_json::from_str(&tools).map_err(|error| sqlx::Error::Decode(error.into()))?;
        Ok(StoredChat { set, version: version.unsigned_abs() })
    };
    row.map(chat).transpose()
}

/// One statement decides, so that of two changes of one version the second finds itself too late.
pub(super) async fn save(writer: &mut SqliteConnection, key: &ChatKey, set: &ChatSet, expected: u64) -> Result<Option<u64>, sqlx::Error> {
    let tools = serde_json::to_string(set).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let version: Option<i64> = sqlx::query_scalar(
        "INSERT INTO chat_set (principal, chat, tools, updated_at, version) \
         SELECT ?1, ?2, ?3, ?4, ?5 + 1 \
         WHERE ?5 = coalesce((SELECT version FROM chat_set WHERE principal = ?1 AND chat = ?2), 0) \
         ON CONFLICT (principal, chat) DO UPDATE SET tools = excluded.tools, updated_at = excluded.updated_at, version = excluded.version \
         RETURNING version",
    )
    .bind(key.principal.as_str())
    .bind(&key.chat)
    .bind(tools)
    .bind(to_millis(SystemTime::now()))
    .bind(i64::try_from(expected).unwrap_or(i64::MAX))
    .fetch_optional(writer)
    .await?;
    Ok(version.map(i64::unsigned_abs))
}

pub(super) async fn remove_all(writer: &mut SqliteConnection, owner: &PrincipalId) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM chat_set WHERE principal = ?").bind(owner.as_str()).execute(writer).await.map(drop)
}

pub(super) async fn delete_before(writer: &mut SqliteConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    let done = sqlx::query("DELETE FROM chat_set WHERE updated_at < ?").bind(to_millis(time)).execute(writer).await?;
    Ok(done.rows_affected())
}

//! The sets of the chats.

use std::time::SystemTime;

use sqlx::{SqliteConnection, SqlitePool};

use crate::adapters::store::encoding::to_millis;
use crate::domain::chat::{ChatKey, ChatSet};

pub(super) async fn load(readers: &SqlitePool, key: &ChatKey) -> Result<Option<ChatSet>, sqlx::Error> {
    let tools: Option<String> = sqlx::query_scalar("SELECT tools FROM chat_set WHERE principal = ? AND chat = ?")
        .bind(key.principal.as_str())
        .bind(&key.chat)
        .fetch_optional(readers)
        .await?;
    tools.map(|tools| serde_json::from_str(&tools).map_err(|error| sqlx::Error::Decode(error.into()))).transpose()
}

pub(super) async fn save(writer: &SqlitePool, key: &ChatKey, set: &ChatSet) -> Result<(), sqlx::Error> {
    let tools = serde_json::to_string(set).map_err(|error| sqlx::Error::Encode(error.into()))?;
    sqlx::query(
        "INSERT INTO chat_set (principal, chat, tools, updated_at) VALUES (?, ?, ?, ?) \
         ON CONFLICT (principal, chat) DO UPDATE SET tools = excluded.tools, updated_at = excluded.updated_at",
    )
    .bind(key.principal.as_str())
    .bind(&key.chat)
    .bind(tools)
    .bind(to_millis(SystemTime::now()))
    .execute(writer)
    .await?;
    Ok(())
}

pub(super) async fn delete_before(writer: &mut SqliteConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    let done = sqlx::query("DELETE FROM chat_set WHERE updated_at < ?").bind(to_millis(time)).execute(writer).await?;
    Ok(done.rows_affected())
}

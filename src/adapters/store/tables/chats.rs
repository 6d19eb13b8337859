//! Stores the chats' sets of tools.

use std::time::SystemTime;

use async_trait::async_trait;

use super::{DbConnection, SqlStore, text};
use crate::adapters::store::encoding::{from_json, signed, to_json, to_millis};
use crate::domain::access::principal::PrincipalId;
use crate::domain::selection::chat::{ChatKey, ChatSet};
use crate::service::ports::{ChatStore, StoreError, StoredChat};

#[async_trait]
impl ChatStore for SqlStore {
    async fn chat(&self, key: &ChatKey) -> Result<Option<StoredChat>, StoreError> {
        let work = async {
            let row: Option<(String, i64)> = sqlx::query_as("SELECT tools, version FROM chat_set WHERE principal = $1 AND chat = $2")
                .bind(key.principal.as_str())
                .bind(text(&key.chat))
                .fetch_optional(self.readers())
                .await?;
            row.map(|(tools, version)| Ok(StoredChat { set: from_json(&tools)?, version: version.unsigned_abs() })).transpose()
        };
        self.read("read a chat", work).await
    }

    /// Compares and writes in one statement, so the second of two concurrent changes to the same version is rejected.
    async fn save_chat(&self, key: &ChatKey, set: &ChatSet, expected: u64) -> Result<Option<u64>, StoreError> {
        let save = || {
            async move |writer: &mut DbConnection| {
                let version: Option<i64> = sqlx::query_scalar(
                    "INSERT INTO chat_set (principal, chat, tools, updated_at, version) \
                 SELECT $1, $2, $3, $4, $5 + 1 \
                 WHERE $5 = coalesce((SELECT version FROM chat_set WHERE principal = $1 AND chat = $2), 0) \
                 ON CONFLICT (principal, chat) DO UPDATE SET tools = excluded.tools, updated_at = excluded.updated_at, \
                 version = excluded.version WHERE chat_set.version = $5 RETURNING version",
                )
                .bind(key.principal.as_str())
                .bind(text(&key.chat))
                .bind(to_json(set)?)
                .bind(to_millis(SystemTime::now()))
                .bind(signed(expected))
                .fetch_optional(writer)
                .await?;
                Ok(version.map(i64::unsigned_abs))
            }
        };
        self.write("save a chat", save).await
    }
}

pub(super) async fn remove_all(writer: &mut DbConnection, owner: &PrincipalId) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM chat_set WHERE principal = $1").bind(owner.as_str()).execute(writer).await.map(drop)
}

pub(super) async fn delete_before(writer: &mut DbConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query("DELETE FROM chat_set WHERE updated_at < $1").bind(to_millis(time)).execute(writer).await?.rows_affected())
}

//! Stores the chats' sets of tools.

use std::collections::HashMap;
use std::time::SystemTime;

use async_trait::async_trait;
use sqlx::QueryBuilder;

use super::{Db, DbConnection, SqlStore, text};
use crate::adapters::store::encoding::{from_json, from_millis, signed, to_json, to_millis};
use crate::domain::access::principal::PrincipalId;
use crate::domain::selection::chat::{ChatKey, ChatSet};
use crate::service::ports::{ChatStore, StoreError, StoredChat};

#[async_trait]
impl ChatStore for SqlStore {
    async fn chat(&self, key: &ChatKey) -> Result<Option<StoredChat>, StoreError> {
        let work = async {
            let row: Option<(String, i64, i64)> =
                sqlx::query_as("SELECT tools, version, updated_at FROM chat_set WHERE principal = $1 AND chat = $2")
                    .bind(key.principal.as_str())
                    .bind(text(&key.chat))
                    .fetch_optional(self.readers())
                    .await?;
            let stored = |(tools, version, updated_at): (String, i64, i64)| {
                let written_at = Some(from_millis(updated_at));
                Ok(StoredChat { set: from_json(&tools)?, version: version.unsigned_abs(), written_at })
            };
            row.map(stored).transpose()
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

    async fn save_chats(&self, chats: &[(ChatKey, StoredChat)]) -> Result<Vec<Option<u64>>, StoreError> {
        if chats.is_empty() {
            return Ok(Vec::new());
        }
        let save = || {
            async move |writer: &mut DbConnection| {
                let now = to_millis(SystemTime::now());
                let mut rows = Vec::with_capacity(chats.len());
                for (key, StoredChat { set, version, .. }) in chats {
                    rows.push((key, to_json(set)?, signed(*version)));
                }
                let mut query = QueryBuilder::<Db>::new("WITH given (principal, chat, tools, updated_at, version) AS (");
                query.push_values(rows, |mut row, (key, set, version)| {
                    row.push_bind(key.principal.as_str()).push_bind(text(&key.chat)).push_bind(set).push_bind(now).push_bind(version);
                });
                query.push(
                    ") INSERT INTO chat_set (principal, chat, tools, updated_at, version) \
                     SELECT principal, chat, tools, updated_at, version + 1 FROM given WHERE version = coalesce(( \
                     SELECT version FROM chat_set WHERE chat_set.principal = given.principal AND chat_set.chat = given.chat), 0) \
                     ON CONFLICT (principal, chat) DO UPDATE SET tools = excluded.tools, updated_at = excluded.updated_at, \
                     version = excluded.version WHERE chat_set.version = excluded.version - 1 RETURNING principal, chat, version",
                );
                let saved: Vec<(String, String, i64)> = query.build_query_as().persistent(false).fetch_all(writer).await?;
                let saved: HashMap<(String, String), u64> =
                    saved.into_iter().map(|(principal, chat, version)| ((principal, chat), version.unsigned_abs())).collect();
                let version = |key: &ChatKey| saved.get(&(key.principal.as_str().to_owned(), text(&key.chat).into_owned())).copied();
                Ok(chats.iter().map(|(key, _)| version(key)).collect())
            }
        };
        self.write("save chats", save).await
    }

    async fn remove_chats(&self, owner: &PrincipalId) -> Result<(), StoreError> {
        self.write("remove a caller's chats", || async move |writer: &mut DbConnection| remove_all(writer, owner).await).await?;
        self.empty_log().await;
        Ok(())
    }
}

pub(super) async fn remove_all(writer: &mut DbConnection, owner: &PrincipalId) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM chat_set WHERE principal = $1").bind(owner.as_str()).execute(writer).await.map(drop)
}

pub(super) async fn delete_before(writer: &mut DbConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query("DELETE FROM chat_set WHERE updated_at < $1").bind(to_millis(time)).execute(writer).await?.rows_affected())
}

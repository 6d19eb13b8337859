//! The API keys.

use std::time::SystemTime;

use sqlx::{FromRow, SqliteConnection, SqlitePool};

use crate::adapters::store::encoding::{fingerprint_from_bytes, from_millis, to_millis};
use crate::domain::access::api_key::{ApiKey, KeyId};

#[derive(FromRow)]
struct Row {
    id: String,
    name: String,
    hash: Vec<u8>,
    servers: Option<String>,
    toolsets: Option<String>,
    key_groups: String,
    trusted: bool,
    created_at: i64,
    expires_at: Option<i64>,
    revoked_at: Option<i64>,
    last_used_at: Option<i64>,
}

pub(super) async fn all(readers: &SqlitePool) -> Result<Vec<ApiKey>, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT id, name, hash, servers, toolsets, key_groups, trusted, created_at, expires_at, revoked_at, last_used_at \
         FROM api_key ORDER BY created_at, id",
    )
    .fetch_all(readers)
    .await?;
    rows.into_iter().map(Row::into_key).collect()
}

pub(super) async fn save(writer: &mut SqliteConnection, key: &ApiKey) -> Result<(), sqlx::Error> {
    let encode = |error: serde_json::Error| sqlx::Error::Encode(error.into());
    sqlx::query(
        "INSERT INTO api_key (id, name, hash, servers, toolsets, key_groups, trusted, created_at, expires_at, revoked_at, last_used_at) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT (id) DO UPDATE SET name = excluded.name, hash = excluded.hash, servers = excluded.servers, \
         toolsets = excluded.toolsets, key_groups = excluded.key_groups, trusted = excluded.trusted, created_at = excluded.created_at, \
         expires_at = excluded.expires_at, revoked_at = excluded.revoked_at, last_used_at = excluded.last_used_at",
    )
    .bind(key.id.as_str())
    .bind(&key.name)
    .bind(&key.hash.as_bytes()[..])
    .bind(key.servers.as_ref().map(serde_json::to_string).transpose().map_err(encode)?)
    .bind(key.toolsets.as_ref().map(serde_json::to_string).transpose().map_err(encode)?)
    .bind(serde_json::to_string(&key.groups).map_err(encode)?)
    .bind(key.trusted)
    .bind(to_millis(key.created_at))
    .bind(key.expires_at.map(to_millis))
    .bind(key.revoked_at.map(to_millis))
    .bind(key.last_used_at.map(to_millis))
    .execute(writer)
    .await?;
    Ok(())
}

pub(super) async fn touch(writer: &mut SqliteConnection, id: &KeyId, at: SystemTime) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE api_key SET last_used_at = ? WHERE id = ?").bind(to_millis(at)).bind(id.as_str()).execute(writer).await?;
    Ok(())
}

/// The names of keys that expired before then and were not revoked.
pub(super) async fn expired_before(writer: &mut SqliteConnection, time: SystemTime) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar("SELECT name FROM api_key WHERE revoked_at IS NULL AND expires_at < ?").bind(to_millis(time)).fetch_all(writer).await
}

/// Removes those that were revoked or expired before then.
pub(super) async fn delete_before(writer: &mut SqliteConnection, time: SystemTime) -> Result<Vec<KeyId>, sqlx::Error> {
    let gone: Vec<String> = sqlx::query_scalar("DELETE FROM api_key WHERE coalesce(revoked_at, expires_at) < ? RETURNING id")
        .bind(to_millis(time))
        .fetch_all(writer)
        .await?;
    Ok(gone.into_iter().map(KeyId::new).collect())
}

impl Row {
    fn into_key(self) -> Result<ApiKey, sqlx::Error> {
        let decode = |error: serde_json::Error| sqlx::Error::Decode(error.into());
        Ok(ApiKey {
            id: KeyId::new(self.id),
            name: self.name,
            hash: fingerprint_from_bytes(&self.hash).ok_or_else(|| sqlx::Error::Decode("a hash of another length".into()))?,
            servers: self.servers.map(|servers| serde_json::from_str(&servers)).transpose().map_err(decode)?,
            toolsets: self.toolsets.map(|toolsets| serde_json::from_str(&toolsets)).transpose().map_err(decode)?,
            groups: serde_json::from_str(&self.key_groups).map_err(decode)?,
            trusted: self.trusted,
            created_at: from_millis(self.created_at),
            expires_at: self.expires_at.map(from_millis),
            revoked_at: self.revoked_at.map(from_millis),
            last_used_at: self.last_used_at.map(from_millis),
        })
    }
}

//! Stores the API keys.

use std::time::SystemTime;

use async_trait::async_trait;
use sqlx::Row;

use super::{DbConnection, DbRow, SqlStore, chats, connections, learning, optional_time, secrets, sessions, switches, time};
use crate::adapters::store::encoding::{fingerprint_from_bytes, from_json, odd, to_json, to_millis};
use crate::domain::access::api_key::{ApiKey, KeyId, KeyRole};
use crate::domain::access::principal::PrincipalId;
use crate::service::ports::{KeyStore, StoreError};

#[async_trait]
impl KeyStore for SqlStore {
    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError> {
        let query = sqlx::query(
            "SELECT id, name, hash, servers, toolsets, key_groups, trusted, role, created_at, expires_at, revoked_at, last_used_at \
             FROM api_key ORDER BY created_at, id",
        );
        self.read_all("read the API keys", query.fetch_all(self.readers()), |row| read(&row)).await
    }

    async fn save_api_key(&self, key: &ApiKey) -> Result<bool, StoreError> {
        self.mark().await?;
        self.durable("save an API key", || async move |writer: &mut DbConnection| save(writer, key).await).await
    }

    async fn revoke_api_key(&self, key: &ApiKey) -> Result<(), StoreError> {
        let revoke = || {
            async move |writer: &mut DbConnection| {
                save(writer, key).await?;
                remove_belongings(writer, &key.name).await
            }
        };
        self.durable("revoke an API key", revoke).await?;
        self.empty_log().await;
        Ok(())
    }

    async fn touch_api_key(&self, id: &KeyId, at: SystemTime) -> Result<(), StoreError> {
        let query = || sqlx::query("UPDATE api_key SET last_used_at = $1 WHERE id = $2").bind(to_millis(at)).bind(id.as_str());
        self.write("record the use of an API key", || async move |writer: &mut DbConnection| query().execute(writer).await.map(drop)).await
    }

    async fn forget_keys_ended_before(&self, time: SystemTime) -> Result<Vec<KeyId>, StoreError> {
        let forget = || {
            async move |writer: &mut DbConnection| {
                let expired: Vec<String> = sqlx::query_scalar("SELECT name FROM api_key WHERE revoked_at IS NULL AND expires_at < $1")
                    .bind(to_millis(time))
                    .fetch_all(&mut *writer)
                    .await?;
                for name in expired {
                    remove_belongings(writer, &name).await?;
                }
                sqlx::query_scalar("DELETE FROM api_key WHERE coalesce(revoked_at, expires_at) < $1 RETURNING id")
                    .bind(to_millis(time))
                    .fetch_all(writer)
                    .await
            }
        };
        let gone: Vec<String> = self.write("remove ended keys", forget).await?;
        if !gone.is_empty() {
            self.empty_log().await;
        }
        Ok(gone.into_iter().map(KeyId::new).collect())
    }
}

/// Stores a key, unless another unrevoked key has its name, which another service may have added at the same moment. Returns whether it is
/// stored. A key that another service has revoked meanwhile stays revoked.
async fn save(writer: &mut DbConnection, key: &ApiKey) -> Result<bool, sqlx::Error> {
    const ADD: &str = "INSERT INTO api_key (id, name, hash, servers, toolsets, key_groups, trusted, role, created_at, expires_at, \
                       revoked_at, last_used_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING";
    const REPLACE: &str = "UPDATE api_key SET name = $2, hash = $3, servers = $4, toolsets = $5, key_groups = $6, trusted = $7, role = $8, \
                           created_at = $9, expires_at = $10, revoked_at = coalesce(revoked_at, $11), last_used_at = $12 WHERE id = $1";
    for statement in [ADD, REPLACE] {
        let query = sqlx::query(statement)
            .bind(key.id.as_str())
            .bind(&key.name)
            .bind(&key.hash.as_bytes()[..])
            .bind(key.servers.as_ref().map(to_json).transpose()?)
            .bind(key.toolsets.as_ref().map(to_json).transpose()?)
            .bind(to_json(&key.groups)?)
            .bind(key.trusted)
            .bind(key.role.map(KeyRole::name))
            .bind(to_millis(key.created_at))
            .bind(key.expires_at.map(to_millis))
            .bind(key.revoked_at.map(to_millis))
            .bind(key.last_used_at.map(to_millis));
        if query.execute(&mut *writer).await?.rows_affected() > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Deletes the secrets, sign-ins, sessions, switches and chats of a key, which are stored under its name.
async fn remove_belongings(writer: &mut DbConnection, name: &str) -> Result<(), sqlx::Error> {
    let owner = PrincipalId::of_key(name);
    secrets::remove_all(writer, &owner).await?;
    connections::remove_all(writer, &owner).await?;
    sessions::remove_all(writer, &owner).await?;
    learning::remove_all(writer, &owner).await?;
    switches::remove_all(writer, &owner).await?;
    chats::remove_all(writer, &owner).await
}

fn read(row: &DbRow) -> Result<ApiKey, sqlx::Error> {
    Ok(ApiKey {
        id: KeyId::new(row.try_get::<String, _>("id")?),
        name: row.try_get("name")?,
        hash: fingerprint_from_bytes(row.try_get("hash")?).ok_or_else(|| odd("a hash of another length"))?,
        servers: row.try_get::<Option<&str>, _>("servers")?.map(from_json).transpose()?,
        toolsets: row.try_get::<Option<&str>, _>("toolsets")?.map(from_json).transpose()?,
        groups: from_json(row.try_get("key_groups")?)?,
        trusted: row.try_get("trusted")?,
        role: row.try_get::<Option<&str>, _>("role")?.map(role).transpose()?,
        created_at: time(row, "created_at")?,
        expires_at: optional_time(row, "expires_at")?,
        revoked_at: optional_time(row, "revoked_at")?,
        last_used_at: optional_time(row, "last_used_at")?,
    })
}

fn role(name: &str) -> Result<KeyRole, sqlx::Error> {
    KeyRole::of_name(name).ok_or_else(|| odd("an unknown role of a key"))
}

//! Stores the MCP servers over which the API has a say.

use std::time::SystemTime;

use async_trait::async_trait;
use serde_json::Value;
use sqlx::Row;

use super::{DbConnection, DbRow, SqlStore, count, one_at_a_time, secrets};
use crate::adapters::store::encoding::{from_json, to_json, to_millis};
use crate::domain::access::secret::SecretPlace;
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::{Overwrites, ServerStore, StoreError, StoredServer};

#[async_trait]
impl ServerStore for SqlStore {
    async fn servers(&self) -> Result<Vec<StoredServer>, StoreError> {
        let place = SecretPlace::of_entry(&ServerName::new(""));
        // One statement, so that an entry and its secret values belong together.
        let query = sqlx::query(
            "SELECT managed_server.name AS of_server, entry, enabled, restarts, secret.owner, secret.server, secret.name, key_id, nonce, \
             sealed, updated_at FROM managed_server \
             LEFT JOIN secret ON secret.owner = $1 AND secret.server = managed_server.name AND secret.name = $2 \
             ORDER BY managed_server.name",
        )
        .bind(place.owner.as_str())
        .bind(place.name.as_str());
        self.read_all("read the servers", query.fetch_all(self.readers()), |row| read(&row)).await
    }

    async fn save_server(&self, server: &StoredServer, forgets_users: bool, overwrites: Overwrites<'_, Value>) -> Result<bool, StoreError> {
        self.mark().await?;
        let save = || {
            async move |writer: &mut DbConnection| {
                if !may_change(writer, &server.name, overwrites).await? {
                    return Ok(false);
                }
                sqlx::query(
                    "INSERT INTO managed_server (name, entry, enabled, restarts, changed_at) VALUES ($1, $2, $3, 0, $4) \
                     ON CONFLICT (name) DO UPDATE SET entry = excluded.entry, enabled = excluded.enabled, \
                     changed_at = excluded.changed_at",
                )
                .bind(server.name.as_str())
                .bind(server.entry.as_ref().map(to_json).transpose()?)
                .bind(server.enabled)
                .bind(to_millis(SystemTime::now()))
                .execute(&mut *writer)
                .await?;
                if forgets_users {
                    forget_users(writer, &server.name).await?;
                }
                match &server.sealed {
                    Some(sealed) => secrets::save(writer, sealed).await?,
                    None => drop(secrets::remove(writer, &SecretPlace::of_entry(&server.name)).await?),
                }
                Ok(true)
            }
        };
        self.durable("save a server", save).await
    }

    async fn switch_server(&self, name: &ServerName, enabled: bool) -> Result<(), StoreError> {
        self.mark().await?;
        let query = || {
            sqlx::query(
                "INSERT INTO managed_server (name, entry, enabled, restarts, changed_at) VALUES ($1, NULL, $2, 0, $3) \
                 ON CONFLICT (name) DO UPDATE SET enabled = excluded.enabled, changed_at = excluded.changed_at",
            )
            .bind(name.as_str())
            .bind(enabled)
            .bind(to_millis(SystemTime::now()))
        };
        self.durable("switch a server on or off", || async move |writer: &mut DbConnection| query().execute(writer).await.map(drop)).await
    }

    async fn restart_server(&self, name: &ServerName) -> Result<(), StoreError> {
        let query = || {
            sqlx::query(
                "INSERT INTO managed_server (name, entry, enabled, restarts, changed_at) VALUES ($1, NULL, $2, 1, $3) \
                 ON CONFLICT (name) DO UPDATE SET restarts = managed_server.restarts + 1, changed_at = excluded.changed_at",
            )
            .bind(name.as_str())
            .bind(true)
            .bind(to_millis(SystemTime::now()))
        };
        self.durable("record a restart", || async move |writer: &mut DbConnection| query().execute(writer).await.map(drop)).await
    }

    async fn remove_server(&self, name: &ServerName, overwrites: Overwrites<'_, Value>) -> Result<bool, StoreError> {
        let remove = || {
            async move |writer: &mut DbConnection| {
                if !may_change(writer, name, overwrites).await? {
                    return Ok(false);
                }
                let removed = sqlx::query("DELETE FROM managed_server WHERE name = $1").bind(name.as_str()).execute(&mut *writer).await?;
                secrets::remove(writer, &SecretPlace::of_entry(name)).await?;
                forget_users(writer, name).await?;
                Ok(removed.rows_affected() > 0)
            }
        };
        self.durable("remove a server", remove).await
    }

    async fn forget_users_of_server(&self, name: &ServerName) -> Result<u64, StoreError> {
        self.durable("remove what users have stored for a server", || {
            async move |writer: &mut DbConnection| forget_users(writer, name).await
        })
        .await
    }
}

/// Whether a change may overwrite the stored entry of a server. Until the end of the transaction, nobody else changes it.
async fn may_change(writer: &mut DbConnection, name: &ServerName, overwrites: Overwrites<'_, Value>) -> Result<bool, sqlx::Error> {
    one_at_a_time(writer, "servers").await?;
    let query = sqlx::query_scalar("SELECT entry FROM managed_server WHERE name = $1").bind(name.as_str());
    let stored: Option<Option<String>> = query.fetch_optional(writer).await?;
    Ok(overwrites.allow(stored.flatten().as_deref().map(from_json).transpose()?.as_ref()))
}

async fn forget_users(writer: &mut DbConnection, name: &ServerName) -> Result<u64, sqlx::Error> {
    let own = SecretPlace::of_entry(name);
    let secrets = sqlx::query("DELETE FROM secret WHERE server = $1 AND owner <> $2")
        .bind(name.as_str())
        .bind(own.owner.as_str())
        .execute(&mut *writer)
        .await?;
    let connections = sqlx::query("DELETE FROM connection WHERE server = $1").bind(name.as_str()).execute(&mut *writer).await?;
    sqlx::query("DELETE FROM pending_sign_in WHERE server = $1").bind(name.as_str()).execute(&mut *writer).await?;
    sqlx::query("DELETE FROM oauth_client WHERE server = $1").bind(name.as_str()).execute(writer).await?;
    Ok(secrets.rows_affected() + connections.rows_affected())
}

fn read(row: &DbRow) -> Result<StoredServer, sqlx::Error> {
    let has_secrets = row.try_get::<Option<&str>, _>("owner")?.is_some();
    Ok(StoredServer {
        name: ServerName::new(row.try_get::<String, _>("of_server")?),
        entry: row.try_get::<Option<&str>, _>("entry")?.map(from_json).transpose()?,
        enabled: row.try_get("enabled")?,
        restarts: count(row, "restarts")?,
        sealed: if has_secrets { Some(secrets::read(row)?) } else { None },
    })
}

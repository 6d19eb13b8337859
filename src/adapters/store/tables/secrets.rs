//! Stores the encrypted secrets of users.

use async_trait::async_trait;
use sqlx::{QueryBuilder, Row};

use super::{Db, DbConnection, DbRow, SqlStore, text, time};
use crate::adapters::store::encoding::{odd, signed, to_millis};
use crate::domain::access::principal::PrincipalId;
use crate::domain::access::secret::{SealedSecret, SecretName, SecretPlace};
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::{SecretStore, StoreError, StoredSecret};

/// Maximum number of owners per query.
const OWNERS: usize = 1_000;

#[async_trait]
impl SecretStore for SqlStore {
    async fn secrets(&self, owner: &PrincipalId) -> Result<Vec<SealedSecret>, StoreError> {
        let query = "SELECT owner, server, name, key_id, nonce, sealed, updated_at FROM secret WHERE owner = $1 ORDER BY server, name";
        let query = sqlx::query(query).bind(owner.as_str());
        self.read_all("read a caller's secrets", query.fetch_all(self.readers()), |row| read(&row)).await
    }

    async fn secrets_of(&self, owners: &[PrincipalId]) -> Result<Vec<StoredSecret>, StoreError> {
        let mut found = Vec::new();
        for some in owners.chunks(OWNERS) {
            let mut query = QueryBuilder::<Db>::new("SELECT owner, server, name, updated_at FROM secret WHERE owner IN (");
            let mut separated = query.separated(", ");
            for owner in some {
                separated.push_bind(owner.as_str());
            }
            query.push(") ORDER BY owner, server, name");
            // The statement depends on the number of owners.
            let rows = query.build().persistent(false).fetch_all(self.readers());
            found.extend(self.read_all("read which secrets callers have", rows, stored).await?);
        }
        Ok(found)
    }

    async fn stored_secrets(&self, offset: usize, limit: usize) -> Result<(Vec<StoredSecret>, u64), StoreError> {
        const ACTION: &str = "read the names of all secrets";
        // The secret values of servers' entries belong to nobody.
        let part = sqlx::query(
            "SELECT owner, server, name, updated_at FROM secret WHERE owner LIKE 'user:%' OR owner LIKE 'key:%' \
             ORDER BY owner, server, name LIMIT $1 OFFSET $2",
        );
        let part = part.bind(signed(limit)).bind(signed(offset));
        let count = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM secret WHERE owner LIKE 'user:%' OR owner LIKE 'key:%'");
        let part = self.read_all(ACTION, part.fetch_all(self.readers()), stored).await?;
        let total = self.read(ACTION, count.fetch_one(self.readers())).await?;
        Ok((part, u64::try_from(total).unwrap_or_default()))
    }

    async fn secrets_of_other_keys(&self, key_id: &str) -> Result<Vec<SealedSecret>, StoreError> {
        let query =
            "SELECT owner, server, name, key_id, nonce, sealed, updated_at FROM secret WHERE key_id <> $1 ORDER BY owner, server, name";
        let query = sqlx::query(query).bind(key_id);
        self.read_all("read the secrets of former keys", query.fetch_all(self.readers()), |row| read(&row)).await
    }

    async fn save_secret(&self, secret: &SealedSecret) -> Result<(), StoreError> {
        self.durable("save a secret", || async move |writer: &mut DbConnection| save(writer, secret).await).await
    }

    async fn reseal_secret(&self, former: &SealedSecret, new: &SealedSecret) -> Result<bool, StoreError> {
        let query = || {
            sqlx::query(
            "UPDATE secret SET key_id = $1, nonce = $2, sealed = $3 WHERE owner = $4 AND server = $5 AND name = $6 AND key_id = $7 AND nonce = $8",
        )
        .bind(&*new.key_id)
        .bind(&new.nonce[..])
        .bind(&new.sealed)
        .bind(former.place.owner.as_str())
        .bind(former.place.server.as_str())
        .bind(former.place.name.as_str())
        .bind(&*former.key_id)
        .bind(&former.nonce[..])
        };
        self.durable("encrypt a secret with another key", || {
            async move |writer: &mut DbConnection| Ok(query().execute(writer).await?.rows_affected() > 0)
        })
        .await
    }

    async fn remove_secret(&self, place: &SecretPlace) -> Result<bool, StoreError> {
        self.durable("remove a secret", || async move |writer: &mut DbConnection| remove(writer, place).await).await
    }

    async fn remove_secrets(&self, owner: &PrincipalId) -> Result<u64, StoreError> {
        let remove = || async move |writer: &mut DbConnection| remove_all(writer, owner).await;
        let removed = self.durable("remove a caller's secrets", remove).await?;
        self.empty_log().await;
        Ok(removed)
    }
}

pub(super) async fn save(writer: &mut DbConnection, secret: &SealedSecret) -> Result<(), sqlx::Error> {
    let SealedSecret { place, key_id, nonce, sealed, updated_at } = secret;
    sqlx::query(
        "INSERT INTO secret (owner, server, name, key_id, nonce, sealed, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (owner, server, name) DO UPDATE SET key_id = excluded.key_id, nonce = excluded.nonce, \
         sealed = excluded.sealed, updated_at = excluded.updated_at",
    )
    .bind(place.owner.as_str())
    .bind(place.server.as_str())
    .bind(place.name.as_str())
    .bind(&**key_id)
    .bind(&nonce[..])
    .bind(sealed)
    .bind(to_millis(*updated_at))
    .execute(writer)
    .await
    .map(drop)
}

/// Deletes a secret. Returns whether there was one.
pub(super) async fn remove(writer: &mut DbConnection, place: &SecretPlace) -> Result<bool, sqlx::Error> {
    let query = sqlx::query("DELETE FROM secret WHERE owner = $1 AND server = $2 AND name = $3")
        .bind(place.owner.as_str())
        .bind(text(place.server.as_str()))
        .bind(place.name.as_str());
    Ok(query.execute(writer).await?.rows_affected() > 0)
}

pub(super) async fn remove_all(writer: &mut DbConnection, owner: &PrincipalId) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query("DELETE FROM secret WHERE owner = $1").bind(owner.as_str()).execute(writer).await?.rows_affected())
}

#[expect(clippy::needless_pass_by_value, reason = "the form in which rows are read")]
fn stored(row: DbRow) -> Result<StoredSecret, sqlx::Error> {
    Ok(StoredSecret { place: place(&row)?, updated_at: time(&row, "updated_at")? })
}

fn place(row: &DbRow) -> Result<SecretPlace, sqlx::Error> {
    Ok(SecretPlace {
        owner: PrincipalId::new(row.try_get::<String, _>("owner")?),
        server: ServerName::new(row.try_get::<String, _>("server")?),
        name: SecretName::new(row.try_get("name")?).ok_or_else(|| odd("an invalid name of a secret"))?,
    })
}

pub(super) fn read(row: &DbRow) -> Result<SealedSecret, sqlx::Error> {
    Ok(SealedSecret {
        place: place(row)?,
        key_id: row.try_get::<&str, _>("key_id")?.into(),
        nonce: row.try_get::<&[u8], _>("nonce")?.try_into().map_err(|_| odd("a nonce of another length"))?,
        sealed: row.try_get("sealed")?,
        updated_at: time(row, "updated_at")?,
    })
}

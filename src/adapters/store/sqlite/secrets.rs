//! Sealed secrets of users.

use async_trait::async_trait;
use sqlx::{FromRow, SqliteConnection};

use super::SqliteStore;
use crate::adapters::store::encoding::{from_millis, odd, to_millis};
use crate::domain::access::principal::PrincipalId;
use crate::domain::access::secret::{SealedSecret, SecretName, SecretPlace};
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::{SecretStore, StoreError};

#[derive(FromRow)]
struct Row {
    owner: String,
    server: String,
    name: String,
    key_id: String,
    nonce: Vec<u8>,
    sealed: Vec<u8>,
    updated_at: i64,
}

#[async_trait]
impl SecretStore for SqliteStore {
    async fn secrets(&self, owner: &PrincipalId) -> Result<Vec<SealedSecret>, StoreError> {
        let query = "SELECT owner, server, name, key_id, nonce, sealed, updated_at FROM secret WHERE owner = ? ORDER BY server, name";
        let query = sqlx::query_as(query).bind(owner.as_str());
        self.read_all("read a caller's secrets", query.fetch_all(&self.readers), Row::into_secret).await
    }

    async fn secrets_of_other_keys(&self, key_id: &str) -> Result<Vec<SealedSecret>, StoreError> {
        let query =
            "SELECT owner, server, name, key_id, nonce, sealed, updated_at FROM secret WHERE key_id <> ? ORDER BY owner, server, name";
        let query = sqlx::query_as(query).bind(key_id);
        self.read_all("read the secrets of former keys", query.fetch_all(&self.readers), Row::into_secret).await
    }

    async fn save_secret(&self, secret: &SealedSecret) -> Result<(), StoreError> {
        let SealedSecret { place, key_id, nonce, sealed, updated_at } = secret;
        let query = sqlx::query(
            "INSERT INTO secret (owner, server, name, key_id, nonce, sealed, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?) \
             ON CONFLICT (owner, server, name) DO UPDATE SET key_id = excluded.key_id, nonce = excluded.nonce, \
             sealed = excluded.sealed, updated_at = excluded.updated_at",
        )
        .bind(place.owner.as_str())
        .bind(place.server.as_str())
        .bind(place.name.as_str())
        .bind(&**key_id)
        .bind(&nonce[..])
        .bind(sealed)
        .bind(to_millis(*updated_at));
        self.durable("save a secret", async |writer| query.execute(writer).await.map(drop)).await
    }

    async fn reseal_secret(&self, former: &SealedSecret, new: &SealedSecret) -> Result<bool, StoreError> {
        let query = sqlx::query(
            "UPDATE secret SET key_id = ?, nonce = ?, sealed = ? WHERE owner = ? AND server = ? AND name = ? AND key_id = ? AND nonce = ?",
        )
        .bind(&*new.key_id)
        .bind(&new.nonce[..])
        .bind(&new.sealed)
        .bind(former.place.owner.as_str())
        .bind(former.place.server.as_str())
        .bind(former.place.name.as_str())
        .bind(&*former.key_id)
        .bind(&former.nonce[..]);
        self.durable("seal a secret with another key", async |writer| Ok(query.execute(writer).await?.rows_affected() > 0)).await
    }

    async fn remove_secret(&self, place: &SecretPlace) -> Result<bool, StoreError> {
        let query = sqlx::query("DELETE FROM secret WHERE owner = ? AND server = ? AND name = ?")
            .bind(place.owner.as_str())
            .bind(place.server.as_str())
            .bind(place.name.as_str());
        self.durable("remove a secret", async |writer| Ok(query.execute(writer).await?.rows_affected() > 0)).await
    }

    async fn remove_secrets(&self, owner: &PrincipalId) -> Result<u64, StoreError> {
        self.durable("remove a caller's secrets", async |writer| remove_all(writer, owner).await).await
    }
}

pub(super) async fn remove_all(writer: &mut SqliteConnection, owner: &PrincipalId) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query("DELETE FROM secret WHERE owner = ?").bind(owner.as_str()).execute(writer).await?.rows_affected())
}

impl Row {
    fn into_secret(self) -> Result<SealedSecret, sqlx::Error> {
        let name = SecretName::new(&self.name).ok_or_else(|| odd("a name of a secret that is none"))?;
        Ok(SealedSecret {
            place: SecretPlace { owner: PrincipalId::new(self.owner), server: ServerName::new(self.server), name },
            key_id: self.key_id.into(),
            nonce: self.nonce.try_into().map_err(|_| odd("a nonce of another length"))?,
            sealed: self.sealed,
            updated_at: from_millis(self.updated_at),
        })
    }
}

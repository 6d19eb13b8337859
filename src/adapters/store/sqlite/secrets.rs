//! Secrets of users, sealed.

use sqlx::{FromRow, SqliteConnection, SqlitePool};

use crate::adapters::store::encoding::{from_millis, to_millis};
use crate::domain::access::principal::PrincipalId;
use crate::domain::access::secret::{SealedSecret, SecretName, SecretPlace};
use crate::domain::catalog::tool::ServerName;

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

pub(super) async fn of(readers: &SqlitePool, owner: &PrincipalId) -> Result<Vec<SealedSecret>, sqlx::Error> {
    let rows: Vec<Row> =
        sqlx::query_as("SELECT owner, server, name, key_id, nonce, sealed, updated_at FROM secret WHERE owner = ? ORDER BY server, name")
            .bind(owner.as_str())
            .fetch_all(readers)
            .await?;
    rows.into_iter().map(Row::into_secret).collect()
}

pub(super) async fn of_other_keys(readers: &SqlitePool, key_id: &str) -> Result<Vec<SealedSecret>, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT owner, server, name, key_id, nonce, sealed, updated_at FROM secret WHERE key_id <> ? ORDER BY owner, server, name",
    )
    .bind(key_id)
    .fetch_all(readers)
    .await?;
    rows.into_iter().map(Row::into_secret).collect()
}

pub(super) async fn save(writer: &mut SqliteConnection, secret: &SealedSecret) -> Result<(), sqlx::Error> {
    let SealedSecret { place, key_id, nonce, sealed, updated_at } = secret;
    sqlx::query(
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
    .bind(to_millis(*updated_at))
    .execute(writer)
    .await?;
    Ok(())
}

pub(super) async fn reseal(writer: &mut SqliteConnection, former: &SealedSecret, new: &SealedSecret) -> Result<bool, sqlx::Error> {
    let place = &former.place;
    let done = sqlx::query(
        "UPDATE secret SET key_id = ?, nonce = ?, sealed = ? WHERE owner = ? AND server = ? AND name = ? AND key_id = ? AND nonce = ?",
    )
    .bind(&*new.key_id)
    .bind(&new.nonce[..])
    .bind(&new.sealed)
    .bind(place.owner.as_str())
    .bind(place.server.as_str())
    .bind(place.name.as_str())
    .bind(&*former.key_id)
    .bind(&former.nonce[..])
    .execute(writer)
    .await?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn remove(writer: &mut SqliteConnection, place: &SecretPlace) -> Result<bool, sqlx::Error> {
    let done = sqlx::query("DELETE FROM secret WHERE owner = ? AND server = ? AND name = ?")
        .bind(place.owner.as_str())
        .bind(place.server.as_str())
        .bind(place.name.as_str())
        .execute(writer)
        .await?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn remove_all(writer: &mut SqliteConnection, owner: &PrincipalId) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query("DELETE FROM secret WHERE owner = ?").bind(owner.as_str()).execute(writer).await?.rows_affected())
}

impl Row {
    fn into_secret(self) -> Result<SealedSecret, sqlx::Error> {
        let odd = |what: &str| sqlx::Error::Decode(what.into());
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

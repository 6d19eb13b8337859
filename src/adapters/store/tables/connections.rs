//! Stores users' sign-ins to MCP servers.

use std::time::SystemTime;

use async_trait::async_trait;
use sqlx::query::Query;
use sqlx::{Database, Row};

use super::{Db, DbConnection, DbRow, SqlStore, optional_time, secrets, time};
use crate::adapters::store::encoding::{from_json, odd, to_json, to_millis};
use crate::domain::access::principal::PrincipalId;
use crate::domain::access::secret::SealedSecret;
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::{ConnectVisit, ConnectionStore, PendingSignIn, StoreError, StoredConnection};

const LINK: &str = "link";
const SESSION: &str = "session";

#[async_trait]
impl ConnectionStore for SqlStore {
    async fn connections(&self, owner: &PrincipalId) -> Result<Vec<StoredConnection>, StoreError> {
        let query = sqlx::query("SELECT * FROM connection WHERE owner = $1 ORDER BY server").bind(owner.as_str());
        self.read_all("read a caller's sign-ins", query.fetch_all(self.readers()), |row| read(&row)).await
    }

    async fn connection(&self, owner: &PrincipalId, server: &ServerName) -> Result<Option<StoredConnection>, StoreError> {
        let query = sqlx::query("SELECT * FROM connection WHERE owner = $1 AND server = $2").bind(owner.as_str()).bind(server.as_str());
        self.read("read a sign-in", async { query.fetch_optional(self.readers()).await?.map(|row| read(&row)).transpose() }).await
    }

    async fn connections_to(&self, server: &ServerName) -> Result<Vec<StoredConnection>, StoreError> {
        let query = sqlx::query("SELECT * FROM connection WHERE server = $1 ORDER BY owner").bind(server.as_str());
        self.read_all("read the sign-ins to a server", query.fetch_all(self.readers()), |row| read(&row)).await
    }

    async fn connections_of_other_keys(&self, key_id: &str) -> Result<Vec<StoredConnection>, StoreError> {
        let query = sqlx::query("SELECT * FROM connection WHERE key_id <> $1 ORDER BY owner, server").bind(key_id);
        self.read_all("read the sign-ins of former keys", query.fetch_all(self.readers()), |row| read(&row)).await
    }

    async fn save_connection(&self, connection: &StoredConnection) -> Result<(), StoreError> {
        let query = || {
            sqlx::query(
                "INSERT INTO connection (owner, server, sign_in, version, ended, issuer, scopes, wanted, expires_at, connected_at, name, \
             key_id, nonce, sealed, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) \
             ON CONFLICT (owner, server) DO UPDATE SET sign_in = excluded.sign_in, version = excluded.version, ended = excluded.ended, \
             issuer = excluded.issuer, scopes = excluded.scopes, wanted = excluded.wanted, expires_at = excluded.expires_at, \
             connected_at = excluded.connected_at, claimed_until = NULL, name = excluded.name, key_id = excluded.key_id, \
             nonce = excluded.nonce, sealed = excluded.sealed, updated_at = excluded.updated_at",
            )
        };
        let StoredConnection { sealed, sign_in, version, ended, issuer, scopes, wanted, expires_at, connected_at } = connection;
        let save = || {
            async move |writer: &mut DbConnection| {
                query()
                    .bind(sealed.place.owner.as_str())
                    .bind(sealed.place.server.as_str())
                    .bind(sign_in)
                    .bind(number(*version)?)
                    .bind(ended)
                    .bind(issuer)
                    .bind(to_json(scopes)?)
                    .bind(to_json(wanted)?)
                    .bind(expires_at.map(to_millis))
                    .bind(to_millis(*connected_at))
                    .bind(sealed.place.name.as_str())
                    .bind(&*sealed.key_id)
                    .bind(&sealed.nonce[..])
                    .bind(&sealed.sealed)
                    .bind(to_millis(sealed.updated_at))
                    .execute(writer)
                    .await
                    .map(drop)
            }
        };
        self.durable("save a sign-in", save).await
    }

    async fn change_connection(&self, former: u64, new: &StoredConnection) -> Result<bool, StoreError> {
        let statement = "UPDATE connection SET version = $5, ended = $6, scopes = $7, expires_at = $8, claimed_until = NULL, key_id = $9, \
             nonce = $10, sealed = $11, updated_at = $12 WHERE owner = $1 AND server = $2 AND sign_in = $3 AND version = $4";
        let StoredConnection { sealed, version, ended, scopes, expires_at, .. } = new;
        let change = || {
            async move |writer: &mut DbConnection| {
                let query = at_version(statement, new, former)?
                    .bind(number(*version)?)
                    .bind(ended)
                    .bind(to_json(scopes)?)
                    .bind(expires_at.map(to_millis))
                    .bind(&*sealed.key_id)
                    .bind(&sealed.nonce[..])
                    .bind(&sealed.sealed)
                    .bind(to_millis(sealed.updated_at));
                Ok(query.execute(writer).await?.rows_affected() > 0)
            }
        };
        self.durable("change a sign-in", change).await
    }

    async fn reseal_connection(&self, connection: &StoredConnection, new: &SealedSecret) -> Result<(), StoreError> {
        let statement = "UPDATE connection SET key_id = $5, nonce = $6, sealed = $7 \
             WHERE owner = $1 AND server = $2 AND sign_in = $3 AND version = $4";
        let reseal = || {
            async move |writer: &mut DbConnection| {
                let query = at_version(statement, connection, connection.version)?;
                query.bind(&*new.key_id).bind(&new.nonce[..]).bind(&new.sealed).execute(writer).await.map(drop)
            }
        };
        self.durable("encrypt a sign-in with another key", reseal).await
    }

    async fn want_scopes(&self, connection: &StoredConnection, wanted: &[String]) -> Result<(), StoreError> {
        let statement = "UPDATE connection SET wanted = $4 WHERE owner = $1 AND server = $2 AND sign_in = $3";
        let want = || {
            async move |writer: &mut DbConnection| of_sign_in(statement, connection).bind(to_json(wanted)?).execute(writer).await.map(drop)
        };
        self.durable("remember the scopes that a call lacked", want).await
    }

    async fn claim_refresh(&self, connection: &StoredConnection, now: SystemTime, until: SystemTime) -> Result<bool, StoreError> {
        let statement = "UPDATE connection SET claimed_until = $5 WHERE owner = $1 AND server = $2 AND sign_in = $3 AND version = $4 \
             AND ended IS NULL AND (claimed_until IS NULL OR claimed_until <= $6)";
        let claim = || {
            async move |writer: &mut DbConnection| {
                let query = at_version(statement, connection, connection.version)?.bind(to_millis(until)).bind(to_millis(now));
                Ok(query.execute(writer).await?.rows_affected() > 0)
            }
        };
        self.write("claim the refresh of a sign-in", claim).await
    }

    async fn release_refresh(&self, connection: &StoredConnection) -> Result<(), StoreError> {
        let statement = "UPDATE connection SET claimed_until = NULL WHERE owner = $1 AND server = $2 AND sign_in = $3 AND version = $4";
        let release = || {
            async move |writer: &mut DbConnection| at_version(statement, connection, connection.version)?.execute(writer).await.map(drop)
        };
        self.write("release the refresh of a sign-in", release).await
    }

    async fn remove_connection(&self, connection: &StoredConnection) -> Result<bool, StoreError> {
        let query = || of_sign_in("DELETE FROM connection WHERE owner = $1 AND server = $2 AND sign_in = $3", connection);
        self.durable("remove a sign-in", || async move |writer: &mut DbConnection| Ok(query().execute(writer).await?.rows_affected() > 0))
            .await
    }

    async fn save_sign_in(&self, pending: &PendingSignIn) -> Result<(), StoreError> {
        let PendingSignIn { state, session, sealed, expires_at } = pending;
        let query = || {
            sqlx::query(
                "INSERT INTO pending_sign_in (state, session, owner, server, name, key_id, nonce, sealed, updated_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            )
            .bind(state)
            .bind(session)
            .bind(sealed.place.owner.as_str())
            .bind(sealed.place.server.as_str())
            .bind(sealed.place.name.as_str())
            .bind(&*sealed.key_id)
            .bind(&sealed.nonce[..])
            .bind(&sealed.sealed)
            .bind(to_millis(sealed.updated_at))
            .bind(to_millis(*expires_at))
        };
        self.write("save a pending sign-in", || async move |writer: &mut DbConnection| query().execute(writer).await.map(drop)).await
    }

    async fn take_sign_in(&self, state: &str, session: &str, now: SystemTime) -> Result<Option<PendingSignIn>, StoreError> {
        let query = || {
            sqlx::query("DELETE FROM pending_sign_in WHERE state = $1 AND session = $2 AND expires_at > $3 RETURNING *")
                .bind(state)
                .bind(session)
                .bind(to_millis(now))
        };
        let take = || {
            async move |writer: &mut DbConnection| {
                let row = query().fetch_optional(writer).await?;
                row.map(|row| {
                    Ok(PendingSignIn {
                        state: row.try_get("state")?,
                        session: row.try_get("session")?,
                        sealed: secrets::read(&row)?,
                        expires_at: time(&row, "expires_at")?,
                    })
                })
                .transpose()
            }
        };
        // Flushed, so that no crash lets the same state be used twice.
        self.durable("take a pending sign-in", take).await
    }

    async fn oauth_client(&self, server: &ServerName, issuer: &str) -> Result<Option<SealedSecret>, StoreError> {
        let query = sqlx::query("SELECT * FROM oauth_client WHERE server = $1 AND issuer = $2").bind(server.as_str()).bind(issuer);
        self.read("read a client registration", async {
            query.fetch_optional(self.readers()).await?.map(|row| secrets::read(&row)).transpose()
        })
        .await
    }

    async fn save_oauth_client(&self, issuer: &str, client: &SealedSecret) -> Result<(), StoreError> {
        let query = || {
            sqlx::query(
            "INSERT INTO oauth_client (server, issuer, owner, name, key_id, nonce, sealed, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
             ON CONFLICT (server, issuer) DO UPDATE SET owner = excluded.owner, name = excluded.name, key_id = excluded.key_id, \
             nonce = excluded.nonce, sealed = excluded.sealed, updated_at = excluded.updated_at",
        )
        .bind(client.place.server.as_str())
        .bind(issuer)
        .bind(client.place.owner.as_str())
        .bind(client.place.name.as_str())
        .bind(&*client.key_id)
        .bind(&client.nonce[..])
        .bind(&client.sealed)
        .bind(to_millis(client.updated_at))
        };
        self.durable("save a client registration", || async move |writer: &mut DbConnection| query().execute(writer).await.map(drop)).await
    }

    async fn remove_oauth_client(&self, server: &ServerName, issuer: &str) -> Result<(), StoreError> {
        let query = || sqlx::query("DELETE FROM oauth_client WHERE server = $1 AND issuer = $2").bind(server.as_str()).bind(issuer);
        self.write("remove a client registration", || async move |writer: &mut DbConnection| query().execute(writer).await.map(drop)).await
    }

    async fn save_connect_link(&self, link: &ConnectVisit) -> Result<(), StoreError> {
        self.write("save a link", || async move |writer: &mut DbConnection| save_visit(writer, LINK, link).await).await
    }

    async fn connect_link(&self, id: &str, now: SystemTime) -> Result<Option<ConnectVisit>, StoreError> {
        self.visit(LINK, id, now).await
    }

    async fn open_connect_session(
        &self,
        link: &str,
        session: &str,
        expires_at: SystemTime,
        now: SystemTime,
    ) -> Result<Option<ConnectVisit>, StoreError> {
        let query = || {
            sqlx::query("DELETE FROM connect_visit WHERE kind = 'link' AND id = $1 AND expires_at > $2 RETURNING *")
                .bind(link)
                .bind(to_millis(now))
        };
        let open = || {
            async move |writer: &mut DbConnection| {
                let Some(row) = query().fetch_optional(&mut *writer).await? else { return Ok(None) };
                let link = read_visit(&row)?;
                save_visit(writer, SESSION, &ConnectVisit { id: session.to_owned(), expires_at, ..link.clone() }).await?;
                Ok(Some(link))
            }
        };
        self.durable("open a session by a link", open).await
    }

    async fn connect_session(&self, session: &str, now: SystemTime) -> Result<Option<ConnectVisit>, StoreError> {
        self.visit(SESSION, session, now).await
    }

    async fn end_connect_visits(&self, owner: &PrincipalId) -> Result<(), StoreError> {
        self.durable("end a caller's links and sessions", || async move |writer: &mut DbConnection| end_visits(writer, owner).await).await
    }

    async fn forget_connect_visits_before(&self, now: SystemTime) -> Result<u64, StoreError> {
        let now = to_millis(now);
        let forget = || {
            async move |writer: &mut DbConnection| {
                let visits = sqlx::query("DELETE FROM connect_visit WHERE expires_at <= $1").bind(now).execute(&mut *writer).await?;
                let pending = sqlx::query("DELETE FROM pending_sign_in WHERE expires_at <= $1").bind(now).execute(writer).await?;
                Ok(visits.rows_affected() + pending.rows_affected())
            }
        };
        self.write("remove expired links and sessions", forget).await
    }
}

impl SqlStore {
    async fn visit(&self, kind: &'static str, id: &str, now: SystemTime) -> Result<Option<ConnectVisit>, StoreError> {
        let query = sqlx::query("SELECT * FROM connect_visit WHERE kind = $1 AND id = $2 AND expires_at > $3")
            .bind(kind)
            .bind(id)
            .bind(to_millis(now));
        self.read("read a link or session", async { query.fetch_optional(self.readers()).await?.map(|row| read_visit(&row)).transpose() })
            .await
    }
}

/// A statement about one sign-in, whose parameters `$1` to `$3` are its owner, its server and its id.
fn of_sign_in<'q>(statement: &'static str, connection: &'q StoredConnection) -> Query<'q, Db, <Db as Database>::Arguments> {
    let StoredConnection { sealed: SealedSecret { place, .. }, sign_in, .. } = connection;
    sqlx::query(statement).bind(place.owner.as_str()).bind(place.server.as_str()).bind(sign_in)
}

/// Like [`of_sign_in`], for one version of the sign-in, which is the parameter `$4`.
fn at_version<'q>(
    statement: &'static str,
    connection: &'q StoredConnection,
    version: u64,
) -> Result<Query<'q, Db, <Db as Database>::Arguments>, sqlx::Error> {
    Ok(of_sign_in(statement, connection).bind(number(version)?))
}

/// Deletes everything of an owner, without revoking it.
pub(super) async fn remove_all(writer: &mut DbConnection, owner: &PrincipalId) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM connection WHERE owner = $1").bind(owner.as_str()).execute(&mut *writer).await?;
    end_visits(writer, owner).await
}

async fn end_visits(writer: &mut DbConnection, owner: &PrincipalId) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM connect_visit WHERE owner = $1").bind(owner.as_str()).execute(&mut *writer).await?;
    sqlx::query("DELETE FROM pending_sign_in WHERE owner = $1").bind(owner.as_str()).execute(writer).await.map(drop)
}

async fn save_visit(writer: &mut DbConnection, kind: &str, visit: &ConnectVisit) -> Result<(), sqlx::Error> {
    let ConnectVisit { id, owner, person, servers, caller, server, expires_at } = visit;
    let servers: Vec<&str> = servers.iter().map(ServerName::as_str).collect();
    let query =
        "INSERT INTO connect_visit (kind, id, owner, person, servers, caller, server, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    sqlx::query(query)
        .bind(kind)
        .bind(id)
        .bind(owner.as_str())
        .bind(person)
        .bind(to_json(&servers)?)
        .bind(to_json(caller)?)
        .bind(server.as_ref().map(ServerName::as_str))
        .bind(to_millis(*expires_at))
        .execute(writer)
        .await
        .map(drop)
}

fn read_visit(row: &DbRow) -> Result<ConnectVisit, sqlx::Error> {
    let servers: Vec<String> = from_json(row.try_get("servers")?)?;
    Ok(ConnectVisit {
        id: row.try_get("id")?,
        owner: PrincipalId::new(row.try_get::<String, _>("owner")?),
        person: row.try_get("person")?,
        servers: servers.into_iter().map(ServerName::new).collect(),
        // A link from before an upgrade has none.
        caller: row.try_get::<Option<&str>, _>("caller")?.map(from_json).transpose()?.unwrap_or_default(),
        server: row.try_get::<Option<String>, _>("server")?.map(ServerName::new),
        expires_at: time(row, "expires_at")?,
    })
}

fn read(row: &DbRow) -> Result<StoredConnection, sqlx::Error> {
    Ok(StoredConnection {
        sealed: secrets::read(row)?,
        sign_in: row.try_get("sign_in")?,
        version: row.try_get::<i64, _>("version")?.try_into().map_err(|_| odd("a negative version"))?,
        ended: row.try_get("ended")?,
        issuer: row.try_get("issuer")?,
        scopes: from_json(row.try_get("scopes")?)?,
        wanted: from_json(row.try_get("wanted")?)?,
        expires_at: optional_time(row, "expires_at")?,
        connected_at: time(row, "connected_at")?,
    })
}

fn number(version: u64) -> Result<i64, sqlx::Error> {
    version.try_into().map_err(|_| odd("a version that is too large"))
}

//! Stores the address sessions.

use std::time::SystemTime;

use async_trait::async_trait;
use sqlx::Row;

use super::{DbConnection, DbRow, SqlStore, one_at_a_time, time};
use crate::adapters::store::encoding::{from_json, odd, signed, to_json, to_millis};
use crate::domain::access::principal::PrincipalId;
use crate::domain::toolsets::loading::{Group, GroupKind};
use crate::domain::toolsets::mode::DefaultMode;
use crate::domain::toolsets::session::{Session, SessionContents, SessionId};
use crate::service::ports::{CLOCK_SKEW, SessionCaps, SessionSaved, SessionStore, StoreError};

#[async_trait]
impl SessionStore for SqlStore {
    async fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError> {
        let work = async {
            let query = sqlx::query("SELECT id, principal, contents, mode, created_at, expires_at FROM session WHERE id = $1");
            query.bind(id.as_str()).fetch_optional(self.readers()).await?.as_ref().map(read).transpose()
        };
        self.read("read a session", work).await
    }

    async fn sessions(&self, owner: Option<&PrincipalId>, now: SystemTime) -> Result<Vec<Session>, StoreError> {
        let query = sqlx::query(
            "SELECT id, principal, contents, mode, created_at, expires_at FROM session \
             WHERE principal = coalesce($1, principal) AND expires_at > $2 ORDER BY created_at, id",
        )
        .bind(owner.map(PrincipalId::as_str))
        .bind(to_millis(now));
        self.read_all("read sessions", query.fetch_all(self.readers()), |row| read(&row)).await
    }

    async fn save_session(&self, session: &Session, caps: SessionCaps) -> Result<SessionSaved, StoreError> {
        self.durable("save a session", || async move |writer: &mut DbConnection| insert(writer, session, caps).await).await
    }

    async fn save_session_contents(&self, id: &SessionId, contents: &SessionContents) -> Result<(), StoreError> {
        let save = || {
            async move |writer: &mut DbConnection| {
                let query = sqlx::query("UPDATE session SET contents = $1 WHERE id = $2");
                query.bind(to_json(contents)?).bind(id.as_str()).execute(writer).await.map(drop)
            }
        };
        self.durable("save a session", save).await
    }

    async fn touch_session(&self, id: &SessionId, at: SystemTime) -> Result<(), StoreError> {
        let query = || sqlx::query("UPDATE session SET used_at = $1 WHERE id = $2").bind(to_millis(at)).bind(id.as_str());
        self.write("record the use of a session", || async move |writer: &mut DbConnection| query().execute(writer).await.map(drop)).await
    }

    async fn session_groups(&self, id: &SessionId) -> Result<Vec<Group>, StoreError> {
        let query = sqlx::query_as("SELECT kind, name FROM session_group WHERE session = $1 ORDER BY id").bind(id.as_str());
        let group = |(kind, name): (String, String)| {
            Ok(Group::new(GroupKind::of_name(&kind).ok_or_else(|| odd("an unknown kind of group"))?, &name))
        };
        self.read_all("read the groups of a session", query.fetch_all(self.readers()), group).await
    }

    /// Stores one row per group, so that concurrent processes do not overwrite each other. Stores nothing for an ended session.
    async fn load_session_groups(&self, id: &SessionId, groups: &[Group]) -> Result<(), StoreError> {
        let load = || {
            async move |writer: &mut DbConnection| {
                // Changes nothing, but keeps the session from being deleted by somebody else in between.
                let keep = sqlx::query("UPDATE session SET used_at = used_at WHERE id = $1").bind(id.as_str());
                if keep.execute(&mut *writer).await?.rows_affected() == 0 {
                    return Ok(());
                }
                for group in groups {
                    sqlx::query(
                        "INSERT INTO session_group (session, kind, name) VALUES ($1, $2, $3) ON CONFLICT (session, kind, name) DO NOTHING",
                    )
                    .bind(id.as_str())
                    .bind(group.kind().name())
                    .bind(group.name())
                    .execute(&mut *writer)
                    .await?;
                }
                Ok(())
            }
        };
        self.durable("save the groups of a session", load).await
    }

    async fn unload_session_group(&self, id: &SessionId, group: &Group) -> Result<bool, StoreError> {
        let query = || {
            sqlx::query("DELETE FROM session_group WHERE session = $1 AND kind = $2 AND name = $3")
                .bind(id.as_str())
                .bind(group.kind().name())
                .bind(group.name())
        };
        self.durable("unload from a session", || {
            async move |writer: &mut DbConnection| Ok(query().execute(writer).await?.rows_affected() > 0)
        })
        .await
    }

    async fn remove_session(&self, id: &SessionId) -> Result<bool, StoreError> {
        let query = || sqlx::query("DELETE FROM session WHERE id = $1").bind(id.as_str());
        self.durable("remove a session", || async move |writer: &mut DbConnection| Ok(query().execute(writer).await?.rows_affected() > 0))
            .await
    }

    async fn forget_sessions_before(&self, time: SystemTime) -> Result<u64, StoreError> {
        self.write("remove expired sessions", || async move |writer: &mut DbConnection| delete_before(writer, time).await).await
    }
}

/// Checks the limits and inserts in one transaction, so that two concurrent sessions can't exceed a limit.
async fn insert(writer: &mut DbConnection, session: &Session, caps: SessionCaps) -> Result<SessionSaved, sqlx::Error> {
    one_at_a_time(writer, "sessions").await?;
    // The clock of another service may be behind, so what has just expired here may be in use there.
    delete_before(writer, session.created_at.checked_sub(CLOCK_SKEW).unwrap_or(SystemTime::UNIX_EPOCH)).await?;
    let (own, all): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM session WHERE principal = $1 AND expires_at > $2), \
             (SELECT count(*) FROM session WHERE expires_at > $2)",
    )
    .bind(session.owner.as_str())
    .bind(to_millis(session.created_at))
    .fetch_one(&mut *writer)
    .await?;
    let count = |value: i64| usize::try_from(value).unwrap_or_default();
    let over = (count(own) + 1).saturating_sub(caps.of_one);
    if count(all) + 1 > caps.of_all + over {
        return Ok(SessionSaved::Full);
    }
    let gone: Vec<String> = sqlx::query_scalar(
        "DELETE FROM session WHERE id IN (SELECT id FROM session WHERE principal = $1 AND expires_at > $2 \
         ORDER BY used_at, created_at, id LIMIT $3) RETURNING id",
    )
    .bind(session.owner.as_str())
    .bind(to_millis(session.created_at))
    .bind(signed(over))
    .fetch_all(&mut *writer)
    .await?;
    sqlx::query("INSERT INTO session (id, principal, contents, mode, created_at, expires_at, used_at) VALUES ($1, $2, $3, $4, $5, $6, $7)")
        .bind(session.id.as_str())
        .bind(session.owner.as_str())
        .bind(to_json(&session.contents)?)
        .bind(session.mode.name())
        .bind(to_millis(session.created_at))
        .bind(to_millis(session.expires_at))
        .bind(to_millis(session.created_at))
        .execute(writer)
        .await?;
    Ok(SessionSaved::Saved { gone: gone.iter().filter_map(|id| SessionId::read(id)).collect() })
}

async fn delete_before(writer: &mut DbConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query("DELETE FROM session WHERE expires_at <= $1").bind(to_millis(time)).execute(writer).await?.rows_affected())
}

pub(super) async fn remove_all(writer: &mut DbConnection, owner: &PrincipalId) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM session WHERE principal = $1").bind(owner.as_str()).execute(writer).await.map(drop)
}

fn read(row: &DbRow) -> Result<Session, sqlx::Error> {
    Ok(Session {
        id: SessionId::read(row.try_get("id")?).ok_or_else(|| odd("an invalid session id"))?,
        owner: PrincipalId::new(row.try_get::<String, _>("principal")?),
        contents: from_json(row.try_get("contents")?)?,
        mode: DefaultMode::of_name(row.try_get("mode")?).ok_or_else(|| odd("an unknown mode"))?,
        created_at: time(row, "created_at")?,
        expires_at: time(row, "expires_at")?,
    })
}

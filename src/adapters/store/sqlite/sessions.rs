//! The sessions.

use std::time::SystemTime;

use sqlx::{FromRow, SqliteConnection, SqlitePool};

use crate::adapters::store::encoding::{from_millis, to_millis};
use crate::domain::access::principal::PrincipalId;
use crate::domain::toolsets::loading::{Group, GroupKind};
use crate::domain::toolsets::mode::Mode;
use crate::domain::toolsets::session::{Session, SessionContents, SessionId};
use crate::service::ports::{SessionCaps, SessionSaved};

#[derive(FromRow)]
struct Row {
    id: String,
    principal: String,
    contents: String,
    mode: String,
    created_at: i64,
    expires_at: i64,
}

pub(super) async fn load(readers: &SqlitePool, id: &SessionId) -> Result<Option<Session>, sqlx::Error> {
    let row: Option<Row> = sqlx::query_as("SELECT id, principal, contents, mode, created_at, expires_at FROM session WHERE id = ?")
        .bind(id.as_str())
        .fetch_optional(readers)
        .await?;
    row.map(Row::into_session).transpose()
}

pub(super) async fn of(readers: &SqlitePool, owner: Option<&PrincipalId>, now: SystemTime) -> Result<Vec<Session>, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT id, principal, contents, mode, created_at, expires_at FROM session WHERE principal = coalesce(?, principal) AND expires_at > ? ORDER BY created_at, id",
    )
    .bind(owner.map(PrincipalId::as_str))
    .bind(to_millis(now))
    .fetch_all(readers)
    .await?;
    rows.into_iter().map(Row::into_session).collect()
}

/// In one transaction, so that no two of them go over a cap together.
pub(super) async fn insert(writer: &mut SqliteConnection, session: &Session, caps: SessionCaps) -> Result<SessionSaved, sqlx::Error> {
    delete_before(writer, session.created_at).await?;
    let (own, all): (i64, i64) =
        sqlx::query_as("SELECT (SELECT count(*) FROM session WHERE principal = ?), (SELECT count(*) FROM session)")
            .bind(session.owner.as_str())
            .fetch_one(&mut *writer)
            .await?;
    let count = |value: i64| usize::try_from(value).unwrap_or_default();
    let over = (count(own) + 1).saturating_sub(caps.of_one);
    if count(all) + 1 > caps.of_all + over {
        return Ok(SessionSaved::Full);
    }
    let gone: Vec<String> = sqlx::query_scalar(
        "DELETE FROM session WHERE id IN (SELECT id FROM session WHERE principal = ? ORDER BY used_at, created_at, id LIMIT ?) RETURNING id",
    )
    .bind(session.owner.as_str())
    .bind(i64::try_from(over).unwrap_or(i64::MAX))
    .fetch_all(&mut *writer)
    .await?;
    let contents = serde_json::to_string(&session.contents).map_err(|error| sqlx::Error::Encode(error.into()))?;
    sqlx::query("INSERT INTO session (id, principal, contents, mode, created_at, expires_at, used_at) VALUES (?, ?, ?, ?, ?, ?, ?)")
        .bind(session.id.as_str())
        .bind(session.owner.as_str())
        .bind(contents)
        .bind(session.mode.name())
        .bind(to_millis(session.created_at))
        .bind(to_millis(session.expires_at))
        .bind(to_millis(session.created_at))
        .execute(&mut *writer)
        .await?;
    Ok(SessionSaved::Saved { gone: gone.iter().filter_map(|id| SessionId::read(id)).collect() })
}

pub(super) async fn save_contents(writer: &mut SqliteConnection, id: &SessionId, contents: &SessionContents) -> Result<(), sqlx::Error> {
    let contents = serde_json::to_string(contents).map_err(|error| sqlx::Error::Encode(error.into()))?;
    sqlx::query("UPDATE session SET contents = ? WHERE id = ?").bind(contents).bind(id.as_str()).execute(writer).await?;
    Ok(())
}

pub(super) async fn touch(writer: &mut SqliteConnection, id: &SessionId, at: SystemTime) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE session SET used_at = ? WHERE id = ?").bind(to_millis(at)).bind(id.as_str()).execute(writer).await?;
    Ok(())
}

pub(super) async fn remove(writer: &mut SqliteConnection, id: &SessionId) -> Result<bool, sqlx::Error> {
    let done = sqlx::query("DELETE FROM session WHERE id = ?").bind(id.as_str()).execute(writer).await?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn delete_before(writer: &mut SqliteConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    let done = sqlx::query("DELETE FROM session WHERE expires_at <= ?").bind(to_millis(time)).execute(writer).await?;
    Ok(done.rows_affected())
}

pub(super) async fn remove_all(writer: &mut SqliteConnection, owner: &PrincipalId) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM session WHERE principal = ?").bind(owner.as_str()).execute(writer).await.map(drop)
}

/// What is loaded, in the order in which it was.
pub(super) async fn loaded(readers: &SqlitePool, id: &SessionId) -> Result<Vec<Group>, sqlx::Error> {
    let rows: Vec<(String, String)> =
        sqlx::query_as("SELECT kind, name FROM session_group WHERE session = ? ORDER BY id").bind(id.as_str()).fetch_all(readers).await?;
    let group = |(kind, name): (String, String)| {
        let kind = GroupKind::of_name(&kind).ok_or_else(|| sqlx::Error::Decode("an unknown kind of group".into()))?;
        Ok(Group::new(kind, &name))
    };
    rows.into_iter().map(group).collect()
}

/// A row each, so that two processes that load at the same time do not undo each other. A session that has ended gets none.
pub(super) async fn load_groups(writer: &mut SqliteConnection, id: &SessionId, groups: &[Group]) -> Result<(), sqlx::Error> {
    for group in groups {
        sqlx::query(
            "INSERT INTO session_group (session, kind, name) SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM session WHERE id = ?1) \
             ON CONFLICT (session, kind, name) DO NOTHING",
        )
        .bind(id.as_str())
        .bind(group.kind().name())
        .bind(group.name())
        .execute(&mut *writer)
        .await?;
    }
    Ok(())
}

pub(super) async fn unload_group(writer: &mut SqliteConnection, id: &SessionId, group: &Group) -> Result<bool, sqlx::Error> {
    let done = sqlx::query("DELETE FROM session_group WHERE session = ? AND kind = ? AND name = ?")
        .bind(id.as_str())
        .bind(group.kind().name())
        .bind(group.name())
        .execute(writer)
        .await?;
    Ok(done.rows_affected() > 0)
}

impl Row {
    fn into_session(self) -> Result<Session, sqlx::Error> {
        Ok(Session {
            id: SessionId::read(&self.id).ok_or_else(|| sqlx::Error::Decode("no id of a session".into()))?,
            owner: PrincipalId::new(self.principal),
            contents: serde_json::from_str(&self.contents).map_err(|error| sqlx::Error::Decode(error.into()))?,
            mode: Mode::of_name(&self.mode).ok_or_else(|| sqlx::Error::Decode("an unknown mode".into()))?,
            created_at: from_millis(self.created_at),
            expires_at: from_millis(self.expires_at),
        })
    }
}

//! Which installation the file belongs to.

use sqlx::{SqliteConnection, SqlitePool};
use uuid::Uuid;

/// What is no UUID is no installation that a folder could name.
pub(super) async fn id(readers: &SqlitePool) -> Result<Option<Uuid>, sqlx::Error> {
    let id: Option<String> = sqlx::query_scalar("SELECT id FROM installation").fetch_one(readers).await?;
    Ok(id.map(|id| Uuid::try_parse(&id).unwrap_or_default()))
}

pub(super) async fn set(writer: &mut SqliteConnection, id: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE installation SET id = ?").bind(id.to_string()).execute(writer).await.map(drop)
}

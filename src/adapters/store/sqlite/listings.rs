//! The last good listing of every server.

use std::collections::HashMap;
use std::time::SystemTime;

use sqlx::{SqliteConnection, SqlitePool};

use crate::adapters::store::encoding::{from_millis, to_millis};
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::ServerListing;

#[derive(sqlx::FromRow)]
struct Row {
    server: String,
    title: Option<String>,
    program: Option<String>,
    version: Option<String>,
    instructions: Option<String>,
    tools: String,
    skipped: String,
}

pub(super) async fn all(readers: &SqlitePool) -> Result<Vec<ServerListing>, sqlx::Error> {
    let rows: Vec<Row> =
        sqlx::query_as("SELECT server, title, program, version, instructions, tools, skipped FROM listing ORDER BY server")
            .fetch_all(readers)
            .await?;
    Ok(rows.into_iter().filter_map(decode).collect())
}

pub(super) async fn save(writer: &mut SqliteConnection, listing: &ServerListing) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO listing (server, title, program, version, instructions, tools, skipped, fetched_at) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT (server) DO UPDATE SET title = excluded.title, program = excluded.program, version = excluded.version, \
         instructions = excluded.instructions, tools = excluded.tools, skipped = excluded.skipped, \
         fetched_at = excluded.fetched_at",
    )
    .bind(listing.server.as_str())
    .bind(&listing.title)
    .bind(&listing.program)
    .bind(&listing.version)
    .bind(&listing.instructions)
    .bind(encode(&listing.tools)?)
    .bind(encode(&listing.skipped)?)
    .bind(to_millis(SystemTime::now()))
    .execute(writer)
    .await?;
    Ok(())
}

pub(super) async fn remove(writer: &mut SqliteConnection, server: &ServerName) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM listing WHERE server = ?").bind(server.as_str()).execute(writer).await?;
    Ok(())
}

pub(super) async fn times(readers: &SqlitePool) -> Result<HashMap<ServerName, SystemTime>, sqlx::Error> {
    let rows: Vec<(String, i64)> = sqlx::query_as("SELECT server, fetched_at FROM listing").fetch_all(readers).await?;
    Ok(rows.into_iter().map(|(server, at)| (ServerName::new(server), from_millis(at))).collect())
}

fn encode<T: serde::Serialize>(value: &T) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// A listing that can't be read is as good as none: the server will be listed again. It must not hide the others.
fn decode(row: Row) -> Option<ServerListing> {
    let decoded = serde_json::from_str(&row.tools).and_then(|tools| Ok((tools, serde_json::from_str(&row.skipped)?)));
    match decoded {
        Ok((tools, skipped)) => Some(ServerListing {
            server: ServerName::new(row.server),
            title: row.title,
            program: row.program,
            version: row.version,
            instructions: row.instructions,
            tools,
            skipped,
        }),
        Err(error) => {
            tracing::warn!(server = row.server, %error, "a stored listing can't be read and is left out");
            None
        }
    }
}

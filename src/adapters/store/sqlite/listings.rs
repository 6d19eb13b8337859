//! The last good listing of every server.

use std::collections::HashMap;
use std::time::SystemTime;

use async_trait::async_trait;
use sqlx::{FromRow, SqliteConnection};

use super::SqliteStore;
use crate::adapters::store::encoding::{from_millis, to_json, to_millis};
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::{ListingStore, ServerListing, StoreError};

#[derive(FromRow)]
struct Row {
    server: String,
    title: Option<String>,
    program: Option<String>,
    version: Option<String>,
    instructions: Option<String>,
    tools: String,
    skipped: String,
}

#[async_trait]
impl ListingStore for SqliteStore {
    async fn listings(&self) -> Result<Vec<ServerListing>, StoreError> {
        let query = sqlx::query_as("SELECT server, title, program, version, instructions, tools, skipped FROM listing ORDER BY server");
        let rows: Vec<Row> = self.read("read the listings", query.fetch_all(&self.readers)).await?;
        Ok(rows.into_iter().filter_map(Row::into_listing).collect())
    }

    async fn listing_times(&self) -> Result<HashMap<ServerName, SystemTime>, StoreError> {
        let query = sqlx::query_as("SELECT server, fetched_at FROM listing");
        let rows: Vec<(String, i64)> = self.read("read when servers were listed", query.fetch_all(&self.readers)).await?;
        Ok(rows.into_iter().map(|(server, at)| (ServerName::new(server), from_millis(at))).collect())
    }

    async fn save_listing(&self, listing: &ServerListing) -> Result<(), StoreError> {
        let save = async |writer: &mut SqliteConnection| {
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
            .bind(to_json(&listing.tools)?)
            .bind(to_json(&listing.skipped)?)
            .bind(to_millis(SystemTime::now()))
            .execute(writer)
            .await
            .map(drop)
        };
        self.write("save a listing", save).await
    }

    async fn remove_listing(&self, server: &ServerName) -> Result<(), StoreError> {
        let query = sqlx::query("DELETE FROM listing WHERE server = ?").bind(server.as_str());
        self.write("remove a listing", async |writer| query.execute(writer).await.map(drop)).await
    }
}

impl Row {
    /// An unreadable listing is skipped: its server will be listed again, and the others must stay visible.
    fn into_listing(self) -> Option<ServerListing> {
        let decoded = serde_json::from_str(&self.tools).and_then(|tools| Ok((tools, serde_json::from_str(&self.skipped)?)));
        let (tools, skipped) = decoded
            .inspect_err(|error| tracing::warn!(server = self.server, %error, "a stored listing can't be read and is left out"))
            .ok()?;
        let Self { server, title, program, version, instructions, .. } = self;
        Some(ServerListing { server: ServerName::new(server), title, program, version, instructions, tools, skipped })
    }
}

//! Stores the last valid listing of every server.

use std::collections::HashMap;
use std::time::SystemTime;

use async_trait::async_trait;
use sqlx::Row;

use super::{DbConnection, DbRow, SqlStore, text};
use crate::adapters::store::encoding::{from_millis, to_json, to_millis};
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::{ListingStore, ServerListing, StoreError};

#[async_trait]
impl ListingStore for SqlStore {
    async fn listings(&self) -> Result<Vec<ServerListing>, StoreError> {
        let query = sqlx::query("SELECT server, title, program, version, instructions, tools, skipped FROM listing ORDER BY server");
        let listings = self.read_all("read the listings", query.fetch_all(self.readers()), |row| read(&row)).await?;
        Ok(listings.into_iter().flatten().collect())
    }

    async fn listing_times(&self) -> Result<HashMap<ServerName, SystemTime>, StoreError> {
        let query = sqlx::query_as("SELECT server, fetched_at FROM listing");
        let rows: Vec<(String, i64)> = self.read("read when servers were listed", query.fetch_all(self.readers())).await?;
        Ok(rows.into_iter().map(|(server, at)| (ServerName::new(server), from_millis(at))).collect())
    }

    async fn save_listing(&self, listing: &ServerListing) -> Result<(), StoreError> {
        let save = || {
            async move |writer: &mut DbConnection| {
                sqlx::query(
                    "INSERT INTO listing (server, title, program, version, instructions, tools, skipped, fetched_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
                 ON CONFLICT (server) DO UPDATE SET title = excluded.title, program = excluded.program, version = excluded.version, \
                 instructions = excluded.instructions, tools = excluded.tools, skipped = excluded.skipped, \
                 fetched_at = excluded.fetched_at",
                )
                .bind(listing.server.as_str())
                .bind(listing.title.as_deref().map(text))
                .bind(listing.program.as_deref().map(text))
                .bind(listing.version.as_deref().map(text))
                .bind(listing.instructions.as_deref().map(text))
                .bind(to_json(&listing.tools)?)
                .bind(to_json(&listing.skipped)?)
                .bind(to_millis(SystemTime::now()))
                .execute(writer)
                .await
                .map(drop)
            }
        };
        self.write("save a listing", save).await
    }

    async fn remove_listing(&self, server: &ServerName) -> Result<(), StoreError> {
        let query = || sqlx::query("DELETE FROM listing WHERE server = $1").bind(server.as_str());
        self.write("remove a listing", || async move |writer: &mut DbConnection| query().execute(writer).await.map(drop)).await
    }
}

/// Skips an unreadable listing, so that other servers stay visible. Its server is listed again anyway.
fn read(row: &DbRow) -> Result<Option<ServerListing>, sqlx::Error> {
    let server: String = row.try_get("server")?;
    let (tools, skipped) = (row.try_get("tools")?, row.try_get("skipped")?);
    let decoded = serde_json::from_str(tools).and_then(|tools| Ok((tools, serde_json::from_str(skipped)?)));
    let Ok((tools, skipped)) = decoded.inspect_err(|error| tracing::warn!(server, %error, "skipped an unreadable stored listing")) else {
        return Ok(None);
    };
    Ok(Some(ServerListing {
        server: ServerName::new(server),
        title: row.try_get("title")?,
        program: row.try_get("program")?,
        version: row.try_get("version")?,
        instructions: row.try_get("instructions")?,
        tools,
        skipped,
    }))
}

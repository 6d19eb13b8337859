//! Stores the last valid listing of every server.

use std::collections::HashMap;
use std::time::SystemTime;

use async_trait::async_trait;
use sqlx::Row;

use super::{DbConnection, DbRow, SqlStore, one_at_a_time, text};
use crate::adapters::store::encoding::{from_json, from_millis, to_json, to_millis};
use crate::domain::catalog::tool::ServerName;
use crate::domain::catalog::user_lists::{StoredList, UserList};
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
        self.write("save a listing", || async move |writer: &mut DbConnection| save(writer, listing, None).await).await
    }

    async fn merge_listing(&self, listing: &ServerListing, lists: &[UserList]) -> Result<(), StoreError> {
        let merge = || {
            async move |writer: &mut DbConnection| {
                one_at_a_time(writer, "listing").await?;
                let columns =
                    "SELECT server, title, program, version, instructions, tools, skipped, listed_by FROM listing WHERE server = $1";
                let row = sqlx::query(columns).bind(listing.server.as_str()).fetch_optional(&mut *writer).await?;
                let before = row.as_ref().map(|row| Ok::<_, sqlx::Error>((read(row)?, row.try_get("listed_by")?))).transpose()?;
                let (before, listed_by): (Option<ServerListing>, Option<String>) = before.unwrap_or_default();
                let mut stored = StoredList {
                    tools: before.as_ref().map_or(&listing.tools, |before| &before.tools).clone(),
                    listed_by: listed_by.as_deref().map(from_json).transpose()?.unwrap_or_default(),
                };
                stored.add(listing, lists);
                let (now, by) = (ServerListing { tools: stored.tools, ..listing.clone() }, to_json(&stored.listed_by)?);
                if before.as_ref() == Some(&now) && listed_by.as_ref() == Some(&by) {
                    return Ok(());
                }
                save(writer, &now, Some(by)).await
            }
        };
        self.write("merge a listing", merge).await
    }

    async fn remove_listing(&self, server: &ServerName) -> Result<(), StoreError> {
        let query = || sqlx::query("DELETE FROM listing WHERE server = $1").bind(server.as_str());
        self.write("remove a listing", || async move |writer: &mut DbConnection| query().execute(writer).await.map(drop)).await
    }
}

/// `listed_by` tells whose lists contained the tools, as JSON, if the list is merged from users' lists.
async fn save(writer: &mut DbConnection, listing: &ServerListing, listed_by: Option<String>) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO listing (server, title, program, version, instructions, tools, skipped, fetched_at, listed_by) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
         ON CONFLICT (server) DO UPDATE SET title = excluded.title, program = excluded.program, version = excluded.version, \
         instructions = excluded.instructions, tools = excluded.tools, skipped = excluded.skipped, \
         fetched_at = excluded.fetched_at, listed_by = excluded.listed_by",
    )
    .bind(listing.server.as_str())
    .bind(listing.title.as_deref().map(text))
    .bind(listing.program.as_deref().map(text))
    .bind(listing.version.as_deref().map(text))
    .bind(listing.instructions.as_deref().map(text))
    .bind(to_json(&listing.tools)?)
    .bind(to_json(&listing.skipped)?)
    .bind(to_millis(SystemTime::now()))
    .bind(listed_by)
    .execute(writer)
    .await
    .map(drop)
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

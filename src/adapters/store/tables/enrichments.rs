//! Stores enrichments by models and admins.

use std::collections::HashMap;
use std::time::SystemTime;

use async_trait::async_trait;
use sqlx::{FromRow, QueryBuilder};

use super::computed::push_list;
use super::{CHUNK, Db, DbConnection, SqlStore, text};
use crate::adapters::store::encoding::{DAY, fingerprint_from_bytes, to_json, to_millis};
use crate::domain::selection::enrichment::{Author, Enrichment, Written};
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{EnrichmentStore, StoreError};

/// Stored in place of a model's name if an admin is the author.
const ADMIN: &str = "";

#[derive(FromRow)]
struct Row {
    tool_hash: Vec<u8>,
    model: String,
    function: String,
    tags: String,
    queries: String,
}

#[async_trait]
impl EnrichmentStore for SqlStore {
    async fn enrichments(&self, model: Option<&str>, tools: &[Fingerprint]) -> Result<HashMap<Fingerprint, Written>, StoreError> {
        let work = async {
            let mut found: HashMap<Fingerprint, Written> = HashMap::new();
            for chunk in tools.chunks(CHUNK) {
                let mut query =
                    QueryBuilder::<Db>::new("SELECT tool_hash, model, function, tags, queries FROM enrichment WHERE model IN (");
                query.push_bind(ADMIN).push(", ").push_bind(model.unwrap_or(ADMIN)).push(") AND tool_hash IN ");
                push_list(&mut query, chunk);
                let rows: Vec<Row> = query.build_query_as().persistent(false).fetch_all(self.readers()).await?;
                for (tool, written) in rows.into_iter().filter_map(decode) {
                    if written.author == Author::Admin || !found.contains_key(&tool) {
                        found.insert(tool, written);
                    }
                }
            }
            Ok(found)
        };
        self.read("read enrichments", work).await
    }

    async fn save_enrichment(&self, tool: &Fingerprint, written: &Written) -> Result<(), StoreError> {
        let save = || {
            async move |writer: &mut DbConnection| {
                let now = to_millis(SystemTime::now());
                sqlx::query(
                "INSERT INTO enrichment (tool_hash, model, function, tags, queries, written_at, used_at) VALUES ($1, $2, $3, $4, $5, $6, $7) \
                 ON CONFLICT (tool_hash, model) DO UPDATE SET function = excluded.function, tags = excluded.tags, \
                 queries = excluded.queries, written_at = excluded.written_at, used_at = excluded.used_at",
            )
            .bind(tool.as_bytes().as_slice())
            .bind(name(&written.author))
            .bind(text(&written.enrichment.function))
            .bind(to_json(&written.enrichment.tags)?)
            .bind(to_json(&written.enrichment.queries)?)
            .bind(now)
            .bind(now)
            .execute(writer)
            .await
            .map(drop)
            }
        };
        // An admin's text exists nowhere else, so flush it.
        let action = "save an enrichment";
        if written.author == Author::Admin { self.durable(action, save).await } else { self.write(action, save).await }
    }

    async fn remove_enrichment(&self, tool: &Fingerprint, author: &Author) -> Result<bool, StoreError> {
        let query = || {
            sqlx::query("DELETE FROM enrichment WHERE tool_hash = $1 AND model = $2").bind(tool.as_bytes().as_slice()).bind(name(author))
        };
        self.durable("remove an enrichment", || {
            async move |writer: &mut DbConnection| Ok(query().execute(writer).await?.rows_affected() > 0)
        })
        .await
    }

    /// Skips entries marked within the last day, as for vectors.
    async fn forget_unused_enrichments(&self, model: Option<&str>, tools: &[Fingerprint], since: SystemTime) -> Result<u64, StoreError> {
        let forget = || {
            async move |writer: &mut DbConnection| {
                let now = to_millis(SystemTime::now());
                for chunk in tools.chunks(CHUNK) {
                    let mut query = QueryBuilder::<Db>::new("UPDATE enrichment SET used_at = ");
                    query.push_bind(now).push(" WHERE used_at < ").push_bind(now - DAY);
                    query.push(" AND model IN (").push_bind(ADMIN).push(", ").push_bind(model.unwrap_or(ADMIN)).push(") AND tool_hash IN ");
                    push_list(&mut query, chunk);
                    query.build().persistent(false).execute(&mut *writer).await?;
                }
                let delete = sqlx::query("DELETE FROM enrichment WHERE used_at < $1").bind(to_millis(since));
                Ok(delete.execute(writer).await?.rows_affected())
            }
        };
        self.write("remove unused enrichments", forget).await
    }
}

fn name(author: &Author) -> &str {
    match author {
        Author::Admin => ADMIN,
        Author::Model(name) => name,
    }
}

/// Decodes a row; `None` if it is unreadable. A model then writes a new text.
fn decode(row: Row) -> Option<(Fingerprint, Written)> {
    let tool = fingerprint_from_bytes(&row.tool_hash)?;
    let texts =
        |json: &str| serde_json::from_str(json).inspect_err(|error| tracing::warn!(%error, "skipped an unreadable enrichment")).ok();
    let enrichment = Enrichment { function: row.function, tags: texts(&row.tags)?, queries: texts(&row.queries)? };
    let author = if row.model == ADMIN { Author::Admin } else { Author::Model(row.model) };
    Some((tool, Written { author, enrichment }))
}

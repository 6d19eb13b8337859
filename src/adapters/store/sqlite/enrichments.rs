//! What models and admins write about tools.

use std::collections::HashMap;
use std::time::SystemTime;

use sqlx::{QueryBuilder, Sqlite, SqliteConnection, SqlitePool};

use super::CHUNK;
use super::vectors::{DAY, push_list};
use crate::adapters::store::encoding::{fingerprint_from_bytes, to_millis};
use crate::domain::selection::enrichment::{Author, Enrichment, Written};
use crate::domain::text::canonical::Fingerprint;

/// In the place of a model's name.
const ADMIN: &str = "";

#[derive(sqlx::FromRow)]
struct Row {
    tool_hash: Vec<u8>,
    model: String,
    context: String,
    queries: String,
}

/// What an admin wrote, otherwise what the model wrote.
pub(super) async fn load(
    readers: &SqlitePool,
    model: Option<&str>,
    tools: &[Fingerprint],
) -> Result<HashMap<Fingerprint, Written>, sqlx::Error> {
    let mut found: HashMap<Fingerprint, Written> = HashMap::new();
    for chunk in tools.chunks(CHUNK) {
        let mut query = QueryBuilder::<Sqlite>::new("SELECT tool_hash, model, context, queries FROM enrichment WHERE model IN (");
        query.push_bind(ADMIN).push(", ").push_bind(model.unwrap_or(ADMIN)).push(") AND tool_hash IN ");
        push_list(&mut query, chunk);
        let rows: Vec<Row> = query.build_query_as().persistent(false).fetch_all(readers).await?;
        for (tool, written) in rows.into_iter().filter_map(decode) {
            if written.author == Author::Admin || !found.contains_key(&tool) {
                found.insert(tool, written);
            }
        }
    }
    Ok(found)
}

pub(super) async fn save(writer: &mut SqliteConnection, tool: &Fingerprint, written: &Written) -> Result<(), sqlx::Error> {
    let queries = serde_json::to_string(&written.enrichment.queries).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let now = to_millis(SystemTime::now());
    sqlx::query(
        "INSERT INTO enrichment (tool_hash, model, context, queries, written_at, used_at) VALUES (?, ?, ?, ?, ?, ?) \
         ON CONFLICT (tool_hash, model) DO UPDATE SET context = excluded.context, queries = excluded.queries, \
         written_at = excluded.written_at, used_at = excluded.used_at",
    )
    .bind(tool.as_bytes().as_slice())
    .bind(name(&written.author))
    .bind(&written.enrichment.context)
    .bind(queries)
    .bind(now)
    .bind(now)
    .execute(writer)
    .await
    .map(drop)
}

pub(super) async fn remove(writer: &mut SqliteConnection, tool: &Fingerprint, author: &Author) -> Result<bool, sqlx::Error> {
    let delete = sqlx::query("DELETE FROM enrichment WHERE tool_hash = ? AND model = ?");
    let done = delete.bind(tool.as_bytes().as_slice()).bind(name(author)).execute(writer).await?;
    Ok(done.rows_affected() > 0)
}

/// Notes what is needed now, as for vectors, and returns how many rows went that were not needed since then.
pub(super) async fn forget_unused(
    writer: &mut SqliteConnection,
    model: Option<&str>,
    tools: &[Fingerprint],
    since: SystemTime,
) -> Result<u64, sqlx::Error> {
    let now = to_millis(SystemTime::now());
    for chunk in tools.chunks(CHUNK) {
        let mut query = QueryBuilder::<Sqlite>::new("UPDATE enrichment SET used_at = ");
        query.push_bind(now).push(" WHERE used_at < ").push_bind(now - DAY);
        query.push(" AND model IN (").push_bind(ADMIN).push(", ").push_bind(model.unwrap_or(ADMIN)).push(") AND tool_hash IN ");
        push_list(&mut query, chunk);
        query.build().persistent(false).execute(&mut *writer).await?;
    }
    let done = sqlx::query("DELETE FROM enrichment WHERE used_at < ?").bind(to_millis(since)).execute(&mut *writer).await?;
    Ok(done.rows_affected())
}

fn name(author: &Author) -> &str {
    match author {
        Author::Admin => ADMIN,
        Author::Model(name) => name,
    }
}

/// What can't be read is as good as nothing: a model is asked again.
fn decode(row: Row) -> Option<(Fingerprint, Written)> {
    let tool = fingerprint_from_bytes(&row.tool_hash)?;
    let queries = serde_json::from_str(&row.queries).inspect_err(|error| {
        tracing::warn!(%error, "something written about a tool can't be read and is left out");
    });
    let author = if row.model == ADMIN { Author::Admin } else { Author::Model(row.model) };
    Some((tool, Written { author, enrichment: Enrichment { context: row.context, queries: queries.ok()? } }))
}

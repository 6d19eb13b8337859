//! What admins wrote about tools.

use std::time::SystemTime;

use sqlx::{SqliteConnection, SqlitePool};

use crate::adapters::store::encoding::to_millis;
use crate::domain::access::tool_facts::WrittenFacts;
use crate::domain::catalog::tool::ToolId;
use crate::service::ports::StoredToolFacts;

pub(super) async fn all(readers: &SqlitePool) -> Result<Vec<StoredToolFacts>, sqlx::Error> {
    let rows: Vec<(String, String, i64, Option<String>)> =
        sqlx::query_as("SELECT server, tool, version, facts FROM tool_facts ORDER BY server, tool").fetch_all(readers).await?;
    let read = |(server, tool, version, facts): (String, String, i64, Option<String>)| {
        let facts = facts.map(|facts| serde_json::from_str(&facts)).transpose().map_err(|error| sqlx::Error::Decode(error.into()))?;
        Ok(StoredToolFacts { tool: ToolId::new(server.as_str(), tool), version: version.unsigned_abs(), facts })
    };
    rows.into_iter().map(read).collect()
}

/// One statement decides, so that of two changes of one version the second finds itself too late.
pub(super) async fn save(
    writer: &mut SqliteConnection,
    tool: &ToolId,
    expected: u64,
    facts: Option<&WrittenFacts>,
) -> Result<Option<u64>, sqlx::Error> {
    let facts = facts.map(serde_json::to_string).transpose().map_err(|error| sqlx::Error::Encode(error.into()))?;
    let version: Option<i64> = sqlx::query_scalar(
        "INSERT INTO tool_facts (server, tool, version, facts, changed_at) SELECT ?1, ?2, ?3 + 1, ?4, ?5 \
         WHERE coalesce((SELECT version FROM tool_facts WHERE server = ?1 AND tool = ?2), 0) = ?3 \
         ON CONFLICT (server, tool) DO UPDATE SET version = excluded.version, facts = excluded.facts, changed_at = excluded.changed_at \
         RETURNING version",
    )
    .bind(tool.server.as_str())
    .bind(&*tool.name)
    .bind(i64::try_from(expected).unwrap_or(i64::MAX - 1))
    .bind(facts)
    .bind(to_millis(SystemTime::now()))
    .fetch_optional(writer)
    .await?;
    Ok(version.map(i64::unsigned_abs))
}

/// Removes what was taken back before then.
pub(super) async fn delete_before(writer: &mut SqliteConnection, time: SystemTime) -> Result<Vec<ToolId>, sqlx::Error> {
    let gone: Vec<(String, String)> =
        sqlx::query_as("DELETE FROM tool_facts WHERE facts IS NULL AND changed_at < ? RETURNING server, tool")
            .bind(to_millis(time))
            .fetch_all(writer)
            .await?;
    Ok(gone.into_iter().map(|(server, tool)| ToolId::new(server.as_str(), tool)).collect())
}

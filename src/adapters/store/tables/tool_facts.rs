//! Stores admins' overrides of tools.

use std::time::SystemTime;

use async_trait::async_trait;

use super::{DbConnection, SqlStore};
use crate::adapters::store::encoding::{from_json, signed, to_json, to_millis};
use crate::domain::access::tool_facts::ToolOverride;
use crate::domain::catalog::tool::ToolId;
use crate::service::ports::{StoreError, StoredToolOverride, ToolOverrideStore};

#[async_trait]
impl ToolOverrideStore for SqlStore {
    async fn tool_overrides(&self) -> Result<Vec<StoredToolOverride>, StoreError> {
        let query = sqlx::query_as("SELECT server, tool, version, facts FROM tool_facts ORDER BY server, tool");
        let read = |(server, tool, version, written): (String, String, i64, Option<String>)| {
            let written = written.as_deref().map(from_json).transpose()?;
            Ok(StoredToolOverride { tool: ToolId::new(server.as_str(), tool), version: version.unsigned_abs(), written })
        };
        self.read_all("read tool overrides", query.fetch_all(self.readers()), read).await
    }

    /// Compares and writes in one statement, so the second of two concurrent changes to the same version is rejected.
    async fn save_tool_override(&self, tool: &ToolId, expected: u64, written: Option<&ToolOverride>) -> Result<Option<u64>, StoreError> {
        if written.is_some() {
            self.mark().await?;
        }
        let save = || {
            async move |writer: &mut DbConnection| {
                let version: Option<i64> = sqlx::query_scalar(
                    "INSERT INTO tool_facts (server, tool, version, facts, changed_at) SELECT $1, $2, $3 + 1, $4, $5 \
                 WHERE coalesce((SELECT version FROM tool_facts WHERE server = $1 AND tool = $2), 0) = $3 \
                 ON CONFLICT (server, tool) DO UPDATE SET version = excluded.version, facts = excluded.facts, \
                 changed_at = excluded.changed_at WHERE tool_facts.version = $3 RETURNING version",
                )
                .bind(tool.server.as_str())
                .bind(&*tool.name)
                .bind(signed(expected))
                .bind(written.map(to_json).transpose()?)
                .bind(to_millis(SystemTime::now()))
                .fetch_optional(writer)
                .await?;
                Ok(version.map(i64::unsigned_abs))
            }
        };
        self.durable("save a tool override", save).await
    }

    async fn forget_tool_overrides_before(&self, time: SystemTime) -> Result<Vec<ToolId>, StoreError> {
        let query = || {
            sqlx::query_as("DELETE FROM tool_facts WHERE facts IS NULL AND changed_at < $1 RETURNING server, tool").bind(to_millis(time))
        };
        let gone: Vec<(String, String)> = self
            .write("remove withdrawn tool overrides", || async move |writer: &mut DbConnection| query().fetch_all(writer).await)
            .await?;
        Ok(gone.into_iter().map(|(server, tool)| ToolId::new(server.as_str(), tool)).collect())
    }
}

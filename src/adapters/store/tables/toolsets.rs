//! Stores the toolsets of administrators.

use std::time::SystemTime;

use async_trait::async_trait;

use super::{DbConnection, SqlStore, one_at_a_time};
use crate::adapters::store::encoding::{from_json, to_json, to_millis};
use crate::domain::access::toolset::{Toolset, ToolsetDefinition};
use crate::domain::access::toolset_name::ToolsetName;
use crate::service::ports::{Overwrites, StoreError, ToolsetStore};

#[async_trait]
impl ToolsetStore for SqlStore {
    async fn toolsets(&self) -> Result<Vec<Toolset>, StoreError> {
        let query = sqlx::query_as("SELECT name, definition FROM toolset ORDER BY name");
        let toolset =
            |(name, definition): (String, String)| Ok(Toolset { name: ToolsetName::new(name), definition: from_json(&definition)? });
        self.read_all("read the toolsets", query.fetch_all(self.readers()), toolset).await
    }

    async fn save_toolset(
        &self,
        name: &ToolsetName,
        definition: &ToolsetDefinition,
        overwrites: Overwrites<'_, ToolsetDefinition>,
    ) -> Result<bool, StoreError> {
        self.mark().await?;
        let save = || {
            async move |writer: &mut DbConnection| {
                if !may_change(writer, name, overwrites).await? {
                    return Ok(false);
                }
                let query = sqlx::query(
                    "INSERT INTO toolset (name, definition, saved_at) VALUES ($1, $2, $3) \
                     ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, saved_at = excluded.saved_at",
                );
                query.bind(name.as_str()).bind(to_json(definition)?).bind(to_millis(SystemTime::now())).execute(writer).await?;
                Ok(true)
            }
        };
        self.durable("save a toolset", save).await
    }

    async fn remove_toolset(&self, name: &ToolsetName, overwrites: Overwrites<'_, ToolsetDefinition>) -> Result<bool, StoreError> {
        let remove = || {
            async move |writer: &mut DbConnection| {
                if !may_change(writer, name, overwrites).await? {
                    return Ok(false);
                }
                let query = sqlx::query("DELETE FROM toolset WHERE name = $1").bind(name.as_str());
                Ok(query.execute(writer).await?.rows_affected() > 0)
            }
        };
        self.durable("remove a toolset", remove).await
    }
}

/// Whether a change may overwrite the stored toolset. Until the end of the transaction, nobody else changes it.
async fn may_change(
    writer: &mut DbConnection,
    name: &ToolsetName,
    overwrites: Overwrites<'_, ToolsetDefinition>,
) -> Result<bool, sqlx::Error> {
    one_at_a_time(writer, "toolsets").await?;
    let query = sqlx::query_scalar("SELECT definition FROM toolset WHERE name = $1").bind(name.as_str());
    let stored: Option<String> = query.fetch_optional(writer).await?;
    Ok(overwrites.allow(stored.as_deref().map(from_json).transpose()?.as_ref()))
}

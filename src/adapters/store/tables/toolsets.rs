//! Stores the toolsets of administrators.

use std::time::SystemTime;

use async_trait::async_trait;

use super::{DbConnection, SqlStore};
use crate::adapters::store::encoding::{from_json, to_json, to_millis};
use crate::domain::access::toolset::{Toolset, ToolsetDefinition, ToolsetName};
use crate::service::ports::{StoreError, ToolsetStore};

#[async_trait]
impl ToolsetStore for SqlStore {
    async fn toolsets(&self) -> Result<Vec<Toolset>, StoreError> {
        let query = sqlx::query_as("SELECT name, definition FROM toolset ORDER BY name");
        let toolset =
            |(name, definition): (String, String)| Ok(Toolset { name: ToolsetName::new(name), definition: from_json(&definition)? });
        self.read_all("read the toolsets", query.fetch_all(self.readers()), toolset).await
    }

    async fn save_toolset(&self, name: &ToolsetName, definition: &ToolsetDefinition) -> Result<(), StoreError> {
        self.mark().await?;
        let save = || {
            async move |writer: &mut DbConnection| {
                sqlx::query(
                    "INSERT INTO toolset (name, definition, saved_at) VALUES ($1, $2, $3) \
                 ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, saved_at = excluded.saved_at",
                )
                .bind(name.as_str())
                .bind(to_json(definition)?)
                .bind(to_millis(SystemTime::now()))
                .execute(writer)
                .await
                .map(drop)
            }
        };
        self.durable("save a toolset", save).await
    }

    async fn remove_toolset(&self, name: &ToolsetName) -> Result<bool, StoreError> {
        let query = || sqlx::query("DELETE FROM toolset WHERE name = $1").bind(name.as_str());
        self.durable("remove a toolset", || async move |writer: &mut DbConnection| Ok(query().execute(writer).await?.rows_affected() > 0))
            .await
    }
}

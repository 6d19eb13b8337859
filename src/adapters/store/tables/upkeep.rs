//! Operations on the store as a whole.

use std::time::SystemTime;

use async_trait::async_trait;
use uuid::Uuid;

use super::{DbConnection, SqlStore, batches};
use crate::service::ports::{StoreError, StoreFailures, UpkeepStore};

#[async_trait]
impl UpkeepStore for SqlStore {
    /// Reads the installation's id. An invalid one becomes the nil UUID, which no folder has.
    async fn installation(&self) -> Result<Option<Uuid>, StoreError> {
        let query = sqlx::query_scalar("SELECT id FROM installation");
        let id: Option<String> = self.read("read the id of the installation", query.fetch_one(self.readers())).await?;
        Ok(id.as_deref().map(parsed))
    }

    async fn claim_installation(&self, id: Uuid) -> Result<Uuid, StoreError> {
        let query = || sqlx::query_scalar("UPDATE installation SET id = coalesce(id, $1) RETURNING id").bind(id.to_string());
        let id: String = self
            .durable("save the id of the installation", || async move |writer: &mut DbConnection| query().fetch_one(writer).await)
            .await?;
        Ok(parsed(&id))
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.available("answer")?;
        let query = sqlx::query("SELECT 1 FROM listing LIMIT 1");
        self.read("answer", query.execute(self.readers())).await.map(drop)
    }

    async fn check_writes(&self) -> Result<(), StoreError> {
        if !self.failures.takes_no_writes() {
            return Ok(());
        }
        let write =
            || async move |writer: &mut DbConnection| sqlx::query("UPDATE installation SET id = id").execute(writer).await.map(drop);
        let action = "be written";
        self.room().map_err(|source| StoreError::Away { action, is_unsure: false, source })?;
        self.write(action, write).await?;
        self.failures.note_check();
        Ok(())
    }

    async fn forget_batches_before(&self, time: SystemTime) -> Result<u64, StoreError> {
        let forget = || async move |writer: &mut DbConnection| batches::delete_before(writer, time).await;
        self.write("forget the ids of old batches", forget).await
    }

    async fn shrink(&self) -> Result<(), StoreError> {
        self.compact().await
    }

    fn failures(&self) -> StoreFailures {
        self.failures.sums()
    }
}

fn parsed(id: &str) -> Uuid {
    Uuid::try_parse(id).unwrap_or_default()
}

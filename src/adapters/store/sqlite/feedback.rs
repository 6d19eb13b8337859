//! Stores feedback from callers.

use std::time::SystemTime;

use async_trait::async_trait;
use sqlx::{QueryBuilder, Sqlite, SqliteConnection};

use super::SqliteStore;
use crate::adapters::store::encoding::to_millis;
use crate::service::ports::{Feedback, FeedbackStore, SelectionName, StoreError};

#[async_trait]
impl FeedbackStore for SqliteStore {
    async fn selection(&self, principal: &str, named: &SelectionName) -> Result<Option<String>, StoreError> {
        let (condition, value) = match named {
            SelectionName::Id(id) => ("selection = ", id),
            SelectionName::Chat(chat) => ("chat = ", chat),
        };
        let mut query = QueryBuilder::<Sqlite>::new("SELECT selection FROM selection_event WHERE kind = 'offered' AND ");
        query.push(condition).push_bind(value).push(" AND principal = ").push_bind(principal);
        query.push(" AND selection IS NOT NULL ORDER BY id DESC LIMIT 1");
        let query = query.build_query_scalar().persistent(false);
        self.read("look for a selection", query.fetch_optional(&self.readers)).await
    }

    async fn save_feedback(&self, feedback: &Feedback) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO feedback (selection, server, tool, principal, at, verdict) VALUES (?, ?, ?, ?, ?, ?) \
             ON CONFLICT (selection, server, tool) DO UPDATE SET principal = excluded.principal, at = excluded.at, \
             verdict = excluded.verdict",
        )
        .bind(&feedback.selection)
        .bind(feedback.tool.server.as_str())
        .bind(&*feedback.tool.name)
        .bind(&feedback.principal)
        .bind(to_millis(feedback.at))
        .bind(feedback.verdict.name());
        self.durable("save feedback", async |writer| query.execute(writer).await.map(drop)).await
    }
}

pub(super) async fn delete_before(writer: &mut SqliteConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query("DELETE FROM feedback WHERE at < ?").bind(to_millis(time)).execute(writer).await?.rows_affected())
}

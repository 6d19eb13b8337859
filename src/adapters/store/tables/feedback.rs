//! Stores feedback from callers.

use std::time::SystemTime;

use async_trait::async_trait;
use sqlx::QueryBuilder;

use super::{Db, DbConnection, SqlStore, text};
use crate::adapters::store::encoding::to_millis;
use crate::service::ports::{Feedback, FeedbackStore, SelectionName, StoreError};

#[async_trait]
impl FeedbackStore for SqlStore {
    async fn selection(&self, principal: &str, key: Option<&str>, named: &SelectionName) -> Result<Option<String>, StoreError> {
        let (condition, value) = match named {
            SelectionName::Id(id) => ("selection = ", id),
            SelectionName::Chat(chat) => ("chat = ", chat),
        };
        let mut query = QueryBuilder::<Db>::new("SELECT selection FROM selection_event WHERE kind = 'offered' AND ");
        query.push(condition).push_bind(text(value)).push(" AND principal = ").push_bind(text(principal));
        // Earlier versions stored no key.
        query.push(" AND (key IS NULL OR key = ").push_bind(text(key.unwrap_or_default())).push(")");
        query.push(" AND selection IS NOT NULL ORDER BY id DESC LIMIT 1");
        let query = query.build_query_scalar().persistent(false);
        self.read("look for a selection", query.fetch_optional(self.readers())).await
    }

    async fn save_feedback(&self, feedback: &Feedback) -> Result<(), StoreError> {
        let query = || {
            sqlx::query(
                "INSERT INTO feedback (selection, server, tool, principal, at, verdict) VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (selection, server, tool) DO UPDATE SET principal = excluded.principal, at = excluded.at, \
             verdict = excluded.verdict",
            )
            .bind(text(&feedback.selection))
            .bind(text(feedback.tool.server.as_str()))
            .bind(text(&feedback.tool.name))
            .bind(text(&feedback.principal))
            .bind(to_millis(feedback.at))
            .bind(feedback.verdict.name())
        };
        self.durable("save feedback", || async move |writer: &mut DbConnection| query().execute(writer).await.map(drop)).await
    }
}

pub(super) async fn delete_before(writer: &mut DbConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query("DELETE FROM feedback WHERE at < $1").bind(to_millis(time)).execute(writer).await?.rows_affected())
}

//! Stores the definitions of tools as first seen or last approved.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use sqlx::{QueryBuilder, Row};

use super::{CHUNK, Db, DbConnection, DbRow, SqlStore, optional_time, text, time};
use crate::adapters::store::encoding::{DAY, fingerprint_from_bytes, odd, to_millis};
use crate::domain::catalog::definition::LISTED;
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{DefinitionStore, StoreError, StoredDefinition};

#[async_trait]
impl DefinitionStore for SqlStore {
    async fn definitions(&self) -> Result<Vec<StoredDefinition>, StoreError> {
        let query = sqlx::query(
            "SELECT server, tool, fingerprint, is_new, first_seen, noticed, noticed_at, approved_at FROM definition ORDER BY server, tool",
        );
        self.read_all("read the definitions of tools", query.fetch_all(self.readers()), |row| read(&row)).await
    }

    async fn definition(&self, tool: &ToolId) -> Result<Option<String>, StoreError> {
        let query = sqlx::query_scalar("SELECT body FROM definition WHERE server = $1 AND tool = $2")
            .bind(text(tool.server.as_str()))
            .bind(text(&tool.name));
        self.read("read the definition of a tool", query.fetch_optional(self.readers())).await
    }

    async fn add_definitions(&self, new: &[(StoredDefinition, String)]) -> Result<(), StoreError> {
        if new.is_empty() {
            return Ok(());
        }
        let add = || {
            async move |writer: &mut DbConnection| {
                for new in new.chunks(CHUNK) {
                    let mut query =
                        QueryBuilder::<Db>::new("INSERT INTO definition (server, tool, fingerprint, body, is_new, first_seen, seen_at) ");
                    query.push_values(new, |mut row, (definition, body)| {
                        row.push_bind(text(definition.tool.server.as_str()))
                            .push_bind(text(&definition.tool.name))
                            .push_bind(&definition.fingerprint.as_bytes()[..])
                            .push_bind(body)
                            .push_bind(definition.is_new)
                            .push_bind(to_millis(definition.first_seen))
                            .push_bind(to_millis(SystemTime::now()));
                    });
                    query.push(" ON CONFLICT (server, tool) DO NOTHING");
                    query.build().persistent(false).execute(&mut *writer).await?;
                }
                Ok(())
            }
        };
        self.write("save the definitions of new tools", add).await
    }

    async fn note_definitions(&self, server: &ServerName, others: &[(Arc<str>, Fingerprint)], at: SystemTime) -> Result<(), StoreError> {
        if others.is_empty() {
            return Ok(());
        }
        let note = || {
            async move |writer: &mut DbConnection| {
                for chunk in others.chunks(CHUNK) {
                    // Both databases name the columns of `VALUES` like this.
                    let mut query = QueryBuilder::<Db>::new("UPDATE definition SET noticed = column2, noticed_at = ");
                    query.push_bind(to_millis(at)).push(" FROM (");
                    query.push_values(chunk, |mut row, (tool, other)| {
                        row.push_bind(text(tool)).push_bind(&other.as_bytes()[..]);
                    });
                    query.push(") AS others WHERE tool = column1 AND server = ").push_bind(text(server.as_str()));
                    query.build().persistent(false).execute(&mut *writer).await?;
                }
                Ok(())
            }
        };
        self.write("record changed definitions", note).await
    }

    async fn approve_definition(&self, tool: &ToolId, definition: &Fingerprint, json: &str, at: SystemTime) -> Result<(), StoreError> {
        self.mark().await?;
        let query = || {
            sqlx::query(
                "INSERT INTO definition (server, tool, fingerprint, body, is_new, first_seen, approved_at, seen_at) \
             VALUES ($1, $2, $3, $4, false, $5, $5, $6) \
             ON CONFLICT (server, tool) DO UPDATE SET fingerprint = excluded.fingerprint, body = excluded.body, is_new = false, \
             noticed = NULL, noticed_at = NULL, approved_at = excluded.approved_at, seen_at = excluded.seen_at",
            )
            .bind(text(tool.server.as_str()))
            .bind(text(&tool.name))
            .bind(&definition.as_bytes()[..])
            .bind(json)
            .bind(to_millis(at))
            .bind(to_millis(SystemTime::now()))
        };
        self.durable("approve the definition of a tool", || async move |writer: &mut DbConnection| query().execute(writer).await.map(drop))
            .await
    }

    async fn note_definitions_seen(&self, server: &ServerName, tools: &[Arc<str>], at: SystemTime) -> Result<(), StoreError> {
        let note = || {
            async move |writer: &mut DbConnection| {
                for chunk in tools.chunks(CHUNK) {
                    let mut query = QueryBuilder::<Db>::new("UPDATE definition SET seen_at = ");
                    query.push_bind(to_millis(at)).push(" WHERE seen_at < ").push_bind(to_millis(at) - DAY);
                    query.push(" AND server = ").push_bind(text(server.as_str())).push(" AND tool IN (");
                    let mut list = query.separated(", ");
                    for tool in chunk {
                        list.push_bind(text(tool));
                    }
                    query.push(")");
                    query.build().persistent(false).execute(&mut *writer).await?;
                }
                Ok(())
            }
        };
        self.write("record the listed tools", note).await
    }

    /// Deletes old definitions. Keeps approvals, and the records of which servers were listed.
    async fn forget_definitions_before(&self, time: SystemTime) -> Result<Vec<ToolId>, StoreError> {
        let query = || {
            sqlx::query_as(
            "DELETE FROM definition WHERE seen_at < $1 AND approved_at IS NULL AND substr(tool, 1, length($2)) <> $2 RETURNING server, tool",
        )
        .bind(to_millis(time))
        .bind(LISTED)
        };
        let gone: Vec<(String, String)> =
            self.write("delete definitions of tools", || async move |writer: &mut DbConnection| query().fetch_all(writer).await).await?;
        Ok(gone.into_iter().map(|(server, tool)| ToolId::new(server.as_str(), tool)).collect())
    }
}

fn read(row: &DbRow) -> Result<StoredDefinition, sqlx::Error> {
    let fingerprint = |bytes: &[u8]| fingerprint_from_bytes(bytes).ok_or_else(|| odd("a hash of another length"));
    let noticed = row.try_get::<Option<&[u8]>, _>("noticed")?.map(fingerprint).transpose()?;
    Ok(StoredDefinition {
        tool: ToolId::new(row.try_get::<&str, _>("server")?, row.try_get::<&str, _>("tool")?),
        fingerprint: fingerprint(row.try_get("fingerprint")?)?,
        is_new: row.try_get("is_new")?,
        first_seen: time(row, "first_seen")?,
        noticed: noticed.zip(optional_time(row, "noticed_at")?),
        approved: optional_time(row, "approved_at")?,
    })
}

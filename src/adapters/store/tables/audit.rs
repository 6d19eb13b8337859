//! Stores the audit log.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use sqlx::{QueryBuilder, Row};
use uuid::Uuid;

use super::{Db, DbConnection, DbRow, SqlStore, batches, text, time};
use crate::adapters::store::encoding::{odd, signed, to_millis};
use crate::domain::access::rule::{Effect, RulePlace, RuleSource};
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::service::ports::{AuditAction, AuditEntry, AuditQuery, AuditStore, CallOutcome, StoreError, StoredAuditEntry};

/// Number of rows per full statement, which is prepared only once.
const ROWS: usize = 100;

#[async_trait]
impl AuditStore for SqlStore {
    async fn save_audit_once(&self, batch: Uuid, entries: &[AuditEntry]) -> Result<(), StoreError> {
        let save = || {
            async move |writer: &mut DbConnection| {
                if !batches::is_new(writer, batch).await? {
                    return Ok(());
                }
                for entries in entries.chunks(ROWS) {
                    let mut query = QueryBuilder::<Db>::new(
                        "INSERT INTO audit (at, principal, action, server, tool, subject, allowed, rule_source, rule_number, outcome, took_us, bytes) ",
                    );
                    query.push_values(entries, |mut row, entry| {
                        row.push_bind(to_millis(entry.at))
                            .push_bind(text(&entry.principal))
                            .push_bind(entry.action.name())
                            .push_bind(
                                entry.tool.as_ref().map(|tool| &tool.server).or(entry.server.as_ref()).map(|server| text(server.as_str())),
                            )
                            .push_bind(entry.tool.as_ref().map(|tool| text(&tool.name)))
                            .push_bind(entry.subject.as_deref().map(text))
                            .push_bind(entry.decision == Effect::Allow)
                            .push_bind(entry.rule.map(|rule| rule.source.name()))
                            .push_bind(entry.rule.and_then(|rule| i64::try_from(rule.number).ok()))
                            .push_bind(entry.outcome.map(CallOutcome::name))
                            .push_bind(signed(entry.took.as_micros()))
                            .push_bind(entry.bytes.and_then(|bytes| i64::try_from(bytes).ok()));
                    });
                    query.build().persistent(entries.len() == ROWS).execute(&mut *writer).await?;
                }
                Ok(())
            }
        };
        self.write("save the audit log", save).await
    }

    async fn audit(&self, wanted: &AuditQuery) -> Result<Vec<StoredAuditEntry>, StoreError> {
        let mut query = select(wanted);
        let query = query.build().persistent(false);
        self.read_all("read the audit log", query.fetch_all(self.readers()), |row| read(&row)).await
    }

    async fn forget_audit_before(&self, time: SystemTime) -> Result<u64, StoreError> {
        const DELETE: &str = "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at < $1 LIMIT $2)";
        self.delete_in_parts("delete old entries of the audit log", DELETE, time).await
    }
}

fn select(wanted: &AuditQuery) -> QueryBuilder<Db> {
    let mut query = QueryBuilder::<Db>::new(
        "SELECT id, at, principal, action, server, tool, subject, allowed, rule_source, rule_number, outcome, took_us, bytes FROM audit WHERE true",
    );
    let texts = [
        (" AND principal = ", wanted.principal.as_deref()),
        (" AND action = ", wanted.action.map(AuditAction::name)),
        (" AND server = ", wanted.server.as_deref()),
        (" AND tool = ", wanted.tool.as_deref()),
        (" AND outcome = ", wanted.outcome.map(CallOutcome::name)),
    ];
    for (condition, value) in texts {
        if let Some(value) = value {
            query.push(condition).push_bind(text(value));
        }
    }
    if let Some(decision) = wanted.decision {
        query.push(" AND allowed = ").push_bind(decision == Effect::Allow);
    }
    let numbers = [
        (" AND at >= ", wanted.since.map(to_millis)),
        (" AND at < ", wanted.until.map(to_millis)),
        (" AND id < ", wanted.before.map(signed)),
    ];
    for (condition, value) in numbers {
        if let Some(value) = value {
            query.push(condition).push_bind(value);
        }
    }
    query.push(" ORDER BY id DESC LIMIT ").push_bind(signed(wanted.limit));
    query
}

fn read(row: &DbRow) -> Result<StoredAuditEntry, sqlx::Error> {
    let unknown = |what: &str| odd(&format!("an unknown {what}"));
    let text = |column| row.try_get::<Option<&str>, _>(column);
    let rule = match (text("rule_source")?, row.try_get::<Option<i64>, _>("rule_number")?) {
        (Some(source), Some(number)) => {
            let source = RuleSource::of_name(source).ok_or_else(|| unknown("source of a rule"))?;
            Some(RulePlace { source, number: usize::try_from(number).unwrap_or_default() })
        }
        _ => None,
    };
    let outcome = text("outcome")?.map(|name| CallOutcome::of_name(name).ok_or_else(|| unknown("outcome"))).transpose()?;
    let (server, tool) = match (text("server")?, text("tool")?) {
        (Some(server), Some(tool)) => (None, Some(ToolId::new(server, tool))),
        (server, _) => (server.map(ServerName::from), None),
    };
    Ok(StoredAuditEntry {
        id: row.try_get::<i64, _>("id")?.unsigned_abs(),
        entry: AuditEntry {
            at: time(row, "at")?,
            principal: row.try_get("principal")?,
            action: AuditAction::of_name(row.try_get("action")?).ok_or_else(|| unknown("action"))?,
            tool,
            server,
            subject: row.try_get("subject")?,
            decision: if row.try_get("allowed")? { Effect::Allow } else { Effect::Block },
            rule,
            outcome,
            took: Duration::from_micros(row.try_get::<i64, _>("took_us")?.unsigned_abs()),
            bytes: row.try_get::<Option<i64>, _>("bytes")?.map(i64::unsigned_abs),
        },
    })
}

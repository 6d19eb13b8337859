//! The audit log.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use sqlx::{FromRow, QueryBuilder, Sqlite, SqliteConnection};

use super::SqliteStore;
use crate::adapters::store::encoding::{from_millis, odd, signed, to_millis};
use crate::domain::access::policy::{Effect, RulePlace, RuleSource};
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::service::ports::{AuditAction, AuditEntry, AuditQuery, AuditStore, CallOutcome, StoreError, StoredAuditEntry};

/// Rows of one statement. The statement for so many is prepared once.
const ROWS: usize = 100;

#[derive(FromRow)]
struct Row {
    id: i64,
    at: i64,
    principal: String,
    action: String,
    server: Option<String>,
    tool: Option<String>,
    subject: Option<String>,
    allowed: bool,
    rule_source: Option<String>,
    rule_number: Option<i64>,
    outcome: Option<String>,
    took_us: i64,
    bytes: Option<i64>,
}

#[async_trait]
impl AuditStore for SqliteStore {
    async fn save_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        let save = async |writer: &mut SqliteConnection| {
            for entries in entries.chunks(ROWS) {
                let mut query = QueryBuilder::<Sqlite>::new(
                    "INSERT INTO audit (at, principal, action, server, tool, subject, allowed, rule_source, rule_number, outcome, took_us, bytes) ",
                );
                query.push_values(entries, |mut row, entry| {
                    row.push_bind(to_millis(entry.at))
                        .push_bind(&entry.principal)
                        .push_bind(entry.action.name())
                        .push_bind(entry.tool.as_ref().map(|tool| &tool.server).or(entry.server.as_ref()).map(ServerName::as_str))
                        .push_bind(entry.tool.as_ref().map(|tool| &*tool.name))
                        .push_bind(&entry.subject)
                        .push_bind(entry.decision == Effect::Allow)
                        .push_bind(entry.rule.map(|rule| source_name(rule.source)))
                        .push_bind(entry.rule.and_then(|rule| i64::try_from(rule.number).ok()))
                        .push_bind(entry.outcome.map(CallOutcome::name))
                        .push_bind(signed(entry.took.as_micros()))
                        .push_bind(entry.bytes.and_then(|bytes| i64::try_from(bytes).ok()));
                });
                query.build().persistent(entries.len() == ROWS).execute(&mut *writer).await?;
            }
            Ok(())
        };
        self.write("save the audit log", save).await
    }

    async fn audit(&self, wanted: &AuditQuery) -> Result<Vec<StoredAuditEntry>, StoreError> {
        let mut query = select(wanted);
        let query = query.build_query_as().persistent(false);
        self.read_all("read the audit log", query.fetch_all(&self.readers), Row::into_entry).await
    }

    async fn forget_audit_before(&self, time: SystemTime) -> Result<u64, StoreError> {
        let query = sqlx::query("DELETE FROM audit WHERE at < ?").bind(to_millis(time));
        self.write("forget old entries of the audit log", async |writer| Ok(query.execute(writer).await?.rows_affected())).await
    }
}

fn select(wanted: &AuditQuery) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::<Sqlite>::new(
        "SELECT id, at, principal, action, server, tool, subject, allowed, rule_source, rule_number, outcome, took_us, bytes FROM audit WHERE 1",
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
            query.push(condition).push_bind(value);
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

fn source_name(source: RuleSource) -> &'static str {
    match source {
        RuleSource::Settings => "settings",
        RuleSource::Api => "api",
    }
}

impl Row {
    fn into_entry(self) -> Result<StoredAuditEntry, sqlx::Error> {
        let unknown = |what: &str| odd(&format!("an unknown {what}"));
        let rule = match (self.rule_source.as_deref(), self.rule_number) {
            (Some(source), Some(number)) => {
                let source = [RuleSource::Settings, RuleSource::Api].into_iter().find(|known| source_name(*known) == source);
                let source = source.ok_or_else(|| unknown("source of a rule"))?;
                Some(RulePlace { source, number: usize::try_from(number).unwrap_or_default() })
            }
            _ => None,
        };
        let outcome = self.outcome.map(|name| CallOutcome::of_name(&name).ok_or_else(|| unknown("outcome"))).transpose()?;
        let (server, tool) = match (self.server, self.tool) {
            (Some(server), Some(tool)) => (None, Some(ToolId::new(server.as_str(), tool))),
            (server, _) => (server.as_deref().map(ServerName::from), None),
        };
        Ok(StoredAuditEntry {
            id: self.id.unsigned_abs(),
            entry: AuditEntry {
                at: from_millis(self.at),
                principal: self.principal,
                action: AuditAction::of_name(&self.action).ok_or_else(|| unknown("action"))?,
                tool,
                server,
                subject: self.subject,
                decision: if self.allowed { Effect::Allow } else { Effect::Block },
                rule,
                outcome,
                took: Duration::from_micros(self.took_us.unsigned_abs()),
                bytes: self.bytes.map(i64::unsigned_abs),
            },
        })
    }
}

//! Stores usage as sums per day. Every batch of events updates them, so queries don't count events.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use async_trait::async_trait;
use sqlx::{QueryBuilder, Row};

use super::{CHUNK, Db, DbConnection, SqlStore, conversation_figures, costs, count, snapshot, text};
use crate::adapters::store::encoding::{DAY, from_millis, odd, signed};
use crate::adapters::store::sums::{DaySums, begin, day, end};
use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ToolId;
use crate::domain::records::usage::{Latencies, LatencyBucket};
use crate::service::ports::{
    ConversationQuery, ConversationReport, CostRow, DayUsage, MessageCounts, SelectionEvent, StoreError, ToolCounts, ToolUsage, Usage,
    UsageQuery, UsageStore, Verdict,
};

pub(super) async fn add(writer: &mut DbConnection, events: &[SelectionEvent]) -> Result<(), sqlx::Error> {
    let DaySums { days, tools, latencies, costs } = DaySums::of(events);
    for (day, counts) in days {
        sqlx::query(
            "INSERT INTO usage_day (day, selections, searches, recovered_searches, tokens_before, tokens_after) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (day) DO UPDATE SET selections = usage_day.selections + excluded.selections, \
             searches = usage_day.searches + excluded.searches, recovered_searches = usage_day.recovered_searches + excluded.recovered_searches, \
             tokens_before = usage_day.tokens_before + excluded.tokens_before, tokens_after = usage_day.tokens_after + excluded.tokens_after",
        )
        .bind(day)
        .bind(signed(counts.selections))
        .bind(signed(counts.searches))
        .bind(signed(counts.recovered_searches))
        .bind(signed(counts.tokens_before))
        .bind(signed(counts.tokens_after))
        .execute(&mut *writer)
        .await?;
    }
    let tools: Vec<_> = tools.into_iter().collect();
    for chunk in tools.chunks(CHUNK) {
        let mut query = QueryBuilder::<Db>::new(
            "INSERT INTO usage_tool (day, server, tool, offered, called, succeeded, tool_errors, recovered, called_at) ",
        );
        query.push_values(chunk, |mut row, ((day, tool), (counts, called_at))| {
            row.push_bind(*day)
                .push_bind(text(tool.server.as_str()))
                .push_bind(text(&tool.name))
                .push_bind(signed(counts.offered))
                .push_bind(signed(counts.called))
                .push_bind(signed(counts.succeeded))
                .push_bind(signed(counts.tool_errors))
                .push_bind(signed(counts.recovered))
                .push_bind(*called_at);
        });
        query.push(
            " ON CONFLICT (day, server, tool) DO UPDATE SET offered = usage_tool.offered + excluded.offered, called = usage_tool.called + excluded.called, \
             succeeded = usage_tool.succeeded + excluded.succeeded, tool_errors = usage_tool.tool_errors + excluded.tool_errors, \
             recovered = usage_tool.recovered + excluded.recovered, \
             called_at = CASE WHEN excluded.called_at > usage_tool.called_at THEN excluded.called_at ELSE usage_tool.called_at END",
        );
        query.build().persistent(false).execute(&mut *writer).await?;
    }
    let latencies: Vec<_> = latencies.into_iter().collect();
    for chunk in latencies.chunks(CHUNK) {
        let mut query = QueryBuilder::<Db>::new("INSERT INTO usage_latency (day, server, tool, bucket, calls) ");
        query.push_values(chunk, |mut row, ((day, tool, bucket), calls)| {
            row.push_bind(*day)
                .push_bind(text(tool.server.as_str()))
                .push_bind(text(&tool.name))
                .push_bind(i64::from(bucket.0))
                .push_bind(signed(*calls));
        });
        query.push(" ON CONFLICT (day, server, tool, bucket) DO UPDATE SET calls = usage_latency.calls + excluded.calls");
        query.build().persistent(false).execute(&mut *writer).await?;
    }
    costs::add(writer, costs).await
}

const SUMS: &str = "CAST(SUM(offered) AS BIGINT) AS offered, CAST(SUM(called) AS BIGINT) AS called, \
    CAST(SUM(succeeded) AS BIGINT) AS succeeded, CAST(SUM(tool_errors) AS BIGINT) AS tool_errors, \
    CAST(SUM(recovered) AS BIGINT) AS recovered";

#[async_trait]
impl UsageStore for SqlStore {
    /// Loads all sums from one snapshot, so that a concurrent batch of events is in all of them or in none.
    async fn usage(&self, wanted: &UsageQuery) -> Result<Usage, StoreError> {
        let work = async {
            let mut snapshot = snapshot(self.readers()).await?;
            let tools = tools(&mut snapshot, wanted).await?;
            let days = days(&mut snapshot, wanted).await?;
            snapshot.commit().await?;
            Ok(Usage { tools, days })
        };
        self.read("read the usage", work).await
    }

    async fn costs(&self, since: SystemTime, until: SystemTime) -> Result<Vec<CostRow>, StoreError> {
        self.read("read the costs", costs::load(self.readers(), day(since)..end(until))).await
    }

    async fn forget_usage_of(&self, owner: &PrincipalId) -> Result<u64, StoreError> {
        let delete = || async move |writer: &mut DbConnection| costs::delete_of(writer, owner).await;
        let deleted = self.durable("delete a caller's usage", delete).await?;
        self.empty_log().await;
        Ok(deleted)
    }

    async fn conversation_figures(&self, wanted: &ConversationQuery) -> Result<ConversationReport, StoreError> {
        self.read("read the figures of conversations", conversation_figures::load(self.readers(), wanted)).await
    }
}

async fn tools(reader: &mut DbConnection, wanted: &UsageQuery) -> Result<Vec<ToolUsage>, sqlx::Error> {
    let mut tools: HashMap<ToolId, ToolUsage> = HashMap::new();
    let mut query = select(&format!("server, tool, {SUMS}, MAX(called_at) AS called_at FROM usage_tool"), "day", wanted);
    query.push(" GROUP BY server, tool");
    for row in query.build().persistent(false).fetch_all(&mut *reader).await? {
        let tool = ToolId::new(row.try_get::<&str, _>("server")?, row.try_get::<&str, _>("tool")?);
        let counts = ToolCounts::by_name(|name| count(&row, name))?;
        let called_at = Some(row.try_get::<i64, _>("called_at")?).filter(|at| *at > 0).map(from_millis);
        tools.insert(tool.clone(), ToolUsage { counts, called_at, ..empty(tool) });
    }

    let mut query = select("server, tool, bucket, CAST(SUM(calls) AS BIGINT) FROM usage_latency", "day", wanted);
    query.push(" GROUP BY server, tool, bucket");
    let rows: Vec<(String, String, i64, i64)> = query.build_query_as().persistent(false).fetch_all(&mut *reader).await?;
    for (server, tool, bucket, calls) in rows {
        let bucket = LatencyBucket(u8::try_from(bucket).unwrap_or(u8::MAX));
        entry(&mut tools, &server, tool).latencies.add(bucket, calls.unsigned_abs());
    }

    let mut query = select("server, tool, verdict, COUNT(*) FROM feedback", "at", wanted);
    query.push(" GROUP BY server, tool, verdict");
    let rows: Vec<(String, String, String, i64)> = query.build_query_as().persistent(false).fetch_all(&mut *reader).await?;
    for (server, tool, verdict, count) in rows {
        let usage = entry(&mut tools, &server, tool);
        match Verdict::of_name(&verdict) {
            Some(Verdict::Helpful) => usage.helpful = count.unsigned_abs(),
            Some(Verdict::Wrong) => usage.wrong = count.unsigned_abs(),
            Some(Verdict::Missing) => usage.missing = count.unsigned_abs(),
            None => return Err(odd("an unknown verdict")),
        }
    }
    Ok(tools.into_values().collect())
}

pub(super) async fn delete_before(writer: &mut DbConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    let mut gone = 0;
    for delete in [
        "DELETE FROM usage_day WHERE day < $1",
        "DELETE FROM usage_tool WHERE day < $1",
        "DELETE FROM usage_latency WHERE day < $1",
        "DELETE FROM usage_cost WHERE day < $1",
    ] {
        gone += sqlx::query(delete).bind(day(time)).execute(&mut *writer).await?.rows_affected();
    }
    Ok(gone)
}

async fn days(reader: &mut DbConnection, wanted: &UsageQuery) -> Result<Vec<DayUsage>, sqlx::Error> {
    let mut days: BTreeMap<i64, DayUsage> = BTreeMap::new();
    let none = |day| DayUsage { day: begin(day), messages: MessageCounts::default(), tools: ToolCounts::default() };

    let mut query = QueryBuilder::<Db>::new(
        "SELECT day, CAST(SUM(selections) AS BIGINT) AS selections, CAST(SUM(searches) AS BIGINT) AS searches, \
         CAST(SUM(recovered_searches) AS BIGINT) AS recovered_searches, CAST(SUM(tokens_before) AS BIGINT) AS tokens_before, \
         CAST(SUM(tokens_after) AS BIGINT) AS tokens_after FROM usage_day",
    );
    push_days(&mut query, wanted);
    query.push(" GROUP BY day");
    for row in query.build().persistent(false).fetch_all(&mut *reader).await? {
        let day = row.try_get("day")?;
        days.entry(day).or_insert_with(|| none(day)).messages = MessageCounts::by_name(|name| count(&row, name))?;
    }

    let mut query = select(&format!("day, {SUMS} FROM usage_tool"), "day", wanted);
    query.push(" GROUP BY day");
    for row in query.build().persistent(false).fetch_all(&mut *reader).await? {
        let day = row.try_get("day")?;
        days.entry(day).or_insert_with(|| none(day)).tools = ToolCounts::by_name(|name| count(&row, name))?;
    }
    Ok(days.into_values().collect())
}

/// Builds a query over the rows of a period and, optionally, of one server and tool.
fn select(what: &str, time: &str, wanted: &UsageQuery) -> QueryBuilder<Db> {
    let mut query = QueryBuilder::<Db>::new(format!("SELECT {what}"));
    if time == "day" {
        push_days(&mut query, wanted);
    } else {
        let (since, until) = (day(wanted.since) * DAY, end(wanted.until) * DAY);
        query.push(" WHERE at >= ").push_bind(since).push(" AND at < ").push_bind(until);
    }
    for (condition, value) in [(" AND server = ", &wanted.server), (" AND tool = ", &wanted.tool)] {
        if let Some(value) = value {
            query.push(condition).push_bind(text(value).into_owned());
        }
    }
    query
}

fn push_days(query: &mut QueryBuilder<Db>, wanted: &UsageQuery) {
    query.push(" WHERE day >= ").push_bind(day(wanted.since)).push(" AND day < ").push_bind(end(wanted.until));
}

fn entry<'a>(tools: &'a mut HashMap<ToolId, ToolUsage>, server: &str, tool: String) -> &'a mut ToolUsage {
    let id = ToolId::new(server, tool);
    tools.entry(id.clone()).or_insert_with(|| empty(id))
}

fn empty(tool: ToolId) -> ToolUsage {
    ToolUsage { tool, counts: ToolCounts::default(), latencies: Latencies::default(), called_at: None, helpful: 0, wrong: 0, missing: 0 }
}

//! Sums over events, kept by days: added to with every batch of events, so that nobody ever counts the events themselves.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::{FromRow, QueryBuilder, Sqlite, SqliteConnection, SqlitePool};

use super::CHUNK;
use crate::adapters::store::encoding::{from_millis, to_millis};
use crate::domain::catalog::tool::ToolId;
use crate::domain::records::usage::{Latencies, LatencyBucket};
use crate::service::ports::{
    CallOutcome, DayUsage, MessageCounts, SelectionEvent, SelectionEventKind, ToolCounts, ToolUsage, Usage, UsageQuery, Verdict,
};

const DAY_MILLIS: i64 = 86_400_000;
const HOURS_OF_A_DAY: i64 = 24;

/// What one batch of events adds. In the order of the keys, so that rows that lie together are written together.
#[derive(Default)]
struct Sums<'a> {
    days: BTreeMap<i64, MessageCounts>,
    tools: BTreeMap<(i64, &'a ToolId), (ToolCounts, i64)>,
    latencies: BTreeMap<(i64, &'a ToolId, LatencyBucket), u64>,
}

impl<'a> Sums<'a> {
    fn of(events: &'a [SelectionEvent]) -> Self {
        let mut sums = Self::default();
        for event in events {
            let day = day(event.at);
            match &event.kind {
                SelectionEventKind::Offered { tools, tokens_before, tokens_after, .. } => {
                    let counts = sums.days.entry(day).or_default();
                    counts.selections += 1;
                    counts.tokens_before += tokens_before;
                    counts.tokens_after += tokens_after;
                    for tool in tools.tools() {
                        sums.tools.entry((day, tool)).or_default().0.offered += 1;
                    }
                }
                SelectionEventKind::Searched { recovered, .. } => {
                    let counts = sums.days.entry(day).or_default();
                    counts.searches += 1;
                    counts.recovered_searches += u64::from(*recovered);
                }
                SelectionEventKind::Called { tool, outcome, took, recovered } => {
                    let (counts, called_at) = sums.tools.entry((day, tool)).or_default();
                    counts.called += 1;
                    counts.recovered += u64::from(*recovered);
                    *called_at = to_millis(event.at).max(*called_at);
                    match outcome {
                        CallOutcome::Success => counts.succeeded += 1,
                        CallOutcome::ToolError => counts.tool_errors += 1,
                        CallOutcome::Rejected
                        | CallOutcome::Failed
                        | CallOutcome::Cancelled
                        | CallOutcome::Limited
                        | CallOutcome::InputRequired => continue,
                    }
                    *sums.latencies.entry((day, tool, LatencyBucket::of(*took))).or_default() += 1;
                }
                SelectionEventKind::Loaded { .. } | SelectionEventKind::Unloaded { .. } | SelectionEventKind::Listed { .. } => {}
            }
        }
        sums
    }
}

pub(super) async fn add(writer: &mut SqliteConnection, events: &[SelectionEvent]) -> Result<(), sqlx::Error> {
    let Sums { days, tools, latencies } = Sums::of(events);
    for (day, counts) in days {
        sqlx::query(
            "INSERT INTO usage_day (day, selections, searches, recovered_searches, tokens_before, tokens_after) \
             VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (day) DO UPDATE SET selections = selections + excluded.selections, \
             searches = searches + excluded.searches, recovered_searches = recovered_searches + excluded.recovered_searches, \
             tokens_before = tokens_before + excluded.tokens_before, tokens_after = tokens_after + excluded.tokens_after",
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
        let mut query = QueryBuilder::<Sqlite>::new(
            "INSERT INTO usage_tool (day, server, tool, offered, called, succeeded, tool_errors, recovered, called_at) ",
        );
        query.push_values(chunk, |mut row, ((day, tool), (counts, called_at))| {
            row.push_bind(*day)
                .push_bind(tool.server.as_str())
                .push_bind(&*tool.name)
                .push_bind(signed(counts.offered))
                .push_bind(signed(counts.called))
                .push_bind(signed(counts.succeeded))
                .push_bind(signed(counts.tool_errors))
                .push_bind(signed(counts.recovered))
                .push_bind(*called_at);
        });
        query.push(
            " ON CONFLICT (day, server, tool) DO UPDATE SET offered = offered + excluded.offered, called = called + excluded.called, \
             succeeded = succeeded + excluded.succeeded, tool_errors = tool_errors + excluded.tool_errors, \
             recovered = recovered + excluded.recovered, called_at = max(called_at, excluded.called_at)",
        );
        query.build().persistent(false).execute(&mut *writer).await?;
    }
    let latencies: Vec<_> = latencies.into_iter().collect();
    for chunk in latencies.chunks(CHUNK) {
        let mut query = QueryBuilder::<Sqlite>::new("INSERT INTO usage_latency (day, server, tool, bucket, calls) ");
        query.push_values(chunk, |mut row, ((day, tool, bucket), calls)| {
            row.push_bind(*day)
                .push_bind(tool.server.as_str())
                .push_bind(&*tool.name)
                .push_bind(i64::from(bucket.0))
                .push_bind(signed(*calls));
        });
        query.push(" ON CONFLICT (day, server, tool, bucket) DO UPDATE SET calls = calls + excluded.calls");
        query.build().persistent(false).execute(&mut *writer).await?;
    }
    Ok(())
}

#[derive(FromRow)]
struct ToolRow {
    server: String,
    tool: String,
    offered: i64,
    called: i64,
    succeeded: i64,
    tool_errors: i64,
    recovered: i64,
    called_at: i64,
}

#[derive(FromRow)]
struct DayRow {
    day: i64,
    offered: i64,
    called: i64,
    succeeded: i64,
    tool_errors: i64,
    recovered: i64,
}

#[derive(FromRow)]
struct MessageRow {
    day: i64,
    selections: i64,
    searches: i64,
    recovered_searches: i64,
    tokens_before: i64,
    tokens_after: i64,
}

const SUMS: &str = "SUM(offered) AS offered, SUM(called) AS called, SUM(succeeded) AS succeeded, SUM(tool_errors) AS tool_errors, \
                    SUM(recovered) AS recovered";

/// All of it as of one moment: a batch of events that is written meanwhile is in none of the sums.
pub(super) async fn load(readers: &SqlitePool, wanted: &UsageQuery) -> Result<Usage, sqlx::Error> {
    let mut snapshot = readers.begin().await?;
    let tools = tools(&mut snapshot, wanted).await?;
    let days = days(&mut snapshot, wanted).await?;
    snapshot.commit().await?;
    Ok(Usage { tools, days })
}

async fn tools(reader: &mut SqliteConnection, wanted: &UsageQuery) -> Result<Vec<ToolUsage>, sqlx::Error> {
    let mut tools: HashMap<ToolId, ToolUsage> = HashMap::new();
    let mut query = select(&format!("server, tool, {SUMS}, MAX(called_at) AS called_at FROM usage_tool"), "day", wanted);
    query.push(" GROUP BY server, tool");
    let rows: Vec<ToolRow> = query.build_query_as().persistent(false).fetch_all(&mut *reader).await?;
    for row in rows {
        let called_at = (row.called_at > 0).then(|| from_millis(row.called_at));
        let counts = row.counts();
        let tool = ToolId::new(row.server.as_str(), row.tool);
        tools.insert(tool.clone(), ToolUsage { counts, called_at, ..empty(tool) });
    }

    let mut query = select("server, tool, bucket, SUM(calls) FROM usage_latency", "day", wanted);
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
            None => return Err(sqlx::Error::Decode("an unknown verdict".into())),
        }
    }
    Ok(tools.into_values().collect())
}

pub(super) async fn delete_before(writer: &mut SqliteConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    let mut gone = 0;
    for delete in ["DELETE FROM usage_day WHERE day < ?", "DELETE FROM usage_tool WHERE day < ?", "DELETE FROM usage_latency WHERE day < ?"]
    {
        gone += sqlx::query(delete).bind(day(time)).execute(&mut *writer).await?.rows_affected();
    }
    Ok(gone)
}

async fn days(reader: &mut SqliteConnection, wanted: &UsageQuery) -> Result<Vec<DayUsage>, sqlx::Error> {
    let mut days: BTreeMap<i64, DayUsage> = BTreeMap::new();
    let begin = |day: i64| UNIX_EPOCH + Duration::from_hours((day * HOURS_OF_A_DAY).unsigned_abs());
    let none = |day| DayUsage { day: begin(day), messages: MessageCounts::default(), tools: ToolCounts::default() };

    let mut query = QueryBuilder::<Sqlite>::new(
        "SELECT day, SUM(selections) AS selections, SUM(searches) AS searches, \
         SUM(recovered_searches) AS recovered_searches, SUM(tokens_before) AS tokens_before, SUM(tokens_after) AS tokens_after \
         FROM usage_day",
    );
    push_days(&mut query, wanted);
    query.push(" GROUP BY day");
    let rows: Vec<MessageRow> = query.build_query_as().persistent(false).fetch_all(&mut *reader).await?;
    for row in rows {
        days.entry(row.day).or_insert_with(|| none(row.day)).messages = MessageCounts {
            selections: row.selections.unsigned_abs(),
            searches: row.searches.unsigned_abs(),
            recovered_searches: row.recovered_searches.unsigned_abs(),
            tokens_before: row.tokens_before.unsigned_abs(),
            tokens_after: row.tokens_after.unsigned_abs(),
        };
    }

    let mut query = select(&format!("day, {SUMS} FROM usage_tool"), "day", wanted);
    query.push(" GROUP BY day");
    let rows: Vec<DayRow> = query.build_query_as().persistent(false).fetch_all(&mut *reader).await?;
    for row in rows {
        days.entry(row.day).or_insert_with(|| none(row.day)).tools = row.counts();
    }
    Ok(days.into_values().collect())
}

/// A query over the rows of a time, and of a tool where one is wanted.
fn select(what: &str, time: &str, wanted: &UsageQuery) -> QueryBuilder<Sqlite> {
    let mut query = QueryBuilder::<Sqlite>::new(format!("SELECT {what}"));
    if time == "day" {
        push_days(&mut query, wanted);
    } else {
        let (since, until) = (day(wanted.since) * DAY_MILLIS, end(wanted.until) * DAY_MILLIS);
        query.push(" WHERE at >= ").push_bind(since).push(" AND at < ").push_bind(until);
    }
    for (condition, value) in [(" AND server = ", &wanted.server), (" AND tool = ", &wanted.tool)] {
        if let Some(value) = value {
            query.push(condition).push_bind(value.clone());
        }
    }
    query
}

fn push_days(query: &mut QueryBuilder<Sqlite>, wanted: &UsageQuery) {
    query.push(" WHERE day >= ").push_bind(day(wanted.since)).push(" AND day < ").push_bind(end(wanted.until));
}

fn entry<'a>(tools: &'a mut HashMap<ToolId, ToolUsage>, server: &str, tool: String) -> &'a mut ToolUsage {
    let id = ToolId::new(server, tool);
    tools.entry(id.clone()).or_insert_with(|| empty(id))
}

fn empty(tool: ToolId) -> ToolUsage {
    ToolUsage { tool, counts: ToolCounts::default(), latencies: Latencies::default(), called_at: None, helpful: 0, wrong: 0, missing: 0 }
}

impl ToolRow {
    fn counts(&self) -> ToolCounts {
        counts([self.offered, self.called, self.succeeded, self.tool_errors, self.recovered])
    }
}

impl DayRow {
    fn counts(&self) -> ToolCounts {
        counts([self.offered, self.called, self.succeeded, self.tool_errors, self.recovered])
    }
}

fn counts(sums: [i64; 5]) -> ToolCounts {
    let [offered, called, succeeded, tool_errors, recovered] = sums.map(i64::unsigned_abs);
    ToolCounts { offered, called, succeeded, tool_errors, recovered }
}

/// Days since 1970.
fn day(time: SystemTime) -> i64 {
    to_millis(time) / DAY_MILLIS
}

/// The first day that does not begin before then.
fn end(time: SystemTime) -> i64 {
    let millis = to_millis(time);
    millis / DAY_MILLIS + i64::from(millis % DAY_MILLIS > 0)
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

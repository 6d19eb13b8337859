//! Stores sums per conversation. Every batch of events updates them.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use sqlx::{QueryBuilder, Row};

use super::{Db, DbConnection, DbPool, DbRow, count, snapshot};
use crate::adapters::store::encoding::{from_millis, odd, signed, to_millis};
use crate::adapters::store::sums::ConversationSums;
use crate::domain::records::conversation_figures::{
    ArmFigures, ConversationCounts, ConversationFigures, ConversationQuery, ConversationReport,
};
use crate::domain::records::usage::LatencyBucket;
use crate::domain::selection::experiment::Arm;
use crate::service::ports::SelectionEvent;

const COUNTS: &str = "CAST(SUM(selections) AS BIGINT) AS selections, CAST(SUM(coalesce(initial_tools, 0)) AS BIGINT) AS initial_tools, \
    CAST(SUM(coalesce(final_tools, 0)) AS BIGINT) AS final_tools, CAST(SUM(tokens_before) AS BIGINT) AS tokens_before, CAST(SUM(tokens_after) AS BIGINT) AS tokens_after, \
    CAST(SUM(searches) AS BIGINT) AS searches, CAST(SUM(recovered_searches) AS BIGINT) AS recovered_searches, CAST(SUM(loads) AS BIGINT) AS loads, CAST(SUM(unloads) AS BIGINT) AS unloads, \
    CAST(SUM(calls) AS BIGINT) AS calls, CAST(SUM(succeeded) AS BIGINT) AS succeeded, CAST(SUM(tool_errors) AS BIGINT) AS tool_errors";

pub(super) async fn add(writer: &mut DbConnection, events: &[SelectionEvent]) -> Result<(), sqlx::Error> {
    for (conversation, addition) in ConversationSums::of(events) {
        let (first, last) = addition.times.unwrap_or_default();
        let counts = &addition.counts;
        let longest = addition.longest_load.map(|longest| signed(longest.as_micros()));
        sqlx::query(
            "INSERT INTO usage_session (session, arm, first_at, last_at, initial_tools, final_tools, longest_load_us, selections, \
             tokens_before, tokens_after, searches, recovered_searches, loads, unloads, calls, succeeded, tool_errors) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) ON CONFLICT (session) DO UPDATE SET \
             arm = coalesce(usage_session.arm, excluded.arm), \
             first_at = CASE WHEN excluded.first_at < usage_session.first_at THEN excluded.first_at ELSE usage_session.first_at END, \
             last_at = CASE WHEN excluded.last_at > usage_session.last_at THEN excluded.last_at ELSE usage_session.last_at END, \
             initial_tools = coalesce(usage_session.initial_tools, excluded.initial_tools), \
             final_tools = coalesce(excluded.final_tools, usage_session.final_tools), \
             longest_load_us = CASE WHEN excluded.longest_load_us > coalesce(usage_session.longest_load_us, -1) \
             THEN excluded.longest_load_us ELSE usage_session.longest_load_us END, \
             selections = usage_session.selections + excluded.selections, \
             tokens_before = usage_session.tokens_before + excluded.tokens_before, \
             tokens_after = usage_session.tokens_after + excluded.tokens_after, \
             searches = usage_session.searches + excluded.searches, \
             recovered_searches = usage_session.recovered_searches + excluded.recovered_searches, \
             loads = usage_session.loads + excluded.loads, unloads = usage_session.unloads + excluded.unloads, \
             calls = usage_session.calls + excluded.calls, succeeded = usage_session.succeeded + excluded.succeeded, \
             tool_errors = usage_session.tool_errors + excluded.tool_errors",
        )
        .bind(conversation.as_slice())
        .bind(addition.arm.map(Arm::name))
        .bind(first)
        .bind(last)
        .bind(addition.initial_tools.map(signed))
        .bind(addition.final_tools.map(signed))
        .bind(longest)
        .bind(signed(counts.selections))
        .bind(signed(counts.tokens_before))
        .bind(signed(counts.tokens_after))
        .bind(signed(counts.searches))
        .bind(signed(counts.recovered_searches))
        .bind(signed(counts.loads))
        .bind(signed(counts.unloads))
        .bind(signed(counts.calls))
        .bind(signed(counts.succeeded))
        .bind(signed(counts.tool_errors))
        .execute(&mut *writer)
        .await?;
        for (bucket, loads) in addition.loads {
            sqlx::query(
                "INSERT INTO usage_session_load (session, bucket, loads) VALUES ($1, $2, $3) \
                 ON CONFLICT (session, bucket) DO UPDATE SET loads = usage_session_load.loads + excluded.loads",
            )
            .bind(conversation.as_slice())
            .bind(i64::from(bucket.0))
            .bind(signed(loads))
            .execute(&mut *writer)
            .await?;
        }
    }
    Ok(())
}

/// Loads all sums from one snapshot.
pub(super) async fn load(readers: &DbPool, wanted: &ConversationQuery) -> Result<ConversationReport, sqlx::Error> {
    let mut snapshot = snapshot(readers).await?;
    let (since, until) = (to_millis(wanted.since), to_millis(wanted.until));
    let mut query = QueryBuilder::<Db>::new(format!("SELECT arm, count(*) AS sessions, {COUNTS} FROM usage_session WHERE last_at >= "));
    query.push_bind(since).push(" AND last_at < ").push_bind(until).push(" GROUP BY arm");
    let mut arms: HashMap<Option<Arm>, ArmFigures> = HashMap::new();
    for row in query.build().fetch_all(&mut *snapshot).await? {
        let (arm, conversations) = (arm(row.try_get("arm")?)?, row.try_get::<i64, _>("sessions")?.unsigned_abs());
        let counts = ConversationCounts::by_name(|name| count(&row, name))?;
        arms.insert(arm, ArmFigures { arm, conversations, counts, ..ArmFigures::default() });
    }
    let times: Vec<(Option<String>, i64, i64)> = sqlx::query_as(
        "SELECT arm, bucket, CAST(SUM(usage_session_load.loads) AS BIGINT) FROM usage_session_load JOIN usage_session USING (session) \
         WHERE last_at >= $1 AND last_at < $2 GROUP BY arm, bucket",
    )
    .bind(since)
    .bind(until)
    .fetch_all(&mut *snapshot)
    .await?;
    for (name, bucket, loads) in times {
        if let Some(figures) = arms.get_mut(&arm(name.as_deref())?) {
            figures.load_times.add(LatencyBucket(u8::try_from(bucket).unwrap_or(u8::MAX)), loads.unsigned_abs());
        }
    }
    let rows = sqlx::query(
        "SELECT arm, first_at, last_at, longest_load_us, selections, coalesce(initial_tools, 0) AS initial_tools, \
         coalesce(final_tools, 0) AS final_tools, tokens_before, tokens_after, searches, recovered_searches, loads, unloads, calls, \
         succeeded, tool_errors FROM usage_session WHERE last_at >= $1 AND last_at < $2 ORDER BY last_at DESC, session LIMIT $3",
    )
    .bind(since)
    .bind(until)
    .bind(signed(wanted.limit))
    .fetch_all(&mut *snapshot)
    .await?;
    snapshot.commit().await?;
    let latest = rows.iter().map(figures).collect::<Result<_, _>>()?;
    Ok(ConversationReport { arms: arms.into_values().collect(), latest })
}

pub(super) async fn delete_before(writer: &mut DbConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    let done = sqlx::query("DELETE FROM usage_session WHERE last_at < $1").bind(to_millis(time)).execute(writer).await?;
    Ok(done.rows_affected())
}

fn arm(name: Option<&str>) -> Result<Option<Arm>, sqlx::Error> {
    name.map(|name| Arm::of_name(name).ok_or_else(|| odd("an unknown arm"))).transpose()
}

fn figures(row: &DbRow) -> Result<ConversationFigures, sqlx::Error> {
    Ok(ConversationFigures {
        arm: arm(row.try_get("arm")?)?,
        first_at: from_millis(row.try_get("first_at")?),
        last_at: from_millis(row.try_get("last_at")?),
        counts: ConversationCounts::by_name(|name| count(row, name))?,
        longest_load: row.try_get::<Option<i64>, _>("longest_load_us")?.map(|micros| Duration::from_micros(micros.unsigned_abs())),
    })
}

//! The figures of conversations: added to with every batch of events.

use std::collections::BTreeMap;
use std::time::SystemTime;

use sqlx::{FromRow, SqliteConnection, SqlitePool};

use super::usage::{day, end};
use crate::adapters::store::encoding::{from_millis, to_millis};
use crate::domain::conversation::{Conversation, ConversationCounts, ConversationFigures, ConversationKind, ConversationUsage, LoadUsage};
use crate::domain::document::Mode;
use crate::domain::loading::{Group, GroupKind};
use crate::domain::usage::{Latencies, LatencyBucket};
use crate::service::ports::{CallOutcome, SelectionEvent, SelectionEventKind};

/// In place of a range of times: a group was taken back.
const UNLOADED: i64 = -1;

/// What a batch adds to one conversation.
#[derive(Default)]
struct Sums {
    mode: Option<Mode>,
    first: Option<SystemTime>,
    last: Option<SystemTime>,
    initial: Option<u64>,
    now: Option<u64>,
    counts: ConversationCounts,
}

impl Sums {
    fn add(&mut self, event: &SelectionEvent) {
        self.first = Some(self.first.map_or(event.at, |first| first.min(event.at)));
        self.last = Some(self.last.map_or(event.at, |last| last.max(event.at)));
        let counts = &mut self.counts;
        match &event.kind {
            SelectionEventKind::Offered { tools, .. } => {
                counts.selections += 1;
                self.bound(tools.len() as u64, tools.len() as u64);
            }
            SelectionEventKind::Searched { .. } => counts.finds += 1,
            SelectionEventKind::Called { outcome, .. } => {
                counts.calls += 1;
                counts.errors += u64::from(*outcome != CallOutcome::Success);
            }
            SelectionEventKind::Loaded { before, bound, .. } => {
                counts.loads += 1;
                self.bound(*before, *bound);
            }
            SelectionEventKind::Unloaded { before, bound, .. } => {
                counts.unloads += 1;
                self.bound(*before, *bound);
            }
            SelectionEventKind::Listed { mode, bound } => {
                self.mode = Some(*mode);
                self.bound(*bound, *bound);
            }
        }
    }

    fn bound(&mut self, before: u64, now: u64) {
        self.initial.get_or_insert(before);
        self.now = Some(now);
    }
}

pub(super) async fn add(writer: &mut SqliteConnection, events: &[SelectionEvent]) -> Result<(), sqlx::Error> {
    let mut conversations: BTreeMap<(&str, &Conversation), Sums> = BTreeMap::new();
    let mut loads: BTreeMap<(i64, &Group, i64), u64> = BTreeMap::new();
    for event in events {
        if let Some(conversation) = &event.conversation {
            conversations.entry((&event.principal, conversation)).or_default().add(event);
        }
        match &event.kind {
            SelectionEventKind::Loaded { group, took, .. } => {
                *loads.entry((day(event.at), group, i64::from(LatencyBucket::of(*took).0))).or_default() += 1;
            }
            SelectionEventKind::Unloaded { group, .. } => *loads.entry((day(event.at), group, UNLOADED)).or_default() += 1,
            _ => {}
        }
    }
    for ((principal, conversation), sums) in conversations {
        save(writer, principal, conversation, &sums).await?;
    }
    for ((day, group, bucket), times) in loads {
        sqlx::query(
            "INSERT INTO usage_load (day, kind, name, bucket, times) VALUES (?, ?, ?, ?, ?) \
             ON CONFLICT (day, kind, name, bucket) DO UPDATE SET times = times + excluded.times",
        )
        .bind(day)
        .bind(group.kind().name())
        .bind(group.name())
        .bind(bucket)
        .bind(signed(times))
        .execute(&mut *writer)
        .await?;
    }
    Ok(())
}

async fn save(writer: &mut SqliteConnection, principal: &str, conversation: &Conversation, sums: &Sums) -> Result<(), sqlx::Error> {
    let time = |at: Option<SystemTime>| at.map(to_millis);
    sqlx::query(
        "INSERT INTO usage_conversation (principal, kind, conversation, mode, began_at, last_at, initial_tools, final_tools, \
         selections, finds, loads, unloads, calls, errors) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT (principal, kind, conversation) DO UPDATE SET mode = coalesce(excluded.mode, mode), \
         began_at = min(began_at, excluded.began_at), last_at = max(last_at, excluded.last_at), \
         initial_tools = coalesce(initial_tools, excluded.initial_tools), final_tools = coalesce(excluded.final_tools, final_tools), \
         selections = selections + excluded.selections, finds = finds + excluded.finds, loads = loads + excluded.loads, \
         unloads = unloads + excluded.unloads, calls = calls + excluded.calls, errors = errors + excluded.errors",
    )
    .bind(principal)
    .bind(conversation.kind.name())
    .bind(&*conversation.id)
    .bind(sums.mode.map(Mode::name))
    .bind(time(sums.first))
    .bind(time(sums.last))
    .bind(sums.initial.map(signed))
    .bind(sums.now.map(signed))
    .bind(signed(sums.counts.selections))
    .bind(signed(sums.counts.finds))
    .bind(signed(sums.counts.loads))
    .bind(signed(sums.counts.unloads))
    .bind(signed(sums.counts.calls))
    .bind(signed(sums.counts.errors))
    .execute(writer)
    .await?;
    Ok(())
}

#[derive(FromRow)]
struct Row {
    principal: String,
    kind: String,
    conversation: String,
    mode: Option<String>,
    began_at: i64,
    last_at: i64,
    initial_tools: Option<i64>,
    final_tools: Option<i64>,
    selections: i64,
    finds: i64,
    loads: i64,
    unloads: i64,
    calls: i64,
    errors: i64,
}

/// All of it as of one moment.
pub(super) async fn load(readers: &SqlitePool, since: SystemTime, until: SystemTime) -> Result<ConversationFigures, sqlx::Error> {
    let mut snapshot = readers.begin().await?;
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT principal, kind, conversation, mode, began_at, last_at, initial_tools, final_tools, selections, finds, loads, unloads, \
         calls, errors FROM usage_conversation WHERE last_at >= ? AND began_at < ? ORDER BY began_at DESC, principal, kind, conversation",
    )
    .bind(to_millis(since))
    .bind(to_millis(until))
    .fetch_all(&mut *snapshot)
    .await?;
    let conversations = rows.into_iter().map(Row::into_usage).collect::<Result<_, _>>()?;
    let rows: Vec<(String, String, i64, i64)> = sqlx::query_as(
        "SELECT kind, name, bucket, SUM(times) FROM usage_load WHERE day >= ? AND day < ? GROUP BY kind, name, bucket ORDER BY kind, name",
    )
    .bind(day(since))
    .bind(end(until))
    .fetch_all(&mut *snapshot)
    .await?;
    snapshot.commit().await?;
    let mut loads: BTreeMap<Group, LoadUsage> = BTreeMap::new();
    for (kind, name, bucket, times) in rows {
        let kind = GroupKind::of_name(&kind).ok_or_else(|| sqlx::Error::Decode("an unknown kind of group".into()))?;
        let group = Group::new(kind, &name);
        let none = || LoadUsage { group: group.clone(), loads: 0, unloads: 0, latencies: Latencies::default() };
        let usage = loads.entry(group.clone()).or_insert_with(none);
        match u8::try_from(bucket) {
            Ok(bucket) => {
                usage.loads += times.unsigned_abs();
                usage.latencies.add(LatencyBucket(bucket), times.unsigned_abs());
            }
            Err(_) => usage.unloads += times.unsigned_abs(),
        }
    }
    Ok(ConversationFigures { conversations, loads: loads.into_values().collect() })
}

/// Those that ended before then.
pub(super) async fn delete_before(writer: &mut SqliteConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    let done = sqlx::query("DELETE FROM usage_conversation WHERE last_at < ?").bind(to_millis(time)).execute(writer).await?;
    Ok(done.rows_affected())
}

impl Row {
    fn into_usage(self) -> Result<ConversationUsage, sqlx::Error> {
        let unknown = |what: &str| sqlx::Error::Decode(format!("an unknown {what}").into());
        let kind = ConversationKind::of_name(&self.kind).ok_or_else(|| unknown("kind of conversation"))?;
        let mode = self.mode.map(|name| Mode::of_name(&name).ok_or_else(|| unknown("mode"))).transpose()?;
        Ok(ConversationUsage {
            principal: self.principal,
            conversation: Conversation { kind, id: self.conversation.into() },
            mode,
            began_at: from_millis(self.began_at),
            last_at: from_millis(self.last_at),
            initial_tools: self.initial_tools.map(i64::unsigned_abs),
            final_tools: self.final_tools.map(i64::unsigned_abs),
            counts: ConversationCounts {
                selections: self.selections.unsigned_abs(),
                finds: self.finds.unsigned_abs(),
                loads: self.loads.unsigned_abs(),
                unloads: self.unloads.unsigned_abs(),
                calls: self.calls.unsigned_abs(),
                errors: self.errors.unsigned_abs(),
            },
        })
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

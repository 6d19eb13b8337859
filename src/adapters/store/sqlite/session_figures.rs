//! Sums over the events of each session: added to with every batch, like those of days and tools.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime};

use sqlx::{FromRow, QueryBuilder, Sqlite, SqliteConnection, SqlitePool};

use crate::adapters::store::encoding::{from_millis, to_millis};
use crate::domain::records::conversation::ConversationKind;
use crate::domain::records::session_figures::{ArmFigures, SessionCounts, SessionFigures, SessionQuery, SessionReport};
use crate::domain::records::usage::LatencyBucket;
use crate::domain::selection::experiment::Arm;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{CallOutcome, SelectionEvent, SelectionEventKind};

const COUNTS: &str = "SUM(selections) AS selections, SUM(coalesce(initial_tools, 0)) AS initial_tools, \
    SUM(coalesce(final_tools, 0)) AS final_tools, SUM(tokens_before) AS tokens_before, SUM(tokens_after) AS tokens_after, \
    SUM(searches) AS searches, SUM(recovered_searches) AS recovered_searches, SUM(loads) AS loads, SUM(unloads) AS unloads, \
    SUM(calls) AS calls, SUM(succeeded) AS succeeded, SUM(tool_errors) AS tool_errors";

/// What one batch adds to a session.
#[derive(Default)]
struct Addition {
    arm: Option<Arm>,
    times: Option<(i64, i64)>,
    initial_tools: Option<u64>,
    final_tools: Option<u64>,
    counts: SessionCounts,
    loads: BTreeMap<LatencyBucket, u64>,
    longest_load: Option<Duration>,
}

impl Addition {
    fn add(&mut self, event: &SelectionEvent) {
        let at = to_millis(event.at);
        self.times = Some(self.times.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
        match &event.kind {
            SelectionEventKind::Offered { tools, tokens_before, tokens_after, arm, .. } => {
                self.arm = self.arm.or(*arm);
                let bound = tools.tools().len() as u64;
                self.initial_tools = self.initial_tools.or(Some(bound));
                self.final_tools = Some(bound);
                self.counts.selections += 1;
                self.counts.tokens_before += tokens_before;
                self.counts.tokens_after += tokens_after;
            }
            SelectionEventKind::Searched { recovered, .. } => {
                self.counts.searches += 1;
                self.counts.recovered_searches += u64::from(*recovered);
            }
            SelectionEventKind::Called { outcome, .. } => {
                self.counts.calls += 1;
                self.counts.succeeded += u64::from(*outcome == CallOutcome::Success);
                self.counts.tool_errors += u64::from(*outcome == CallOutcome::ToolError);
            }
            SelectionEventKind::Loaded { took, before, bound } => {
                self.counts.loads += 1;
                *self.loads.entry(LatencyBucket::of(*took)).or_default() += 1;
                self.longest_load = self.longest_load.max(Some(*took));
                self.bound(*before, *bound);
            }
            SelectionEventKind::Unloaded { before, bound } => {
                self.counts.unloads += 1;
                self.bound(*before, *bound);
            }
            SelectionEventKind::Listed { bound } => self.bound(*bound, *bound),
        }
    }

    fn bound(&mut self, before: u64, now: u64) {
        self.initial_tools = self.initial_tools.or(Some(before));
        self.final_tools = Some(now);
    }
}

/// The name of the session that an event belongs to: that of a chat is its id.
fn name(event: &SelectionEvent) -> Option<Cow<'_, str>> {
    match &event.conversation {
        Some(conversation) if conversation.kind != ConversationKind::Chat => {
            Some(format!("{}:{}", conversation.kind.name(), conversation.id).into())
        }
        _ => event.chat.as_deref().map(Cow::Borrowed),
    }
}

pub(super) async fn add(writer: &mut SqliteConnection, events: &[SelectionEvent]) -> Result<(), sqlx::Error> {
    let mut additions: BTreeMap<[u8; 16], Addition> = BTreeMap::new();
    for event in events {
        if let Some(name) = name(event) {
            additions.entry(key(&event.principal, &name)).or_default().add(event);
        }
    }
    for (session, addition) in additions {
        let (first, last) = addition.times.unwrap_or_default();
        let counts = &addition.counts;
        let longest = addition.longest_load.map(|longest| i64::try_from(longest.as_micros()).unwrap_or(i64::MAX));
        sqlx::query(
            "INSERT INTO usage_session (session, arm, first_at, last_at, initial_tools, final_tools, longest_load_us, selections, \
             tokens_before, tokens_after, searches, recovered_searches, loads, unloads, calls, succeeded, tool_errors) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session) DO UPDATE SET \
             arm = coalesce(arm, excluded.arm), first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at), \
             initial_tools = coalesce(initial_tools, excluded.initial_tools), final_tools = coalesce(excluded.final_tools, final_tools), \
             longest_load_us = max(coalesce(longest_load_us, excluded.longest_load_us), coalesce(excluded.longest_load_us, longest_load_us)), \
             selections = selections + excluded.selections, tokens_before = tokens_before + excluded.tokens_before, \
             tokens_after = tokens_after + excluded.tokens_after, searches = searches + excluded.searches, \
             recovered_searches = recovered_searches + excluded.recovered_searches, loads = loads + excluded.loads, \
             unloads = unloads + excluded.unloads, calls = calls + excluded.calls, succeeded = succeeded + excluded.succeeded, \
             tool_errors = tool_errors + excluded.tool_errors",
        )
        .bind(session.as_slice())
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
                "INSERT INTO usage_session_load (session, bucket, loads) VALUES (?, ?, ?) \
                 ON CONFLICT (session, bucket) DO UPDATE SET loads = loads + excluded.loads",
            )
            .bind(session.as_slice())
            .bind(i64::from(bucket.0))
            .bind(signed(loads))
            .execute(&mut *writer)
            .await?;
        }
    }
    Ok(())
}

#[derive(FromRow)]
struct CountsRow {
    selections: i64,
    initial_tools: i64,
    final_tools: i64,
    tokens_before: i64,
    tokens_after: i64,
    searches: i64,
    recovered_searches: i64,
    loads: i64,
    unloads: i64,
    calls: i64,
    succeeded: i64,
    tool_errors: i64,
}

#[derive(FromRow)]
struct ArmRow {
    arm: Option<String>,
    sessions: i64,
    #[sqlx(flatten)]
    counts: CountsRow,
}

#[derive(FromRow)]
struct SessionRow {
    arm: Option<String>,
    first_at: i64,
    last_at: i64,
    longest_load_us: Option<i64>,
    #[sqlx(flatten)]
    counts: CountsRow,
}

/// All of it as of one moment.
pub(super) async fn load(readers: &SqlitePool, wanted: &SessionQuery) -> Result<SessionReport, sqlx::Error> {
    let mut snapshot = readers.begin().await?;
    let (since, until) = (to_millis(wanted.since), to_millis(wanted.until));
    let mut query = QueryBuilder::<Sqlite>::new(format!("SELECT arm, count(*) AS sessions, {COUNTS} FROM usage_session WHERE last_at >= "));
    query.push_bind(since).push(" AND last_at < ").push_bind(until).push(" GROUP BY arm");
    let rows: Vec<ArmRow> = query.build_query_as().fetch_all(&mut *snapshot).await?;
    let mut arms: HashMap<Option<Arm>, ArmFigures> = HashMap::new();
    for row in rows {
        let arm = arm(row.arm.as_deref())?;
        let sessions = row.sessions.unsigned_abs();
        arms.insert(arm, ArmFigures { arm, sessions, counts: row.counts.into(), ..ArmFigures::default() });
    }
    let times: Vec<(Option<String>, i64, i64)> = sqlx::query_as(
        "SELECT arm, bucket, SUM(usage_session_load.loads) FROM usage_session_load JOIN usage_session USING (session) \
         WHERE last_at >= ? AND last_at < ? GROUP BY arm, bucket",
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
    let rows: Vec<SessionRow> = sqlx::query_as(
        "SELECT arm, first_at, last_at, longest_load_us, selections, coalesce(initial_tools, 0) AS initial_tools, \
         coalesce(final_tools, 0) AS final_tools, tokens_before, tokens_after, searches, recovered_searches, loads, unloads, calls, \
         succeeded, tool_errors FROM usage_session WHERE last_at >= ? AND last_at < ? ORDER BY last_at DESC, session LIMIT ?",
    )
    .bind(since)
    .bind(until)
    .bind(i64::try_from(wanted.limit).unwrap_or(i64::MAX))
    .fetch_all(&mut *snapshot)
    .await?;
    snapshot.commit().await?;
    let latest = rows.into_iter().map(SessionRow::into_figures).collect::<Result<_, _>>()?;
    Ok(SessionReport { arms: arms.into_values().collect(), latest })
}

pub(super) async fn delete_before(writer: &mut SqliteConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    let done = sqlx::query("DELETE FROM usage_session WHERE last_at < ?").bind(to_millis(time)).execute(writer).await?;
    Ok(done.rows_affected())
}

/// Long enough that no two sessions share one; nothing can be read from it.
fn key(principal: &str, chat: &str) -> [u8; 16] {
    let mut key = [0; 16];
    let hash = Fingerprint::of_text(&format!("{}:{principal}{chat}", principal.len()));
    key.copy_from_slice(&hash.as_bytes()[..16]);
    key
}

fn arm(name: Option<&str>) -> Result<Option<Arm>, sqlx::Error> {
    name.map(|name| Arm::of_name(name).ok_or_else(|| sqlx::Error::Decode("an unknown arm".into()))).transpose()
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl SessionRow {
    fn into_figures(self) -> Result<SessionFigures, sqlx::Error> {
        Ok(SessionFigures {
            arm: arm(self.arm.as_deref())?,
            first_at: from_millis(self.first_at),
            last_at: from_millis(self.last_at),
            counts: self.counts.into(),
            longest_load: self.longest_load_us.map(|micros| Duration::from_micros(micros.unsigned_abs())),
        })
    }
}

impl From<CountsRow> for SessionCounts {
    fn from(row: CountsRow) -> Self {
        Self {
            selections: row.selections.unsigned_abs(),
            initial_tools: row.initial_tools.unsigned_abs(),
            final_tools: row.final_tools.unsigned_abs(),
            tokens_before: row.tokens_before.unsigned_abs(),
            tokens_after: row.tokens_after.unsigned_abs(),
            searches: row.searches.unsigned_abs(),
            recovered_searches: row.recovered_searches.unsigned_abs(),
            loads: row.loads.unsigned_abs(),
            unloads: row.unloads.unsigned_abs(),
            calls: row.calls.unsigned_abs(),
            succeeded: row.succeeded.unsigned_abs(),
            tool_errors: row.tool_errors.unsigned_abs(),
        }
    }
}

//! The record of what happened to selections.

use std::time::{Duration, SystemTime};

use sqlx::{QueryBuilder, Sqlite, SqliteConnection, SqlitePool};

use super::CHUNK;
use crate::adapters::store::encoding::to_millis;
use crate::domain::catalog::tool::ToolId;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{EventMessage, SelectionEvent, SelectionEventKind, SelectionName};

/// Rows of one statement: every statement is a round trip to the thread of the connection.
const ROWS: usize = 100;

pub(super) async fn insert(writer: &mut SqliteConnection, events: &[SelectionEvent]) -> Result<(), sqlx::Error> {
    // What conversations load is kept as sums alone.
    let kept: Vec<(&SelectionEvent, Columns<'_>)> =
        events.iter().filter_map(|event| Columns::of(&event.kind).map(|columns| (event, columns))).collect();
    for rows in kept.chunks(ROWS) {
        let mut query = QueryBuilder::<Sqlite>::new(
            "INSERT INTO selection_event (at, kind, selection, principal, chat, message, outcome, took_us, recovered, kept, view) ",
        );
        query.push_values(rows, |mut row, (event, columns)| {
            row.push_bind(to_millis(event.at))
                .push_bind(columns.kind)
                .push_bind(&event.selection)
                .push_bind(&event.principal)
                .push_bind(&event.chat)
                .push_bind(columns.message.and_then(|message| message.text.as_deref()))
                .push_bind(columns.outcome)
                .push_bind(columns.took.map(|took| i64::try_from(took.as_micros()).unwrap_or(i64::MAX)))
                .push_bind(columns.recovered)
                .push_bind(columns.all.map(|(count, _)| i64::try_from(count).unwrap_or(i64::MAX)))
                .push_bind(columns.all.map(|(_, view)| view.as_bytes().to_vec()));
        });
        query.push(" RETURNING id");
        let mut ids: Vec<i64> = query.build_query_scalar().persistent(false).fetch_all(&mut *writer).await?;
        // Rows are numbered in the order of the values; the order in which numbers come back is not promised.
        ids.sort_unstable();
        insert_tools(writer, ids.iter().zip(rows).map(|(id, (_, columns))| (*id, columns.tools))).await?;
    }
    Ok(())
}

/// The id of a selection of this principal.
pub(super) async fn selection(readers: &SqlitePool, principal: &str, named: &SelectionName) -> Result<Option<String>, sqlx::Error> {
    let (condition, value) = match named {
        SelectionName::Id(id) => ("selection = ", id),
        SelectionName::Chat(chat) => ("chat = ", chat),
    };
    let mut query = QueryBuilder::<Sqlite>::new("SELECT selection FROM selection_event WHERE kind = 'offered' AND ");
    query.push(condition).push_bind(value).push(" AND principal = ").push_bind(principal);
    query.push(" AND selection IS NOT NULL ORDER BY id DESC LIMIT 1");
    query.build_query_scalar().persistent(false).fetch_optional(readers).await
}

/// Takes the rows of the tools with it.
pub(super) async fn delete_before(writer: &mut SqliteConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    let done = sqlx::query("DELETE FROM selection_event WHERE at < ?").bind(to_millis(time)).execute(writer).await?;
    Ok(done.rows_affected())
}

async fn insert_tools<'a>(writer: &mut SqliteConnection, events: impl Iterator<Item = (i64, &'a [ToolId])>) -> Result<(), sqlx::Error> {
    let rows: Vec<(i64, i64, &ToolId)> =
        events.flat_map(|(event, tools)| (0..).zip(tools).map(move |(position, tool)| (event, position, tool))).collect();
    for chunk in rows.chunks(CHUNK) {
        let mut query = QueryBuilder::<Sqlite>::new("INSERT INTO selection_event_tool (event, position, server, tool) ");
        query.push_values(chunk, |mut row, (event, position, tool)| {
            row.push_bind(*event).push_bind(*position).push_bind(tool.server.as_str()).push_bind(&*tool.name);
        });
        query.build().persistent(false).execute(&mut *writer).await?;
    }
    Ok(())
}

/// One event as a row.
struct Columns<'a> {
    kind: &'static str,
    message: Option<&'a EventMessage>,
    outcome: Option<&'static str>,
    took: Option<Duration>,
    recovered: Option<bool>,
    /// Those that have rows of their own.
    tools: &'a [ToolId],
    /// Where everything stayed, how many tools that were, and which.
    all: Option<(usize, Fingerprint)>,
}

impl<'a> Columns<'a> {
    fn of(kind: &'a SelectionEventKind) -> Option<Self> {
        Some(match kind {
            SelectionEventKind::Loaded { .. } | SelectionEventKind::Unloaded { .. } | SelectionEventKind::Listed { .. } => return None,
            SelectionEventKind::Offered { message, tools, .. } => {
                let all = tools.view().map(|view| (tools.tools().len(), view));
                let tools = if all.is_some() { &[] } else { tools.tools() };
                Self { kind: "offered", message: Some(message), outcome: None, took: None, recovered: None, tools, all }
            }
            SelectionEventKind::Searched { message, tools, recovered } => {
                Self { kind: "searched", message: Some(message), outcome: None, took: None, recovered: Some(*recovered), tools, all: None }
            }
            SelectionEventKind::Called { tool, outcome, took, recovered } => Self {
                kind: "called",
                message: None,
                outcome: Some(outcome.name()),
                took: Some(*took),
                recovered: Some(*recovered),
                tools: std::slice::from_ref(tool),
                all: None,
            },
        })
    }
}

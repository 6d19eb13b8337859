//! The record of what happened to selections.

use std::time::{Duration, SystemTime};

use sqlx::{QueryBuilder, Sqlite, SqliteConnection, SqlitePool};

use super::{CHUNK, vectors};
use crate::adapters::store::encoding::{to_millis, vector_to_bytes};
use crate::domain::tool::ToolId;
use crate::service::ports::{EventMessage, SelectionEvent, SelectionEventKind, SelectionName};

/// Rows of one statement: every statement is a round trip to the thread of the connection.
const ROWS: usize = 100;

pub(super) async fn insert(writer: &mut SqliteConnection, events: &[SelectionEvent]) -> Result<(), sqlx::Error> {
    // What conversations load is kept as sums alone.
    let kept: Vec<(&SelectionEvent, Columns<'_>)> =
        events.iter().filter_map(|event| Columns::of(&event.kind).map(|columns| (event, columns))).collect();
    for events in kept.chunks(ROWS) {
        let mut rows = Vec::with_capacity(events.len());
        for (event, columns) in events {
            let model = match columns.message {
                Some(message) => Some(vectors::model_id(writer, &message.model).await?),
                None => None,
            };
            rows.push((event, columns, model));
        }
        let mut query = QueryBuilder::<Sqlite>::new(
            "INSERT INTO selection_event (at, kind, selection, principal, chat, model, vector, message, outcome, took_us, recovered) ",
        );
        query.push_values(&rows, |mut row, (event, columns, model)| {
            row.push_bind(to_millis(event.at))
                .push_bind(columns.kind)
                .push_bind(&event.selection)
                .push_bind(&event.principal)
                .push_bind(&event.chat)
                .push_bind(*model)
                .push_bind(columns.message.and_then(|message| message.vector.as_deref()).map(vector_to_bytes))
                .push_bind(columns.message.and_then(|message| message.text.as_deref()))
                .push_bind(columns.outcome)
                .push_bind(columns.took.map(|took| i64::try_from(took.as_micros()).unwrap_or(i64::MAX)))
                .push_bind(columns.recovered);
        });
        query.push(" RETURNING id");
        let mut ids: Vec<i64> = query.build_query_scalar().persistent(false).fetch_all(&mut *writer).await?;
        // Rows are numbered in the order of the values; the order in which numbers come back is not promised.
        ids.sort_unstable();
        insert_tools(writer, ids.iter().zip(&rows).map(|(id, (_, columns, _))| (*id, columns.tools))).await?;
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
    tools: &'a [ToolId],
}

impl<'a> Columns<'a> {
    fn of(kind: &'a SelectionEventKind) -> Option<Self> {
        Some(match kind {
            SelectionEventKind::Loaded { .. } | SelectionEventKind::Unloaded { .. } | SelectionEventKind::Listed { .. } => return None,
            SelectionEventKind::Offered { message, tools, .. } => {
                Self { kind: "offered", message: Some(message), outcome: None, took: None, recovered: None, tools }
            }
            SelectionEventKind::Searched { message, tools, recovered } => {
                Self { kind: "searched", message: Some(message), outcome: None, took: None, recovered: Some(*recovered), tools }
            }
            SelectionEventKind::Called { tool, outcome, took, recovered } => Self {
                kind: "called",
                message: None,
                outcome: Some(outcome.name()),
                took: Some(*took),
                recovered: Some(*recovered),
                tools: std::slice::from_ref(tool),
            },
        })
    }
}

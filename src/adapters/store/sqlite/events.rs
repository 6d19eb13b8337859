//! The record of what happened to selections.

use std::time::{Duration, SystemTime};

use sqlx::{QueryBuilder, Sqlite, SqliteConnection};

use super::{CHUNK, vectors};
use crate::adapters::store::encoding::{to_millis, vector_to_bytes};
use crate::domain::tool::ToolId;
use crate::service::ports::{CallOutcome, SelectionEvent, SelectionEventKind};

pub(super) async fn insert(writer: &mut SqliteConnection, events: &[SelectionEvent]) -> Result<(), sqlx::Error> {
    for event in events {
        let columns = Columns::of(&event.kind);
        let model = match columns.model {
            Some(name) => Some(vectors::model_id(writer, name).await?),
            None => None,
        };
        let id = sqlx::query(
            "INSERT INTO selection_event (at, kind, selection, principal, chat, model, vector, outcome, took_us) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(to_millis(event.at))
        .bind(columns.kind)
        .bind(&event.selection)
        .bind(&event.principal)
        .bind(&event.chat)
        .bind(model)
        .bind(columns.vector.map(vector_to_bytes))
        .bind(columns.outcome)
        .bind(columns.took.map(|took| i64::try_from(took.as_micros()).unwrap_or(i64::MAX)))
        .execute(&mut *writer)
        .await?
        .last_insert_rowid();
        insert_tools(writer, id, columns.tools).await?;
    }
    Ok(())
}

/// Takes the rows of the tools with it.
pub(super) async fn delete_before(writer: &mut SqliteConnection, time: SystemTime) -> Result<u64, sqlx::Error> {
    let done = sqlx::query("DELETE FROM selection_event WHERE at < ?").bind(to_millis(time)).execute(writer).await?;
    Ok(done.rows_affected())
}

async fn insert_tools(writer: &mut SqliteConnection, event: i64, tools: &[ToolId]) -> Result<(), sqlx::Error> {
    let mut position = 0_i64;
    for chunk in tools.chunks(CHUNK) {
        let mut query = QueryBuilder::<Sqlite>::new("INSERT INTO selection_event_tool (event, position, server, tool) ");
        query.push_values(chunk, |mut row, tool| {
            row.push_bind(event).push_bind(position).push_bind(tool.server.as_str()).push_bind(&*tool.name);
            position += 1;
        });
        query.build().persistent(false).execute(&mut *writer).await?;
    }
    Ok(())
}

/// One event as a row.
struct Columns<'a> {
    kind: &'static str,
    model: Option<&'a str>,
    vector: Option<&'a [f32]>,
    outcome: Option<&'static str>,
    took: Option<Duration>,
    tools: &'a [ToolId],
}

impl<'a> Columns<'a> {
    fn of(kind: &'a SelectionEventKind) -> Self {
        let found = |kind, model, vector, tools| Self { kind, model: Some(model), vector, outcome: None, took: None, tools };
        match kind {
            SelectionEventKind::Offered { model, vector, tools } => found("offered", model, vector.as_deref(), tools),
            SelectionEventKind::Searched { model, vector, tools } => found("searched", model, vector.as_deref(), tools),
            SelectionEventKind::Called { tool, outcome, took } => Self {
                kind: "called",
                model: None,
                vector: None,
                outcome: Some(outcome_name(*outcome)),
                took: Some(*took),
                tools: std::slice::from_ref(tool),
            },
        }
    }
}

fn outcome_name(outcome: CallOutcome) -> &'static str {
    match outcome {
        CallOutcome::Success => "success",
        CallOutcome::ToolError => "tool_error",
        CallOutcome::Rejected => "rejected",
        CallOutcome::Failed => "failed",
    }
}

//! Stores the record of selections and calls.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use sqlx::QueryBuilder;

use super::{CHUNK, Db, DbConnection, SqlStore, chats, conversation_figures, feedback, insert_numbered, text, usage};
use crate::adapters::store::encoding::{signed, to_millis};
use crate::domain::catalog::tool::ToolId;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{EventMessage, EventStore, SelectionEvent, SelectionEventKind, StoreError};

/// Number of rows per full statement, which is prepared only once. Every statement is a round trip to the connection's thread.
const ROWS: usize = 100;

#[async_trait]
impl EventStore for SqlStore {
    async fn record(&self, events: &[SelectionEvent]) -> Result<(), StoreError> {
        let record = || {
            async move |writer: &mut DbConnection| {
                insert(writer, events).await?;
                usage::add(writer, events).await?;
                conversation_figures::add(writer, events).await
            }
        };
        self.write("record events", record).await
    }

    async fn forget_before(&self, chats: SystemTime, events: SystemTime) -> Result<u64, StoreError> {
        let forget = || {
            async move |writer: &mut DbConnection| {
                let chats = chats::delete_before(writer, chats).await?;
                let feedback = feedback::delete_before(writer, events).await?;
                // This also deletes the events' rows of tools.
                let delete = sqlx::query("DELETE FROM selection_event WHERE at < $1").bind(to_millis(events));
                Ok(chats + feedback + delete.execute(writer).await?.rows_affected())
            }
        };
        self.write("delete old chats and events", forget).await
    }

    async fn forget_usage_before(&self, time: SystemTime) -> Result<u64, StoreError> {
        let forget = || {
            async move |writer: &mut DbConnection| {
                Ok(usage::delete_before(writer, time).await? + conversation_figures::delete_before(writer, time).await?)
            }
        };
        self.write("delete old usage", forget).await
    }
}

async fn insert(writer: &mut DbConnection, events: &[SelectionEvent]) -> Result<(), sqlx::Error> {
    // Loads, unloads and the costs of language models are stored only as sums.
    let kept: Vec<(&SelectionEvent, Columns<'_>)> =
        events.iter().filter_map(|event| Columns::of(&event.kind).map(|columns| (event, columns))).collect();
    for rows in kept.chunks(ROWS) {
        let mut query = QueryBuilder::<Db>::new(
            "INSERT INTO selection_event (at, kind, selection, principal, chat, message, outcome, took_us, recovered, kept, view) ",
        );
        query.push_values(rows, |mut row, (event, columns)| {
            row.push_bind(to_millis(event.at))
                .push_bind(columns.kind)
                .push_bind(event.selection.as_deref().map(text))
                .push_bind(text(&event.principal))
                .push_bind(event.chat.as_deref().map(text))
                .push_bind(columns.message.and_then(|message| message.text.as_deref()).map(text))
                .push_bind(columns.outcome)
                .push_bind(columns.took.map(|took| signed(took.as_micros())))
                .push_bind(columns.recovered)
                .push_bind(columns.all.map(|(count, _)| signed(count)))
                .push_bind(columns.all.map(|(_, view)| view.as_bytes().to_vec()));
        });
        let numbers = insert_numbered(writer, query, rows.len(), rows.len() == ROWS).await?;
        insert_tools(writer, numbers.into_iter().zip(rows).map(|(id, (_, columns))| (id, columns.tools))).await?;
    }
    Ok(())
}

async fn insert_tools<'a>(writer: &mut DbConnection, events: impl Iterator<Item = (i64, &'a [ToolId])>) -> Result<(), sqlx::Error> {
    let rows: Vec<(i64, i64, &ToolId)> =
        events.flat_map(|(event, tools)| (0..).zip(tools).map(move |(position, tool)| (event, position, tool))).collect();
    for chunk in rows.chunks(CHUNK) {
        let mut query = QueryBuilder::<Db>::new("INSERT INTO selection_event_tool (event, position, server, tool) ");
        query.push_values(chunk, |mut row, (event, position, tool)| {
            row.push_bind(*event).push_bind(*position).push_bind(text(tool.server.as_str())).push_bind(text(&tool.name));
        });
        query.build().persistent(chunk.len() == CHUNK).execute(&mut *writer).await?;
    }
    Ok(())
}

/// The columns of an event's row.
struct Columns<'a> {
    kind: &'static str,
    message: Option<&'a EventMessage>,
    outcome: Option<&'static str>,
    took: Option<Duration>,
    recovered: Option<bool>,
    /// The tools to store in their own rows.
    tools: &'a [ToolId],
    /// If every tool stayed on offer: the number of tools and the fingerprint of the list.
    all: Option<(usize, Fingerprint)>,
}

impl<'a> Columns<'a> {
    fn of(kind: &'a SelectionEventKind) -> Option<Self> {
        Some(match kind {
            SelectionEventKind::Loaded { .. }
            | SelectionEventKind::Unloaded { .. }
            | SelectionEventKind::Listed { .. }
            | SelectionEventKind::Answered { .. } => return None,
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

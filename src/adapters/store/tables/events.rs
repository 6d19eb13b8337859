//! Stores the record of selections and calls.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use sqlx::{QueryBuilder, Row};
use uuid::Uuid;

use super::{
    CHUNK, Db, DbConnection, DbRow, SqlStore, batches, chats, conversation_figures, feedback, insert_numbered, snapshot, text, time, usage,
};
use crate::adapters::store::encoding::{odd, signed, to_millis};
use crate::domain::catalog::tool::ToolId;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{
    CallOutcome, EventMessage, EventQuery, EventStore, SelectionEvent, SelectionEventKind, StoreError, StoredEvent, StoredEventKind,
};

/// Number of rows per full statement, which is prepared only once. Every statement is a round trip to the connection's thread.
const ROWS: usize = 100;
const SELECT: &str = "SELECT id, at, kind, selection, principal, chat, message, outcome, took_us, recovered, kept FROM selection_event";

#[async_trait]
impl EventStore for SqlStore {
    async fn record_once(&self, batch: Uuid, events: &[SelectionEvent]) -> Result<(), StoreError> {
        let record = || {
            async move |writer: &mut DbConnection| {
                if !batches::is_new(writer, batch).await? {
                    return Ok(());
                }
                insert(writer, events).await?;
                usage::add(writer, events).await?;
                conversation_figures::add(writer, events).await
            }
        };
        self.write("record events", record).await
    }

    async fn events(&self, wanted: &EventQuery) -> Result<Vec<StoredEvent>, StoreError> {
        let work = async {
            let mut snapshot = snapshot(self.readers()).await?;
            let mut query = select(SELECT, wanted);
            query.push(" ORDER BY id DESC LIMIT ").push_bind(signed(wanted.limit));
            let rows = query.build().persistent(false).fetch_all(&mut *snapshot).await?;
            let ids = rows.iter().map(|row| row.try_get("id")).collect::<Result<Vec<i64>, _>>()?;
            let mut tools = tools_of(&mut snapshot, &ids).await?;
            snapshot.commit().await?;
            rows.iter().zip(ids).map(|(row, id)| read(row, id, tools.remove(&id).unwrap_or_default())).collect()
        };
        self.read("read the record of selections and calls", work).await
    }

    async fn count_events(&self, wanted: &EventQuery) -> Result<u64, StoreError> {
        let count =
            async { select("SELECT count(*) FROM selection_event", wanted).build_query_scalar::<i64>().fetch_one(self.readers()).await };
        Ok(self.read("count the record of selections and calls", count).await?.unsigned_abs())
    }

    async fn forget_before(&self, chats: SystemTime, events: SystemTime) -> Result<u64, StoreError> {
        // This also deletes the events' rows of tools.
        const DELETE: &str = "DELETE FROM selection_event WHERE id IN (SELECT id FROM selection_event WHERE at < $1 LIMIT $2)";
        let forget = || {
            async move |writer: &mut DbConnection| {
                Ok(chats::delete_before(writer, chats).await? + feedback::delete_before(writer, events).await?)
            }
        };
        let chats = self.write("delete old chats and feedback", forget).await?;
        Ok(chats + self.delete_in_parts("delete old events", DELETE, events).await?)
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
            "INSERT INTO selection_event (at, kind, selection, principal, key, chat, message, outcome, took_us, recovered, kept, view) ",
        );
        query.push_values(rows, |mut row, (event, columns)| {
            row.push_bind(to_millis(event.at))
                .push_bind(columns.kind)
                .push_bind(event.selection.as_deref().map(text))
                .push_bind(text(&event.principal))
                .push_bind(text(event.key.as_deref().unwrap_or_default()))
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

/// A statement with the filters of a query.
fn select(columns: &str, wanted: &EventQuery) -> QueryBuilder<Db> {
    let mut query = QueryBuilder::<Db>::new(columns);
    query.push(" WHERE true");
    let texts = [
        (" AND principal = ", wanted.principal.as_deref()),
        (" AND chat = ", wanted.chat.as_deref()),
        (" AND outcome = ", wanted.outcome.map(CallOutcome::name)),
    ];
    for (condition, value) in texts {
        if let Some(value) = value {
            query.push(condition).push_bind(text(value));
        }
    }
    if let Some(selection) = &wanted.selection {
        query.push(" AND kind = 'offered' AND selection = ").push_bind(text(selection));
    }
    if let Some(tool) = &wanted.tool {
        query.push(" AND EXISTS (SELECT 1 FROM selection_event_tool WHERE event = selection_event.id AND server = ");
        query.push_bind(text(tool.server.as_str())).push(" AND tool = ").push_bind(text(&tool.name)).push(")");
    }
    if let Some(before) = wanted.before {
        query.push(" AND id < ").push_bind(signed(before));
    }
    if let Some(after) = wanted.after {
        query.push(" AND id > ").push_bind(signed(after));
    }
    query
}

/// The tools of each of these events, in their order.
async fn tools_of(reader: &mut DbConnection, events: &[i64]) -> Result<HashMap<i64, Vec<ToolId>>, sqlx::Error> {
    let mut tools: HashMap<i64, Vec<ToolId>> = HashMap::new();
    for chunk in events.chunks(CHUNK) {
        let mut query = QueryBuilder::<Db>::new("SELECT event, server, tool FROM selection_event_tool WHERE event IN (");
        let mut list = query.separated(", ");
        for id in chunk {
            list.push_bind(*id);
        }
        query.push(") ORDER BY event, position");
        let rows: Vec<(i64, String, String)> = query.build_query_as().persistent(false).fetch_all(&mut *reader).await?;
        for (event, server, tool) in rows {
            tools.entry(event).or_default().push(ToolId::new(server.as_str(), tool));
        }
    }
    Ok(tools)
}

fn read(row: &DbRow, id: i64, tools: Vec<ToolId>) -> Result<StoredEvent, sqlx::Error> {
    let recovered = || Ok::<_, sqlx::Error>(row.try_get::<Option<bool>, _>("recovered")?.unwrap_or_default());
    let kind = match row.try_get("kind")? {
        "offered" => StoredEventKind::Offered { tools, all: row.try_get::<Option<i64>, _>("kept")?.map(i64::unsigned_abs) },
        "searched" => StoredEventKind::Searched { tools, recovered: recovered()? },
        "called" => StoredEventKind::Called {
            tool: tools.into_iter().next().ok_or_else(|| odd("a call without a tool"))?,
            outcome: row.try_get::<Option<&str>, _>("outcome")?.and_then(CallOutcome::of_name).ok_or_else(|| odd("an unknown outcome"))?,
            took: Duration::from_micros(row.try_get::<Option<i64>, _>("took_us")?.unwrap_or_default().unsigned_abs()),
            recovered: recovered()?,
        },
        _ => return Err(odd("an unknown kind of event")),
    };
    Ok(StoredEvent {
        id: id.unsigned_abs(),
        at: time(row, "at")?,
        selection: row.try_get("selection")?,
        principal: row.try_get("principal")?,
        chat: row.try_get("chat")?,
        message: row.try_get("message")?,
        kind,
    })
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

//! The recorded selections, searches and calls, for administrators.

use actix_web::http::header;
use actix_web::{HttpResponse, get, web};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{principal, time, tool_named};
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::ToolId;
use crate::http::caller::Administrator;
use crate::http::problem::{Answer, Problem, limit};
use crate::http::query::Query;
use crate::http::state::State;
use crate::service::ports::{CallOutcome, EventQuery, StoredEvent, StoredEventKind};

pub(in crate::http) const DEFAULT_LIMIT: usize = 100;
pub(in crate::http) const MAX_LIMIT: usize = 1_000;

#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct EventParameters {
    /// The chat, as the client named it.
    pub(in crate::http) chat: Option<String>,
    /// The caller: `key:NAME`, `user:ID`, `service-key`, `admin` or `anyone`.
    pub(in crate::http) principal: Option<String>,
    /// A tool of the event: its published name, or `SERVER/TOOL`.
    pub(in crate::http) tool: Option<String>,
    /// The outcome of a call: `success`, `tool_error`, `rejected`, `failed`, `cancelled`, `limited` or `input_required`.
    pub(in crate::http) outcome: Option<String>,
    /// Only events before this number: the value of `next` in the previous response.
    pub(in crate::http) before: Option<u64>,
    /// Maximum number of events to return.
    pub(in crate::http) limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
struct EventsBody {
    /// The events, newest first.
    events: Vec<EventBody>,
    /// The value of `before` for the next request, if there may be more events.
    next: Option<u64>,
}

#[derive(Serialize, ToSchema)]
struct EventBody {
    id: u64,
    at: String,
    /// `selection`, `search` or `call`.
    kind: &'static str,
    principal: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    chat: Option<String>,
    /// The selection to which a search or a call belongs, or the selection itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    selection_id: Option<String>,
    /// The text of the message, with `learning.message_text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The selected, found or called tools, best first.
    tools: Vec<EventToolBody>,
    /// For a selection that kept all tools: their number. `tools` is empty then.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_all: Option<u64>,
    /// For a call: `success`, `tool_error`, `rejected`, `failed`, `cancelled`, `limited` or `input_required`.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_ms: Option<f64>,
    /// For a search or a call: whether the tool was not offered for the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    recovered: Option<bool>,
}

#[derive(Serialize, ToSchema)]
struct EventToolBody {
    server: String,
    tool: String,
}

/// Lists recorded selections, searches and calls, for example all events of a chat. Events contain no arguments and no results, and
/// texts of messages only with `learning.message_text`.
#[utoipa::path(
    params(EventParameters),
    responses(
        (status = 200, description = "The events, newest first. Events from the last half second may be missing.", body = EventsBody),
        (status = 422, description = "A value is invalid")
    )
)]
#[get("/v1/admin/events")]
pub(in crate::http) async fn list_events(state: web::Data<State>, _caller: Administrator, query: Query<EventParameters>) -> Answer {
    let query = query.0.read(&state)?;
    let found = state.activity.find(&query).await?;
    let next = found.last().filter(|_| found.len() == query.limit).map(|last| last.id);
    let body = EventsBody { events: found.into_iter().map(EventBody::from).collect(), next };
    Ok(HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-store")).json(body))
}

impl EventParameters {
    /// # Errors
    /// A principal, a tool or an outcome that can't exist, or a limit out of its range.
    pub(in crate::http) fn read(self, state: &State) -> Result<EventQuery, Problem> {
        let outcome = self.outcome.map(|name| {
            let detail = "outcome is success, tool_error, rejected, failed, cancelled, limited or input_required.";
            CallOutcome::of_name(&name).ok_or_else(|| Problem::invalid("outcome", detail))
        });
        let tool = self.tool.map(|name| {
            let detail = || format!("There is no tool `{name}`: write its published name, or server/tool.");
            tool_named(state, &name).ok_or_else(|| Problem::invalid("tool", detail()))
        });
        let who = self.principal.as_deref().map(principal).transpose()?;
        Ok(EventQuery {
            principal: who.map(|who| who.as_str().to_owned()),
            chat: self.chat,
            tool: tool.transpose()?,
            outcome: outcome.transpose()?,
            before: self.before,
            limit: limit(self.limit, DEFAULT_LIMIT, 1..=MAX_LIMIT)?,
        })
    }
}

impl From<StoredEvent> for EventBody {
    fn from(event: StoredEvent) -> Self {
        let StoredEvent { id, at, selection, principal, chat, message, kind } = event;
        let name = |tool: ToolId| EventToolBody { server: tool.server.to_string(), tool: visible(&tool.name) };
        let mut body = Self {
            id,
            at: time(at),
            kind: "selection",
            principal,
            chat,
            selection_id: selection,
            message,
            tools: Vec::new(),
            kept_all: None,
            outcome: None,
            took_ms: None,
            recovered: None,
        };
        match kind {
            StoredEventKind::Offered { tools, all } => (body.tools, body.kept_all) = (tools.into_iter().map(name).collect(), all),
            StoredEventKind::Searched { tools, recovered } => {
                (body.kind, body.tools, body.recovered) = ("search", tools.into_iter().map(name).collect(), Some(recovered));
            }
            StoredEventKind::Called { tool, outcome, took, recovered } => {
                (body.kind, body.tools, body.recovered) = ("call", vec![name(tool)], Some(recovered));
                (body.outcome, body.took_ms) = (Some(outcome.name()), Some((took.as_secs_f64() * 1e6).round() / 1e3));
            }
        }
        body
    }
}

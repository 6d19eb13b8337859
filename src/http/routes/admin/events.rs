//! The recorded selections, searches and calls, for administrators: as a list, and as a stream of what happens.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, get, web};
use futures::stream::{empty, unfold};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use utoipa::{IntoParams, ToSchema};

use super::{principal, time, tool_named, uncached};
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::ToolId;
use crate::http::caller::Administrator;
use crate::http::event_stream::{ALIVE, KEEP_ALIVE, event, streaming};
use crate::http::methods::was_head;
use crate::http::problem::{Answer, Code, Problem, limit};
use crate::http::query::Query;
use crate::http::state::State;
use crate::service::ports::{CallOutcome, EventQuery, StoredEvent, StoredEventKind};
use crate::service::records::activity::{FOLLOWERS, Following, LOOK, News};

pub(in crate::http) const DEFAULT_LIMIT: usize = 100;
pub(in crate::http) const MAX_LIMIT: usize = 1_000;
/// How long a stream lasts. Clients then open a new one.
const LIFETIME: Duration = Duration::from_mins(15);
/// `Retry-After` if too many streams are open, in seconds.
const RETRY_SECONDS: u64 = 30;
const LAST_EVENT_ID: &str = "last-event-id";

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
    /// The outcome of a call: `success`, `tool_error`, `rejected`, `failed` or `cancelled`.
    pub(in crate::http) outcome: Option<String>,
    /// Only events before this number: the value of `next` in the previous response.
    pub(in crate::http) before: Option<u64>,
    /// Maximum number of events to return.
    pub(in crate::http) limit: Option<usize>,
}

#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct StreamParameters {
    /// The chat, as the client named it.
    pub(in crate::http) chat: Option<String>,
    /// The caller: `key:NAME`, `user:ID`, `service-key`, `admin` or `anyone`.
    pub(in crate::http) principal: Option<String>,
    /// A tool of the event: its published name, or `SERVER/TOOL`.
    pub(in crate::http) tool: Option<String>,
    /// The outcome of a call: `success`, `tool_error`, `rejected`, `failed` or `cancelled`.
    pub(in crate::http) outcome: Option<String>,
    /// Begin with the events after this number. By default, the stream begins with the events after the request.
    pub(in crate::http) after: Option<u64>,
}

#[derive(Serialize, ToSchema)]
struct EventsBody {
    /// The events, newest first.
    events: Vec<EventBody>,
    /// The value of `before` for the next request, if there may be more events.
    next: Option<u64>,
}

#[derive(Serialize, ToSchema)]
pub(in crate::http) struct EventBody {
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
    pub(in crate::http) tools: Vec<EventToolBody>,
    /// For a selection that kept all tools: their number. `tools` is empty then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) kept_all: Option<u64>,
    /// For a call: `success`, `tool_error`, `rejected`, `failed` or `cancelled`. Other outcomes are only in the audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_ms: Option<f64>,
    /// For a search or a call: whether the tool was not offered for the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    recovered: Option<bool>,
}

/// A server-sent event of the stream.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct StreamedEventBody {
    /// The number of the event.
    id: Option<String>,
    /// `lagged` if events are left out. Other events have no name, so clients call them `message`.
    event: Option<String>,
    /// JSON: an event as in the list, or `{"lost": NUMBER}` if events are left out.
    data: String,
}

#[derive(Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::http) struct EventToolBody {
    pub(in crate::http) server: String,
    pub(in crate::http) tool: String,
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
    Ok(uncached(&body))
}

/// Streams recorded selections, searches and calls as server-sent events, until the service stops, the key of the request is revoked,
/// rotated or expired, or 15 minutes have passed. Each event's data is one event as in the list, and its id is the event's number. An
/// event appears within two seconds. With several replicas, the stream contains the events of all of them. For a slow reader, an event
/// named `lagged` replaces the events that are left out, with their number as `lost`.
#[utoipa::path(
    params(
        StreamParameters,
        ("Last-Event-ID" = Option<u64>, Header, description = "The number of the last received event, with which a client continues. It takes precedence over `after`.")
    ),
    responses(
        (status = 200, description = "The events as they happen", body = StreamedEventBody, content_type = "text/event-stream"),
        (status = 422, description = "A value is invalid"),
        (status = 429, description = "Too many streams are open")
    )
)]
#[get("/v1/admin/events/stream")]
pub(in crate::http) async fn stream_events(
    state: web::Data<State>,
    caller: Administrator,
    request: HttpRequest,
    query: Query<StreamParameters>,
) -> Answer {
    let following = follow(&state, query.0, &request).await?;
    let ends = Instant::now() + LIFETIME;
    let of_stream = state.clone();
    let has_key = move || caller.0.key.as_ref().is_none_or(|key| of_stream.keys.is_good(key));
    let show = |event: StoredEvent| serde_json::to_string(&EventBody::from(event)).unwrap_or_default();
    Ok(live(&request, state, following, move || Instant::now() < ends && has_key(), show))
}

/// Begins to follow the events that a request asks for.
///
/// # Errors
/// An invalid value, a store that can't be read, or too many readers.
pub(in crate::http) async fn follow(state: &State, query: StreamParameters, request: &HttpRequest) -> Result<Following, Problem> {
    let StreamParameters { chat, principal, tool, outcome, after } = query;
    let last = match request.headers().get(LAST_EVENT_ID) {
        None => None,
        Some(given) => {
            let number = given.to_str().ok().and_then(|text| text.trim().parse().ok());
            Some(number.ok_or_else(|| Problem::invalid("Last-Event-ID", "Last-Event-ID is the id of an event: a number."))?)
        }
    };
    let query = EventParameters { chat, principal, tool, outcome, before: None, limit: None }.read(state)?;
    let full = || {
        let detail = format!("At most {FOLLOWERS} streams of events can be open. Close one, or try again in {RETRY_SECONDS} s.");
        Problem { retry_after: Some(RETRY_SECONDS), ..Problem::new(Code::RateLimited, detail) }
    };
    state.activity.follow(query, last.or(after)).await?.ok_or_else(full)
}

/// The response with the events, as long as `lasts` says so. `show` is the data of an event. The response to HEAD ends at once: nobody
/// reads its events, and the connection could not serve another request before their end.
pub(in crate::http) fn live(
    request: &HttpRequest,
    state: web::Data<State>,
    following: Following,
    lasts: impl Fn() -> bool + 'static,
    show: impl Fn(StoredEvent) -> String + 'static,
) -> HttpResponse {
    if was_head(request) {
        return streaming().streaming(empty::<Result<Bytes, Infallible>>());
    }
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first comment sends the headers.
    let waiting = VecDeque::from([Bytes::from_static(ALIVE)]);
    let live = Live { state, following, lasts, show, looks, waiting, last: 0, sent_at: Instant::now() };
    let events = unfold(live, async |mut live| {
        let next = live.next().await?;
        Some((Ok::<_, Infallible>(next), live))
    });
    streaming().streaming(Box::pin(events))
}

/// An open stream of events.
struct Live<L, S> {
    state: web::Data<State>,
    following: Following,
    lasts: L,
    show: S,
    looks: Interval,
    /// What the reader has not taken yet.
    waiting: VecDeque<Bytes>,
    /// The largest number of the events so far.
    last: u64,
    sent_at: Instant,
}

impl<L: Fn() -> bool, S: Fn(StoredEvent) -> String> Live<L, S> {
    /// The next part of the stream; `None` at its end. The store is read only when the reader has taken everything.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(next) = self.waiting.pop_front() {
                self.sent_at = Instant::now();
                return Some(next);
            }
            if self.sent_at.elapsed() >= KEEP_ALIVE {
                self.waiting.push_back(Bytes::from_static(ALIVE));
                continue;
            }
            let draining = self.state.draining.clone();
            let looked = tokio::select! {
                biased;
                () = draining.cancelled() => return None,
                looked = async { self.looks.tick().await; self.following.look().await } => looked,
            };
            if !(self.lasts)() {
                return None;
            }
            match looked {
                Ok(news) => self.take(news),
                // The next look returns the same events, if the store is back.
                Err(error) => tracing::debug!(%error, "a stream of events can't read the store"),
            }
        }
    }

    fn take(&mut self, news: News) {
        if news.lost > 0 {
            self.waiting.push_back(event(None, Some("lagged"), &json!({"lost": news.lost}).to_string()));
        }
        for found in news.events {
            self.last = self.last.max(found.id);
            self.waiting.push_back(event(Some(self.last), None, &(self.show)(found)));
        }
    }
}

impl EventParameters {
    /// # Errors
    /// A principal, a tool or an outcome that can't exist, or a limit out of its range.
    pub(in crate::http) fn read(self, state: &State) -> Result<EventQuery, Problem> {
        let outcome = self.outcome.map(|name| {
            let detail = "outcome is success, tool_error, rejected, failed or cancelled. The audit log also contains calls with the \
                          outcomes limited and input_required.";
            CallOutcome::of_name(&name).filter(|outcome| outcome.is_event()).ok_or_else(|| Problem::invalid("outcome", detail))
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
            ..EventQuery::default()
        })
    }
}

impl EventToolBody {
    pub(super) fn of(tool: &ToolId) -> Self {
        Self { server: tool.server.to_string(), tool: visible(&tool.name) }
    }
}

impl From<StoredEvent> for EventBody {
    fn from(event: StoredEvent) -> Self {
        let StoredEvent { id, at, selection, principal, chat, message, kind } = event;
        let name = |tool: ToolId| EventToolBody::of(&tool);
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

//! What happened: the newest selections, searches and calls, and the story of one chat.

use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};

use super::layout::{Place, Visit};
use super::parts::{Form, Head, grouped, second, short, table, took};
use super::text::Texts;
use super::{ACTIVITY, CHAT, PLAYGROUND, TOOL};
use crate::domain::catalog::hidden_text::visible;
use crate::http::caller::Caller;
use crate::http::pages::browser::Fields;
use crate::http::problem::Problem;
use crate::http::routes::admin::events::EventParameters;
use crate::http::state::State;
use crate::service::ports::{CallOutcome, EventQuery, StoredEvent, StoredEventKind};

/// Number of events on a page.
const PAGE: usize = 50;
/// Number of tools of an event in the table.
const TOOLS: usize = 3;
/// Number of events of a chat on a page, and of tools of each.
const STORY: usize = 60;
const STORY_TOOLS: usize = 8;
/// Maximum length of a message, in characters.
const MESSAGE: usize = 300;
const FILTERS: [&str; 4] = ["chat", "principal", "tool", "outcome"];

pub(super) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let (texts, query) = (visit.texts, Fields::of_query(&request));
    let found = match wanted(&state, &query) {
        Ok(wanted) => state.activity.find(&wanted).await.map_err(Problem::from),
        Err(problem) => Err(problem),
    };
    let body = html! {
        (filters(&visit, &query, found.as_ref().err()))
        @match &found {
            Ok(events) if events.is_empty() => p { (texts.no_events) },
            Ok(events) => { (events_table(&visit, events)) (links(&visit, &query, events)) },
            Err(_) => {},
        }
    };
    let status = found.err().map_or(actix_web::http::StatusCode::OK, |problem| problem.code.status());
    visit.page_with(status, Place::Activity, &texts.activity, &body)
}

/// The events of one chat, in their order.
pub(super) async fn story(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let (texts, query) = (visit.texts, Fields::of_query(&request));
    let wanted = EventQuery {
        // Without a chat, this page would mix up all of them.
        chat: Some(query.text("chat").to_owned()),
        principal: query.given("principal").map(str::to_owned),
        before: query.given("before").and_then(|before| before.parse().ok()),
        limit: STORY,
        ..EventQuery::default()
    };
    let mut events = match state.activity.find(&wanted).await {
        Ok(events) => events,
        Err(error) => return visit.failed(&Problem::from(error)),
    };
    let earlier = events.last().filter(|_| events.len() == STORY).map(|event| event.id.to_string());
    events.reverse();
    let (chat, who) = (query.text("chat"), query.text("principal"));
    let body = html! {
        dl.facts { dt { (texts.chat) } dd { code { (short(chat, 200)) } } dt { (texts.caller) } dd { code { (short(who, 200)) } } }
        @if events.is_empty() { p { (texts.no_events) } }
        @if !events.is_empty() && events.iter().all(|event| event.message.is_none()) { p.quiet { (texts.no_message_texts) } }
        @if let Some(before) = &earlier {
            p { a href=(visit.link(CHAT, &[("chat", chat), ("principal", who), ("before", before)])) { (texts.earlier) } }
        }
        ol.timeline { @for event in &events { (step(&visit, event)) } }
        p {
            a href=(visit.link(CHAT, &[("chat", chat), ("principal", who)])) { (texts.refresh) } " · "
            a href=(visit.link(ACTIVITY, &[("chat", chat), ("principal", who)])) { (texts.as_table) }
        }
    };
    visit.page(Place::Activity, &texts.story, &body)
}

/// The events that the filters ask for.
fn wanted(state: &State, query: &Fields) -> Result<EventQuery, Problem> {
    let given = |name| query.given(name).map(str::to_owned);
    let parameters = EventParameters {
        chat: given("chat"),
        principal: given("principal"),
        tool: given("tool"),
        outcome: given("outcome"),
        before: query.given("before").and_then(|before| before.parse().ok()),
        limit: Some(PAGE),
    };
    parameters.read(state)
}

fn filters(visit: &Visit<'_>, query: &Fields, problem: Option<&Problem>) -> Markup {
    let (texts, form) = (visit.texts, Form::new(query, problem));
    let outcomes = [
        ("", texts.any.as_str()),
        ("success", &texts.outcome_success),
        ("tool_error", &texts.outcome_tool_error),
        ("rejected", &texts.outcome_rejected),
        ("failed", &texts.outcome_failed),
        ("cancelled", &texts.outcome_cancelled),
        ("limited", &texts.outcome_limited),
    ];
    html! {
        form.columns role="search" method="get" action=(visit.at(ACTIVITY)) {
            (form.error_beside(&FILTERS))
            (form.line("chat", &texts.chat, ""))
            (form.line("principal", &texts.caller, &texts.caller_hint))
            (form.line("tool", &texts.tool, &texts.tool_hint))
            (form.choice("outcome", &texts.outcome, &outcomes))
            p.all.buttons { button { (texts.filter) } a href=(visit.at(ACTIVITY)) { (texts.no_filter) } }
        }
    }
}

fn events_table(visit: &Visit<'_>, events: &[StoredEvent]) -> Markup {
    let texts = visit.texts;
    let heads =
        [Head::Text(&texts.time), Head::Text(&texts.event), Head::Text(&texts.tools), Head::Text(&texts.caller), Head::Text(&texts.chat)];
    let rows = html! {
        @for event in events {
            tr {
                td { (second(event.at)) }
                td { (what(texts, event)) @if let Some(message) = &event.message { small.said { (short(message, 100)) } } }
                td { (tools(visit, event, TOOLS)) }
                td { (short(&event.principal, 60)) }
                td {
                    @if let Some(chat) = &event.chat {
                        a href=(visit.link(CHAT, &[("chat", chat), ("principal", &event.principal)])) { (short(chat, 40)) }
                    }
                }
            }
        }
    };
    table(&texts.activity, &heads, &rows)
}

/// Links to the newest and to earlier events.
fn links(visit: &Visit<'_>, query: &Fields, events: &[StoredEvent]) -> Markup {
    let kept = FILTERS.map(|name| (name, query.text(name)));
    let earlier = events.last().filter(|_| events.len() == PAGE).map(|event| event.id.to_string());
    html! {
        nav.pager aria-label=(visit.texts.parts_of_list) {
            a href=(visit.link(ACTIVITY, &kept)) { (visit.texts.refresh) }
            @if let Some(before) = &earlier { a href=(visit.link(ACTIVITY, &[kept.as_slice(), &[("before", before)]].concat())) rel="next" { (visit.texts.earlier) } }
        }
    }
}

fn step(visit: &Visit<'_>, event: &StoredEvent) -> Markup {
    let texts = visit.texts;
    html! {
        li {
            p { (second(event.at)) " " strong { (what(texts, event)) } }
            @if let Some(message) = &event.message {
                blockquote.said { (short(message, MESSAGE)) }
                @if matches!(event.kind, StoredEventKind::Offered { .. }) {
                    p { a href=(visit.link(PLAYGROUND, &[("message", &short(message, MESSAGE))])) { (texts.try_message) } }
                }
            }
            p { (tools(visit, event, STORY_TOOLS)) }
        }
    }
}

/// What happened, in a few words.
fn what(texts: &Texts, event: &StoredEvent) -> Markup {
    match &event.kind {
        StoredEventKind::Offered { all: Some(all), .. } => html! { (texts.kept_all) " (" (grouped(*all)) ")" },
        StoredEventKind::Offered { tools, all: None } => html! { (texts.selected) " (" (grouped(tools.len() as u64)) ")" },
        StoredEventKind::Searched { recovered, .. } => {
            html! { (texts.searched) @if *recovered { ", " span.notable { (texts.was_not_offered) } } }
        }
        StoredEventKind::Called { outcome, took: time, recovered, .. } => html! {
            (texts.called) ", " (took(*time)) ": " (outcome_of(texts, *outcome))
            @if *recovered { ", " span.notable { (texts.was_not_offered) } }
        },
    }
}

fn outcome_of(texts: &Texts, outcome: CallOutcome) -> Markup {
    let (name, class) = match outcome {
        CallOutcome::Success => (&texts.outcome_success, "good"),
        CallOutcome::ToolError => (&texts.outcome_tool_error, "bad"),
        CallOutcome::Rejected => (&texts.outcome_rejected, "bad"),
        CallOutcome::Failed => (&texts.outcome_failed, "bad"),
        CallOutcome::Cancelled => (&texts.outcome_cancelled, "quiet"),
        CallOutcome::Limited => (&texts.outcome_limited, "bad"),
        CallOutcome::InputRequired => (&texts.outcome_input_required, "quiet"),
    };
    html! { span class=(class) { (name) } }
}

/// The first tools of an event.
fn tools(visit: &Visit<'_>, event: &StoredEvent, most: usize) -> Markup {
    let tools = match &event.kind {
        StoredEventKind::Offered { tools, .. } | StoredEventKind::Searched { tools, .. } => tools.as_slice(),
        StoredEventKind::Called { tool, .. } => std::slice::from_ref(tool),
    };
    html! {
        @for (place, tool) in tools.iter().take(most).enumerate() {
            @let name = visible(&tool.name);
            @if place > 0 { ", " }
            a href=(visit.link(TOOL, &[("server", tool.server.as_str()), ("tool", &name)])) { (short(tool.server.as_str(), 40)) "/" (short(&name, 60)) }
        }
        @if tools.len() > most { " +" (tools.len() - most) }
    }
}

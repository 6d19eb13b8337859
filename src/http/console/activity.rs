//! What happened: the newest selections, searches and calls, and the story of one chat.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, ResponseError as _, web};
use maud::{Markup, html};

use super::layout::{Place, Visit};
use super::parts::{Form, Head, done, grouped, second, short, table, took};
use super::text::{Texts, texts};
use super::{ACCESS, ACTIVITY, CHAT, PLAYGROUND, STREAM, TOOL, playground};
use crate::domain::catalog::hidden_text::visible;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::pages::browser::{Fields, address, see};
use crate::http::problem::Problem;
use crate::http::routes::admin::events::{EventParameters, StreamParameters, follow, live};
use crate::http::routes::admin::replay::event;
use crate::http::routes::admin::tool_named;
use crate::http::state::State;
use crate::service::access::policies::CheckPrincipal;
use crate::service::ports::{AuditAction, AuditEntry, CallOutcome, EventQuery, SelectionName, StoredEvent, StoredEventKind, Verdict};

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
        (done(&visit, &query))
        (filters(&visit, &query, found.as_ref().err()))
        @if let Ok(events) = &found {
            @if query.given("before").is_none() { (live_switch(&visit, &query, events)) }
            @if events.is_empty() { p #nothing { (texts.no_events) } }
            (events_table(&visit, events))
            (links(&visit, &query, events))
        }
    };
    let status = found.err().map_or(actix_web::http::StatusCode::OK, |problem| problem.code.status());
    visit.with_script().page_with(status, Place::Activity, &texts.activity, &body)
}

/// What happens from now on, as rows of the table. It ends with the session, and doesn't prolong it.
pub(super) async fn stream(state: web::Data<State>, request: HttpRequest) -> HttpResponse {
    let Some(session) = state.console.of(request.headers(), &state.keys) else {
        // The response on which a browser doesn't try again.
        return HttpResponse::NoContent().finish();
    };
    let (texts, query) = (texts(request.headers()), Fields::of_query(&request));
    let [chat, principal, tool, outcome] = FILTERS.map(|name| query.given(name).map(str::to_owned));
    let after = query.given("after").and_then(|after| after.parse().ok());
    let following = match follow(&state, StreamParameters { chat, principal, tool, outcome, after }, &request).await {
        Ok(following) => following,
        Err(problem) => return problem.error_response(),
    };
    let (of_session, of_rows) = ((state.clone(), session.clone()), state.clone());
    let lasts = move || of_session.0.console.lasts(&of_session.1, &of_session.0.keys);
    let show = move |event: StoredEvent| row(&Visit::of(&of_rows, texts, session.clone()), &event).into_string();
    live(&request, state, following, lasts, show)
}

/// The switch for what happens meanwhile. It appears only with scripts.
fn live_switch(visit: &Visit<'_>, query: &Fields, events: &[StoredEvent]) -> Markup {
    let texts = visit.texts;
    let newest = events.first().map_or(0, |event| event.id).to_string();
    let filters = FILTERS.map(|name| (name, query.text(name)));
    html! {
        p.buttons hidden data-stream=(visit.link(STREAM, &filters)) data-after=(newest) data-new=(texts.live_new) data-lost=(texts.live_lost)
            data-paused=(texts.live_paused) data-ended=(texts.live_ended) data-waiting=(texts.live_waiting) {
            button type="button" aria-pressed="false" { (texts.live) }
            span.quiet role="status" {}
        }
    }
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
        dl.facts {
            dt { (texts.chat) } dd { code { (short(chat, 200)) } }
            @if !who.is_empty() { dt { (texts.caller) } dd { code { (short(who, 200)) } } }
        }
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
    let (texts, form) = (visit.texts, Form::new(visit.texts, query, problem));
    let outcomes = [
        ("", texts.any.as_str()),
        ("success", &texts.outcome_success),
        ("tool_error", &texts.outcome_tool_error),
        ("rejected", &texts.outcome_rejected),
        ("failed", &texts.outcome_failed),
        ("cancelled", &texts.outcome_cancelled),
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
    let heads = [&texts.time, &texts.event, &texts.tools, &texts.caller, &texts.chat, &texts.actions].map(|name| Head::Text(name));
    // The last column is for those who may change something.
    let heads = &heads[..if visit.may_change() { 6 } else { 5 }];
    let rows = html! {
        @for event in events { (row(visit, event)) }
    };
    table(&texts.activity, heads, &rows)
}

fn row(visit: &Visit<'_>, event: &StoredEvent) -> Markup {
    html! {
        tr {
            td { (second(event.at)) }
            td { (what(visit.texts, event)) @if let Some(message) = &event.message { small.said { (short(message, 100)) } } }
            td { (tools(visit, event, TOOLS)) }
            td { (short(&event.principal, 60)) }
            td {
                @if let Some(chat) = &event.chat {
                    a href=(visit.link(CHAT, &[("chat", chat), ("principal", &event.principal)])) { (short(chat, 40)) }
                }
            }
            @if visit.may_change() { td { (actions(visit, event)) } }
        }
    }
}

/// What an administrator may do about an event: repeat a selection; pin the tool of a search or a call, give it a synonym, forbid it, or
/// report that it was missing.
fn actions(visit: &Visit<'_>, event: &StoredEvent) -> Markup {
    let (texts, id) = (visit.texts, event.id.to_string());
    let (tool, recovered) = match &event.kind {
        _ if !visit.may_change() => return html! {},
        StoredEventKind::Offered { .. } => return html! { a href=(visit.link(PLAYGROUND, &[("event", &id)])) { (texts.replay) } },
        StoredEventKind::Searched { tools, recovered } => (tools.first(), *recovered),
        StoredEventKind::Called { tool, recovered, .. } => (Some(tool), *recovered),
    };
    let Some(tool) = tool else { return html! {} };
    let (server, name) = (tool.server.as_str(), visible(&tool.name));
    let about = |add: &str| format!("{}#written", visit.link(TOOL, &[("server", server), ("tool", &name), ("add", add), ("event", &id)]));
    let rule = visit.link(ACCESS, &[("servers", server), ("tools", &name), ("caller", &event.principal)]);
    html! {
        details {
            summary { (texts.actions) }
            a href=(about("pin")) { (texts.add_pin) } " · "
            a href=(about("synonym")) { (texts.add_synonym) } " · "
            a href={ (rule) "#rule" } { (texts.add_block) }
            @if recovered && event.selection.is_some() {
                form method="post" action=(visit.at(ACTIVITY)) {
                    (visit.token())
                    input type="hidden" name="event" value=(id);
                    button.small name="do" value="missing" { (texts.report_missing) }
                }
            }
        }
    }
}

/// Reports that a message needed a tool that it was not offered, in the name of its caller.
pub(super) async fn change(state: web::Data<State>, caller: Caller, request: HttpRequest, body: Body) -> HttpResponse {
    let (visit, fields) = match Visit::with_form(&state, &request, &body, ACTIVITY) {
        Ok(begun) => begun,
        Err(elsewhere) => return elsewhere,
    };
    match report_missing(&state, &caller, &fields).await {
        Ok(()) => see(&state, &address(ACTIVITY, &[("done", "missing")])),
        Err(problem) if fields.text("back") == "playground" => {
            let mut query = Fields::default();
            query.set("event", fields.text("event"));
            playground::answer(&state, &caller, &request, visit, query, Some((fields.text("tool"), &problem))).await
        }
        Err(problem) => visit.failed(&problem),
    }
}

/// The tool is the event's own, if the form names none.
async fn report_missing(state: &State, caller: &Caller, fields: &Fields) -> Result<(), Problem> {
    let event = event(state, fields.text("event").parse().unwrap_or_default()).await?;
    let own = match &event.kind {
        StoredEventKind::Offered { .. } => None,
        StoredEventKind::Searched { tools, .. } => tools.first(),
        StoredEventKind::Called { tool, .. } => Some(tool),
    };
    let own = own.and_then(|id| state.current.snapshot().tool(id).map(|tool| tool.operation_id.to_string()));
    let given = fields.given("tool").map(|name| {
        let known = tool_named(state, name).and_then(|id| state.current.snapshot().tool(&id).map(|tool| tool.operation_id.to_string()));
        known.unwrap_or_else(|| name.to_owned())
    });
    let tool = given.or(own).ok_or_else(|| Problem::invalid("tool", "Write the name of the missing tool."))?;
    let selection = event.selection.ok_or_else(|| Problem::invalid("event", "This event belongs to no selection."))?;
    let of = CheckPrincipal { principal: event.principal, ..CheckPrincipal::default() };
    let principal = Arc::new(state.policies.principal_of(&of)?);
    state.feedback.give(SelectionName::Id(selection), &tool, Verdict::Missing, &principal).await?;
    let subject = format!("missing {tool} for {}", principal.id.as_str());
    state.audit.record(AuditEntry::of_change(&caller.0, AuditAction::FeedbackGive, subject));
    Ok(())
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
            }
            p { (tools(visit, event, STORY_TOOLS)) }
            (actions(visit, event))
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

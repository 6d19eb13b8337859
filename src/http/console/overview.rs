//! The overview: which servers run, and what selections save.

use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};

use super::layout::{Place, Visit};
use super::parts::{Head, UNKNOWN, grouped, last_days, milliseconds, percent, phase, share, short, table};
use super::savings::{comparison, savings, tokens};
use super::text::Texts;
use super::{LEARNING, SERVERS, TOOL};
use crate::domain::catalog::hidden_text::visible;
use crate::domain::selection::experiment::Mode;
use crate::http::caller::Caller;
use crate::http::problem::Problem;
use crate::http::routes::admin::quantile_milliseconds;
use crate::http::state::State;
use crate::service::catalog::status::Readiness;
use crate::service::ports::{ConversationQuery, ServerPhase, ServerState, StoreError, ToolUsage};
use crate::service::records::costs::PricedCosts;
use crate::service::records::report::Compared;
use crate::service::records::usage::{UsageOrder, UsageReport, success_rate};

/// Number of tools in the table.
const TOOLS: usize = 10;
/// Number of servers in the table.
const SERVERS_SHOWN: usize = 30;

/// The records of the last 30 days.
struct Records {
    usage: UsageReport,
    costs: PricedCosts,
    compared: Compared,
}

impl Records {
    async fn read(state: &State) -> Result<Self, StoreError> {
        let query = last_days();
        let (since, until) = (query.since, query.until);
        Ok(Self {
            usage: state.usage.report(&query, UsageOrder::Called, TOOLS).await?,
            costs: state.costs.report(since, until).await?,
            compared: state.report.compare(&ConversationQuery { since, until, limit: 0 }).await?,
        })
    }
}

pub(super) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let visit = match Visit::begin(&state, &caller, &request) {
        Ok(visit) => visit,
        Err(elsewhere) => return elsewhere,
    };
    let Records { usage, costs, compared } = match Records::read(&state).await {
        Ok(records) => records,
        Err(error) => return visit.failed(&Problem::from(error)),
    };
    let (texts, readiness) = (visit.texts, state.status.readiness(false).await);
    let is_shadow = state.current.settings().mode == Mode::Shadow;
    let body = html! {
        @if is_shadow { p.notice { (texts.shadow_on) } }
        (cards(texts, &readiness, &usage, costs.report.totals.saved_tokens))
        h2 { (texts.servers) }
        (servers(&visit, &readiness.servers))
        h2 { (texts.top_tools) }
        (tools(&visit, &usage.tools))
        (savings(texts, &costs))
        (tokens(texts, &usage.days))
        (comparison(texts, &compared))
        (learned(&visit))
    };
    visit.page(Place::Overview, &texts.overview, &body)
}

/// For whom learning counts, and what the last replay measured.
fn learned(visit: &Visit<'_>) -> Markup {
    let texts = visit.texts;
    let Some(state) = visit.state.learning.state() else { return html! {} };
    let figure = |value: f64| format!("{value:.3}");
    html! {
        h2 { (texts.what_learning_changed) }
        dl.facts {
            dt { (texts.scopes_that_count) } dd { (state.on) " / " (state.scopes) }
            @if let Some((before, after)) = state.before.zip(state.after) {
                dt { (texts.last_replay) } dd { (figure(before)) " → " (figure(after)) " " small.quiet { (texts.ndcg) } }
            }
        }
        p { a href=(visit.at(LEARNING)) { (texts.learning) } }
    }
}

fn cards(texts: &Texts, readiness: &Readiness, usage: &UsageReport, saved: u64) -> Markup {
    let connected = readiness.servers.iter().filter(|server| server.phase == ServerPhase::Connected).count();
    let (messages, calls) = (usage.totals.messages, usage.totals.tools);
    let changed = readiness.definitions.as_ref().map_or(0, |counts| counts.changed + counts.new);
    let cards = [
        (&texts.servers, format!("{connected} / {}", readiness.servers.len()), String::new()),
        (&texts.tools, grouped(readiness.tools as u64), String::new()),
        (&texts.messages, grouped(messages.selections), texts.last_days.clone()),
        (&texts.tokens_saved, grouped(saved), format!("{} {}", share(saved, messages.tokens_before), texts.saved_share)),
        (&texts.calls, grouped(calls.called), format!("{} {}", share(calls.succeeded, calls.called), texts.success)),
        (&texts.recovered, grouped(calls.recovered), share(calls.recovered, calls.called)),
        (&texts.changed_definitions, changed.to_string(), String::new()),
    ];
    html! {
        ul.cards {
            @for (name, figure, more) in cards {
                li { (name) b { (figure) } small.quiet { (more) } }
            }
        }
    }
}

fn servers(visit: &Visit<'_>, servers: &[ServerState]) -> Markup {
    let texts = visit.texts;
    if servers.is_empty() {
        return html! { p { (texts.no_servers) } };
    }
    let heads = [Head::Text(&texts.server), Head::Text(&texts.state), Head::Number(&texts.tools), Head::Text(&texts.error)];
    let rows = html! {
        @for server in servers.iter().take(SERVERS_SHOWN) {
            tr {
                th scope="row" { (short(server.server.as_str(), 100)) }
                td { (phase(texts, server.phase)) }
                td.number { (server.tools) }
                td { (short(server.error.as_deref().unwrap_or_default(), 300)) }
            }
        }
    };
    html! {
        (table(&texts.servers, &heads, &rows))
        @if servers.len() > SERVERS_SHOWN { p { a href=(visit.at(SERVERS)) { (grouped(servers.len() as u64)) " " (texts.servers) } } }
    }
}

fn tools(visit: &Visit<'_>, tools: &[ToolUsage]) -> Markup {
    let texts = visit.texts;
    let called = || tools.iter().filter(|tool| tool.counts.called > 0);
    if called().next().is_none() {
        return html! { p { (texts.nothing_called) } };
    }
    let heads = [
        Head::Text(&texts.tool),
        Head::Number(&texts.calls),
        Head::Number(&texts.success),
        Head::Number(&texts.recovered),
        Head::Number("p50 ms"),
    ];
    let rows = html! {
        @for tool in called() {
            @let (server, name) = (tool.tool.server.as_str(), visible(&tool.tool.name));
            tr {
                th scope="row" { a href=(visit.link(TOOL, &[("server", server), ("tool", &name)])) { (short(server, 100)) " / " (short(&name, 100)) } }
                td.number { (grouped(tool.counts.called)) }
                td.number { (success_rate(&tool.counts).map_or_else(|| UNKNOWN.to_owned(), percent)) }
                td.number { (grouped(tool.counts.recovered)) }
                td.number { (milliseconds(quantile_milliseconds(&tool.latencies).0)) }
            }
        }
    };
    table(&texts.top_tools, &heads, &rows)
}

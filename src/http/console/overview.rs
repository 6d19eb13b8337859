//! The overview: which servers run, and what selections save.

use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};

use super::layout::{Place, Visit};
use super::parts::{Head, UNKNOWN, grouped, milliseconds, percent, phase, share, short, table, usage_in};
use super::savings::{comparison, money, savings, tokens};
use super::shadow;
use super::text::Texts;
use super::{ACTIVITY, CONSOLE, KEYS, LEARNING, SERVER, SERVERS, TOOL, TOOLS};
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::hidden_text::visible;
use crate::domain::selection::experiment::Mode;
use crate::http::caller::Caller;
use crate::http::pages::browser::Fields;
use crate::http::problem::Problem;
use crate::http::routes::admin::quantile_milliseconds;
use crate::http::state::State;
use crate::service::catalog::status::Readiness;
use crate::service::ports::{ConversationQuery, ServerPhase, ServerState, StoreError, ToolUsage};
use crate::service::records::costs::PricedCosts;
use crate::service::records::report::Compared;
use crate::service::records::usage::{UsageOrder, UsageReport, success_rate};

/// Number of tools in the table.
const TOP: usize = 10;
/// The periods that the page can show, in days.
const PERIODS: [u64; 3] = [7, 30, 90];
const USUAL: u64 = 30;
/// Number of servers in the table.
const SERVERS_SHOWN: usize = 30;

/// The records of the last days.
struct Records {
    days: u64,
    usage: UsageReport,
    costs: PricedCosts,
    compared: Compared,
}

impl Records {
    async fn read(state: &State, days: u64) -> Result<Self, StoreError> {
        let query = usage_in(days);
        let (since, until) = (query.since, query.until);
        Ok(Self {
            days,
            usage: state.usage.report(&query, UsageOrder::Called, TOP).await?,
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
    let asked = Fields::of_query(&request).text("days").parse().unwrap_or(USUAL);
    let records = match Records::read(&state, if PERIODS.contains(&asked) { asked } else { USUAL }).await {
        Ok(records) => records,
        Err(error) => return visit.failed(&Problem::from(error)),
    };
    let Records { usage, costs, compared, .. } = &records;
    let (texts, readiness) = (visit.texts, state.status.readiness(false).await);
    let shadow = if state.current.settings().mode == Mode::Shadow { shadow::section(&visit, &state).await } else { Ok(html! {}) };
    let shadow = match shadow {
        Ok(shadow) => shadow,
        Err(error) => return visit.failed(&Problem::from(error)),
    };
    let body = html! {
        (shadow)
        (periods(&visit, records.days))
        (cards(&visit, &readiness, &records))
        h2 { (texts.servers) }
        (servers(&visit, &readiness.servers, &state.current.snapshot()))
        h2 { (texts.top_tools) }
        (tools(&visit, &usage.tools))
        (savings(texts, costs))
        (tokens(texts, &usage.days))
        (comparison(texts, compared))
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

/// The links to the periods.
fn periods(visit: &Visit<'_>, days: u64) -> Markup {
    html! {
        nav.sub aria-label=(visit.texts.period) {
            @for period in PERIODS {
                a href=(visit.link(CONSOLE, &[("days", &period.to_string())])) aria-current=[(period == days).then_some("page")] { (last(visit.texts, period)) }
            }
        }
    }
}

fn last(texts: &Texts, days: u64) -> String {
    format!("{} {days} {}", texts.last, texts.days)
}

fn cards(visit: &Visit<'_>, readiness: &Readiness, records: &Records) -> Markup {
    let (texts, Records { days, usage, costs, .. }) = (visit.texts, records);
    let (saved, currency) = (costs.report.totals.saved_tokens, costs.currency.as_deref());
    let connected = readiness.servers.iter().filter(|server| server.phase == ServerPhase::Connected).count();
    let (messages, calls) = (usage.totals.messages, usage.totals.tools);
    let changed = readiness.definitions.as_ref().map_or(0, |counts| counts.changed + counts.new);
    let mut cards = vec![
        (&texts.servers, Some(SERVERS), format!("{connected} / {}", readiness.servers.len()), String::new()),
        (&texts.tools, Some(TOOLS), grouped(readiness.tools as u64), String::new()),
        (&texts.keys, Some(KEYS), grouped(visit.state.keys.active().len() as u64), texts.key_active.clone()),
        (&texts.changed_definitions, Some(SERVERS), changed.to_string(), String::new()),
        (&texts.messages, Some(ACTIVITY), grouped(messages.selections), last(texts, *days)),
        (&texts.tokens_saved, None, grouped(saved), format!("{} {}", share(saved, messages.tokens_before), texts.saved_share)),
        (&texts.calls, Some(ACTIVITY), grouped(calls.called), format!("{} {}", share(calls.succeeded, calls.called), texts.success)),
        (&texts.recovered, None, grouped(calls.recovered), share(calls.recovered, calls.called)),
    ];
    if let Some(currency) = currency {
        cards.push((&texts.money_saved, None, money(costs.report.totals.saved, currency), last(texts, *days)));
    }
    html! {
        ul.cards {
            @for (name, to, figure, more) in cards {
                li {
                    @if let Some(to) = to { a href=(visit.at(to)) { (name) } } @else { (name) }
                    b { (figure) } small.quiet { (more) }
                }
            }
        }
    }
}

fn servers(visit: &Visit<'_>, servers: &[ServerState], catalog: &Catalog) -> Markup {
    let texts = visit.texts;
    if servers.is_empty() {
        return html! { p { (texts.no_servers) } };
    }
    // Servers that fail come first, so that a long list doesn't hide them.
    let mut sorted: Vec<&ServerState> = servers.iter().collect();
    sorted.sort_by_key(|server| match server.phase {
        ServerPhase::Retrying => 0,
        ServerPhase::Starting => 1,
        ServerPhase::Connected => 2,
    });
    let heads = [Head::Text(&texts.server), Head::Text(&texts.state), Head::Number(&texts.tools), Head::Text(&texts.error)];
    let rows = html! {
        @for server in sorted.into_iter().take(SERVERS_SHOWN) {
            tr {
                @let name = server.server.as_str();
                th scope="row" { a href=(visit.link(SERVER, &[("server", name)])) { (short(name, 100)) } }
                td { (phase(texts, server.phase)) }
                // As on the page of the servers: without tools that are withheld or switched off.
                td.number { (grouped(catalog.server(name).map_or(0, |server| server.tools.len()) as u64)) }
                td lang="en" { (short(server.error.as_deref().unwrap_or_default(), 300)) }
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

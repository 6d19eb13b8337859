//! The overview: which servers run, and what selections save.

use std::time::SystemTime;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};

use super::layout::{Place, entered, failed, page, respond, to_login, with_cookie};
use super::text::{Texts, texts};
use crate::domain::selection::experiment::Mode;
use crate::http::caller::Caller;
use crate::http::pages::plot::{Bar, bars};
use crate::http::problem::Problem;
use crate::http::routes::admin::{DEFAULT_SPAN, quantile_milliseconds};
use crate::http::state::State;
use crate::service::catalog::status::Readiness;
use crate::service::ports::{ServerPhase, ServerState, ToolUsage, UsageQuery};
use crate::service::records::usage::{UsageOrder, UsageReport, success_rate};

/// Number of tools in the table.
const TOOLS: usize = 10;
/// Number of days in the plot.
const DAYS: usize = 14;

pub(super) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    let texts = texts(request.headers());
    let Some((session, cookie)) = entered(&state, &request, caller.0.administers) else { return to_login(&state) };
    let until = SystemTime::now();
    let since = until.checked_sub(DEFAULT_SPAN).unwrap_or(SystemTime::UNIX_EPOCH);
    let query = UsageQuery { since, until, server: None, tool: None };
    let (usage, costs) = match (state.usage.report(&query, UsageOrder::Called, TOOLS).await, state.costs.report(since, until).await) {
        (Ok(usage), Ok(costs)) => (usage, costs),
        (Err(error), _) | (_, Err(error)) => return failed(&state, &session, texts, &Problem::from(error)),
    };
    let readiness = state.status.readiness(false).await;
    let saved = costs.report.totals.saved_tokens;
    let is_shadow = state.current.settings().mode == Mode::Shadow;
    let body = html! {
        @if is_shadow { p.notice { (texts.shadow_on) } }
        (cards(texts, &readiness, &usage, saved))
        h2 { (texts.servers) }
        (servers(texts, &readiness.servers))
        h2 { (texts.top_tools) }
        (tools(texts, &usage.tools))
        (plot(texts, &usage))
    };
    with_cookie(respond(StatusCode::OK, page(&state, &session, texts, Place::Overview, &texts.overview, &body)), cookie)
}

fn cards(texts: &Texts, readiness: &Readiness, usage: &UsageReport, saved: u64) -> Markup {
    let connected = readiness.servers.iter().filter(|server| server.phase == ServerPhase::Connected).count();
    let (messages, calls) = (usage.totals.messages, usage.totals.tools);
    let share = |part: u64, whole: u64| if whole == 0 { "–".to_owned() } else { format!("{:.0} %", 100.0 * part as f64 / whole as f64) };
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

fn servers(texts: &Texts, servers: &[ServerState]) -> Markup {
    if servers.is_empty() {
        return html! { p { (texts.no_servers) } };
    }
    html! {
        div.wide tabindex="0" role="group" aria-label=(texts.servers) {
            table {
                thead { tr { th scope="col" { (texts.server) } th scope="col" { (texts.state) } th.number scope="col" { (texts.tools) } th scope="col" { (texts.error) } } }
                tbody {
                    @for server in servers {
                        @let (name, class) = phase(texts, server.phase);
                        tr {
                            th scope="row" { (server.server.as_str()) }
                            td class=(class) { (name) }
                            td.number { (server.tools) }
                            td { (server.error.as_deref().unwrap_or_default()) }
                        }
                    }
                }
            }
        }
    }
}

fn phase(texts: &Texts, phase: ServerPhase) -> (&str, &'static str) {
    match phase {
        ServerPhase::Connected => (&texts.connected, "good"),
        ServerPhase::Starting => (&texts.starting, "quiet"),
        ServerPhase::Retrying => (&texts.retrying, "bad"),
    }
}

fn tools(texts: &Texts, tools: &[ToolUsage]) -> Markup {
    let called = || tools.iter().filter(|tool| tool.counts.called > 0);
    if called().next().is_none() {
        return html! { p { (texts.nothing_called) } };
    }
    let percent = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), |rate| format!("{:.0} %", 100.0 * rate));
    html! {
        div.wide tabindex="0" role="group" aria-label=(texts.top_tools) {
            table {
                thead { tr { th scope="col" { (texts.tool) } th.number scope="col" { (texts.calls) } th.number scope="col" { (texts.success) } th.number scope="col" { (texts.recovered) } th.number scope="col" { "p50 ms" } } }
                tbody {
                    @for tool in called() {
                        tr {
                            th scope="row" { (tool.tool.server.as_str()) " / " (tool.tool.label()) }
                            td.number { (grouped(tool.counts.called)) }
                            td.number { (percent(success_rate(&tool.counts))) }
                            td.number { (grouped(tool.counts.recovered)) }
                            td.number { (quantile_milliseconds(&tool.latencies).0.map_or_else(|| "–".to_owned(), |time| format!("{time:.0}"))) }
                        }
                    }
                }
            }
        }
    }
}

/// Tokens before and after the selections of the last days.
fn plot(texts: &Texts, usage: &UsageReport) -> Markup {
    let days = &usage.days[usage.days.len().saturating_sub(DAYS)..];
    if days.iter().all(|day| day.messages.selections == 0) {
        return html! {};
    }
    let of_day = days.iter().flat_map(|day| {
        let date = Timestamp::try_from(day.day).map_or_else(|_| String::new(), |at| at.strftime("%Y-%m-%d").to_string());
        let bar = |label: String, tokens: u64, colour| Bar { label, value: tokens as f64, interval: None, text: grouped(tokens), colour };
        [bar(format!("{date} {}", texts.before), day.messages.tokens_before, 1), bar(texts.after.clone(), day.messages.tokens_after, 0)]
    });
    html! { h2 { (texts.token_plot) } (PreEscaped(bars(&texts.token_plot, &of_day.collect::<Vec<_>>()))) }
}

/// A number with thin spaces between groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
    }
}

//! The cost and the results of sessions, and the comparison between sessions with all tools and sessions with selected
//! tools.

mod page;

use std::ops::Range;
use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, web};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::costs::CostSummaryBody;
use super::{quantile_milliseconds, span, time};
use crate::http::caller::Administrator;
use crate::http::pages;
use crate::http::problem::{Answer, Problem, limit};
use crate::http::query::Query;
use crate::http::state::State;
use crate::service::ports::{ArmFigures, ConversationCounts, ConversationFigures, ConversationQuery};
use crate::service::records::report::{Compared, arm_name, mean};

pub(in crate::http) const DEFAULT_LIMIT: usize = 50;
pub(in crate::http) const MAX_LIMIT: usize = 1_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ReportParameters {
    /// Start of the period, as an RFC 3339 time; by default 30 days before `until`. The report includes sessions that
    /// were last used within the period.
    since: Option<String>,
    /// End of the period, as an RFC 3339 time; by default now.
    until: Option<String>,
    /// Maximum number of sessions to list individually.
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
struct ReportBody {
    since: String,
    until: String,
    /// One entry per group that has sessions. Sessions in `static` got all tools, and those in `dynamic` got selected
    /// tools. `uncompared` contains sessions that are in neither group.
    arms: Vec<ArmBody>,
    /// The sessions, most recently used first, without ids or names.
    sessions: Vec<SessionFiguresBody>,
    /// What selections saved beside what language models cost, on the UTC days of the period.
    costs: CostSummaryBody,
    /// What learning from use changes now. `null` if it is off.
    learning: Option<LearningReportBody>,
}

/// For whom learning counts, and what the last replay measured.
#[derive(Serialize, ToSchema)]
struct LearningReportBody {
    /// `auto` or `always`.
    mode: &'static str,
    /// Number of scopes with remembered messages. A scope is a caller, a group, or all callers of a key.
    scopes: usize,
    /// Number of scopes whose uses count.
    on: usize,
    /// Number of scopes whose uses don't count.
    off: usize,
    /// Number of remembered messages. A message counts once per scope.
    messages: usize,
    /// Number of scopes that were replayed since the start of the service.
    replayed: usize,
    /// The mean nDCG@5 of the last replays without learning; `null` before the first one.
    before: Option<f64>,
    /// The same with learning.
    after: Option<f64>,
}

/// The sessions of one group. All values except `sessions` and latencies are means per session or call. A mean is null
/// if there are no sessions or calls.
#[derive(Serialize, ToSchema)]
struct ArmBody {
    arm: &'static str,
    sessions: u64,
    selections: Option<f64>,
    /// Number of Toolsieve's tools in the first selection. In shadow mode, the number that would have been selected.
    initial_tools: Option<f64>,
    /// Number of Toolsieve's tools in the last selection. In shadow mode, the number that would have been selected.
    final_tools: Option<f64>,
    /// Tokens per selection if all of Toolsieve's definitions had been offered.
    tokens_before: Option<f64>,
    /// Tokens of the definitions that were offered. In shadow mode, these are all definitions.
    tokens_after: Option<f64>,
    finds: Option<f64>,
    /// Share of searches whose best tool had not been offered.
    recovered_finds: Option<f64>,
    loads: Option<f64>,
    unloads: Option<f64>,
    calls: Option<f64>,
    /// Share of calls whose tool returned no error.
    success_rate: Option<f64>,
    /// Calls that ended with any kind of error.
    errors: Option<f64>,
    load_p50_ms: Option<f64>,
    load_p95_ms: Option<f64>,
}

/// The values for one session.
#[derive(Serialize, ToSchema)]
struct SessionFiguresBody {
    arm: &'static str,
    first_at: String,
    last_at: String,
    selections: u64,
    initial_tools: u64,
    final_tools: u64,
    tokens_before: u64,
    tokens_after: u64,
    finds: u64,
    loads: u64,
    unloads: u64,
    calls: u64,
    succeeded: u64,
    errors: u64,
    longest_load_ms: Option<f64>,
}

/// Returns the cost and the results of sessions: chats, sessions with an address, and MCP clients' sessions. If
/// `selection.share` is below 1, it compares `static` and `dynamic` sessions. With `Accept: text/html`, the response
/// is a page with plots.
#[utoipa::path(
    operation_id = "show_report",
    params(ReportParameters),
    responses(
        (status = 200, description = "The report. Sessions from the last half second may be missing.", content((ReportBody = "application/json"), (String = "text/html"))),
        (status = 422, description = "A value is invalid")
    )
)]
#[get("/v1/admin/report")]
pub async fn show(state: web::Data<State>, _caller: Administrator, request: HttpRequest, query: Query<ReportParameters>) -> Answer {
    let query = query.0.read()?;
    let compared = state.report.compare(&query).await?;
    let costs = state.costs.report(query.since, query.until).await?;
    let body = ReportBody::of(&query, &compared, CostSummaryBody::from(costs), LearningReportBody::of(&state));
    let accepted = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CACHE_CONTROL, "no-store")).insert_header((header::VARY, "accept"));
    if accepted.contains("text/html") {
        response.insert_header((header::CONTENT_SECURITY_POLICY, pages::STYLED));
        return Ok(response.content_type("text/html; charset=utf-8").body(page::page(&body)));
    }
    Ok(response.json(body))
}

impl ReportParameters {
    fn read(self) -> Result<ConversationQuery, Problem> {
        let limit = limit(self.limit, DEFAULT_LIMIT, 0..=MAX_LIMIT)?;
        let Range { start: since, end: until } = span(self.since, self.until)?;
        Ok(ConversationQuery { since, until, limit })
    }
}

impl ReportBody {
    fn of(query: &ConversationQuery, compared: &Compared, costs: CostSummaryBody, learning: Option<LearningReportBody>) -> Self {
        Self {
            since: time(query.since),
            until: time(query.until),
            arms: compared.arms.iter().map(ArmBody::from).collect(),
            sessions: compared.latest.iter().map(SessionFiguresBody::from).collect(),
            costs,
            learning,
        }
    }
}

impl LearningReportBody {
    fn of(state: &State) -> Option<Self> {
        let figures = state.learning.state()?;
        Some(Self {
            mode: figures.mode,
            scopes: figures.scopes,
            on: figures.on,
            off: figures.scopes - figures.on.min(figures.scopes),
            messages: state.learning.messages(),
            replayed: figures.replayed,
            before: figures.before.map(rounded),
            after: figures.after.map(rounded),
        })
    }
}

impl From<&ArmFigures> for ArmBody {
    fn from(figures: &ArmFigures) -> Self {
        let counts = &figures.counts;
        let each = |sum: u64| mean(sum, figures.conversations).map(rounded);
        let (load_p50_ms, load_p95_ms) = quantile_milliseconds(&figures.load_times);
        Self {
            arm: arm_name(figures.arm),
            sessions: figures.conversations,
            selections: each(counts.selections),
            initial_tools: each(counts.initial_tools),
            final_tools: each(counts.final_tools),
            tokens_before: mean(counts.tokens_before, counts.selections).map(rounded),
            tokens_after: mean(counts.tokens_after, counts.selections).map(rounded),
            finds: each(counts.searches),
            recovered_finds: mean(counts.recovered_searches, counts.searches).map(rounded),
            loads: each(counts.loads),
            unloads: each(counts.unloads),
            calls: each(counts.calls),
            success_rate: mean(counts.succeeded, counts.calls).map(rounded),
            errors: each(counts.calls - counts.succeeded.min(counts.calls)),
            load_p50_ms,
            load_p95_ms,
        }
    }
}

impl From<&ConversationFigures> for SessionFiguresBody {
    fn from(figures: &ConversationFigures) -> Self {
        let ConversationCounts {
            selections,
            initial_tools,
            final_tools,
            tokens_before,
            tokens_after,
            loads,
            unloads,
            calls,
            succeeded,
            ..
        } = figures.counts;
        Self {
            arm: arm_name(figures.arm),
            first_at: time(figures.first_at),
            last_at: time(figures.last_at),
            selections,
            initial_tools,
            final_tools,
            tokens_before,
            tokens_after,
            finds: figures.counts.searches,
            loads,
            unloads,
            calls,
            succeeded,
            errors: calls.saturating_sub(succeeded),
            longest_load_ms: figures.longest_load.map(milliseconds),
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e3)
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

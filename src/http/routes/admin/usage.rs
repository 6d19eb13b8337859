//! Usage statistics of the tools, for administrators.

use std::ops::Range;

use actix_web::{get, web};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::costs::CostsBody;
use super::{quantile_milliseconds, span, time, uncached};
use crate::domain::records::usage::Latencies;
use crate::http::caller::Administrator;
use crate::http::problem::{Answer, Problem, limit, plain};
use crate::http::query::Query;
use crate::http::state::State;
use crate::service::ports::{DayUsage, MessageCounts, ToolCounts, ToolUsage, UsageQuery};
use crate::service::records::usage::{ServerUsage, UsageOrder, UsageReport, success_rate};

pub(in crate::http) const DEFAULT_LIMIT: usize = 100;
pub(in crate::http) const MAX_LIMIT: usize = 1_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct UsageParameters {
    /// Start of the period, as an RFC 3339 time; by default 30 days before `until`. The period consists of whole UTC
    /// days.
    since: Option<String>,
    /// End of the period, as an RFC 3339 time; by default now.
    until: Option<String>,
    server: Option<String>,
    /// Only the tool with this name on its server.
    tool: Option<String>,
    /// The sort order: `called` (default), `offered` or `recovered`.
    order: Option<String>,
    /// Maximum number of tools to return, and of models, groups and users in `costs`.
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
struct UsageBody {
    since: String,
    until: String,
    totals: TotalsBody,
    /// The first `limit` tools.
    tools: Vec<ToolBody>,
    /// Number of all tools.
    tool_count: usize,
    servers: Vec<ServerBody>,
    days: Vec<DayBody>,
    costs: CostsBody,
}

/// Usage counts of one or several tools.
#[derive(Serialize, ToSchema)]
struct CountsBody {
    /// Number of selections that contained the tool.
    offered: u64,
    called: u64,
    succeeded: u64,
    /// Number of calls that ended with the tool's own error.
    tool_errors: u64,
    /// Number of calls to the tool after a selection that did not contain it.
    recovered: u64,
    /// Share of successful calls; null if there were no calls.
    success_rate: Option<f64>,
}

/// Counts of selections and searches.
#[derive(Serialize, ToSchema)]
struct MessagesBody {
    selections: u64,
    searches: u64,
    /// Number of searches whose best tool was not in the chat's last selection.
    recovered_searches: u64,
    tokens_before: u64,
    tokens_after: u64,
}

#[derive(Serialize, ToSchema)]
struct TotalsBody {
    #[serde(flatten)]
    messages: MessagesBody,
    #[serde(flatten)]
    tools: CountsBody,
}

/// Latency of completed calls in milliseconds, accurate to 10 %; null if no call completed.
#[derive(Serialize, ToSchema)]
struct LatencyBody {
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
}

#[derive(Serialize, ToSchema)]
struct ToolBody {
    server: String,
    tool: String,
    #[serde(flatten)]
    counts: CountsBody,
    #[serde(flatten)]
    latency: LatencyBody,
    last_called_at: Option<String>,
    /// Number of `helpful` verdicts from callers.
    helpful: u64,
    wrong: u64,
    missing: u64,
}

#[derive(Serialize, ToSchema)]
struct ServerBody {
    server: String,
    #[serde(flatten)]
    counts: CountsBody,
    #[serde(flatten)]
    latency: LatencyBody,
    last_called_at: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct DayBody {
    /// The UTC date.
    day: String,
    #[serde(flatten)]
    messages: MessagesBody,
    #[serde(flatten)]
    tools: CountsBody,
}

/// Returns usage counts, outcomes and latencies, by tool, server and day. `costs` shows what selections saved beside what
/// language models cost, by day and model. The response contains data about groups and users only if `usage.by` enables
/// it.
#[utoipa::path(
    operation_id = "show_usage",
    params(UsageParameters),
    responses(
        (status = 200, description = "The counts for whole UTC days. Calls from the last half second may be missing.", body = UsageBody),
        (status = 422, description = "A value is invalid")
    )
)]
#[get("/v1/admin/usage")]
pub async fn show(state: web::Data<State>, _caller: Administrator, query: Query<UsageParameters>) -> Answer {
    let parameters = query.0;
    let (query, order, limit) = parameters.read()?;
    let report = state.usage.report(&query, order, limit).await?;
    let costs = CostsBody::of(state.costs.report(query.since, query.until).await?, limit);
    Ok(uncached(&body(&query, report, costs)))
}

impl UsageParameters {
    fn read(self) -> Result<(UsageQuery, UsageOrder, usize), Problem> {
        let limit = limit(self.limit, DEFAULT_LIMIT, 1..=MAX_LIMIT)?;
        let order = match self.order {
            None => UsageOrder::default(),
            Some(name) => UsageOrder::of_name(&name).ok_or_else(|| Problem::invalid("order", "order is called, offered or recovered."))?,
        };
        let Range { start: since, end: until } = span(self.since, self.until)?;
        for (parameter, name) in [("server", &self.server), ("tool", &self.tool)] {
            name.as_deref().map_or(Ok(()), |name| plain(parameter, name))?;
        }
        Ok((UsageQuery { since, until, server: self.server, tool: self.tool }, order, limit))
    }
}

fn body(query: &UsageQuery, report: UsageReport, costs: CostsBody) -> UsageBody {
    UsageBody {
        since: time(query.since),
        until: time(query.until),
        totals: TotalsBody { messages: MessagesBody::from(&report.totals.messages), tools: CountsBody::from(&report.totals.tools) },
        tools: report.tools.into_iter().map(ToolBody::from).collect(),
        tool_count: report.tool_count,
        servers: report.servers.into_iter().map(ServerBody::from).collect(),
        days: report.days.iter().map(DayBody::from).collect(),
        costs,
    }
}

impl From<&ToolCounts> for CountsBody {
    fn from(counts: &ToolCounts) -> Self {
        let ToolCounts { offered, called, succeeded, tool_errors, recovered } = *counts;
        let success_rate = success_rate(counts).map(|rate| (rate * 1e4).round() / 1e4);
        Self { offered, called, succeeded, tool_errors, recovered, success_rate }
    }
}

impl From<&MessageCounts> for MessagesBody {
    fn from(counts: &MessageCounts) -> Self {
        let MessageCounts { selections, searches, recovered_searches, tokens_before, tokens_after } = *counts;
        Self { selections, searches, recovered_searches, tokens_before, tokens_after }
    }
}

impl From<&Latencies> for LatencyBody {
    fn from(latencies: &Latencies) -> Self {
        let (p50_ms, p95_ms) = quantile_milliseconds(latencies);
        Self { p50_ms, p95_ms }
    }
}

impl From<ToolUsage> for ToolBody {
    fn from(usage: ToolUsage) -> Self {
        Self {
            server: usage.tool.server.to_string(),
            tool: usage.tool.name.to_string(),
            counts: CountsBody::from(&usage.counts),
            latency: LatencyBody::from(&usage.latencies),
            last_called_at: usage.called_at.map(time),
            helpful: usage.helpful,
            wrong: usage.wrong,
            missing: usage.missing,
        }
    }
}

impl From<ServerUsage> for ServerBody {
    fn from(usage: ServerUsage) -> Self {
        Self {
            server: usage.server.to_string(),
            counts: CountsBody::from(&usage.counts),
            latency: LatencyBody::from(&usage.latencies),
            last_called_at: usage.called_at.map(time),
        }
    }
}

impl From<&DayUsage> for DayBody {
    fn from(usage: &DayUsage) -> Self {
        Self {
            day: time(usage.day).chars().take("2027-01-31".len()).collect(),
            messages: MessagesBody::from(&usage.messages),
            tools: CountsBody::from(&usage.tools),
        }
    }
}

//! Routes for administrators.

pub(crate) mod part;
pub(crate) mod enrichment;
pub(crate) mod keys;
pub(crate) mod learning;
pub(crate) mod policy;
pub(crate) mod audit;
pub(crate) mod costs;
pub(crate) mod events;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod secrets;
pub(crate) mod sessions;
pub(crate) mod tools;
pub(crate) mod servers;
pub(crate) mod toolsets;
pub(crate) mod usage;

use std::ops::Range;
use std::time::{Duration, SystemTime};

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use jiff::Timestamp;
use serde::Serialize;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::domain::access::management::ManagedBy;
use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ToolId;
use crate::domain::records::usage::Latencies;
use crate::http::described::described;
use crate::http::problem::{Code, Problem};
use crate::http::state::State;
use crate::service::records::usage::quantiles;

/// The period of a query that names no start.
const DEFAULT_SPAN: Duration = Duration::from_hours(30 * 24);

described! {
    /// Where an entry is managed. The API can't change entries that a `file` defines.
    #[serde(rename_all = "snake_case")]
    enum ManagedByBody of ManagedBy {
        File,
        Api,
    }
}

pub fn configure(config: &mut ServiceConfig<'_>) {
    config.service(keys::create_key).service(keys::list_keys).service(keys::rotate_key).service(keys::revoke_key);
    config.service(policy::show_policy).service(policy::replace_policy).service(policy::check_policy).service(audit::list_audit);
    config.service(events::list_events).service(events::stream_events).service(replay::replay_event);
    config.service(sessions::list_all_sessions).service(sessions::end_any_session);
    config
        .service(toolsets::list_all_toolsets)
        .service(toolsets::show_toolset)
        .service(toolsets::replace_toolset)
        .service(toolsets::remove_toolset);
    config.service(secrets::list_all_secrets).service(secrets::forget_secrets);
    config.service(learning::show_learning).service(learning::forget_learning).service(learning::replay_learning);
    config.service(learning::show_proposals);
    config.service(usage::show).service(report::show);
    config
        .service(enrichment::list_enrichment)
        .service(enrichment::show_enrichment)
        .service(enrichment::replace_enrichment)
        .service(enrichment::remove_enrichment);
    // These paths must come before the path with any server and tool.
    config.service(tools::list_tools).service(tools::list_duplicates).service(tools::approve_definition).service(tools::try_tool_facts);
    config.service(tools::show_tool_facts).service(tools::replace_tool_facts).service(tools::remove_tool_facts);
    config
        .service(servers::show_server)
        .service(servers::replace_server)
        .service(servers::switch_server)
        .service(servers::restart_server)
        .service(servers::remove_server);
    config.service(servers::show_server_log);
    config.service(servers::list_servers).service(servers::show_server_definition).service(servers::approve_server_definition);
}

/// Formats a time in UTC, as RFC 3339 with whole seconds.
pub fn time(at: SystemTime) -> String {
    format!("{:.0}", Timestamp::try_from(at).unwrap_or_default())
}

/// Reads a principal from a query. An impossible name is an error, because an empty result would suggest that the
/// caller did nothing.
pub(in crate::http) fn principal(text: &str) -> Result<PrincipalId, Problem> {
    let detail = || format!("There is no principal `{text}`: write key:NAME, user:ID, service-key, admin or anyone.");
    PrincipalId::read(text).ok_or_else(|| Problem::invalid("principal", detail()))
}

/// Reads an RFC 3339 time from a query.
fn time_of(parameter: &'static str, text: Option<String>) -> Result<Option<SystemTime>, Problem> {
    let read = |text: String| text.parse::<Timestamp>().map(SystemTime::from);
    let detail = "since and until are times such as 2027-01-31T00:00:00Z.";
    text.map(read).transpose().map_err(|_| Problem::invalid(parameter, detail))
}

/// Reads the period of a query. The default is the last 30 days.
fn span(since: Option<String>, until: Option<String>) -> Result<Range<SystemTime>, Problem> {
    let until = time_of("until", until)?.unwrap_or_else(SystemTime::now);
    let since = time_of("since", since)?.unwrap_or_else(|| until.checked_sub(DEFAULT_SPAN).unwrap_or(SystemTime::UNIX_EPOCH));
    if since >= until {
        return Err(Problem::invalid("since", "since is not before until."));
    }
    Ok(since..until)
}

/// The median and the 95th percentile of latencies, in milliseconds, rounded to two significant digits.
pub(in crate::http) fn quantile_milliseconds(latencies: &Latencies) -> (Option<f64>, Option<f64>) {
    let milliseconds = |time: Duration| {
        let value = time.as_secs_f64() * 1e3;
        let digit = 10_f64.powf(value.log10().floor() - 1.0);
        ((value / digit).round() * digit * 1e6).round() / 1e6
    };
    quantiles(latencies).map(|(half, most)| (milliseconds(half), milliseconds(most))).unzip()
}

/// The tool with this published name, or with this name as `server/tool`, which need not exist any more. `None` if it is neither.
pub(in crate::http) fn tool_named(state: &State, name: &str) -> Option<ToolId> {
    let published = state.current.snapshot().operation(name).map(|tool| tool.id.clone());
    published.or_else(|| name.split_once('/').map(|(server, tool)| state.tool_admin.named(server, tool)))
}

/// A tool named by the path.
fn tool_of(path: web::Path<(String, String)>) -> ToolId {
    let (server, tool) = path.into_inner();
    ToolId::new(server.as_str(), tool)
}

/// A resource that nobody may cache, because it changes often or is only for administrators.
fn uncached(resource: &impl Serialize) -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-store")).json(resource)
}

/// A resource with its version, which [`expected`] reads again.
fn versioned(version: u64, resource: &impl Serialize) -> HttpResponse {
    let etag = format!("\"{version}\"");
    HttpResponse::Ok().insert_header((header::ETAG, etag)).insert_header((header::CACHE_CONTROL, "no-store")).json(resource)
}

/// Reads the version in `If-Match`. Returns `None` for `*`, which matches any version.
fn expected(request: &HttpRequest) -> Result<Option<u64>, Problem> {
    let Some(value) = request.headers().get(header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let version = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).and_then(|text| text.parse().ok());
    version.map(Some).ok_or_else(|| Problem::new(Code::PreconditionFailed, "If-Match is not an ETag of this resource."))
}

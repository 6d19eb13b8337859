//! Calls a tool by its server's name and its own name.

use std::sync::Arc;

use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, ResponseError, web};
use serde_json::value::RawValue;

use crate::domain::access::principal::PrincipalKind;
use crate::domain::catalog::tool::{ServerName, Tool, ToolId};
use crate::domain::execution::arguments::Repair;
use crate::domain::publishing::meta_tools::MetaTool;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::meta_tools;
use crate::http::person::{NamesUser, keep_groups, unproved};
use crate::http::place::RequestAddress;
use crate::http::problem::Problem;
use crate::http::routes::context::context;
use crate::http::routes::documents::check_server;
use crate::http::state::State;
use crate::service::caller;
use crate::service::execution::execute::Executed;

/// The response header that lists repaired arguments, by JSON Pointer.
const REPAIRS: HeaderName = HeaderName::from_static("x-toolsieve-repairs");
const MAX_HEADER_BYTES: usize = 2_000;

/// Handles `POST /{server}/{tool}`. The body contains the arguments, and the response contains the tool's result.
///
/// # Errors
/// Any error in the table in `problem/code.rs`.
pub async fn execute(
    state: web::Data<State>,
    caller: Caller,
    at: RequestAddress,
    path: web::Path<(String, String)>,
    request: HttpRequest,
    body: Body,
) -> Result<HttpResponse, Problem> {
    let (server, tool) = path.into_inner();
    // A server's document also publishes the meta-tools below the server's path. If the server has a tool with the same
    // path, that tool is published with `%2F` instead of the slash.
    if let Some(meta_tool) = MetaTool::of_path(request.match_info().query("tool")) {
        check_server(&state, &caller.0, &ServerName::from(server.as_str()))?;
        // Boxed, because this large future would enlarge the future of every call.
        return Box::pin(meta_tools::respond(meta_tool, &state, &caller, &at, &request, &body.0)).await;
    }
    run(&state, &caller, &request, ToolId::new(server.as_str(), tool), &body.0).await
}

/// Handles `POST /{tool}`, if a single server is published at `/`.
///
/// # Errors
/// Any error in the table in `problem/code.rs`.
pub async fn execute_single(
    state: web::Data<State>,
    caller: Caller,
    path: web::Path<String>,
    request: HttpRequest,
    body: Body,
) -> Result<HttpResponse, Problem> {
    let server = state.publish.layout().single.clone().ok_or_else(Problem::not_found)?;
    run(&state, &caller, &request, ToolId::new(server, path.into_inner()), &body.0).await
}

async fn run(state: &State, caller: &Caller, request: &HttpRequest, tool: ToolId, body: &[u8]) -> Result<HttpResponse, Problem> {
    let tool = state.execute.find_by_id(&tool, &caller.0, || headers(caller, request)).await?;
    Ok(call(state, &tool, arguments(body)?, context(caller, request), caller, request).await)
}

/// Calls a tool. If the server's configuration needs them, the call carries request headers. The response reports
/// repaired arguments.
pub(in crate::http) async fn call(
    state: &State,
    tool: &Arc<Tool>,
    arguments: &str,
    mut context: caller::CallerContext,
    caller: &Caller,
    request: &HttpRequest,
) -> HttpResponse {
    if state.execute.takes_headers(tool) {
        context.headers = Arc::new(headers(caller, request));
    }
    let Executed { result, repairs } = state.execute.call(tool, arguments, context).await;
    let mut response = match result {
        Ok(body) => HttpResponse::Ok().content_type("application/json").body(body),
        Err(error) => Problem::from(error).error_response(),
    };
    if let Some(repairs) = header_value(&repairs) {
        response.headers_mut().insert(REPAIRS, repairs);
    }
    response
}

/// The request headers that may be forwarded to MCP servers. HTTP and MCP both use this function, so a header that it
/// removes never reaches a server. It removes the caller's key, which only this service may know, and a user or groups
/// that the caller may not name, which servers would believe because they trust this service.
pub fn headers(caller: &Caller, request: &HttpRequest) -> http::HeaderMap {
    let pairs = request.headers().iter().filter_map(|(name, value)| {
        let name = http::HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        Some((name, http::HeaderValue::from_bytes(value.as_bytes()).ok()?))
    });
    let mut out = http::HeaderMap::new();
    for (name, value) in pairs {
        out.append(name, value);
    }
    // This header contains the service's key in any scheme. If no key was required, it may contain the caller's own
    // credentials for a server.
    let state = request.app_data::<web::Data<State>>();
    let is_own = caller.0.kind != PrincipalKind::Anyone || state.is_none_or(|state| state.admission.brings_own_key(request.headers()));
    if is_own {
        out.remove(http::header::AUTHORIZATION);
    }
    let names_user = state.map_or(NamesUser::Never, |state| state.admission.names_user(&caller.0));
    for header in unproved(names_user) {
        out.remove(*header);
    }
    if caller.0.kind == PrincipalKind::User {
        keep_groups(&mut out, &caller.0.groups);
    }
    out
}

/// The arguments as JSON text. An empty body is allowed, because some clients send none for a tool without parameters.
fn arguments(body: &[u8]) -> Result<&str, Problem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok("");
    }
    Ok(serde_json::from_slice::<&RawValue>(body).map(RawValue::get)?)
}

/// Lists as many repairs as fit into the header, such as `/count=text-to-number, /labels=value-to-list`.
fn header_value(repairs: &[Repair]) -> Option<HeaderValue> {
    let mut text = String::new();
    for repair in repairs.iter().map(ToString::to_string) {
        if text.len() + repair.len() > MAX_HEADER_BYTES {
            break;
        }
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(&repair);
    }
    HeaderValue::try_from(text).ok().filter(|_| !repairs.is_empty())
}

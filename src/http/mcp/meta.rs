//! The meta-tools for MCP clients: the same requests and answers as over HTTP.

use rmcp::model::CallToolResult;
use serde::Serialize;
use serde_json::Value;

use super::definition::failed;
use crate::http::problem::Problem;
use crate::http::routes::{smart_select as smart, tools, toolsets};
use crate::http::state::State;
use crate::service::caller::CallerContext;
use crate::service::toolsets::loading::CallerAt;

pub(super) async fn find(state: &State, here: CallerAt<'_>, arguments: &str) -> Result<Value, Problem> {
    let (request, _) = tools::search_request(arguments.as_bytes())?;
    state.limits.selection(&here.caller.principal)?;
    Ok(value(&state.find.find(&request, here).await))
}

pub(super) fn describe(state: &State, caller: &CallerContext, arguments: &str) -> Result<Value, Problem> {
    let names = tools::described_names(arguments.as_bytes())?;
    Ok(value(&state.describe.describe(&names, &caller.principal)))
}

pub(super) async fn smart_select(state: &State, caller: &CallerContext, arguments: &str) -> Result<Value, Problem> {
    let request = smart::task(arguments.as_bytes(), Vec::new())?;
    state.limits.selection(&caller.principal)?;
    Ok(value(&state.smart_select.select(&request, caller).await))
}

pub(super) async fn load(state: &State, here: CallerAt<'_>, arguments: &str) -> Result<Value, Problem> {
    let groups = toolsets::load_request(arguments.as_bytes())?;
    Ok(value(&state.loading.load(&groups.names, false, here).await?))
}

pub(super) async fn unload(state: &State, here: CallerAt<'_>, arguments: &str) -> Result<Value, Problem> {
    let groups = toolsets::unload_request(arguments.as_bytes())?;
    Ok(value(&state.loading.unload(&groups.names[0], here).await?))
}

pub(super) async fn enable(state: &State, here: CallerAt<'_>, arguments: &str) -> Result<Value, Problem> {
    let groups = toolsets::enable_request(arguments.as_bytes())?;
    Ok(value(&state.loading.load(&groups.names, true, here).await?))
}

pub(super) async fn available(state: &State, here: CallerAt<'_>) -> Value {
    value(&state.loading.available(here).await)
}

/// The tool to run, and its arguments as JSON text.
pub(super) fn run(arguments: &str) -> Result<(String, String), Problem> {
    tools::call_request(arguments.as_bytes())
}

/// As structured content, and as text for clients without support for it (MCP specification, "Structured Content").
pub(super) fn structured(answer: Result<Value, Problem>) -> CallToolResult {
    match answer {
        Ok(answer) => CallToolResult::structured(answer),
        Err(problem) => failed(&problem),
    }
}

fn value(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap_or_default()
}

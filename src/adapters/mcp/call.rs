//! Calls one tool over a link.

use std::sync::Arc;

use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, GetExtensions};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::adapters::mcp::connection::{Link, LinkError, Reply};
use crate::adapters::mcp::exchange::{Purpose, RawArguments};
use crate::adapters::mcp::http::Forwarded;
use crate::domain::json;
use crate::service::ports::Progress;

/// Returns the raw result. The caller sets the time limit by dropping the future, which cancels the call at the
/// server.
pub(super) async fn call(
    link: &Link,
    tool: &str,
    arguments: Arc<RawValue>,
    progress: Option<mpsc::Sender<Progress>>,
    forwarded: Option<Forwarded>,
) -> Result<Box<RawValue>, LinkError> {
    // rmcp looks into the arguments for those that go into headers; over the wire go the raw ones.
    let seen = json::readable(arguments.get()).ok().and_then(|arguments| serde_json::from_value(arguments).ok()).unwrap_or_default();
    let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(seen);
    let mut request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    request.extensions_mut().insert(RawArguments(arguments));
    if let Some(headers) = forwarded {
        request.extensions_mut().insert(headers);
    }
    let Reply { result, .. } = link.request(request, Purpose::Call, progress).await?;
    let unusable = |message: &str| LinkError::Unusable(message.to_owned());
    let Some(members) = json::members(result.get()) else { return Err(unusable("the result is not an object")) };
    // Protocol 2026-07-28: a tool may ask back, or put off its result. Nobody could answer.
    match members.get("resultType").and_then(|kind| json::text(kind.get())).as_deref() {
        None | Some("complete") => Ok(result),
        Some("input_required") => Err(unusable("the tool asks for input from a user, which is not supported here")),
        Some(_) => Err(unusable("the result is of a kind that is not supported here")),
    }
}

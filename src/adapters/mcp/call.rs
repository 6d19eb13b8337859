//! Calls one tool over a link.

use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, GetExtensions};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::adapters::mcp::connection::{Link, LinkError, Reply};
use crate::adapters::mcp::exchange::Purpose;
use crate::adapters::mcp::http::Forwarded;
use crate::service::ports::Progress;

/// Returns the raw result. The caller sets the time limit by dropping the future, which cancels the call at the
/// server.
pub(super) async fn call(
    link: &Link,
    tool: &str,
    arguments: Map<String, Value>,
    progress: Option<mpsc::Sender<Progress>>,
    forwarded: Option<Forwarded>,
) -> Result<Value, LinkError> {
    let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
    let mut request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    if let Some(headers) = forwarded {
        request.extensions_mut().insert(headers);
    }
    let Reply { result, .. } = link.request(request, Purpose::Call, progress).await?;
    let unusable = |message: &str| LinkError::Unusable(message.to_owned());
    if !result.is_object() {
        return Err(unusable("the result is not an object"));
    }
    // Protocol 2026-07-28: a tool may ask back, or put off its result. Nobody could answer.
    match result.get("resultType").and_then(Value::as_str) {
        None | Some("complete") => Ok(result),
        Some("input_required") => Err(unusable("the tool asks for input from a user, which is not supported here")),
        Some(_) => Err(unusable("the result is of a kind that is not supported here")),
    }
}

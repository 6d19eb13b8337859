//! Sends a tool call or another request over a link.

use std::sync::Arc;

use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, GetExtensions, InputResponses};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::adapters::mcp::exchange::{Listeners, Purpose, RawArguments};
use crate::adapters::mcp::link::error::LinkError;
use crate::adapters::mcp::link::link::{Link, Reply};
use crate::adapters::mcp::transport::sending::Forwarded;
use crate::domain::execution::outcome;
use crate::service::ports::{PassthroughKind, PassthroughRequest, Round, ServerMessage, ServerQuestion};

/// Maximum number of rounds of server requests during one call.
const ROUNDS: usize = 10;
/// Maximum number of server requests per round.
const QUESTIONS: usize = 16;

#[derive(Clone)]
pub(in crate::adapters::mcp) enum Request<'a> {
    Call { tool: &'a str, arguments: Arc<RawValue> },
    Other(&'a PassthroughRequest),
}

/// Sends a request and returns the raw result. To enforce a time limit, drop the future; that cancels the request at the server.
pub(in crate::adapters::mcp) async fn send(
    link: &Link,
    request: Request<'_>,
    round: Option<&Round>,
    mut listeners: Listeners,
    forwarded: Option<Forwarded>,
) -> Result<Box<RawValue>, LinkError> {
    // Older servers send their requests on the connection, without rounds.
    let own = round.filter(|_| link.is_modern);
    if own.is_none() && round.is_some_and(|round| round.state.is_some()) {
        let message = "this server uses no `requestState`: send the request again without it".to_owned();
        return Err(LinkError::Protocol { code: INVALID_PARAMS, message, data: None });
    }
    listeners.capabilities = own.map(|round| link.allowed(&round.capabilities));
    match request {
        Request::Call { tool, arguments } => call(link, tool, arguments, own, listeners, forwarded).await,
        // Boxed to keep the future of a call small.
        Request::Other(asked) => Box::pin(ask(link, asked, own, listeners, forwarded)).await,
    }
}

async fn call(
    link: &Link,
    tool: &str,
    arguments: Arc<RawValue>,
    round: Option<&Round>,
    listeners: Listeners,
    forwarded: Option<Forwarded>,
) -> Result<Box<RawValue>, LinkError> {
    let mut answered = round.map(|round| (round.responses.clone(), round.state.clone()));
    for _ in 0..ROUNDS {
        // A local variable for the request would make this future larger.
        let responses = answered.take();
        let Reply { result, .. } =
            link.request(call_request(tool, &arguments, responses, forwarded.clone()), Purpose::Call, listeners.clone()).await?;
        match result_type(&result)?.as_deref() {
            None | Some("complete") => return Ok(result),
            // The caller answers by repeating its request.
            Some("input_required") if round.is_some() => return Ok(result),
            Some("input_required") => {
                let (responses, state) = Box::pin(answers(&result, listeners.messages.as_ref())).await?;
                answered = Some((Some(responses), state));
            }
            Some(_) => return Err(unusable("the result type is not supported")),
        }
    }
    Err(unusable("the tool asks too many questions"))
}

fn call_request(
    tool: &str,
    arguments: &Arc<RawValue>,
    answered: Option<(Option<InputResponses>, Option<String>)>,
    forwarded: Option<Forwarded>,
) -> ClientRequest {
    let mut params = CallToolRequestParams::new(tool.to_owned());
    if let Some((responses, state)) = answered {
        params.input_responses = responses;
        params.request_state = state;
    }
    let mut request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    request.extensions_mut().insert(RawArguments(Arc::clone(arguments)));
    if let Some(headers) = forwarded {
        request.extensions_mut().insert(headers);
    }
    request
}

async fn ask(
    link: &Link,
    asked: &PassthroughRequest,
    round: Option<&Round>,
    listeners: Listeners,
    forwarded: Option<Forwarded>,
) -> Result<Box<RawValue>, LinkError> {
    let method = asked.what.method();
    if !link.offers.have(asked.what) {
        return Err(LinkError::Protocol { code: METHOD_NOT_FOUND, message: format!("the server has no {method}"), data: None });
    }
    // The newer protocol version has no such requests.
    if link.is_modern && matches!(asked.what, PassthroughKind::Subscribe | PassthroughKind::Unsubscribe) {
        let uri = asked.params.get("uri").and_then(Value::as_str).unwrap_or_default();
        match asked.what {
            PassthroughKind::Subscribe => link.followed.follow(&link.peer, &link.exchange, uri).await?,
            _ => link.followed.unfollow(uri),
        }
        return Ok(RawValue::NULL.to_owned());
    }
    let mut request = json!({"method": method, "params": asked.params});
    if let Some(responses) = round.and_then(|round| round.responses.as_ref()) {
        request["params"]["inputResponses"] = json!(responses);
    }
    if let Some(state) = round.and_then(|round| round.state.as_ref()) {
        request["params"]["requestState"] = json!(state);
    }
    let mut request: ClientRequest = serde_json::from_value(request).map_err(|_| unusable("the request is invalid"))?;
    if let Some(headers) = forwarded {
        request.extensions_mut().insert(headers);
    }
    // The server may first make requests itself, as in a call.
    let purpose = if matches!(asked.what, PassthroughKind::Prompt | PassthroughKind::Resource) { Purpose::Call } else { Purpose::Ask };
    let Reply { result, .. } = link.request(request, purpose, listeners).await?;
    match result_type(&result)?.as_deref() {
        None | Some("complete") => Ok(result),
        Some("input_required") if round.is_some() && matches!(purpose, Purpose::Call) => Ok(result),
        Some(_) => Err(unusable("the result type is not supported")),
    }
}

/// The `resultType` of a result. Fails if the result is not an object.
fn result_type(result: &RawValue) -> Result<Option<String>, LinkError> {
    if !result.get().starts_with('{') {
        return Err(unusable("the result is not an object"));
    }
    Ok(outcome::result_type(result.get()))
}

const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

fn unusable(message: &str) -> LinkError {
    LinkError::Unusable(message.to_owned())
}

/// Collects the caller's answers to the requests in a result (protocol 2026-07-28). The call is then repeated with them.
async fn answers(result: &RawValue, messages: Option<&mpsc::Sender<ServerMessage>>) -> Result<(InputResponses, Option<String>), LinkError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wanted {
        #[serde(default)]
        input_requests: Map<String, Value>,
        request_state: Option<String>,
    }
    let Some(messages) = messages else { return Err(unusable("the tool requires user input, but the caller can't be asked")) };
    let wanted: Wanted = serde_json::from_str(result.get()).map_err(|_| unusable("the tool's questions are invalid"))?;
    if wanted.input_requests.len() > QUESTIONS {
        return Err(unusable("the tool asks too many questions at once"));
    }
    let mut responses = InputResponses::new();
    for (key, mut request) in wanted.input_requests {
        let method = request.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
        let params = request.get_mut("params").map(Value::take).unwrap_or_default();
        let (answer, answered) = oneshot::channel();
        let gone = || unusable("the caller has disconnected");
        messages.send(ServerMessage::Question(ServerQuestion { method, params, answer })).await.map_err(|_| gone())?;
        match answered.await.map_err(|_| gone())? {
            Ok(answer) => responses.insert(key, answer),
            Err(refusal) => return Err(LinkError::Protocol { code: refusal.code, message: refusal.message, data: None }),
        };
    }
    Ok((responses, wanted.request_state))
}

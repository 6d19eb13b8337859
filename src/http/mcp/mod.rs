//! The MCP interface: MCP clients get the same catalog, policy and calls over streamable HTTP, in all protocol
//! versions.
//!
//! A caller's view depends only on its key and the address. The MCP specification 2026-07-28 requires this ("Tools": a
//! list must not vary by connection). So any replica can answer any request. Clients with earlier protocol versions may
//! get a session for notifications. A session is an entry in the service's own table. The SDK handles each request
//! separately, because its own sessions need several tasks each and have no limits.
//!
//! `?mode=message` is an exception. Open WebUI lists the tools for each message, with the message's id in a header. It
//! then gets the filter's selection for this message, which clients must not cache.

mod as_written;
mod definition;
pub(in crate::http) mod fuzzing;
mod message;
mod passthrough;
mod questions;
mod rounds;
mod server;
mod sign_in;
mod stream;
mod subscriptions;
mod unreadable;

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use actix_web::body::{BodySize, BodyStream, MessageBody as _};
use actix_web::guard::{Guard, GuardContext};
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Bytes;
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, ResponseError, web};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use tokio::sync::mpsc;

use self::as_written::AsWritten;
use self::message::{INVALID_REQUEST, Message, Parted, Unreadable, has_sessions};
pub(crate) use self::rounds::Finished;
use self::server::{Handler, Shown};
use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::ServerName;
use crate::domain::publishing::address::Address;
use crate::domain::records::conversation::Conversation;
use crate::domain::text::json;
use crate::domain::toolsets::mode::{DefaultMode, Mode};
use crate::http::body::{Body, Held};
use crate::http::caller::Caller;
use crate::http::event_stream::{EVENT_STREAM, KEEP_ALIVE};
use crate::http::methods::was_head;
use crate::http::place::RequestAddress;
use crate::http::problem::{Code, Problem};
use crate::http::query::Query;
use crate::http::routes::context::{MESSAGE_ID, context};
use crate::http::routes::documents::{check_server, mode};
use crate::http::routes::execute::headers;
use crate::http::state::State;
use crate::service::caller;
use crate::service::mcp::mcp_sessions::{McpEndpoint, McpSession};
use crate::service::spans;

const SESSION: &str = "mcp-session-id";
const JSON: &str = "application/json";
const INTERNAL_ERROR: i64 = -32603;
/// Maximum number of queued messages from a server to the client during a call.
const MESSAGE_QUEUE: usize = 16;

#[derive(Deserialize)]
pub(crate) struct McpQuery {
    mode: Option<String>,
}

impl McpQuery {
    fn shown(&self, at: &RequestAddress, message: &Message<'_>) -> Result<Shown, Problem> {
        match (self.mode.as_deref(), at.0.mode()) {
            (Some("message"), _) => Ok(Shown::ForMessage),
            (Some("lazy"), _) => Ok(if message.asks_for_everything() { Shown::Whole(Mode::Full) } else { Shown::Stubs }),
            (Some(DefaultMode::AUTO), _) | (None, DefaultMode::Auto) => Ok(Shown::Auto),
            (named, _) => mode(named, at, ", `lazy`, `message`, `auto`").map(Shown::Whole),
        }
    }

    fn endpoint(&self, at: &RequestAddress, server: Option<&ServerName>) -> McpEndpoint {
        let below = server.map_or_else(String::new, |server| format!("/{server}"));
        let default = if server.is_some() { DefaultMode::Named(at.0.mode().of_documents()) } else { at.0.mode() };
        let name = self.mode.as_deref().unwrap_or(default.name());
        let path = format!("{}{below}/mcp?mode={name}", at.0.prefix()).into();
        let mode = DefaultMode::of_name(name).unwrap_or(DefaultMode::Named(Mode::Full));
        McpEndpoint { address: Arc::clone(&at.0), server: server.cloned(), path, mode }
    }
}

/// Whether a request to `/{server}/mcp` is an MCP request. It may also be a call of a tool named `mcp`. Such a call
/// does not accept an event stream.
pub(crate) struct SpeaksMcp;

impl Guard for SpeaksMcp {
    fn check(&self, context: &GuardContext<'_>) -> bool {
        let head = context.head();
        head.method == Method::DELETE || Self::names_streams(head.headers())
    }
}

/// Handles `/mcp`. `POST` accepts one JSON-RPC message. The response is JSON, or an event stream if the tool reports
/// progress or takes long. `GET` opens a session's notification stream, and `DELETE` ends the session.
///
/// # Errors
/// 422 for an unknown mode, and 404 for another caller's session. Other errors are JSON-RPC errors.
pub(crate) async fn serve(
    state: web::Data<State>,
    caller: Caller,
    at: RequestAddress,
    query: Query<McpQuery>,
    request: HttpRequest,
    body: Body,
) -> Result<HttpResponse, Problem> {
    answer(McpRequest { state, caller, at, query, request, server: None }, body.0).await
}

/// Handles `/{server}/mcp`: a single server, with the server's own tool names.
///
/// # Errors
/// 404 for a server that the caller may not see, and 503 for a server that has not listed its tools yet. For other
/// errors, see [`serve`].
pub(crate) async fn serve_one(
    state: web::Data<State>,
    caller: Caller,
    at: RequestAddress,
    path: web::Path<String>,
    query: Query<McpQuery>,
    request: HttpRequest,
    body: Body,
) -> Result<HttpResponse, Problem> {
    let server = ServerName::from(path.into_inner().as_str());
    check_server(&state, &caller.0, &server)?;
    if query.0.mode.as_deref().is_some_and(|mode| mode != "full") {
        return Err(Problem::invalid("mode", "A server's address takes no mode; only /mcp does."));
    }
    answer(McpRequest { state, caller, at, query, request, server: Some(server) }, body.0).await
}

/// The parts of a request, except its body.
struct McpRequest {
    state: web::Data<State>,
    caller: Caller,
    at: RequestAddress,
    query: Query<McpQuery>,
    request: HttpRequest,
    server: Option<ServerName>,
}

async fn answer(received: McpRequest, body: Bytes) -> Result<HttpResponse, Problem> {
    let McpRequest { state, caller, at, query: Query(query), request, server } = received;
    let read = if *request.method() == Method::POST { Message::read(&body) } else { Ok(Message::default()) };
    let message = match read {
        Ok(message) => message,
        Err(unreadable) => return Ok(refused(StatusCode::BAD_REQUEST, &unreadable)),
    };
    let shown = query.shown(&at, &message)?;
    let headers = Arc::new(headers(&caller, &request));
    let endpoint = query.endpoint(&at, server.as_ref());
    let session = if has_sessions(&headers) && !message.is_initialize() { session(&state, &headers, &caller.0, &endpoint)? } else { None };
    match *request.method() {
        Method::POST => {}
        Method::GET if session.is_some() && !was_head(&request) => return listen(&state, &request, session).await,
        Method::DELETE if session.is_some() => return Ok(end(&state, session)),
        _ => return Ok(not_allowed(&state)),
    }
    if session.as_ref().is_some_and(|session| settled(session, &message, &body)) {
        return Ok(HttpResponse::Accepted().finish());
    }
    let opens = message.is_initialize() && has_sessions(&headers);
    let opened = if opens { open(&state, &caller.0, endpoint.clone(), &message).await } else { None };
    let served = if message.needs_servers() { state.loading.extended_address(&at.0).await } else { Arc::clone(&at.0) };
    let context = in_session(context(&caller, &request), &headers, session.as_ref().or(opened.as_ref()));
    let chosen = if shown == Shown::ForMessage { chosen(&state, &context.principal, &request) } else { None };
    let (stream, messages) = session.as_ref().filter(|_| message.calls_a_tool()).map(|_| mpsc::channel(MESSAGE_QUEUE)).unzip();
    let is_modern = !has_sessions(&headers);
    let Parted { body, arguments } = message.part(body.clone(), is_modern);
    let mut handler = Handler {
        state: state.clone(),
        caller: context,
        address: Arc::<Address>::clone(&at.0),
        served,
        shown,
        chosen,
        server,
        session: session.clone().or_else(|| opened.clone()),
        stream,
        path: Arc::clone(&endpoint.path),
        arguments,
        written: AsWritten::default(),
        introduces: message.asks_who(),
        receives_changes: is_modern || session.is_some() || opened.is_some(),
        open: None,
        span: spans::current(),
        automatic: OnceLock::new(),
        listed_at: OnceLock::new(),
    };
    if let Some(resources) = message.listens().filter(|_| is_modern) {
        handler.open(endpoint, &resources).await?;
    }
    let handled = handled(handler, to_request(&request, &headers, body)?, message.request().map(str::to_owned));
    // The request ends with the head of its response, and a stream's head comes before the work is done.
    let held = request.extensions().get::<Rc<Held>>().cloned();
    let handled = async move {
        let response = handled.await;
        drop(held);
        response
    };
    let running = session.as_ref().zip(message.request()).map(|(session, id)| session.begin(id));
    // Comes before the list is made, so that no change in between is missed.
    let listing = match session.filter(|_| message.lists_tools()) {
        Some(session) => Some((state.mcp_sessions.list_now(&session).await, session)),
        None => None,
    };
    drop(message);
    if opened.is_some() {
        let response = to_response(handled.await).await?;
        return Ok(with_session(&state, response, opened));
    }
    let response = stream::merged(handled, messages, running, SpeaksMcp::names_streams(request.headers()).then_some(KEEP_ALIVE)).await?;
    if let Some((list, session)) = listing {
        session.set_listed(list);
    }
    Ok(response)
}

/// Opens a session that knows the current state of its servers. Returns `None` if sessions are off or there are too
/// many.
async fn open(state: &State, caller: &Arc<Principal>, endpoint: McpEndpoint, message: &Message<'_>) -> Option<Arc<McpSession>> {
    let session = state.mcp_sessions.open(caller, endpoint, message.abilities())?;
    state.subscriptions.notify_if_changed(&session).await;
    Some(session)
}

/// Passes an answer or a cancellation to the session. Returns whether the message was an answer.
fn settled(session: &McpSession, message: &Message<'_>, body: &Bytes) -> bool {
    let question = message.answers();
    if let Some(question) = question {
        let text = std::str::from_utf8(body).unwrap_or_default();
        session.settle(question, json::readable(text).unwrap_or_default());
    } else if let Some(cancelled) = message.cancels() {
        session.cancel(cancelled);
    }
    question.is_some()
}

/// Adds all headers to the caller's context; only servers that are configured for it receive some of them. Without any
/// other session, calls count for the client's MCP session.
fn in_session(context: caller::CallerContext, headers: &Arc<http::HeaderMap>, client: Option<&Arc<McpSession>>) -> caller::CallerContext {
    let session = context.session.or_else(|| client.map(|session| Conversation::client(session.id().as_str())));
    caller::CallerContext { headers: Arc::clone(headers), session, ..context }
}

/// Lets the SDK handle one request separately, and inserts the results that the SDK must not change.
async fn handled(
    handler: Handler,
    request: http::Request<Full<Bytes>>,
    id: Option<String>,
) -> http::Response<impl http_body::Body<Data = Bytes, Error = Infallible> + Unpin> {
    // `admit` has already checked the host, the origin and the key.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_allowed_hosts(Vec::<String>::new());
    let (written, says_json) = (handler.written.clone(), says_json(request.headers()));
    let service = StreamableHttpService::new(move || Ok(handler.clone()), Arc::new(NeverSessionManager::default()), config);
    written.replacing(in_protocol(service.handle(request).await, id, says_json).await)
}

/// The selection for the message whose tools Open WebUI is listing; see
/// [`crate::service::selection::message_selections`].
fn chosen(state: &State, principal: &Principal, request: &HttpRequest) -> Option<Arc<[String]>> {
    let message = request.headers().get(MESSAGE_ID)?.to_str().ok()?;
    state.message_selections.of(principal, message)
}

/// Finds the session that the request names.
fn session(
    state: &State,
    headers: &http::HeaderMap,
    caller: &Arc<Principal>,
    endpoint: &McpEndpoint,
) -> Result<Option<Arc<McpSession>>, Problem> {
    let Some(id) = headers.get(SESSION) else { return Ok(None) };
    let known = id.to_str().ok().and_then(|id| state.mcp_sessions.find(id, caller, endpoint));
    known.map(Some).ok_or_else(|| Problem::new(Code::NotFound, "There is no such session here. Begin one with `initialize`."))
}

/// Opens the stream for the service's notifications.
async fn listen(state: &State, request: &HttpRequest, session: Option<Arc<McpSession>>) -> Result<HttpResponse, Problem> {
    let session = session.ok_or_else(Problem::not_found)?;
    if !SpeaksMcp::reads_streams(request) {
        return Err(Problem::invalid("accept", "Send `Accept: text/event-stream`."));
    }
    let messages = session.listen();
    // Reports changes that happened while the client had no stream.
    state.mcp_sessions.notify_if_changed(&session).await;
    state.subscriptions.notify_if_changed(&session).await;
    Ok(stream::response(messages))
}

impl SpeaksMcp {
    /// Whether the client names event streams among what it reads.
    fn names_streams(headers: &HeaderMap) -> bool {
        let mut accepted = headers.get_all(header::ACCEPT).filter_map(|value| value.to_str().ok());
        accepted.any(|accepted| accepted.contains(EVENT_STREAM))
    }

    fn reads_streams(request: &HttpRequest) -> bool {
        let mut accepted = request.headers().get_all(header::ACCEPT).filter_map(|value| value.to_str().ok());
        accepted.any(|accepted| accepted.contains(EVENT_STREAM) || accepted.contains("*/*"))
    }
}

fn end(state: &State, session: Option<Arc<McpSession>>) -> HttpResponse {
    if let Some(session) = session {
        state.mcp_sessions.close(&session);
    }
    HttpResponse::NoContent().finish()
}

/// The error for any method except `POST` in a request without a session.
fn not_allowed(state: &State) -> HttpResponse {
    let problem = Problem::new(Code::MethodNotAllowed, "Send messages of JSON-RPC with POST; GET and DELETE are for sessions.");
    let mut response = problem.error_response();
    let allow = if state.mcp_sessions.are_given() { "POST, GET, DELETE" } else { "POST" };
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

/// Sends the new session's id to the client if `initialize` succeeded. Otherwise, the session is closed.
fn with_session(state: &State, response: HttpResponse, opened: Option<Arc<McpSession>>) -> HttpResponse {
    let Some(session) = opened else { return response };
    let (mut response, has_result) = with_result(response);
    match HeaderValue::from_str(session.id().as_str()) {
        Ok(id) if has_result => {
            response.headers_mut().insert(HeaderName::from_static(SESSION), id);
        }
        _ => state.mcp_sessions.close(&session),
    }
    response
}

/// The response, and whether it contains a result. An error in JSON-RPC has the status 200 too.
fn with_result(response: HttpResponse) -> (HttpResponse, bool) {
    let is_ok = response.status() == StatusCode::OK;
    let (head, body) = response.into_parts();
    match body.try_into_bytes() {
        Ok(body) => {
            let has_result = std::str::from_utf8(&body).ok().and_then(json::members).is_some_and(|members| members.contains_key("result"));
            (head.set_body(body).map_into_boxed_body(), is_ok && has_result)
        }
        Err(body) => (head.set_body(body), is_ok),
    }
}

fn to_request(request: &HttpRequest, headers: &http::HeaderMap, body: Bytes) -> Result<http::Request<Full<Bytes>>, Problem> {
    let mut builder = http::Request::builder().method(request.method().as_str()).uri(request.uri().to_string());
    if let Some(known) = builder.headers_mut() {
        known.clone_from(headers);
    }
    builder.body(Full::new(body)).map_err(|error| Problem::new(Code::InvalidRequest, format!("The request can't be read: {error}.")))
}

/// The response to an invalid message. It omits the id if the id is unreadable (MCP specification 2026-07-28, "Error
/// responses").
fn refused(status: StatusCode, unreadable: &Unreadable) -> HttpResponse {
    HttpResponse::build(status).content_type(JSON).body(error_text(unreadable))
}

fn error_text(Unreadable { code, message, id }: &Unreadable) -> String {
    let id = id.as_ref().map_or_else(String::new, |id| format!("\"id\":{id},"));
    format!("{{\"jsonrpc\":\"2.0\",{id}\"error\":{}}}", serde_json::json!({"code": code, "message": message}))
}

fn says_json(headers: &http::HeaderMap) -> bool {
    let kind = headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(JSON))
}

/// Converts the SDK's plain-text errors to JSON-RPC errors.
async fn in_protocol(
    response: http::Response<BoxBody<Bytes, Infallible>>,
    id: Option<String>,
    says_json: bool,
) -> http::Response<BoxBody<Bytes, Infallible>> {
    let kind = response.headers().get(http::header::CONTENT_TYPE);
    let is_refusal = response.status().is_client_error() || response.status().is_server_error();
    if !is_refusal || kind.is_some_and(|kind| kind.as_bytes().starts_with(JSON.as_bytes())) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(words) = body.collect().await.map(http_body_util::Collected::to_bytes);
    let code = if parts.status.is_client_error() { INVALID_REQUEST } else { INTERNAL_ERROR };
    let message = String::from_utf8_lossy(&words).into_owned();
    if parts.status == http::StatusCode::UNSUPPORTED_MEDIA_TYPE && says_json {
        // The client did send JSON, but the message is invalid.
        parts.status = http::StatusCode::BAD_REQUEST;
    }
    parts.headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(JSON));
    http::Response::from_parts(parts, Full::from(error_text(&Unreadable { code, message, id })).boxed())
}

fn is_stream<B>(response: &http::Response<B>) -> bool {
    let kind = response.headers().get(http::header::CONTENT_TYPE);
    response.status() == http::StatusCode::OK && kind.is_some_and(|kind| kind.as_bytes().starts_with(EVENT_STREAM.as_bytes()))
}

async fn to_response<B>(response: http::Response<B>) -> Result<HttpResponse, Problem>
where
    B: http_body::Body<Data = Bytes> + Unpin + 'static,
    B::Error: std::error::Error,
{
    let is_stream = is_stream(&response);
    let (parts, body) = response.into_parts();
    let status = StatusCode::from_u16(parts.status.as_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut builder = HttpResponse::build(status);
    for (name, value) in &parts.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_str().as_bytes()), HeaderValue::from_bytes(value.as_bytes())) {
            builder.append_header((name, value));
        }
    }
    if is_stream {
        let stream = BodyStream::new(body.into_data_stream());
        debug_assert_eq!(stream.size(), BodySize::Stream, "its length is not known");
        return Ok(builder.body(stream));
    }
    let whole = body.collect().await.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    Ok(builder.body(whole.to_bytes()))
}

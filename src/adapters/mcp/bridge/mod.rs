//! Connects a client over stdio to a running service over streamable HTTP, for clients that only start processes.
//!
//! Messages are forwarded unchanged; only the parts that the transport needs are parsed. If the service has lost the session, for
//! example after a restart, the bridge starts a new one with the client's own `initialize`. The client does not notice.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::TryStreamExt as _;
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{RequestBuilder, Response};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_util::io::StreamReader;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use url::Url;

use crate::adapters::mcp::transport::events::{Event, Events};
use crate::adapters::mcp::transport::lines::{Line, Lines};
use crate::adapters::mcp::transport::param_headers::{ParamHeaders, written};
use crate::adapters::mcp::transport::sending::EVENT_STREAM;
use crate::adapters::proxies;
use crate::domain::text::json;

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
/// The first protocol version without sessions.
const STATELESS: &str = "2026-07-28";
/// Maximum size of a message, in bytes.
const LIMIT: usize = 64 * 1024 * 1024;
/// Length of the queue to the client.
const QUEUE: usize = 64;
/// Maximum number of cancelled requests to remember.
const CANCELLED: usize = 1_000;
/// How long to wait for outstanding responses after the client closes its output.
const LAST_ANSWERS: Duration = Duration::from_secs(30);
const FAREWELL: Duration = Duration::from_secs(2);
/// The shortest and the longest pause before the event stream is reopened.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const SERVER_ERROR: i64 = -32000;
/// The id of requests that the bridge itself makes.
const LISTING: &str = "mcp-stdio";

/// The parts of a JSON-RPC message that the transport needs.
#[derive(Default, Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<Params<'a>>,
}

#[derive(Default, Deserialize)]
struct Params<'a> {
    name: Option<Value>,
    uri: Option<Value>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(default, rename = "requestId")]
    request_id: Option<Value>,
    #[serde(default, rename = "_meta")]
    meta: Option<Value>,
}

impl Message<'_> {
    /// The protocol version that a request without a session names in its metadata.
    fn version(&self) -> Option<&str> {
        self.params.as_ref()?.meta.as_ref()?.get("io.modelcontextprotocol/protocolVersion")?.as_str()
    }

    /// The id of a request. A response has an id too, but no method.
    fn asks(&self) -> Option<&RawValue> {
        self.id.filter(|_| self.method.is_some())
    }

    /// The id of the request to cancel, if the message is a cancellation.
    fn cancels(&self) -> Option<String> {
        let params = self.params.as_ref().filter(|_| self.method.as_deref() == Some("notifications/cancelled"))?;
        params.request_id.as_ref().map(Value::to_string)
    }

    /// Whether the message belongs to a protocol version without sessions.
    fn is_stateless(&self) -> bool {
        self.version().is_some_and(|version| version >= STATELESS)
    }

    /// The name of the called tool, in protocol versions without sessions.
    fn called(&self) -> Option<&str> {
        let is_call = self.is_request("tools/call") && self.is_stateless();
        self.params.as_ref().filter(|_| is_call)?.name.as_ref()?.as_str()
    }

    fn is_request(&self, method: &str) -> bool {
        self.id.is_some() && self.method.as_deref() == Some(method)
    }
}

/// The result of the handshake with the service.
struct Agreed {
    session: Option<String>,
    version: String,
    /// The client's `initialize`, kept for starting another session.
    greeting: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    #[error("no HTTP client: {0}")]
    Client(reqwest::Error),
    #[error("standard streams: {0}")]
    Streams(#[from] io::Error),
}

/// A bridge between standard input and output and a running service.
#[derive(Clone)]
pub struct Bridge(Arc<Inner>);

struct Inner {
    client: reqwest::Client,
    url: Url,
    key: Option<SecretString>,
    agreed: ArcSwapOption<Agreed>,
    /// Held while another session is started.
    greeting: Mutex<()>,
    /// Filled when the service rejects a call without these headers.
    headers: ParamHeaders,
    /// The ids of requests that the client has cancelled in a session. It expects no response to them.
    cancelled: parking_lot::Mutex<HashSet<String>>,
    out: mpsc::Sender<Vec<u8>>,
}

impl Bridge {
    /// Forwards messages until the input ends and all requests are answered.
    ///
    /// # Errors
    /// [`BridgeError`]. An unreachable service is no such error: the client gets an error response per request.
    pub async fn run(
        url: Url,
        key: Option<SecretString>,
        input: impl AsyncRead + Unpin,
        mut output: impl AsyncWrite + Unpin + Send + 'static,
    ) -> Result<(), BridgeError> {
        let client = proxies::client_builder().tcp_nodelay(true).build().map_err(BridgeError::Client)?;
        let (out, mut messages) = mpsc::channel::<Vec<u8>>(QUEUE);
        let writing = tokio::spawn(async move {
            while let Some(mut message) = messages.recv().await {
                message.push(b'\n');
                output.write_all(&message).await?;
                output.flush().await?;
            }
            io::Result::Ok(())
        });
        let bridge = Self(Arc::new(Inner {
            client,
            url,
            key,
            agreed: ArcSwapOption::empty(),
            greeting: Mutex::default(),
            headers: ParamHeaders::default(),
            cancelled: parking_lot::Mutex::default(),
            out,
        }));
        let (mut lines, requests) = (Lines::new(input, LIMIT), TaskTracker::new());
        let mut listening = None;
        // A request without a session is cancelled by closing its connection.
        let mut under_way: HashMap<String, AbortHandle> = HashMap::new();
        loop {
            let line = match lines.next().await {
                Line::Message(line) => line,
                Line::TooLong { .. } => {
                    tracing::warn!(limit = LIMIT, "skipped a message of the client: it is too large");
                    continue;
                }
                Line::End | Line::Endless { .. } => break,
            };
            if line.trim_ascii().is_empty() {
                continue;
            }
            let message: Message<'_> = serde_json::from_slice(&line).unwrap_or_default();
            if message.is_request("initialize") {
                // Wait, because later messages need the session that this one creates.
                bridge.forward(&line).await;
                if bridge.0.agreed.load().as_ref().is_some_and(|agreed| agreed.session.is_some()) {
                    let bridge = bridge.clone();
                    listening = Some(AbortOnDropHandle::new(tokio::spawn(async move { bridge.listen().await })));
                }
            } else if let Some(id) = message.asks() {
                let (id, is_stateless) = (id.get().to_owned(), message.is_stateless());
                let bridge = bridge.clone();
                let request = requests.spawn(async move { bridge.forward(&line).await });
                if is_stateless {
                    under_way.retain(|_, request| !request.is_finished());
                    under_way.insert(id, request.abort_handle());
                }
            } else if let Some(request) = message.cancels().and_then(|id| under_way.remove(&id)) {
                request.abort();
            } else {
                if let Some(id) = message.cancels() {
                    bridge.note_cancelled(id);
                }
                bridge.forward(&line).await;
            }
        }
        requests.close();
        let _ = timeout(LAST_ANSWERS, requests.wait()).await;
        drop(listening);
        let _ = timeout(FAREWELL, bridge.end()).await;
        drop(bridge);
        match timeout(FAREWELL, writing).await {
            Ok(Ok(Err(error))) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Sends one message and forwards its responses.
    async fn forward(&self, line: &[u8]) {
        let message: Message<'_> = serde_json::from_slice(line).unwrap_or_default();
        if let Err(words) = self.exchange(line, &message).await {
            if let Some(id) = message.asks() {
                let error = json!({"code": SERVER_ERROR, "message": words});
                self.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}").into_bytes()).await;
            } else {
                tracing::warn!(reason = words, "could not forward a message");
            }
        }
    }

    async fn exchange(&self, line: &[u8], message: &Message<'_>) -> Result<(), String> {
        let agreed = self.0.agreed.load_full();
        let mut response = self.post(line, message).await?;
        if response.status() == StatusCode::NOT_FOUND && message.version().is_none() && self.greet_again(agreed).await {
            response = self.post(line, message).await?;
        }
        // The service may require headers for some arguments.
        if response.status() == StatusCode::BAD_REQUEST && self.learn_headers(message).await {
            response = self.post(line, message).await?;
        }
        let status = response.status();
        if message.is_request("initialize") && status.is_success() {
            return self.welcome(line, response).await;
        }
        let is_message = kind(&response).is_some_and(|kind| kind.starts_with("application/json"));
        if kind(&response).is_some_and(|kind| kind.starts_with(EVENT_STREAM)) {
            let request = message.asks();
            let is_answered = self.hand_back(response, request).await;
            let is_expected = request.is_some_and(|id| !self.0.cancelled.lock().remove(id.get()));
            return if is_answered || !is_expected {
                Ok(())
            } else {
                Err("the service closed the connection before it answered, or its answer is too large: check whether the request was \
                     carried out before you repeat it"
                    .to_owned())
            };
        }
        let body = response.bytes().await.map_err(|error| failure(&error))?;
        // Protocol errors have an HTTP error status too. Forward them, because the client would wait forever without a response.
        if is_message && !body.is_empty() {
            if let Some(words) = without_id(&body).filter(|_| message.method.is_some()) {
                return Err(words);
            }
            self.send(one_line(&body)).await;
            return Ok(());
        }
        if status.is_success() { Ok(()) } else { Err(refused(status, &body)) }
    }

    /// Stores the result of the handshake.
    async fn welcome(&self, greeting: &[u8], response: Response) -> Result<(), String> {
        let session = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let body = response.bytes().await.map_err(|error| failure(&error))?;
        let answer: Value = serde_json::from_slice(&body).map_err(|_| "the service's response to `initialize` is invalid".to_owned())?;
        if let Some(version) = answer.pointer("/result/protocolVersion").and_then(Value::as_str) {
            let agreed = Agreed { session, version: version.to_owned(), greeting: greeting.to_vec() };
            self.0.agreed.store(Some(Arc::new(agreed)));
        }
        self.send(one_line(&body)).await;
        Ok(())
    }

    /// Fetches the header annotations of all tools. Returns whether the called tool has any.
    async fn learn_headers(&self, message: &Message<'_>) -> bool {
        let Some((tool, params)) = message.called().zip(message.params.as_ref()) else { return false };
        let list = json!({"jsonrpc": "2.0", "id": LISTING, "method": "tools/list", "params": {"_meta": params.meta}}).to_string();
        let listing: Message<'_> = serde_json::from_str(&list).unwrap_or_default();
        let Ok(response) = self.post(list.as_bytes(), &listing).await else { return false };
        let is_stream = kind(&response).is_some_and(|kind| kind.starts_with(EVENT_STREAM));
        let mut answer = if is_stream { last_event(response).await } else { response.json().await.ok() };
        let Some(Value::Array(tools)) = answer.as_mut().and_then(|answer| answer.pointer_mut("/result/tools")).map(Value::take) else {
            return false;
        };
        self.0.headers.learn(&tools);
        self.0.headers.has(tool)
    }

    /// Starts a new session for the client in place of the one that the service has lost. Returns `false` if there was none before, or if
    /// the service can't start one now. The next message tries it again then.
    async fn greet_again(&self, lost: Option<Arc<Agreed>>) -> bool {
        let Some(former) = lost.filter(|agreed| agreed.session.is_some()) else { return false };
        let _one = self.0.greeting.lock().await;
        if self.0.agreed.load().as_ref().is_some_and(|now| !Arc::ptr_eq(now, &former)) {
            // Another message has started it.
            return true;
        }
        let greeting: Message<'_> = serde_json::from_slice(&former.greeting).unwrap_or_default();
        let Ok(response) = self.post(&former.greeting, &greeting).await else { return false };
        if !response.status().is_success() {
            return false;
        }
        let session = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let agreed = Agreed { session, version: former.version.clone(), greeting: former.greeting.clone() };
        self.0.agreed.store(Some(Arc::new(agreed)));
        tracing::info!("the service has lost the session; started a new one");
        true
    }

    async fn post(&self, line: &[u8], message: &Message<'_>) -> Result<Response, String> {
        let request = self.0.client.post(self.0.url.clone()).header(CONTENT_TYPE, "application/json").body(line.to_vec());
        let mut request = self.authorized(request).header(ACCEPT, format!("application/json, {EVENT_STREAM}"));
        match message.version() {
            Some(version) => {
                request = request.header(VERSION, version);
                if version >= STATELESS {
                    request = stateless(request, message);
                    let arguments = message.params.as_ref().and_then(|params| params.arguments);
                    let of_call = message.called().zip(arguments).map(|(tool, arguments)| self.0.headers.of(tool, arguments));
                    for (name, value) in of_call.into_iter().flatten() {
                        request = request.header(name, value);
                    }
                }
            }
            // The greeting starts a session, so it is in none.
            None if message.is_request("initialize") => {}
            None => request = self.in_session(request),
        }
        request.send().await.map_err(|error| failure(&error))
    }

    /// Forwards messages from the service while the session exists.
    async fn listen(&self) {
        let mut pause = PAUSE;
        loop {
            let request = self.0.client.get(self.0.url.clone()).header(ACCEPT, EVENT_STREAM);
            match self.in_session(self.authorized(request)).send().await {
                Ok(response) if response.status().is_success() => {
                    pause = PAUSE;
                    self.hand_back(response, None).await;
                }
                Ok(response) if response.status() == StatusCode::METHOD_NOT_ALLOWED => return,
                // The client's next message creates another session.
                Ok(_) | Err(_) => {}
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn end(&self) {
        if self.0.agreed.load().as_ref().is_some_and(|agreed| agreed.session.is_some()) {
            let request = self.0.client.delete(self.0.url.clone());
            let _ = self.in_session(self.authorized(request)).send().await;
        }
    }

    /// Forwards the messages of a stream. Returns whether the response to this request was among them.
    async fn hand_back(&self, response: Response, id: Option<&RawValue>) -> bool {
        let mut is_answered = false;
        let stream = response.bytes_stream().map_err(io::Error::other);
        let mut events = Events::new(StreamReader::new(stream), LIMIT);
        while let Some(event) = events.next().await {
            match event {
                Event::Whole { data, .. } if !data.is_empty() => {
                    is_answered |= id.is_some_and(|id| answers(&data, id));
                    self.send(one_line(&data)).await;
                }
                Event::Whole { .. } => {}
                Event::TooLarge { .. } => tracing::warn!(limit = LIMIT, "skipped a message of the service: it is too large"),
            }
        }
        is_answered
    }

    fn note_cancelled(&self, id: String) {
        let mut cancelled = self.0.cancelled.lock();
        // Ids of requests that had ended before are never asked for.
        if cancelled.len() >= CANCELLED {
            cancelled.clear();
        }
        cancelled.insert(id);
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.0.key {
            Some(key) => request.bearer_auth(key.expose_secret()),
            None => request,
        }
    }

    fn in_session(&self, request: RequestBuilder) -> RequestBuilder {
        let Some(agreed) = self.0.agreed.load_full() else { return request };
        let request = request.header(VERSION, &agreed.version);
        match &agreed.session {
            Some(session) => request.header(SESSION, session),
            None => request,
        }
    }

    async fn send(&self, message: Vec<u8>) {
        let _ = self.0.out.send(message).await;
    }
}

/// Adds the headers for a request without a session.
fn stateless(mut request: RequestBuilder, message: &Message<'_>) -> RequestBuilder {
    if let Some(method) = &message.method {
        request = request.header("mcp-method", method);
    }
    let params = message.params.as_ref();
    let name = params.and_then(|params| params.name.as_ref().or(params.uri.as_ref())).and_then(Value::as_str);
    match name {
        Some(name) => request.header("mcp-name", written(name)),
        None => request,
    }
}

/// The last event of a stream, which contains the response.
async fn last_event(response: Response) -> Option<Value> {
    let stream = response.bytes_stream().map_err(io::Error::other);
    let mut events = Events::new(StreamReader::new(stream), LIMIT);
    let mut last = None;
    while let Some(event) = events.next().await {
        if let Event::Whole { data, .. } = event {
            last = serde_json::from_slice(&data).ok().or(last);
        }
    }
    last
}

/// Replaces line breaks, which would end the message on standard output.
fn one_line(message: &[u8]) -> Vec<u8> {
    if !message.contains(&b'\n') {
        return message.to_vec();
    }
    match std::str::from_utf8(message) {
        Ok(message) => json::minified(message).into_bytes(),
        Err(_) => message.iter().copied().filter(|byte| *byte != b'\n').collect(),
    }
}

/// Whether a message is the response to this request.
fn answers(message: &[u8], id: &RawValue) -> bool {
    let value = |id: &RawValue| serde_json::from_str::<Value>(id.get()).ok();
    serde_json::from_slice::<Message<'_>>(message)
        .is_ok_and(|message| message.method.is_none() && message.id.is_some_and(|own| value(own) == value(id)))
}

/// The text of an error response without an id.
fn without_id(message: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        id: Option<Value>,
        error: Error,
    }
    #[derive(Deserialize)]
    struct Error {
        message: String,
    }
    let answer: Answer = serde_json::from_slice(message).ok()?;
    answer.id.is_none().then_some(answer.error.message)
}

/// The content type, in lower case.
fn kind(response: &Response) -> Option<String> {
    response.headers().get(CONTENT_TYPE)?.to_str().ok().map(str::to_ascii_lowercase)
}

/// The innermost cause of an error, which is the most specific one.
fn failure(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    format!("the service can't be reached: {cause}. Is it running, and is --url right?")
}

fn refused(status: StatusCode, body: &[u8]) -> String {
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    let detail = problem.get("detail").and_then(Value::as_str).unwrap_or("no details");
    match status {
        StatusCode::UNAUTHORIZED => format!("the service requires a key: --key, or TOOLSIEVE_API_KEY. Details: {detail}"),
        _ => format!("the service answered with status {}: {detail}", status.as_u16()),
    }
}

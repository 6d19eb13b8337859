//! Intercepts the messages of a connection before rmcp decodes them, to keep results in raw form.
//!
//! rmcp converts results to its own types and drops everything unknown: content types, fields, or a whole list because of one
//! invalid tool. So both transports first pass each message to [`Exchange::inbound`]. It stores the raw result in the [`Ticket`]
//! of the request; rmcp only sees that the request is complete. Progress and `list_changed` are handled here too, because rmcp
//! handles each notification in a separate task, which loses their order.

mod news;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions, GetMeta, InputResponses, JsonRpcMessage,
    JsonRpcRequest, RequestId, RequestMetaObject,
};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};

use self::news::Pending;
use crate::adapters::mcp::text::foreign;
use crate::domain::access::principal::PrincipalId;
use crate::domain::text::json::{self, Members};
use crate::service::ports::{Progress, ServerMessage, TraceContext};

/// Schema keyword of an argument that an HTTP header must repeat.
const HEADER_ANNOTATION: &str = "x-mcp-header";
/// Additional bytes allowed for the parts of a message around its result.
const ENVELOPE: usize = 256;
/// Server requests that are forwarded to the caller.
const QUESTIONS: [&str; 2] = ["elicitation/create", "sampling/createMessage"];
/// `_meta` key of the client's capabilities in a request (MCP specification 2026-07-28).
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// `_meta` key that records on which request's stream a server request arrived, on its way through rmcp.
const STREAM: &str = "toolsieve/stream";
/// Prefix of the methods of server requests on their way through rmcp.
pub(in crate::adapters::mcp) const RAW: &str = "raw:";
/// Maximum size of an error's `data`, in bytes. Larger data is dropped.
const DATA: usize = 4_000;
/// Number of entries from which dead ones are removed before another is added.
const PURGE_FROM: usize = 64;
/// How long the server may still work on an abandoned call. Most servers stop at once, and don't respond to a cancelled one.
const ABANDONED: Duration = Duration::from_mins(1);

/// The response to a request with a ticket.
#[derive(Debug)]
pub(in crate::adapters::mcp) enum Answer {
    /// The `result` member, byte for byte, and the size of the whole message.
    Result {
        result: Box<RawValue>,
        bytes: usize,
    },
    Error {
        code: i64,
        message: String,
        data: Option<Box<Value>>,
    },
    TooLarge {
        limit: usize,
    },
    /// The response is not JSON, or not JSON-RPC.
    Malformed,
}

impl Answer {
    /// Parses the `error` member of a response. The server may send any text of any length.
    pub(in crate::adapters::mcp) fn error(error: &Value) -> Self {
        Self::Error {
            code: error.get("code").and_then(Value::as_i64).unwrap_or(-32603),
            message: foreign(error.get("message").and_then(Value::as_str).unwrap_or("no message")),
            data: error.get("data").filter(|data| data.to_string().len() <= DATA).cloned().map(Box::new),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(in crate::adapters::mcp) enum Purpose {
    List,
    Call,
    /// Any other request.
    Ask,
}

/// Where server messages during a request are sent.
#[derive(Clone, Debug, Default)]
pub(in crate::adapters::mcp) struct Listeners {
    pub(in crate::adapters::mcp) progress: Option<mpsc::Sender<Progress>>,
    pub(in crate::adapters::mcp) said: Option<mpsc::Sender<ServerMessage>>,
    /// The client's capabilities, if it answers server requests by repeating its own request.
    pub(in crate::adapters::mcp) capabilities: Option<Value>,
    /// The caller of the request, if there is one.
    pub(in crate::adapters::mcp) owner: Option<PrincipalId>,
    /// The trace to which the request belongs.
    pub(in crate::adapters::mcp) trace: Option<TraceContext>,
}

/// Receives the raw response to a request. It is attached to the request's extensions, which are never sent.
#[derive(Clone, Debug)]
pub(in crate::adapters::mcp) struct Ticket(Arc<TicketState>);

#[derive(Debug)]
struct TicketState {
    purpose: Purpose,
    /// Maximum size of the response, in bytes.
    limit: usize,
    listeners: Listeners,
    answer: Mutex<Option<Answer>>,
    sending: AtomicU8,
    /// Whether the server rejected the HTTP request itself.
    is_rejected: AtomicBool,
    /// The number of server requests that the caller has not answered yet.
    asked: AtomicUsize,
}

/// The states of [`TicketState::sending`].
const QUEUED: u8 = 0;
const SENDING: u8 = 1;
const SENT: u8 = 2;
const WITHDRAWN: u8 = 3;
/// The server rejected the request because it doesn't know the session. rmcp starts another session and repeats the request.
const REFUSED: u8 = 4;
/// Sent again, in another session.
const REPEATED: u8 = 5;
/// Maximum wait for a pending write when the connection ends.
const SETTLING: Duration = Duration::from_millis(500);

impl Ticket {
    pub(in crate::adapters::mcp) fn new(purpose: Purpose, limit: usize, listeners: Listeners) -> Self {
        Self(Arc::new(TicketState {
            purpose,
            limit,
            listeners,
            answer: Mutex::new(None),
            sending: AtomicU8::new(QUEUED),
            is_rejected: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
        }))
    }

    /// Call this right before writing the request. If it returns `false`, do not write.
    pub(in crate::adapters::mcp) fn start_sending(&self) -> bool {
        self.0.sending.compare_exchange(QUEUED, SENDING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Call this once the write has ended. `something`: at least one byte was written.
    pub(in crate::adapters::mcp) fn sent(&self, something: bool) {
        self.0.sending.store(if something { SENT } else { QUEUED }, Ordering::Release);
    }

    /// Call this right before posting the request. If it returns `false`, do not post.
    pub(in crate::adapters::mcp) fn post(&self) -> bool {
        let next = |state| match state {
            WITHDRAWN => None,
            REFUSED | REPEATED => Some(REPEATED),
            _ => Some(SENT),
        };
        self.0.sending.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }

    /// Call this if the server rejects the posted request because of its session. Returns `false` if it was already repeated in another
    /// session.
    pub(in crate::adapters::mcp) fn refuse(&self) -> bool {
        self.0.sending.compare_exchange(SENT, REFUSED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Call this if the server rejects the posted request as a bad one (HTTP 400).
    pub(in crate::adapters::mcp) fn reject(&self) {
        self.0.is_rejected.store(true, Ordering::Release);
    }

    pub(in crate::adapters::mcp) fn is_rejected(&self) -> bool {
        self.0.is_rejected.load(Ordering::Acquire)
    }

    /// Prevents the request from being sent. Returns `false` if it may have been sent already.
    pub(in crate::adapters::mcp) async fn withdraw(&self) -> bool {
        let deadline = Instant::now() + SETTLING;
        loop {
            match self.withdraw_now() {
                Ok(()) => return true,
                Err(SENDING) if Instant::now() < deadline => sleep(Duration::from_millis(1)).await,
                Err(_) => return false,
            }
        }
    }

    /// Prevents the request from being sent, unless a write has begun. Fails with the state.
    fn withdraw_now(&self) -> Result<(), u8> {
        let next = |state| matches!(state, QUEUED | REFUSED).then_some(WITHDRAWN);
        self.0.sending.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).map(drop)
    }

    /// Abandons the request. Returns `false` if the server may have received it.
    pub(in crate::adapters::mcp) fn abandon(&self) -> bool {
        self.withdraw_now().is_ok()
    }

    pub(in crate::adapters::mcp) fn trace(&self) -> Option<&TraceContext> {
        self.0.listeners.trace.as_ref()
    }

    pub(in crate::adapters::mcp) fn take(&self) -> Option<Answer> {
        lock(&self.0.answer).take()
    }
}

/// Marks the cancellation of a request that was never sent. rmcp must see it, and the server must not.
#[derive(Clone, Copy, Debug)]
pub(in crate::adapters::mcp) struct Unsent;

/// Whether a message cancels a request that was never sent.
pub(in crate::adapters::mcp) fn cancels_unsent(message: &ClientJsonRpcMessage) -> bool {
    let JsonRpcMessage::Notification(message) = message else { return false };
    matches!(&message.notification, ClientNotification::CancelledNotification(cancelled) if cancelled.extensions.get::<Unsent>().is_some())
}

/// The JSON text of a call's arguments, attached to the request's extensions. [`encode`] sends it unchanged, because rmcp's
/// parsed arguments have rounded numbers.
#[derive(Clone, Debug)]
pub(in crate::adapters::mcp) struct RawArguments(pub(in crate::adapters::mcp) Arc<RawValue>);

/// Encodes a message for the wire. rmcp's own encoding cannot contain raw arguments.
pub(in crate::adapters::mcp) fn encode(message: &ClientJsonRpcMessage) -> serde_json::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Call<'a> {
        jsonrpc: &'static str,
        id: &'a RequestId,
        method: &'static str,
        params: Params<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
        meta: Option<&'a RequestMetaObject>,
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        input_responses: Option<&'a InputResponses>,
        #[serde(skip_serializing_if = "Option::is_none")]
        request_state: Option<&'a str>,
        arguments: &'a RawValue,
    }
    let JsonRpcMessage::Request(JsonRpcRequest { id, request: ClientRequest::CallToolRequest(call), .. }) = message else {
        return serde_json::to_vec(message);
    };
    let Some(RawArguments(arguments)) = call.extensions.get() else { return serde_json::to_vec(message) };
    let params = Params {
        meta: call.extensions.get().filter(|meta: &&RequestMetaObject| !meta.0.0.is_empty()),
        name: &call.params.name,
        input_responses: call.params.input_responses.as_ref(),
        request_state: call.params.request_state.as_deref(),
        arguments,
    };
    serde_json::to_vec(&Call { jsonrpc: "2.0", id, method: "tools/call", params })
}

/// State of one connection: its pending requests with tickets, and received notifications.
#[derive(Debug, Default)]
pub(in crate::adapters::mcp) struct Exchange {
    waiting: Mutex<Waiting>,
    /// Notified when the server's tools have changed.
    pub(in crate::adapters::mcp) changed: Notify,
    /// Notified when an error suggests that the connection is dead.
    pub(in crate::adapters::mcp) suspect: Notify,
    /// Notified when the server has described itself differently in another session.
    pub(in crate::adapters::mcp) outdated: Notify,
    /// Pending notifications about prompts and resources.
    pub(in crate::adapters::mcp) news: Pending,
    /// Whether a tool has arguments that HTTP headers must repeat.
    has_header_arguments: AtomicBool,
    /// The time at which the last message arrived.
    heard: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Waiting {
    answers: HashMap<RequestId, Weak<TicketState>>,
    progress: HashMap<RequestId, Weak<TicketState>>,
    /// The calls that were sent and then abandoned, with the time. The server may still send messages about them.
    abandoned: HashMap<RequestId, Instant>,
}

impl Waiting {
    /// Whether the server may still work on a call whose caller has gone.
    fn has_abandoned(&self) -> bool {
        self.abandoned.values().any(|since| since.elapsed() < ABANDONED)
    }
}

/// The call to which a server request belongs.
#[derive(Debug)]
pub(in crate::adapters::mcp) enum Asker {
    One(Callee),
    /// Several calls are possible, and nothing identifies the right one.
    Several,
    Nobody,
}

/// The caller to which a server's message is forwarded.
#[derive(Debug)]
pub(in crate::adapters::mcp) struct Callee {
    pub(in crate::adapters::mcp) said: mpsc::Sender<ServerMessage>,
    call: Arc<TicketState>,
}

impl Callee {
    /// Marks the call as waiting for its caller's answer until the returned value is dropped.
    pub(in crate::adapters::mcp) fn waits(&self) -> Waits {
        self.call.asked.fetch_add(1, Ordering::AcqRel);
        Waits(Arc::clone(&self.call))
    }
}

/// A call that waits for its caller's answer.
pub(in crate::adapters::mcp) struct Waits(Arc<TicketState>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.asked.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How the transport must treat an incoming message.
#[derive(Debug)]
pub(in crate::adapters::mcp) enum Inbound {
    /// Pass it to rmcp.
    Forward(Value),
    /// A response whose result is stored in a ticket; pass this placeholder to rmcp.
    Answered { id: RequestId, result: Value },
    /// The message is handled; pass nothing to rmcp.
    Consumed,
    /// The text is not a JSON-RPC message and belongs to no ticket.
    Junk,
}

impl Exchange {
    /// Registers the ticket of a request that is about to be sent. Asks for progress notifications only if the caller wants them.
    pub(in crate::adapters::mcp) fn outbound(&self, message: &mut ClientJsonRpcMessage) -> Option<Ticket> {
        let JsonRpcMessage::Request(request) = message else { return None };
        let Ticket(ticket) = request.request.extensions().get::<Ticket>().cloned()?;
        let mut waiting = lock(&self.waiting);
        match &ticket.listeners.capabilities {
            Some(capabilities) => declare(request.request.get_meta_mut(), capabilities),
            None if ticket.listeners.said.is_none() => ask_nothing(request.request.get_meta_mut()),
            None => {}
        }
        if let Some(trace) = &ticket.listeners.trace {
            // Servers read it there on every transport (MCP specification 2026-07-28, "Trace Context").
            let meta = &mut request.request.get_meta_mut().0.0;
            meta.extend(trace.headers().map(|(name, value)| (name.to_owned(), value.into())));
        }
        if ticket.listeners.progress.is_some() {
            if let Some(token) = request.request.get_meta().get_progress_token() {
                insert(&mut waiting.progress, token.0, &ticket);
            }
        } else {
            request.request.get_meta_mut().0.0.remove("progressToken");
        }
        insert(&mut waiting.answers, request.id.clone(), &ticket);
        Some(Ticket(ticket))
    }

    /// Handles an incoming message. Results of calls are not parsed, because that would round numbers.
    pub(in crate::adapters::mcp) fn inbound(&self, message: &[u8]) -> Inbound {
        self.inbound_on(message, None)
    }

    /// Like [`Self::inbound`], for a message on the stream of a request.
    pub(in crate::adapters::mcp) fn inbound_on(&self, message: &[u8], stream: Option<&RequestId>) -> Inbound {
        *lock(&self.heard) = Some(Instant::now());
        // Tolerate invalid UTF-8, and Python's non-standard JSON.
        let text = String::from_utf8_lossy(message);
        if let Some(members) = json::members(&text) {
            return self.read(&text, &members, message.len(), stream);
        }
        let mended = json::with_quoted_literals(&text);
        match mended.as_deref().and_then(|text| Some((text, json::members(text)?))) {
            Some((text, members)) => self.read(text, &members, message.len(), stream),
            None => self.fail_unreadable(message, message, false, |_| Answer::Malformed),
        }
    }

    fn read(&self, text: &str, members: &Members<'_>, length: usize, stream: Option<&RequestId>) -> Inbound {
        let member = |name: &str| members.get(name).and_then(|value| serde_json::from_str::<Value>(value.get()).ok());
        let forward = || serde_json::from_str(text).map_or(Inbound::Junk, Inbound::Forward);
        if let Some(method) = members.get("method").and_then(|method| json::text(method.get())) {
            return match method.as_str() {
                "notifications/progress" => {
                    self.forward_progress(member("params").as_ref());
                    Inbound::Consumed
                }
                "notifications/tools/list_changed" => {
                    self.changed.notify_one();
                    Inbound::Consumed
                }
                // Not for rmcp, which would log the content.
                "notifications/message" => {
                    if let Some(params) = member("params") {
                        let token = params.get("_meta").and_then(|meta| request_id(meta.get("progressToken")?));
                        if let Asker::One(callee) = self.callee(stream, token.as_ref()) {
                            let _ = callee.said.try_send(ServerMessage::Note(params));
                        }
                    }
                    Inbound::Consumed
                }
                "notifications/prompts/list_changed" => {
                    self.news.prompts();
                    Inbound::Consumed
                }
                "notifications/resources/list_changed" => {
                    self.news.resources();
                    Inbound::Consumed
                }
                "notifications/resources/updated" => {
                    if let Some(uri) = member("params").as_ref().and_then(|params| params.get("uri")?.as_str()) {
                        self.news.updated(uri);
                    }
                    Inbound::Consumed
                }
                question if QUESTIONS.contains(&question) && members.contains_key("id") => match forward() {
                    Inbound::Forward(mut message) => {
                        // With an unknown method name, rmcp passes on the raw request instead of a parsed one.
                        message["method"] = format!("{RAW}{question}").into();
                        mark(&mut message, stream);
                        Inbound::Forward(message)
                    }
                    other => other,
                },
                _ => forward(),
            };
        }
        if !members.contains_key("result") && !members.contains_key("error") {
            return Inbound::Junk;
        }
        let Some((id, ticket)) = member("id").as_ref().and_then(request_id).and_then(|id| self.claim(id)) else {
            return forward();
        };
        let mut for_rmcp = json!({});
        let answer = if length > ticket.limit.saturating_add(ENVELOPE) {
            Answer::TooLarge { limit: ticket.limit }
        } else if let Some(error) = members.get("error").filter(|error| error.get() != "null") {
            Answer::error(&json::readable(error.get()).unwrap_or_default())
        } else {
            let result = members.get("result").map_or(RawValue::NULL, |result| *result);
            if matches!(ticket.purpose, Purpose::List) {
                for_rmcp = header_annotations(result);
                if for_rmcp["tools"].as_array().is_some_and(|tools| !tools.is_empty()) {
                    self.has_header_arguments.store(true, Ordering::Relaxed);
                }
            }
            Answer::Result { result: result.to_owned(), bytes: length }
        };
        *lock(&ticket.answer) = Some(answer);
        Inbound::Answered { id, result: for_rmcp }
    }

    /// Whether rmcp needs parsed arguments in addition to the raw ones, for headers.
    pub(in crate::adapters::mcp) fn has_header_arguments(&self) -> bool {
        self.has_header_arguments.load(Ordering::Relaxed)
    }

    pub(in crate::adapters::mcp) fn was_heard_since(&self, time: Instant) -> bool {
        lock(&self.heard).is_some_and(|heard| heard >= time)
    }

    /// Fails the request whose response was too large to read. `head` and `tail` are the ends of the message.
    pub(in crate::adapters::mcp) fn fail_oversized(&self, head: &[u8], tail: &[u8]) -> Inbound {
        self.fail_unreadable(head, tail, true, |ticket| Answer::TooLarge { limit: ticket.limit })
    }

    /// Fails a request for which no message arrived.
    pub(in crate::adapters::mcp) fn fail(&self, id: &RequestId, answer: Answer) -> bool {
        let Some((_, ticket)) = self.claim(id.clone()) else { return false };
        *lock(&ticket.answer) = Some(answer);
        true
    }

    pub(in crate::adapters::mcp) fn fail_too_large(&self, id: &RequestId) -> bool {
        let Some((_, ticket)) = self.claim(id.clone()) else { return false };
        *lock(&ticket.answer) = Some(Answer::TooLarge { limit: ticket.limit });
        true
    }

    /// Fails the request with this unreadable response. `guess`: without a readable id, it is the only pending request.
    fn fail_unreadable(&self, head: &[u8], tail: &[u8], guess: bool, answer: impl Fn(&TicketState) -> Answer) -> Inbound {
        // Text that doesn't start like a message is stray output and answers no request.
        if !head.trim_ascii_start().starts_with(b"{") {
            return Inbound::Junk;
        }
        // Neither does a notification or a request of the server, whose ids are its own.
        if has_method(head) {
            return Inbound::Consumed;
        }
        let named = id_in_head(head).into_iter().chain(id_in_tail(tail));
        let claimed = named.into_iter().find_map(|id| self.claim(id)).or_else(|| {
            let only = if guess { self.only_waiting() } else { None };
            only.and_then(|id| self.claim(id))
        });
        let Some((id, ticket)) = claimed else { return Inbound::Junk };
        *lock(&ticket.answer) = Some(answer(&ticket));
        Inbound::Answered { id, result: json!({}) }
    }

    fn only_waiting(&self) -> Option<RequestId> {
        let waiting = lock(&self.waiting);
        let mut alive = waiting.answers.iter().filter(|(_, ticket)| ticket.strong_count() > 0);
        alive.next().map(|(id, _)| id.clone()).filter(|_| alive.next().is_none())
    }

    /// Removes and returns the ticket of a request, so that no other message can claim it.
    fn claim(&self, id: RequestId) -> Option<(RequestId, Arc<TicketState>)> {
        let mut waiting = lock(&self.waiting);
        waiting.abandoned.remove(&id);
        if let Some(ticket) = waiting.answers.remove(&id) {
            return ticket.upgrade().map(|ticket| (id, ticket));
        }
        // Some servers return the id as a string.
        let RequestId::String(text) = &id else { return None };
        let number = RequestId::Number(text.parse().ok()?);
        waiting.abandoned.remove(&number);
        waiting.answers.remove(&number)?.upgrade().map(|ticket| (number, ticket))
    }

    /// Notes that the caller of this request has gone. Until the server responds, or for [`ABANDONED`], messages that name no call may be
    /// about this one.
    pub(in crate::adapters::mcp) fn abandon(&self, id: &RequestId) {
        let mut waiting = lock(&self.waiting);
        let unanswered = waiting.answers.get(id).and_then(Weak::upgrade);
        if !unanswered.is_some_and(|ticket| matches!(ticket.purpose, Purpose::Call)) {
            return;
        }
        let abandoned = &mut waiting.abandoned;
        if abandoned.len() >= PURGE_FROM && abandoned.len() == abandoned.capacity() {
            abandoned.retain(|_, since| since.elapsed() < ABANDONED);
        }
        abandoned.insert(id.clone(), Instant::now());
    }

    /// Finds the caller for a server request by the metadata of the request.
    pub(in crate::adapters::mcp) fn asker(&self, meta: &RequestMetaObject) -> Asker {
        let meta = |key: &str| meta.0.0.get(key).and_then(request_id);
        self.callee(meta(STREAM).as_ref(), meta("progressToken").as_ref())
    }

    /// Finds the caller for a server's message: by the stream on which the message arrived, by its progress token, or as the only
    /// caller with a running call. If several calls of one caller run, calls that already wait for an answer are excluded,
    /// because the server can't make another request in these.
    fn callee(&self, stream: Option<&RequestId>, token: Option<&RequestId>) -> Asker {
        let waiting = lock(&self.waiting);
        // A stream is one of ours. A token may be the server's own, which names no call.
        let of_stream = || Some(waiting.answers.get(stream?).and_then(Weak::upgrade));
        let of_token = || Some(waiting.progress.get(token?)?.upgrade());
        let callee = |call: Arc<TicketState>| match call.listeners.said.clone() {
            Some(said) => Asker::One(Callee { said, call }),
            None => Asker::Nobody,
        };
        match of_stream().or_else(of_token) {
            Some(Some(ticket)) => return callee(ticket),
            // The caller has gone. The message is for nobody else.
            Some(None) => return Asker::Nobody,
            None if waiting.has_abandoned() => return Asker::Nobody,
            None => {}
        }
        let mut calls: Vec<Arc<TicketState>> = waiting.answers.values().filter_map(Weak::upgrade).collect();
        calls.retain(|ticket| matches!(ticket.purpose, Purpose::Call));
        let owner = |call: &Arc<TicketState>| call.listeners.owner.clone();
        let is_of_one = calls.first().and_then(owner).is_some_and(|first| calls.iter().all(|call| owner(call).as_ref() == Some(&first)));
        let waits = calls.len() > 1 && is_of_one;
        if waits {
            calls.retain(|call| call.asked.load(Ordering::Acquire) == 0);
        }
        match (calls.pop(), calls.len()) {
            (Some(only), 0) => callee(only),
            (Some(_), _) => Asker::Several,
            (None, _) if waits => Asker::Several,
            (None, _) => Asker::Nobody,
        }
    }

    fn forward_progress(&self, params: Option<&Value>) {
        let Some(params) = params else { return };
        let Some(token) = params.get("progressToken").and_then(request_id) else { return };
        let Some(ticket) = lock(&self.waiting).progress.get(&token).and_then(Weak::upgrade) else { return };
        let (Some(listener), Some(progress)) = (&ticket.listeners.progress, params.get("progress").and_then(Value::as_f64)) else {
            return;
        };
        let total = params.get("total").and_then(Value::as_f64);
        let message = params.get("message").and_then(Value::as_str).map(str::to_owned);
        // If the listener's queue is full, drop the progress, so that it does not block the connection.
        let _ = listener.try_send(Progress { progress, total, message });
    }
}

/// Stores the stream's request in the metadata of a server request. Overwrites the server's own value.
fn mark(question: &mut Value, stream: Option<&RequestId>) {
    let Some(params) = question.get_mut("params").and_then(Value::as_object_mut) else { return };
    match (params.get_mut("_meta"), stream) {
        (Some(Value::Object(meta)), None) => drop(meta.shift_remove(STREAM)),
        (Some(Value::Object(meta)), Some(stream)) => drop(meta.insert(STREAM.to_owned(), json!(stream))),
        (_, Some(stream)) => drop(params.insert("_meta".to_owned(), json!({ STREAM: stream }))),
        (_, None) => {}
    }
}

/// Adds the client's capabilities to a request, unchanged.
fn declare(meta: &mut RequestMetaObject, capabilities: &Value) {
    if meta.client_capabilities().is_some() {
        meta.0.0.insert(CAPABILITIES.to_owned(), capabilities.clone());
    }
}

/// Declares no capabilities, for a caller that can't answer server requests (protocol 2026-07-28).
fn ask_nothing(meta: &mut RequestMetaObject) {
    if meta.client_capabilities().is_some() {
        meta.set_client_capabilities(ClientCapabilities::default());
    }
}

fn insert(map: &mut HashMap<RequestId, Weak<TicketState>>, id: RequestId, ticket: &Arc<TicketState>) {
    if map.len() >= PURGE_FROM && map.len() == map.capacity() {
        map.retain(|_, ticket| ticket.strong_count() > 0);
    }
    map.insert(id, Arc::downgrade(ticket));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn request_id(value: &Value) -> Option<RequestId> {
    match value {
        Value::Number(number) => number.as_i64().map(RequestId::Number),
        Value::String(text) => Some(RequestId::String(text.as_str().into())),
        _ => None,
    }
}

/// The tools in a list with arguments that HTTP headers repeat (`x-mcp-header`, protocol 2026-07-28), which rmcp needs.
fn header_annotations(result: &RawValue) -> Value {
    let annotated = |tool: &Value| {
        let properties = tool.get("inputSchema").and_then(|schema| schema.get("properties")).and_then(Value::as_object);
        properties.is_some_and(|properties| properties.values().any(|property| property.get(HEADER_ANNOTATION).is_some()))
    };
    let listed = json::member(result.get(), "tools").and_then(|tools| json::items(tools.get()));
    let tools: Vec<Value> = listed
        .into_iter()
        .flatten()
        // An invalid tool must not affect the others.
        .filter(|tool| tool.get().contains(HEADER_ANNOTATION))
        .filter_map(|tool| json::readable(tool.get()).ok())
        .filter(annotated)
        .map(|tool| {
            let mut trimmed = Map::new();
            for key in ["name", "inputSchema"] {
                trimmed.insert(key.into(), tool.get(key).cloned().unwrap_or_default());
            }
            Value::Object(trimmed)
        })
        .collect();
    json!({ "tools": tools })
}

/// The messages of a JSON-RPC batch (protocol 2025-03-26); `None` for any other text.
pub(in crate::adapters::mcp) fn batch(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    if !text.trim_ascii_start().starts_with(b"[") {
        return None;
    }
    let text = String::from_utf8_lossy(text);
    let mended = json::with_quoted_literals(&text);
    let messages = json::items(mended.as_deref().unwrap_or(&text))?;
    let is_message = |item: &&RawValue| json::members(item.get()).is_some_and(|members| members.contains_key("jsonrpc"));
    let is_batch = !messages.is_empty() && messages.iter().all(is_message);
    is_batch.then(|| messages.into_iter().map(|message| message.get().as_bytes().to_vec()).collect())
}

/// Whether a message is a response to this request.
pub(in crate::adapters::mcp) fn responds_to(message: &Value, request: &RequestId) -> bool {
    let is_response = message.get("result").is_some() || message.get("error").is_some();
    let id = message.get("id").and_then(request_id);
    // Some servers return the id as a string.
    is_response && message.get("method").is_none() && id.is_some_and(|id| id == *request || id.to_string() == request.to_string())
}

/// Whether a message is an error response.
pub(in crate::adapters::mcp) fn is_error(message: &Value) -> bool {
    message.get("error").is_some_and(Value::is_object) && message.get("method").is_none()
}

/// Whether a message is an error response without an id that could be one of ours. The Python SDK sends the id `server-error`.
pub(in crate::adapters::mcp) fn is_error_without_id(message: &Value) -> bool {
    let is_ours = match message.get("id").and_then(request_id) {
        Some(RequestId::Number(_)) => true,
        Some(RequestId::String(text)) => text.parse::<i64>().is_ok(),
        None => false,
    };
    is_error(message) && !is_ours
}

/// The top-level `id` near the start of a message.
fn id_in_head(head: &[u8]) -> Option<RequestId> {
    each_top_level_key(head, |key, rest| if key == b"id" { id_after_key(rest) } else { None })
}

/// Whether a message has a top-level `method` near its start.
fn has_method(head: &[u8]) -> bool {
    let is_key = |rest: &[u8]| rest.trim_ascii_start().starts_with(b":");
    each_top_level_key(head, |key, rest| (key == b"method" && is_key(rest)).then_some(())).is_some()
}

/// The first value that `found` returns for a top-level string and the text after it.
fn each_top_level_key<T>(head: &[u8], found: impl Fn(&[u8], &[u8]) -> Option<T>) -> Option<T> {
    let (mut depth, mut position) = (0_usize, 0_usize);
    while let Some(byte) = head.get(position) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let rest = &head[position + 1..];
                let mut escaped = false;
                let end = rest.iter().position(|byte| {
                    let closes = *byte == b'"' && !escaped;
                    escaped = *byte == b'\\' && !escaped;
                    closes
                })?;
                if depth == 1
                    && let Some(found) = found(&rest[..end], &rest[end + 1..])
                {
                    return Some(found);
                }
                position += end + 1;
            }
            _ => {}
        }
        position += 1;
    }
    None
}

/// The last `id` near the end of a message.
fn id_in_tail(tail: &[u8]) -> Option<RequestId> {
    let start = tail.windows(4).rposition(|window| window == b"\"id\"")?;
    id_after_key(&tail[start + 4..])
}

fn id_after_key(text: &[u8]) -> Option<RequestId> {
    let value = text.trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(value).into_iter::<Value>();
    request_id(&values.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolRequest, CallToolRequestParams};

    use super::*;

    #[test]
    fn an_id_is_found_in_what_is_left_of_a_message() {
        assert_eq!(id_in_head(br#"{"jsonrpc":"2.0","id": 7,"result":{oops"#), Some(RequestId::Number(7)));
        assert_eq!(id_in_head(br#"{"result":{"id":1},"id":"a"}"#), Some(RequestId::String("a".into())));
        assert_eq!(id_in_head(br#"{"result":{"id":1,"#), None);
        assert_eq!(id_in_head(br#"{"a\"id":1,"#), None);
        assert_eq!(id_in_tail(br#"xxxx"}]},"id":12}"#), Some(RequestId::Number(12)));
    }

    fn waiting(exchange: &Exchange, id: i64) -> Ticket {
        waiting_with(exchange, id, Listeners::default())
    }

    fn waiting_with(exchange: &Exchange, id: i64, listeners: Listeners) -> Ticket {
        let mut request = CallToolRequest::new(CallToolRequestParams::new("t"));
        request.extensions.insert(Ticket::new(Purpose::Call, 100, listeners));
        exchange.outbound(&mut ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(id))).unwrap()
    }

    /// A running call of a caller that takes messages, and the messages.
    fn listening(exchange: &Exchange, id: i64) -> (Ticket, mpsc::Receiver<ServerMessage>) {
        let (said, messages) = mpsc::channel(4);
        (waiting_with(exchange, id, Listeners { said: Some(said), ..Listeners::default() }), messages)
    }

    /// Lets the server send a log message and a request, and returns whether the caller gets the message and would be asked.
    fn reaches(exchange: &Exchange, stream: Option<i64>, messages: &mut mpsc::Receiver<ServerMessage>) -> (bool, bool) {
        let note = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"secret"}}"#;
        let stream = stream.map(RequestId::Number);
        assert!(matches!(exchange.inbound_on(note, stream.as_ref()), Inbound::Consumed));
        let question = br#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"?"}}"#;
        let Inbound::Forward(question) = exchange.inbound_on(question, stream.as_ref()) else { panic!("the question is lost") };
        let mut meta = RequestMetaObject::default();
        meta.0.0.extend(question["params"]["_meta"].as_object().cloned().unwrap_or_default());
        (matches!(messages.try_recv(), Ok(ServerMessage::Note(_))), matches!(exchange.asker(&meta), Asker::One(_)))
    }

    #[test]
    fn messages_about_an_abandoned_call_reach_no_other_caller() {
        let exchange = Exchange::default();
        let (call, _messages) = listening(&exchange, 1);
        assert!(call.start_sending());
        call.sent(true);
        exchange.abandon(&RequestId::Number(1));
        drop(call);
        let (_other, mut messages) = listening(&exchange, 2);
        assert_eq!(reaches(&exchange, None, &mut messages), (false, false));
        assert_eq!(reaches(&exchange, Some(2), &mut messages), (true, true), "the stream names the call");
        // The late answer, with the id as some servers write it.
        exchange.inbound(br#"{"jsonrpc":"2.0","id":"1","result":{}}"#);
        assert_eq!(reaches(&exchange, None, &mut messages), (true, true));
    }

    #[test]
    fn an_abandoned_call_that_is_never_answered_is_forgotten() {
        let exchange = Exchange::default();
        let (call, _messages) = listening(&exchange, 1);
        exchange.abandon(&RequestId::Number(1));
        drop(call);
        let (_other, mut messages) = listening(&exchange, 2);
        let since = |ago: Duration| {
            *lock(&exchange.waiting).abandoned.get_mut(&RequestId::Number(1)).unwrap() = Instant::now().checked_sub(ago).unwrap();
        };
        since(ABANDONED / 2);
        assert_eq!(reaches(&exchange, None, &mut messages), (false, false));
        since(ABANDONED);
        assert_eq!(reaches(&exchange, None, &mut messages), (true, true));
    }

    #[test]
    fn an_answered_call_is_not_abandoned() {
        let exchange = Exchange::default();
        let (_call, _messages) = listening(&exchange, 1);
        exchange.inbound(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        exchange.abandon(&RequestId::Number(1));
        let (_other, mut messages) = listening(&exchange, 2);
        assert_eq!(reaches(&exchange, None, &mut messages), (true, true));
    }

    #[test]
    fn the_stream_names_the_call_of_a_message() {
        let exchange = Exchange::default();
        let ((call, mut messages), (_other, mut of_other)) = (listening(&exchange, 1), listening(&exchange, 2));
        assert_eq!(reaches(&exchange, None, &mut messages), (false, false), "several calls run");
        assert_eq!(reaches(&exchange, Some(1), &mut messages), (true, true));
        drop(call);
        assert_eq!(reaches(&exchange, Some(1), &mut of_other), (false, false));
        assert_eq!(reaches(&exchange, Some(2), &mut of_other), (true, true));
    }

    #[test]
    fn only_a_response_that_is_too_large_fails_a_call() {
        let exchange = Exchange::default();
        let call = waiting(&exchange, 7);
        for head in [
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"id":7,"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"messages":["#,
        ] {
            assert!(matches!(exchange.fail_oversized(head.as_bytes(), br#"xxx","id":7}}}"#), Inbound::Consumed), "{head}");
            assert!(call.take().is_none(), "{head}");
        }
        let head = br#"{"jsonrpc":"2.0","result":{"method":"a","content":["method","#;
        assert!(matches!(exchange.fail_oversized(head, b"xxx"), Inbound::Answered { .. }));
        assert!(matches!(call.take(), Some(Answer::TooLarge { limit: 100 })));
    }

    #[test]
    fn a_batch_is_told_from_other_arrays() {
        let found = |text: &str| batch(text.as_bytes()).map(|messages| messages.len());
        assert_eq!(found(r#" [{"jsonrpc":"2.0","method":"a"}, {"jsonrpc":"2.0","id":1,"result":{"x":NaN}}]"#), Some(2));
        for other in
            ["[]", "[INFO] started", "[1, 2]", r#"[{"a":1}]"#, r#"{"jsonrpc":"2.0","id":1,"result":[]}"#, r#"[{"jsonrpc":"2.0"},1]"#]
        {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn a_response_names_its_request() {
        let responds = |text: &str| responds_to(&serde_json::from_str(text).unwrap(), &RequestId::Number(7));
        assert!(responds(r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":""}}"#) && responds(r#"{"id":"7","result":{}}"#));
        for other in [r#"{"id":null,"error":{}}"#, r#"{"id":8,"result":{}}"#, r#"{"id":7,"method":"a"}"#, r#"{"id":7}"#, r#""not found""#] {
            assert!(!responds(other), "{other}");
        }
        let lacks_id = |text: &str| is_error_without_id(&serde_json::from_str(text).unwrap());
        assert!(lacks_id(r#"{"id":null,"error":{}}"#) && lacks_id(r#"{"id":"server-error","error":{}}"#));
        assert!(!lacks_id(r#"{"id":8,"error":{}}"#) && !lacks_id(r#"{"id":"8","error":{}}"#) && !lacks_id(r#"{"id":null,"result":{}}"#));
    }

    #[tokio::test]
    async fn a_request_is_repeated_in_one_other_session_at_most() {
        let ticket = || Ticket::new(Purpose::Call, 100, Listeners::default());
        let posted = ticket();
        assert!(posted.post() && !posted.abandon() && posted.refuse());
        assert!(posted.post() && !posted.refuse() && !posted.withdraw().await);
        let refused = ticket();
        assert!(refused.post() && refused.refuse() && refused.withdraw().await && !refused.post());
        let queued = ticket();
        assert!(queued.abandon() && !queued.post() && !queued.start_sending());
    }

    #[test]
    fn arguments_go_over_the_wire_as_they_were_written() {
        let arguments = r#"{"id": 12345678901234567890123, "x": 1e999}"#;
        let mut request = CallToolRequest::new(CallToolRequestParams::new("t"));
        request.extensions.insert(RawArguments(Arc::from(RawValue::from_string(arguments.to_owned()).unwrap())));
        let message = ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(7));
        let text = String::from_utf8(encode(&message).unwrap()).unwrap();
        assert_eq!(text, format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"t","arguments":{arguments}}}}}"#));
    }

    #[test]
    fn a_call_is_written_as_rmcp_writes_it() {
        let arguments = json!({"a": "\u{7}é", "b": [1, {}]});
        let mut params = CallToolRequestParams::new("näme").with_arguments(arguments.as_object().unwrap().clone());
        params.input_responses = Some(serde_json::from_value(json!({"who": {"action": "decline"}})).unwrap());
        params.request_state = Some("state".to_owned());
        let mut request = CallToolRequest::new(params);
        request.extensions.get_or_insert_default::<RequestMetaObject>().0.0.insert("progressToken".to_owned(), json!(7));
        let mut message = ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::String("x".into()));
        let by_rmcp = serde_json::to_value(&message).unwrap();
        if let JsonRpcMessage::Request(request) = &mut message {
            request.request.extensions_mut().insert(RawArguments(serde_json::value::to_raw_value(&arguments).unwrap().into()));
        }
        assert_eq!(serde_json::from_slice::<Value>(&encode(&message).unwrap()).unwrap(), by_rmcp);
    }

    #[test]
    fn a_request_carries_its_trace() {
        let trace = TraceContext { parent: "00-a-b-01".to_owned(), state: Some("c=1".to_owned()) };
        let mut request = CallToolRequest::new(CallToolRequestParams::new("t"));
        request.extensions.insert(RawArguments(RawValue::from_string("{}".to_owned()).unwrap().into()));
        request.extensions.insert(Ticket::new(Purpose::Call, 9, Listeners { trace: Some(trace), ..Listeners::default() }));
        let mut message = ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(7));
        let _ticket = Exchange::default().outbound(&mut message).unwrap();
        let sent: Value = serde_json::from_slice(&encode(&message).unwrap()).unwrap();
        assert_eq!(sent["params"]["_meta"], json!({"traceparent": "00-a-b-01", "tracestate": "c=1"}));
    }

    #[test]
    fn a_list_is_trimmed_to_what_rmcp_needs() {
        let list = json!({"tools": [
            {"name": "a", "inputSchema": {"properties": {"x": {"x-mcp-header": "X"}}}, "description": "d"},
            {"name": "b", "inputSchema": {"type": "object"}},
        ]});
        assert_eq!(
            header_annotations(&serde_json::value::to_raw_value(&list).unwrap()),
            json!({"tools": [{"name": "a", "inputSchema": {"properties": {"x": {"x-mcp-header": "X"}}}}]})
        );
    }
}

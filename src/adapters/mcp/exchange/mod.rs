//! Intercepts the messages of a connection before rmcp decodes them, to keep results in raw form.
//!
//! rmcp converts results to its own types and drops everything unknown: content types, fields, or a whole list because of one
//! invalid tool. So both transports first pass each message to [`Exchange::inbound`]. It stores the raw result in the [`Ticket`]
//! of the request; rmcp only sees that the request is complete. Progress and `list_changed` are handled here too, because rmcp
//! handles each notification in a separate task, which loses their order.

mod ticket;
mod encoding;
mod reading;
mod news;
mod unanswered;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use indexmap::IndexSet;
use rmcp::model::{ClientCapabilities, ClientJsonRpcMessage, GetExtensions, GetMeta, JsonRpcMessage, RequestId, RequestMetaObject};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

pub(in crate::adapters::mcp) use self::encoding::{RawArguments, Unsent, cancels_unsent, encode};
use self::news::Pending;
pub(in crate::adapters::mcp) use self::reading::{batch, is_error, is_error_without_id, responds_to};
use self::reading::{has_method, id_in_head, id_in_tail, number, readable_id, request_id, trimmed_error};
pub(in crate::adapters::mcp) use self::ticket::{Answer, Listeners, Purpose, Ticket};
use self::ticket::{TicketState, lock};
use self::unanswered::Unanswered;
use crate::domain::text::json::{self, Members};
use crate::service::ports::{Progress, ServerMessage};

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
/// Methods of server requests on their way through rmcp, in place of the server's own: a question that can't be passed on, and a request
/// that the client does not know.
pub(in crate::adapters::mcp) const UNUSABLE: &str = "toolsieve/unusable";
const UNKNOWN: &str = "toolsieve/unknown";
/// Maximum size of the message in a progress notification, in bytes.
const LONGEST_PROGRESS: usize = 64 * 1024;
/// Maximum size of a notification's parsed parameters, in bytes. Larger notifications are dropped.
const LARGEST_NOTIFICATION: usize = 4 * 1024 * 1024;
/// Maximum size of a parsed response to rmcp's own requests, in bytes.
const LARGEST_OWN: usize = 16 * 1024 * 1024;
/// Maximum number of rmcp's own requests to remember. Most have an answer at once; a subscription has one at its end.
const OWN: usize = 10_000;
/// Number of entries from which dead ones are removed before another is added.
const PURGE_FROM: usize = 64;
/// How long the server may still work on an abandoned call. Most servers stop at once, and don't respond to a cancelled one.
const ABANDONED: Duration = Duration::from_mins(1);

/// State of one connection: its pending requests with tickets, and received notifications.
#[derive(Debug, Default)]
pub(in crate::adapters::mcp) struct Exchange {
    waiting: Mutex<Waiting>,
    /// The server's requests.
    unanswered: Mutex<Unanswered>,
    /// Notified when the server's tools have changed.
    pub(in crate::adapters::mcp) changed: Notify,
    /// Notified when an error suggests that the connection is dead.
    pub(in crate::adapters::mcp) suspect: Notify,
    /// Notified when the server has described itself differently in another session.
    pub(in crate::adapters::mcp) outdated: Notify,
    /// Pending notifications about prompts and resources.
    pub(in crate::adapters::mcp) news: Pending,
    /// The time at which the last message arrived.
    heard: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Waiting {
    answers: HashMap<RequestId, Weak<TicketState>>,
    progress: HashMap<RequestId, Weak<TicketState>>,
    /// rmcp's own requests, which have no tickets: handshakes and subscriptions.
    own: IndexSet<RequestId>,
    /// The calls that were sent and then abandoned, with the time. The server may still send messages about them.
    abandoned: HashMap<RequestId, Instant>,
}

impl Waiting {
    /// Whether the server may still work on a call whose caller has gone.
    fn has_abandoned(&self) -> bool {
        self.abandoned.values().any(|since| since.elapsed() < ABANDONED)
    }
}

/// The callers for whom a server's message may be.
#[derive(Debug)]
pub(in crate::adapters::mcp) enum Recipients {
    One(Recipient),
    /// Several calls are possible, and nothing identifies the right one.
    Several,
    Nobody,
}

/// The caller to which a server's message is forwarded.
#[derive(Debug)]
pub(in crate::adapters::mcp) struct Recipient {
    pub(in crate::adapters::mcp) messages: mpsc::Sender<ServerMessage>,
    call: Arc<TicketState>,
}

impl Recipient {
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

/// The answer to a request of the server. The request counts as unanswered until this is dropped.
pub(in crate::adapters::mcp) struct Answering {
    exchange: Arc<Exchange>,
    id: RequestId,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.exchange.answered(&self.id);
    }
}

/// How the transport must treat an incoming message.
#[derive(Debug)]
pub(in crate::adapters::mcp) enum Inbound {
    /// Pass it to rmcp.
    Forward(Value),
    /// A response whose result is stored in a ticket; pass an empty result to rmcp.
    Answered { id: RequestId },
    /// The message is handled; pass nothing to rmcp.
    Consumed,
    /// A request of the server that is dropped, because too many are not answered yet.
    Dropped,
    /// The text is not a JSON-RPC message and belongs to no ticket.
    Junk,
}

impl Exchange {
    /// Registers the ticket of a request that is about to be sent. Asks for progress notifications only if the caller wants them.
    pub(in crate::adapters::mcp) fn outbound(&self, message: &mut ClientJsonRpcMessage) -> Option<Ticket> {
        let JsonRpcMessage::Request(request) = message else { return None };
        let mut waiting = lock(&self.waiting);
        let Some(Ticket(ticket)) = request.request.extensions().get::<Ticket>().cloned() else {
            if waiting.own.len() >= OWN {
                waiting.own.shift_remove_index(0);
            }
            waiting.own.insert(request.id.clone());
            return None;
        };
        match &ticket.listeners.capabilities {
            Some(capabilities) => declare(request.request.get_meta_mut(), capabilities),
            None if ticket.listeners.messages.is_none() => ask_nothing(request.request.get_meta_mut()),
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

    /// Call this right before sending a message. If it answers a request of the server, keep the returned value until it was sent.
    pub(in crate::adapters::mcp) fn answering(self: &Arc<Self>, message: &ClientJsonRpcMessage) -> Option<Answering> {
        let id = match message {
            JsonRpcMessage::Response(response) => response.id.clone(),
            JsonRpcMessage::Error(error) => error.id.clone()?,
            _ => return None,
        };
        lock(&self.unanswered).sending(&id);
        Some(Answering { exchange: Arc::clone(self), id })
    }

    /// Notes that a request of the server needs no more answer.
    pub(in crate::adapters::mcp) fn answered(&self, id: &RequestId) {
        lock(&self.unanswered).remove(id);
    }

    /// Forgets the requests of the server, because another session begins and counts its ids anew.
    pub(in crate::adapters::mcp) fn forget_requests(&self) {
        lock(&self.unanswered).clear();
    }

    /// Notes that rmcp does not get this message. If it is a request of the server, it is not answered.
    pub(in crate::adapters::mcp) fn discard(&self, message: &Value) {
        if let (Some(id), Some(_)) = (message.get("id").and_then(request_id), message.get("method")) {
            self.answered(&id);
        }
    }

    /// Handles an incoming message. Results of calls are not parsed, because that would round numbers. Of all other messages, only those
    /// parts are parsed that are used, because a parsed message can take a hundred times the memory of its text.
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
        if let Some(method) = members.get("method").and_then(|method| json::text(method.get())) {
            return match members.get("id") {
                Some(id) if !method.starts_with("notifications/") => self.requested(&method, readable_id(id), members, stream),
                _ => self.notified(&method, members, stream),
            };
        }
        if !members.contains_key("result") && !members.contains_key("error") {
            return Inbound::Junk;
        }
        let id = members.get("id").and_then(|id| readable_id(id));
        let Some((id, ticket)) = id.clone().and_then(|id| self.expected(id)) else { return self.unclaimed(text, members, id.as_ref()) };
        // Nobody waits for it any more.
        let Some(ticket) = ticket.upgrade() else { return Inbound::Answered { id } };
        let answer = if length > ticket.limit.saturating_add(ENVELOPE) {
            Answer::TooLarge { limit: ticket.limit }
        } else if let Some(error) = members.get("error").filter(|error| error.get() != "null") {
            Answer::error(&trimmed_error(error))
        } else {
            let result = members.get("result").map_or(RawValue::NULL, |result| *result);
            Answer::Result { result: result.to_owned(), bytes: length }
        };
        *lock(&ticket.answer) = Some(answer);
        Inbound::Answered { id }
    }

    /// Handles a notification. Passes only those to rmcp that it acts on.
    fn notified(&self, method: &str, members: &Members<'_>, stream: Option<&RequestId>) -> Inbound {
        let Some(params) = members.get("params").map(|params| params.get()) else {
            match method {
                "notifications/tools/list_changed" => self.changed.notify_one(),
                "notifications/prompts/list_changed" => self.news.prompts(),
                "notifications/resources/list_changed" => self.news.resources(),
                _ => {}
            }
            return Inbound::Consumed;
        };
        let parsed = || {
            let size = json::parsed_size(params);
            if size > LARGEST_NOTIFICATION {
                tracing::debug!(size, "dropped a notification that is too large");
                return None;
            }
            serde_json::from_str::<Value>(params).ok()
        };
        match method {
            "notifications/progress" => self.forward_progress(params),
            "notifications/tools/list_changed" => self.changed.notify_one(),
            // Not for rmcp, which would log the content.
            "notifications/message" => {
                if let Some(params) = parsed() {
                    let token = params.get("_meta").and_then(|meta| request_id(meta.get("progressToken")?));
                    if let Recipients::One(recipient) = self.recipient(stream, token.as_ref()) {
                        let _ = recipient.messages.try_send(ServerMessage::Note(params));
                    }
                }
            }
            "notifications/prompts/list_changed" => self.news.prompts(),
            "notifications/resources/list_changed" => self.news.resources(),
            "notifications/resources/updated" => {
                if let Some(uri) = json::member(params, "uri").and_then(|uri| json::text(uri.get())) {
                    self.news.updated(&uri);
                }
            }
            "notifications/cancelled" => {
                if let Some(id) = json::member(params, "requestId").and_then(readable_id) {
                    lock(&self.unanswered).cancelled(&id);
                    return Inbound::Forward(json!({"jsonrpc": "2.0", "method": method, "params": {"requestId": id}}));
                }
            }
            "notifications/subscriptions/acknowledged" => {
                if let Some(params) = parsed() {
                    return Inbound::Forward(json!({"jsonrpc": "2.0", "method": method, "params": params}));
                }
            }
            _ => {}
        }
        Inbound::Consumed
    }

    /// Handles a request of the server. rmcp gets the parameters only of a question. Drops requests beyond [`Unanswered`]'s limit, because
    /// their answers would pile up too.
    fn requested(&self, method: &str, id: Option<RequestId>, members: &Members<'_>, stream: Option<&RequestId>) -> Inbound {
        let Some(id) = id else { return Inbound::Consumed };
        let is_question = QUESTIONS.contains(&method);
        let params = members.get("params").map(|params| params.get()).filter(|_| is_question);
        let size = params.map_or(0, json::parsed_size);
        let (is_taken, fits) = {
            let mut unanswered = lock(&self.unanswered);
            let fits = unanswered.fits(size);
            (unanswered.take(&id, if fits { size } else { 0 }, is_question), fits)
        };
        if !is_taken {
            return Inbound::Dropped;
        }
        let method = match method {
            "ping" | "roots/list" => method,
            // With an unknown method name, rmcp passes on the raw request instead of a parsed one.
            question if is_question => {
                let params = params.map_or_else(|| Some(json!({})), |params| if fits { serde_json::from_str(params).ok() } else { None });
                if let Some(params @ Value::Object(_)) = params {
                    let mut message = json!({"jsonrpc": "2.0", "id": id, "method": format!("{RAW}{question}"), "params": params});
                    mark(&mut message, stream);
                    return Inbound::Forward(message);
                }
                UNUSABLE
            }
            _ => UNKNOWN,
        };
        Inbound::Forward(json!({"jsonrpc": "2.0", "id": id, "method": method}))
    }

    /// Handles a response to a request without a ticket: to one of rmcp's own, or to none of ours.
    fn unclaimed(&self, text: &str, members: &Members<'_>, id: Option<&RequestId>) -> Inbound {
        let is_own = id.is_some_and(|id| {
            let mut waiting = lock(&self.waiting);
            waiting.own.shift_remove(id) || number(id).is_some_and(|id| waiting.own.shift_remove(&id))
        });
        let error = match members.get("error").filter(|error| error.get() != "null") {
            // An error may lack the id of its request.
            Some(error) => trimmed_error(error),
            None if !is_own => return Inbound::Consumed,
            None if json::parsed_size(text) > LARGEST_OWN => json!({"code": -32603, "message": "the response is too large"}),
            None => return serde_json::from_str(text).map_or(Inbound::Junk, Inbound::Forward),
        };
        Inbound::Forward(json!({"jsonrpc": "2.0", "id": id, "error": error}))
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
        Inbound::Answered { id }
    }

    fn only_waiting(&self) -> Option<RequestId> {
        let waiting = lock(&self.waiting);
        let mut alive = waiting.answers.iter().filter(|(_, ticket)| ticket.strong_count() > 0);
        alive.next().map(|(id, _)| id.clone()).filter(|_| alive.next().is_none())
    }

    /// Removes and returns the ticket of a request, so that no other message can claim it.
    fn claim(&self, id: RequestId) -> Option<(RequestId, Arc<TicketState>)> {
        let (id, ticket) = self.expected(id)?;
        ticket.upgrade().map(|ticket| (id, ticket))
    }

    /// Like [`Self::claim`], also for a request whose caller has gone.
    fn expected(&self, id: RequestId) -> Option<(RequestId, Weak<TicketState>)> {
        let mut waiting = lock(&self.waiting);
        waiting.abandoned.remove(&id);
        if let Some(ticket) = waiting.answers.remove(&id) {
            return Some((id, ticket));
        }
        let number = number(&id)?;
        waiting.abandoned.remove(&number);
        waiting.answers.remove(&number).map(|ticket| (number, ticket))
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
    pub(in crate::adapters::mcp) fn recipients(&self, meta: &RequestMetaObject) -> Recipients {
        let meta = |key: &str| meta.0.0.get(key).and_then(request_id);
        self.recipient(meta(STREAM).as_ref(), meta("progressToken").as_ref())
    }

    /// Finds the caller for a server's message: by the stream on which the message arrived, by its progress token, or as the only
    /// caller with a running call. If several calls of one caller run, calls that already wait for an answer are excluded,
    /// because the server can't make another request in these.
    fn recipient(&self, stream: Option<&RequestId>, token: Option<&RequestId>) -> Recipients {
        let waiting = lock(&self.waiting);
        // A stream is one of ours. A token may be the server's own, which names no call.
        let of_stream = || Some(waiting.answers.get(stream?).and_then(Weak::upgrade));
        let of_token = || Some(waiting.progress.get(token?)?.upgrade());
        let recipient = |call: Arc<TicketState>| match call.listeners.messages.clone() {
            Some(messages) => Recipients::One(Recipient { messages, call }),
            None => Recipients::Nobody,
        };
        match of_stream().or_else(of_token) {
            Some(Some(ticket)) => return recipient(ticket),
            // The caller has gone. The message is for nobody else.
            Some(None) => return Recipients::Nobody,
            None if waiting.has_abandoned() => return Recipients::Nobody,
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
            (Some(only), 0) => recipient(only),
            (Some(_), _) => Recipients::Several,
            (None, _) if waits => Recipients::Several,
            (None, _) => Recipients::Nobody,
        }
    }

    fn forward_progress(&self, params: &str) {
        let Some(params) = json::members(params) else { return };
        let Some(token) = params.get("progressToken").and_then(|token| readable_id(token)) else { return };
        let Some(ticket) = lock(&self.waiting).progress.get(&token).and_then(Weak::upgrade) else { return };
        let amount = |name: &str| params.get(name).and_then(|value| serde_json::from_str::<f64>(value.get()).ok());
        let (Some(listener), Some(progress)) = (&ticket.listeners.progress, amount("progress")) else { return };
        let message = params.get("message").filter(|message| message.get().len() <= LONGEST_PROGRESS);
        let message = message.and_then(|message| json::text(message.get()));
        // If the listener's queue is full, drop the progress, so that it does not block the connection.
        let _ = listener.try_send(Progress { progress, total: amount("total"), message });
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

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest};

    use super::*;
    use crate::service::ports::TraceContext;

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
        let (sender, messages) = mpsc::channel(4);
        (waiting_with(exchange, id, Listeners { messages: Some(sender), ..Listeners::default() }), messages)
    }

    /// Lets the server send a log message and a request, and returns whether the caller gets the message and would be asked.
    fn reaches(exchange: &Exchange, stream: Option<i64>, messages: &mut mpsc::Receiver<ServerMessage>) -> (bool, bool) {
        let note = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"secret"}}"#;
        let stream = stream.map(RequestId::Number);
        assert!(matches!(exchange.inbound_on(note, stream.as_ref()), Inbound::Consumed));
        let question = br#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"?"}}"#;
        let Inbound::Forward(question) = exchange.inbound_on(question, stream.as_ref()) else { panic!("the question is lost") };
        exchange.answered(&RequestId::String("q".into()));
        let mut meta = RequestMetaObject::default();
        meta.0.0.extend(question["params"]["_meta"].as_object().cloned().unwrap_or_default());
        (matches!(messages.try_recv(), Ok(ServerMessage::Note(_))), matches!(exchange.recipients(&meta), Recipients::One(_)))
    }

    #[test]
    fn messages_about_an_abandoned_call_reach_no_other_caller() {
        let exchange = Exchange::default();
        let (call, _messages) = listening(&exchange, 1);
        call.keep(Vec::new());
        assert!(call.start_sending().is_some());
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
    fn a_flood_of_requests_is_dropped_and_answers_make_room() {
        let exchange = Arc::new(Exchange::default());
        let ping = |id: usize| format!(r#"{{"jsonrpc":"2.0","id":"q{id}","method":"ping","params":{{"x":[[0]]}}}}"#);
        let forwarded = |ids: std::ops::Range<usize>| {
            ids.filter(|id| matches!(exchange.inbound(ping(*id).as_bytes()), Inbound::Forward(_))).collect::<Vec<_>>()
        };
        assert_eq!(forwarded(0..1000), (0..64).collect::<Vec<_>>());
        let answer = ClientJsonRpcMessage::response(rmcp::model::ClientResult::empty(()), RequestId::String("q7".into()));
        let answering = exchange.answering(&answer);
        assert!(forwarded(1000..1001).is_empty(), "the answer was not sent yet");
        drop(answering);
        assert_eq!(forwarded(2000..2010), [2000]);
    }

    #[test]
    fn rmcp_gets_only_what_it_needs_of_a_request() {
        let exchange = Exchange::default();
        let method = |id: &str, method: &str, params: &str| {
            let message = format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{params}}}"#);
            match exchange.inbound(message.as_bytes()) {
                Inbound::Forward(message) => (message["method"].as_str().unwrap().to_owned(), message.get("params").cloned()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(method("a", "ping", r#"{"x":1}"#), ("ping".to_owned(), None));
        assert_eq!(method("b", "x/y", r#"{"x":1}"#), (UNKNOWN.to_owned(), None));
        let raw = format!("{RAW}sampling/createMessage");
        assert_eq!(method("c", "sampling/createMessage", r#"{"x":1}"#), (raw, Some(json!({"x": 1}))));
        let nested = format!(r#"{{"a":[{}0]}}"#, "[0],".repeat(100_000));
        assert_eq!(method("d", "sampling/createMessage", &nested), (UNUSABLE.to_owned(), None));
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(2000));
        assert!(matches!(exchange.inbound(long.as_bytes()), Inbound::Consumed));
    }

    #[test]
    fn messages_that_nobody_waits_for_are_dropped_unread() {
        let exchange = Exchange::default();
        let (_call, mut messages) = listening(&exchange, 1);
        let nested = format!("[{}0]", "[0],".repeat(100_000));
        for message in [
            format!(r#"{{"jsonrpc":"2.0","method":"x/y","params":{{"a":{nested}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":77,"result":{{"a":{nested}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":1,"a":{nested}}}}}"#),
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":{nested}}}}}"#),
        ] {
            assert!(matches!(exchange.inbound(message.as_bytes()), Inbound::Consumed), "{}", &message[..60]);
        }
        assert!(messages.try_recv().is_err());
        let error = format!(r#"{{"jsonrpc":"2.0","id":77,"error":{{"code":-1,"message":"m","data":{nested},"x":{nested}}}}}"#);
        let Inbound::Forward(message) = exchange.inbound(error.as_bytes()) else { panic!("the error is lost") };
        assert_eq!(message, json!({"jsonrpc": "2.0", "id": 77, "error": {"code": -1, "message": "m"}}));
    }

    #[test]
    fn responses_to_requests_of_rmcp_itself_reach_it() {
        let exchange = Exchange::default();
        let ping = ClientRequest::PingRequest(rmcp::model::PingRequest::default());
        assert!(exchange.outbound(&mut ClientJsonRpcMessage::request(ping, RequestId::Number(3))).is_none());
        let response = br#"{"jsonrpc":"2.0","id":3,"result":{"x":1}}"#;
        assert!(matches!(exchange.inbound(response), Inbound::Forward(message) if message["result"] == json!({"x": 1})));
        assert!(matches!(exchange.inbound(response), Inbound::Consumed), "only once");
        let cancelled = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q","reason":"r"}}"#;
        assert!(matches!(exchange.inbound(cancelled), Inbound::Forward(message) if message["params"] == json!({"requestId": "q"})));
    }
}

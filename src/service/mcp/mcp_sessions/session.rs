//! The session of one MCP client with an older protocol version.

use std::borrow::{Borrow, Cow};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::catalog::tool::ServerName;
use crate::domain::publishing::address::Address;
use crate::domain::toolsets::mode::{DefaultMode, Mode};
use crate::service::mcp::mcp_news::{News, NewsQueue};
use crate::service::toolsets::loading::ClientLoads;

/// Maximum number of buffered messages per stream.
const MAILBOX: usize = 16;
/// Maximum number of open streams per session. Messages are sent on the newest stream with a free buffer.
const STREAMS: usize = 4;

/// A client's subscription. Dropping it unsubscribes.
pub(crate) struct Subscription(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Subscription {
    /// `unsubscribe` runs once.
    pub(in crate::service) fn ending_with(unsubscribe: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(unsubscribe)))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(unsubscribe) = self.0.take() {
            unsubscribe();
        }
    }
}

/// Identifies a session. The id can't be guessed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct McpSessionId(Arc<str>);

impl McpSessionId {
    pub(super) fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()).into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Allows lookups by text.
impl Borrow<str> for McpSessionId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for McpSessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("McpSessionId(…)")
    }
}

/// The endpoint of a session, which determines the listed tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct McpEndpoint {
    pub address: Arc<Address>,
    /// The server, if the endpoint belongs to a single one. Its tools then have their raw names.
    pub server: Option<ServerName>,
    /// Path and mode of the endpoint, as a single text.
    pub path: Arc<str>,
    pub mode: DefaultMode,
}

/// The address whose tools an MCP list contains. If a session names no mode and its list is dynamic because of its length, only
/// the session's single tools are listed from the beginning. Its toolsets and servers can be loaded.
pub(crate) fn listed_at(address: &Address, default: DefaultMode, mode: Mode) -> Cow<'_, Address> {
    match address {
        Address::Session(session) if default == DefaultMode::Auto && mode == Mode::Dynamic => {
            Cow::Owned(Address::Session(session.with_single_tools().into()))
        }
        _ => Cow::Borrowed(address),
    }
}

/// The capabilities of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Whether the client can show its user a form.
    pub forms: bool,
    /// Whether the client can ask its user to open a URL.
    pub addresses: bool,
    pub sampling: bool,
}

impl Abilities {
    /// Parses the `capabilities` of an `initialize` request (MCP specification 2025-11-25, `ClientCapabilities`).
    pub(crate) fn read(capabilities: &Value) -> Self {
        let elicitation = capabilities.get("elicitation").filter(|elicitation| elicitation.is_object());
        let addresses = elicitation.is_some_and(|elicitation| elicitation.get("url").is_some());
        // Older clients declare `elicitation` without details, which means forms.
        let forms = elicitation.is_some_and(|elicitation| elicitation.get("form").is_some() || !addresses);
        Self { forms, addresses, sampling: capabilities.get("sampling").is_some_and(Value::is_object) }
    }

    /// Whether the client can answer any server request.
    pub(crate) fn are_any(self) -> bool {
        self.forms || self.addresses || self.sampling
    }

    /// Whether the client can answer this server request.
    pub(crate) fn answer(self, method: &str, params: &Value) -> bool {
        match method {
            "elicitation/create" if params.get("mode").is_some_and(|mode| mode == "url") => self.addresses,
            "elicitation/create" => self.forms,
            "sampling/createMessage" => self.sampling,
            _ => false,
        }
    }
}

/// Log levels, least urgent first (RFC 5424).
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

pub(crate) struct McpSession {
    id: McpSessionId,
    owner: PrincipalId,
    endpoint: McpEndpoint,
    loads: ClientLoads,
    abilities: Abilities,
    state: Mutex<State>,
}

struct State {
    /// The caller of the last request.
    viewer: Arc<Principal>,
    used: Instant,
    /// Streams to the client, oldest first.
    streams: Vec<mpsc::Sender<News>>,
    /// Notifications for a client that has no stream or does not read it.
    queued: NewsQueue,
    /// Whether the session has ended. It then accepts no more notifications.
    is_over: bool,
    /// Subscriptions by the URIs that the client knows.
    followed: HashMap<Arc<str>, Subscription>,
    /// Running requests by the JSON text of their ids.
    running: HashMap<String, CancellationToken>,
    /// Unanswered server requests by the JSON text of their ids.
    open_questions: HashMap<String, oneshot::Sender<Value>>,
    questions: u64,
    /// The least urgent log level that the client has requested, as an index into [`LEVELS`]; `None` if it has requested none.
    notes: Option<usize>,
    /// The mode of the client's list. It stays until the client is notified of a list in another mode.
    mode: Option<Mode>,
    /// Hash of the list of tools that the client has fetched or was notified of.
    listed: Option<u64>,
    /// Hashes of the servers whose prompts and resources the client knows.
    offered: Option<(u64, u64)>,
}

impl State {
    fn new(caller: &Arc<Principal>) -> Self {
        Self {
            viewer: Arc::clone(caller),
            used: Instant::now(),
            streams: Vec::new(),
            queued: NewsQueue::default(),
            is_over: false,
            followed: HashMap::new(),
            running: HashMap::new(),
            open_questions: HashMap::new(),
            questions: 0,
            notes: None,
            mode: None,
            listed: None,
            offered: None,
        }
    }

    /// Sends queued notifications until all streams' buffers are full.
    fn flush(&mut self) {
        while let Some(news) = self.queued.first() {
            if !self.streams.iter().rev().any(|stream| stream.try_send(news.clone()).is_ok()) {
                return;
            }
            self.queued.remove_first();
        }
    }

    fn notify(&mut self, news: News) -> bool {
        self.streams.retain(|stream| !stream.is_closed());
        let listens = !self.streams.is_empty();
        // A changed list of tools is detected when the client connects, see `notify_if_changed`.
        if !self.is_over && (listens || news != News::Tools) {
            self.queued.add(news);
            self.flush();
        }
        listens
    }

    fn is_busy(&mut self) -> bool {
        self.streams.retain(|stream| !stream.is_closed());
        !self.streams.is_empty() || !self.running.is_empty()
    }
}

impl McpSession {
    pub(super) fn new(caller: &Arc<Principal>, endpoint: McpEndpoint, abilities: Abilities) -> Self {
        Self {
            id: McpSessionId::random(),
            owner: caller.id.clone(),
            endpoint,
            loads: ClientLoads::default(),
            abilities,
            state: Mutex::new(State::new(caller)),
        }
    }

    pub(super) fn is_of(&self, caller: &Principal) -> bool {
        self.owner == caller.id
    }

    /// Records a request by the session's caller.
    pub(super) fn used_by(&self, caller: &Arc<Principal>) {
        let mut state = self.state.lock();
        state.viewer = Arc::clone(caller);
        state.used = Instant::now();
    }

    /// Hash of the list of tools that the client has fetched or was notified of.
    pub(super) fn listed(&self) -> Option<u64> {
        self.state.lock().listed
    }

    /// Records the list of tools that the client has fetched.
    pub(crate) fn set_listed(&self, list: u64) {
        self.state.lock().listed = Some(list);
    }

    /// The mode of the client's list; `None` until the client has fetched it.
    pub(super) fn mode(&self) -> Option<Mode> {
        self.state.lock().mode
    }

    /// Keeps a mode from now on, unless the client already has a list. Returns the mode of its list.
    pub(super) fn keep_mode(&self, mode: Mode) -> Mode {
        *self.state.lock().mode.get_or_insert(mode)
    }

    /// Notifies the client of a new list. Without a stream, the client keeps its former list in the former mode. Does nothing and
    /// returns `false` if the client's list is not `former` any more.
    pub(super) fn change_list(&self, former: u64, list: u64, mode: Mode) -> bool {
        let mut state = self.state.lock();
        if state.listed != Some(former) {
            return false;
        }
        if state.notify(News::Tools) {
            (state.listed, state.mode) = (Some(list), Some(mode));
        }
        true
    }

    pub(crate) fn id(&self) -> &McpSessionId {
        &self.id
    }

    /// The groups that the client has loaded.
    pub(crate) fn loads(&self) -> &ClientLoads {
        &self.loads
    }

    pub(crate) fn endpoint(&self) -> &McpEndpoint {
        &self.endpoint
    }

    /// The caller of the last request.
    pub(crate) fn viewer(&self) -> Arc<Principal> {
        Arc::clone(&self.state.lock().viewer)
    }

    /// Opens a stream of notifications. It ends with the session, or when the client has opened too many newer streams.
    pub(crate) fn listen(self: &Arc<Self>) -> Listening {
        let (sender, messages) = mpsc::channel(MAILBOX);
        let listening = Listening { messages, session: Arc::downgrade(self) };
        let mut state = self.state.lock();
        if state.is_over {
            return listening;
        }
        state.used = Instant::now();
        state.streams.retain(|stream| !stream.is_closed());
        if state.streams.len() >= STREAMS {
            state.streams.remove(0);
        }
        state.streams.push(sender);
        state.flush();
        drop(state);
        listening
    }

    /// Sends a notification, or queues it if the client has no stream. Changed tool lists are not queued, but detected when the
    /// client connects. Returns whether the client has a stream.
    pub(crate) fn notify(&self, news: News) -> bool {
        self.state.lock().notify(news)
    }

    /// Notifies the client that its list of tools has changed. Returns whether the client has a stream.
    pub(crate) fn notify_list_changed(&self) -> bool {
        self.notify(News::Tools)
    }

    /// Notifies the client if its prompts or resources now come from a different set of servers.
    pub(crate) fn notify_offered(&self, now: (u64, u64)) {
        let former = self.state.lock().offered.replace(now);
        let Some((prompts, resources)) = former else { return };
        if prompts != now.0 {
            self.notify(News::Prompts);
        }
        if resources != now.1 {
            self.notify(News::Resources);
        }
    }

    /// Stores a subscription until the session ends. Returns it if the session has ended or already has `limit` subscriptions.
    pub(in crate::service) fn follow(&self, uri: Arc<str>, subscription: Subscription, limit: usize) -> Result<(), Subscription> {
        let mut state = self.state.lock();
        if state.is_over || state.followed.len() >= limit {
            return Err(subscription);
        }
        let former = state.followed.insert(uri, subscription);
        // Drop the former subscription outside the lock.
        drop(state);
        drop(former);
        Ok(())
    }

    /// Ends the subscription to the resource that the client knows by this URI. Returns whether there was one.
    pub(crate) fn unfollow(&self, uri: &str) -> bool {
        let ended = self.state.lock().followed.remove(uri);
        ended.is_some()
    }

    pub(crate) fn follows(&self, uri: &str) -> bool {
        self.state.lock().followed.contains_key(uri)
    }

    /// Number of subscriptions.
    pub(crate) fn followed(&self) -> usize {
        self.state.lock().followed.len()
    }

    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.streams.clear();
        state.open_questions.clear();
        state.running.values().for_each(CancellationToken::cancel);
        let ended = std::mem::take(&mut state.followed);
        drop(state);
        drop(ended);
    }

    /// Registers a running request until the returned value is dropped.
    pub(crate) fn begin(self: &Arc<Self>, request: &str) -> Running {
        let cancelled = CancellationToken::new();
        self.state.lock().running.insert(request.to_owned(), cancelled.clone());
        Running { session: Arc::clone(self), request: request.to_owned(), cancelled }
    }

    /// Cancels the request whose id has this JSON text. Ignores unknown ids.
    pub(crate) fn cancel(&self, request: &str) {
        if let Some(cancelled) = self.state.lock().running.get(request) {
            cancelled.cancel();
        }
    }

    /// Whether the client can answer this server request.
    pub(crate) fn answers(&self, method: &str, params: &Value) -> bool {
        self.abilities.answer(method, params)
    }

    /// Creates the id for a server request, and the receiver of the client's answer.
    pub(crate) fn ask(&self) -> (String, oneshot::Receiver<Value>) {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        state.questions += 1;
        let id = format!("toolsieve-{}", state.questions);
        state.open_questions.retain(|_, question| !question.is_closed());
        state.open_questions.insert(Value::from(id.as_str()).to_string(), sender);
        (id, receiver)
    }

    /// Forwards the client's answer to the server request whose id has this JSON text. Ignores unknown ids.
    pub(crate) fn settle(&self, question: &str, message: Value) {
        if let Some(sender) = self.state.lock().open_questions.remove(question) {
            let _ = sender.send(message);
        }
    }

    /// Sets the minimum level of log messages that the client receives. Returns `false` if the level is unknown.
    pub(crate) fn want_notes(&self, level: &str) -> bool {
        let place = LEVELS.iter().position(|known| *known == level);
        if place.is_some() {
            self.state.lock().notes = place;
        }
        place.is_some()
    }

    pub(crate) fn wants_note(&self, params: &Value) -> bool {
        let level = params.get("level").and_then(Value::as_str).and_then(|level| LEVELS.iter().position(|known| *known == level));
        self.state.lock().notes.is_some_and(|least| level.is_some_and(|level| level >= least))
    }

    /// Whether the client has neither a stream nor a running request.
    pub(in crate::service) fn is_idle(&self) -> bool {
        !self.state.lock().is_busy()
    }

    pub(super) fn unused_for(&self) -> Option<Duration> {
        let mut state = self.state.lock();
        (!state.is_busy()).then(|| state.used.elapsed())
    }
}

/// A client's stream of notifications.
pub(crate) struct Listening {
    messages: mpsc::Receiver<News>,
    session: Weak<McpSession>,
}

impl Listening {
    /// The next notification; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<News> {
        let news = self.messages.recv().await?;
        // The buffer now has room for a queued notification.
        if let Some(session) = self.session.upgrade() {
            session.state.lock().flush();
        }
        Some(news)
    }
}

impl Drop for Listening {
    /// Queues what the client has not received for its next stream.
    fn drop(&mut self) {
        self.messages.close();
        let Some(session) = self.session.upgrade() else { return };
        let mut state = session.state.lock();
        while let Ok(news) = self.messages.try_recv() {
            if !state.is_over {
                state.queued.add(news);
            }
        }
        state.flush();
    }
}

/// A registered running request.
pub(crate) struct Running {
    session: Arc<McpSession>,
    request: String,
    /// Cancelled when the client cancels the request.
    pub cancelled: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.session.state.lock();
        state.running.remove(&self.request);
        state.used = Instant::now();
    }
}

//! What the service keeps of one MCP client of the older era.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::access::visibility::Visibility;
use crate::domain::catalog::tool::{ServerName, Tool};
use crate::domain::toolsets::mode::Mode;
use crate::service::mcp::mcp_news::{News, Unheard};
use crate::service::mcp::subscriptions::Subscription;
use crate::service::publishing::publish::Place;
use crate::service::toolsets::loading::ClientLoads;

/// Messages that wait for a client that does not read.
const MAILBOX: usize = 16;
/// Streams of one session that are open at a time. What is said goes to the newest.
const STREAMS: usize = 4;

/// Names a session; whoever does not have it can't guess it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct McpSessionId(Arc<str>);

impl McpSessionId {
    pub(super) fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()).into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// So that a session is found by what a client sent.
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

/// Where a session was begun, and what is listed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpAddress {
    pub place: Arc<Place>,
    /// The one server that is spoken to, under its own names.
    pub server: Option<ServerName>,
    /// Path and mode, as one text.
    pub path: Arc<str>,
    pub mode: Mode,
}

impl McpAddress {
    /// Whether a tool that the caller may see is listed here.
    #[must_use]
    pub fn shows(&self, tool: &Tool, visibility: &Visibility) -> bool {
        self.server.as_ref().is_none_or(|server| *server == tool.id.server) && self.place.shows(tool, visibility, self.mode)
    }
}

/// What a client has said that it can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Ask its user to fill in a form.
    pub forms: bool,
    /// Ask its user to open an address.
    pub addresses: bool,
    pub sampling: bool,
}

impl Abilities {
    /// Out of the `capabilities` in its greeting (MCP specification 2025-11-25, `ClientCapabilities`).
    #[must_use]
    pub fn read(capabilities: &Value) -> Self {
        let elicitation = capabilities.get("elicitation").filter(|elicitation| elicitation.is_object());
        let addresses = elicitation.is_some_and(|elicitation| elicitation.get("url").is_some());
        // Before there were addresses nothing more was said.
        let forms = elicitation.is_some_and(|elicitation| elicitation.get("form").is_some() || !addresses);
        Self { forms, addresses, sampling: capabilities.get("sampling").is_some_and(Value::is_object) }
    }

    /// Whether the client can be asked anything.
    #[must_use]
    pub fn are_any(self) -> bool {
        self.forms || self.addresses || self.sampling
    }

    /// Whether the client can answer such a question.
    #[must_use]
    pub fn answer(self, method: &str, params: &Value) -> bool {
        match method {
            "elicitation/create" if params.get("mode").is_some_and(|mode| mode == "url") => self.addresses,
            "elicitation/create" => self.forms,
            "sampling/createMessage" => self.sampling,
            _ => false,
        }
    }
}

/// Levels of notes, the least urgent first (RFC 5424).
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// What the service keeps of one client of the older era.
pub struct McpSession {
    id: McpSessionId,
    owner: PrincipalId,
    address: McpAddress,
    loads: ClientLoads,
    abilities: Abilities,
    state: Mutex<State>,
}

struct State {
    /// The caller as it was in the last request.
    viewer: Arc<Principal>,
    used: Instant,
    /// The newest last.
    streams: Vec<mpsc::Sender<News>>,
    /// What waits for a client that does not listen, or does not read.
    unheard: Unheard,
    /// Ended: nothing is told any more.
    is_over: bool,
    /// What changes of are told, by the addresses as the client knows them.
    followed: HashMap<Arc<str>, Subscription>,
    /// Requests at work, by the JSON text of their ids.
    running: HashMap<String, CancellationToken>,
    /// Questions that the client has not answered, by the JSON text of their ids.
    asked: HashMap<String, oneshot::Sender<Value>>,
    questions: u64,
    /// The least urgent notes that the client wants, as a place in [`LEVELS`]. `None`: it has not asked for any.
    notes: Option<usize>,
    /// What the list was that the client has, or was told to fetch.
    listed: Option<u64>,
    /// Which servers' prompts, and which servers' resources, the client was told of.
    offered: Option<(u64, u64)>,
}

impl State {
    fn new(caller: &Arc<Principal>) -> Self {
        Self {
            viewer: Arc::clone(caller),
            used: Instant::now(),
            streams: Vec::new(),
            unheard: Unheard::default(),
            is_over: false,
            followed: HashMap::new(),
            running: HashMap::new(),
            asked: HashMap::new(),
            questions: 0,
            notes: None,
            listed: None,
            offered: None,
        }
    }

    /// Hands out what waits, as far as the client reads.
    fn flush(&mut self) {
        while let Some(news) = self.unheard.first() {
            if !self.streams.iter().rev().any(|stream| stream.try_send(news.clone()).is_ok()) {
                return;
            }
            self.unheard.remove_first();
        }
    }

    fn is_busy(&mut self) -> bool {
        self.streams.retain(|stream| !stream.is_closed());
        !self.streams.is_empty() || !self.running.is_empty()
    }
}

impl McpSession {
    pub(super) fn new(caller: &Arc<Principal>, address: McpAddress, abilities: Abilities) -> Self {
        Self {
            id: McpSessionId::random(),
            owner: caller.id.clone(),
            address,
            loads: ClientLoads::default(),
            abilities,
            state: Mutex::new(State::new(caller)),
        }
    }

    pub(super) fn is_of(&self, caller: &Principal) -> bool {
        self.owner == caller.id
    }

    /// Notes a request of its caller.
    pub(super) fn used_by(&self, caller: &Arc<Principal>) {
        let mut state = self.state.lock();
        state.viewer = Arc::clone(caller);
        state.used = Instant::now();
    }

    /// What the list was that the client has, or was told to fetch.
    pub(super) fn listed(&self) -> Option<u64> {
        self.state.lock().listed
    }

    pub(super) fn set_listed(&self, list: u64) {
        self.state.lock().listed = Some(list);
    }

    #[must_use]
    pub fn id(&self) -> &McpSessionId {
        &self.id
    }

    /// What the client has loaded.
    #[must_use]
    pub fn loads(&self) -> &ClientLoads {
        &self.loads
    }

    #[must_use]
    pub fn address(&self) -> &McpAddress {
        &self.address
    }

    /// The caller as it was in the last request.
    #[must_use]
    pub fn viewer(&self) -> Arc<Principal> {
        Arc::clone(&self.state.lock().viewer)
    }

    /// A stream of what the service says by itself. It ends with the session, or when the client has opened too many later ones.
    #[must_use]
    pub fn listen(self: &Arc<Self>) -> Listening {
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

    /// Tells the client, where it listens. What is not known to be told otherwise waits until it does.
    pub fn tell(&self, news: News) -> bool {
        let mut state = self.state.lock();
        state.streams.retain(|stream| !stream.is_closed());
        let listens = !state.streams.is_empty();
        // A list of tools that has changed is noticed when somebody listens: see `tell_if_changed`.
        if !state.is_over && (listens || news != News::Tools) {
            state.unheard.add(news);
            state.flush();
        }
        listens
    }

    /// Tells the client that its list of tools has changed.
    pub fn tell_list_changed(&self) -> bool {
        self.tell(News::Tools)
    }

    /// Tells the client of lists that are of other servers than it was told of before: of prompts, of resources.
    pub fn tell_offered(&self, now: (u64, u64)) {
        let former = self.state.lock().offered.replace(now);
        let Some((prompts, resources)) = former else { return };
        if prompts != now.0 {
            self.tell(News::Prompts);
        }
        if resources != now.1 {
            self.tell(News::Resources);
        }
    }

    /// Keeps a subscription as long as the session lasts; gives it back where there would be more than `limit`, or the session is over.
    pub(in crate::service) fn follow(&self, address: Arc<str>, subscription: Subscription, limit: usize) -> Result<(), Subscription> {
        let mut state = self.state.lock();
        if state.is_over || state.followed.len() >= limit {
            return Err(subscription);
        }
        let former = state.followed.insert(address, subscription);
        // Ended outside of the lock.
        drop(state);
        drop(former);
        Ok(())
    }

    /// Ends the subscription to what the client knows by this address.
    pub(in crate::service) fn unfollow(&self, address: &str) {
        let ended = self.state.lock().followed.remove(address);
        drop(ended);
    }

    #[must_use]
    pub fn follows(&self, address: &str) -> bool {
        self.state.lock().followed.contains_key(address)
    }

    /// How many resources it is subscribed to.
    #[must_use]
    pub fn followed(&self) -> usize {
        self.state.lock().followed.len()
    }

    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.streams.clear();
        state.asked.clear();
        state.running.values().for_each(CancellationToken::cancel);
        let ended = std::mem::take(&mut state.followed);
        drop(state);
        drop(ended);
    }

    /// Notes a request that is at work until the value is dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>, request: &str) -> Running {
        let cancelled = CancellationToken::new();
        self.state.lock().running.insert(request.to_owned(), cancelled.clone());
        Running { session: Arc::clone(self), request: request.to_owned(), cancelled }
    }

    /// Cancels a request, by the JSON text of its id. One that is not at work is passed over.
    pub fn cancel(&self, request: &str) {
        if let Some(cancelled) = self.state.lock().running.get(request) {
            cancelled.cancel();
        }
    }

    /// Whether the client can answer such a question.
    #[must_use]
    pub fn answers(&self, method: &str, params: &Value) -> bool {
        self.abilities.answer(method, params)
    }

    /// The id for a question, and where the client's message comes in that answers it.
    #[must_use]
    pub fn ask(&self) -> (String, oneshot::Receiver<Value>) {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        state.questions += 1;
        let id = format!("toolsieve-{}", state.questions);
        state.asked.retain(|_, asked| !asked.is_closed());
        state.asked.insert(Value::from(id.as_str()).to_string(), sender);
        (id, receiver)
    }

    /// Takes the client's answer to the question of this id, JSON text. One that nobody waits for is passed over.
    pub fn settle(&self, question: &str, message: Value) {
        if let Some(asked) = self.state.lock().asked.remove(question) {
            let _ = asked.send(message);
        }
    }

    /// From now on the client wants notes of this level and more urgent ones; `false` if there is no such level.
    pub fn want_notes(&self, level: &str) -> bool {
        let place = LEVELS.iter().position(|known| *known == level);
        if place.is_some() {
            self.state.lock().notes = place;
        }
        place.is_some()
    }

    #[must_use]
    pub fn wants_note(&self, params: &Value) -> bool {
        let level = params.get("level").and_then(Value::as_str).and_then(|level| LEVELS.iter().position(|known| *known == level));
        self.state.lock().notes.is_some_and(|least| level.is_some_and(|level| level >= least))
    }

    /// Whether it has neither a stream nor a request at work.
    pub(in crate::service) fn is_idle(&self) -> bool {
        !self.state.lock().is_busy()
    }

    pub(super) fn unused_for(&self) -> Option<Duration> {
        let mut state = self.state.lock();
        (!state.is_busy()).then(|| state.used.elapsed())
    }
}

/// A client's ear for what the service says by itself.
pub struct Listening {
    messages: mpsc::Receiver<News>,
    session: Weak<McpSession>,
}

impl Listening {
    /// `None`: the stream has ended.
    pub async fn next(&mut self) -> Option<News> {
        let news = self.messages.recv().await?;
        // There is room for what waits.
        if let Some(session) = self.session.upgrade() {
            session.state.lock().flush();
        }
        Some(news)
    }
}

/// A request at work.
pub struct Running {
    session: Arc<McpSession>,
    request: String,
    /// The client has cancelled it.
    pub cancelled: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.session.state.lock();
        state.running.remove(&self.request);
        state.used = Instant::now();
    }
}

//! Sessions of MCP clients of the older era: who has one, who is told what in it, and how many there may be.
//!
//! A session holds no tools and permits nothing: each request asks the policy anew. It is a mailbox for what the service has to
//! say by itself, and the names of what its client has loaded, in memory alone. There is none before its caller was let in, and it is there for that caller and that address only.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ahash::RandomState;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::domain::document::Mode;
use crate::domain::principal::{Principal, PrincipalId, Visibility};
use crate::domain::tool::{ServerName, Tool};
use crate::service::current::CurrentCatalog;
use crate::service::loading::ClientLoads;
use crate::service::publish::{Place, Publish};
use crate::settings::McpSettings;

/// Messages that wait for a client that does not read.
const MAILBOX: usize = 16;
/// Streams of one session that are open at a time. What is said goes to the newest.
const STREAMS: usize = 4;
/// How often sessions are looked through for those that nobody uses.
const REAPING: Duration = Duration::from_secs(30);
/// Changes that come together are told once.
const TOGETHER: Duration = Duration::from_millis(100);
const LIST_CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// Names a session; whoever does not have it can't guess it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct McpSessionId(Arc<str>);

impl McpSessionId {
    fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()).into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
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
    streams: Vec<mpsc::Sender<Arc<str>>>,
    /// Requests at work, by the JSON text of their ids.
    running: HashMap<String, CancellationToken>,
    /// Questions that the client has not answered, by the JSON text of their ids.
    asked: HashMap<String, oneshot::Sender<Value>>,
    questions: u64,
    /// The least urgent notes that the client wants, as a place in [`LEVELS`]. `None`: it has not asked for any.
    notes: Option<usize>,
    /// What the list was that the client has, or was told to fetch.
    listed: Option<u64>,
}

impl State {
    fn is_busy(&mut self) -> bool {
        self.streams.retain(|stream| !stream.is_closed());
        !self.streams.is_empty() || !self.running.is_empty()
    }
}

impl McpSession {
    #[must_use]
    pub fn id(&self) -> &McpSessionId {
        &self.id
    }

    /// What the client has loaded.
    #[must_use]
    pub fn loads(&self) -> &ClientLoads {
        &self.loads
    }

    /// A stream of what the service says by itself: messages as JSON text. It ends with the session, or when the client has
    /// opened too many later ones.
    #[must_use]
    pub fn listen(&self) -> mpsc::Receiver<Arc<str>> {
        let (sender, receiver) = mpsc::channel(MAILBOX);
        let mut state = self.state.lock();
        state.used = Instant::now();
        state.streams.retain(|stream| !stream.is_closed());
        if state.streams.len() >= STREAMS {
            state.streams.remove(0);
        }
        state.streams.push(sender);
        receiver
    }

    /// Sends a message of JSON-RPC to the client, where it listens and reads.
    pub fn tell(&self, message: &Arc<str>) -> bool {
        let mut state = self.state.lock();
        state.streams.retain(|stream| !stream.is_closed());
        state.streams.iter().rev().any(|stream| stream.try_send(Arc::clone(message)).is_ok())
    }

    /// Tells the client that its list of tools has changed.
    pub fn tell_list_changed(&self) -> bool {
        self.tell(&Arc::from(LIST_CHANGED))
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
    fn is_idle(&self) -> bool {
        !self.state.lock().is_busy()
    }

    fn unused_for(&self) -> Option<Duration> {
        let mut state = self.state.lock();
        (!state.is_busy()).then(|| state.used.elapsed())
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

pub struct McpSessions {
    current: Arc<CurrentCatalog>,
    settings: McpSettings,
    sessions: Mutex<HashMap<McpSessionId, Arc<McpSession>, RandomState>>,
    hasher: RandomState,
}

impl McpSessions {
    /// Starts to forget what nobody uses, and to tell of changed lists, until `stop`.
    #[must_use]
    pub fn start(current: Arc<CurrentCatalog>, settings: McpSettings, stop: CancellationToken) -> (Arc<Self>, JoinHandle<()>) {
        let sessions = Arc::new(Self { current, settings, sessions: Mutex::default(), hasher: RandomState::new() });
        let keeper = Arc::clone(&sessions);
        let keeping = tokio::spawn(async move {
            stop.run_until_cancelled(keeper.keep()).await;
            keeper.sessions.lock().clear();
        });
        (sessions, keeping)
    }

    /// Whether clients get sessions at all.
    #[must_use]
    pub fn are_given(&self) -> bool {
        self.settings.sessions
    }

    /// Begins a session, or none: where there shall be none, and where there are too many that are in use.
    pub fn open(&self, caller: &Arc<Principal>, address: McpAddress, abilities: Abilities) -> Option<Arc<McpSession>> {
        if !self.settings.sessions {
            return None;
        }
        let mut sessions = self.sessions.lock();
        if sessions.values().filter(|session| session.owner == caller.id).count() >= self.settings.per_caller {
            let own = sessions.values().filter(|session| session.owner == caller.id);
            let unused = own.filter_map(|session| Some((session.unused_for()?, session.id.clone()))).max_by_key(|(unused, _)| *unused);
            let (_, oldest) = unused?;
            sessions.remove(&oldest);
        } else if sessions.len() >= self.settings.total {
            self.reap(&mut sessions);
            if sessions.len() >= self.settings.total {
                return None;
            }
        }
        let state = State {
            viewer: Arc::clone(caller),
            used: Instant::now(),
            streams: Vec::new(),
            running: HashMap::new(),
            asked: HashMap::new(),
            questions: 0,
            notes: None,
            listed: None,
        };
        let session = McpSession {
            id: McpSessionId::random(),
            owner: caller.id.clone(),
            address,
            loads: ClientLoads::default(),
            abilities,
            state: Mutex::new(state),
        };
        let session = Arc::new(session);
        sessions.insert(session.id.clone(), Arc::clone(&session));
        Some(session)
    }

    /// The session of this id, if it is this caller's and was begun at this address.
    pub fn find(&self, id: &str, caller: &Arc<Principal>, address: &McpAddress) -> Option<Arc<McpSession>> {
        let session = self.sessions.lock().get(&McpSessionId(id.into())).cloned()?;
        if session.owner != caller.id || session.address.path != address.path {
            return None;
        }
        {
            let mut state = session.state.lock();
            state.viewer = Arc::clone(caller);
            state.used = Instant::now();
        }
        Some(session)
    }

    /// Ends a session: its streams end, and its requests are cancelled.
    pub fn close(&self, session: &McpSession) {
        self.sessions.lock().remove(&session.id);
        let mut state = session.state.lock();
        state.streams.clear();
        state.asked.clear();
        state.running.values().for_each(CancellationToken::cancel);
    }

    /// Notes that the client has now fetched its list.
    pub fn note_listed(&self, session: &McpSession) {
        let viewer = Arc::clone(&session.state.lock().viewer);
        let now = self.list(&viewer, &session.address);
        session.state.lock().listed = Some(now);
    }

    /// Tells all clients that listen that their lists have changed.
    pub fn tell_all(&self) {
        self.tell_where(|_| true);
    }

    /// Tells the clients of a place.
    pub fn tell_place(&self, place: &Place) {
        self.tell_where(|session| *session.address.place == *place);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sessions.lock().len()
    }

    fn tell_where(&self, condition: impl Fn(&McpSession) -> bool) {
        for session in self.all().iter().filter(|session| condition(session)) {
            session.tell_list_changed();
        }
    }

    fn all(&self) -> Vec<Arc<McpSession>> {
        self.sessions.lock().values().cloned().collect()
    }

    async fn keep(&self) {
        let mut changes = self.current.changes();
        let mut reaping = tokio::time::interval(REAPING.min(self.settings.idle));
        loop {
            tokio::select! {
                _ = reaping.tick() => self.reap(&mut self.sessions.lock()),
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    tokio::time::sleep(TOGETHER).await;
                    changes.mark_unchanged();
                    self.tell_of_changes().await;
                }
            }
        }
    }

    fn reap(&self, sessions: &mut HashMap<McpSessionId, Arc<McpSession>, RandomState>) {
        sessions.retain(|_, session| session.unused_for().is_none_or(|unused| unused < self.settings.idle));
    }

    /// Tells those whose list is another one than they fetched. One that does not listen now is told when it does.
    async fn tell_of_changes(&self) {
        for session in self.all().iter().filter(|session| !session.is_idle()) {
            self.tell_if_changed(session);
            tokio::task::yield_now().await;
        }
    }

    /// Tells the client if its list is another one than it fetched.
    pub fn tell_if_changed(&self, session: &McpSession) {
        let (viewer, listed) = {
            let state = session.state.lock();
            (Arc::clone(&state.viewer), state.listed)
        };
        let Some(listed) = listed else { return };
        let now = self.list(&viewer, &session.address);
        if now != listed && session.tell_list_changed() {
            session.state.lock().listed = Some(now);
        }
    }

    /// A hash of what is listed for this caller at this address.
    fn list(&self, viewer: &Principal, address: &McpAddress) -> u64 {
        let (catalog, visibility) = (self.current.snapshot(), self.current.visibility(viewer));
        let mut hasher = self.hasher.build_hasher();
        if address.server.is_none() {
            for tool in Publish::meta_tools(&catalog, &visibility, address.mode) {
                (tool.name, &tool.description).hash(&mut hasher);
            }
        }
        for tool in catalog.visible(&visibility).filter(|tool| address.shows(tool, &visibility)) {
            (&tool.operation_id, tool.version.as_bytes()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use serde_json::json;

    use super::{Abilities, McpAddress, McpSessions};
    use crate::domain::document::Mode;
    use crate::domain::principal::{Principal, PrincipalId};
    use crate::service::current::CurrentCatalog;
    use crate::settings::{McpSettings, WaitingSettings};

    fn caller(name: &str) -> Arc<Principal> {
        Arc::new(Principal { id: PrincipalId::of_key(name), ..Principal::anyone() })
    }

    fn at(path: &str) -> McpAddress {
        McpAddress { place: Arc::default(), server: None, path: path.into(), mode: Mode::Full }
    }

    fn settings(idle: Duration, per_caller: usize, total: usize) -> McpSettings {
        let waiting = WaitingSettings { answer: Duration::from_mins(1), per_caller: 1, total: 1 };
        McpSettings { sessions: true, idle, per_caller, total, elicitation: true, sampling: true, waiting }
    }

    fn sessions(per_caller: usize, total: usize) -> Arc<McpSessions> {
        let settings = settings(Duration::from_hours(1), per_caller, total);
        McpSessions::start(Arc::new(CurrentCatalog::default()), settings, CancellationToken::new()).0
    }

    #[tokio::test]
    async fn a_session_is_its_callers_at_its_address() {
        let sessions = sessions(10, 10);
        let (one, other) = (caller("one"), caller("other"));
        let session = sessions.open(&one, at("/mcp"), Abilities::default()).unwrap();
        let id = session.id().as_str().to_owned();
        assert!(sessions.find(&id, &one, &at("/mcp")).is_some());
        assert!(sessions.find(&id, &other, &at("/mcp")).is_none());
        assert!(sessions.find(&id, &one, &at("/mcp?mode=meta")).is_none());
        assert!(sessions.find("no", &one, &at("/mcp")).is_none());
        let mut stream = session.listen();
        sessions.close(&session);
        assert!(sessions.find(&id, &one, &at("/mcp")).is_none());
        assert_eq!(stream.recv().await, None, "its stream has ended");
    }

    #[tokio::test]
    async fn over_the_cap_the_oldest_idle_one_of_the_same_caller_goes() {
        let sessions = sessions(2, 3);
        let (one, other) = (caller("one"), caller("other"));
        let open = |caller: &Arc<Principal>| sessions.open(caller, at("/mcp"), Abilities::default());
        let first = open(&one).unwrap();
        let _streaming = first.listen();
        let second = open(&one).unwrap();
        let third = open(&one).unwrap();
        let is_there = |id: &super::McpSessionId| sessions.find(id.as_str(), &one, &at("/mcp")).is_some();
        assert!(is_there(first.id()) && !is_there(second.id()) && is_there(third.id()), "the one with a stream is in use");
        let _working = third.begin("1");
        assert!(open(&one).is_none(), "both are in use");
        assert!(open(&other).is_some());
        assert!(open(&other).is_none() && open(&caller("third")).is_none(), "nobody else's goes");
        assert_eq!(sessions.count(), 3);
    }

    #[tokio::test]
    async fn what_nobody_uses_is_forgotten() {
        let settings = settings(Duration::from_nanos(1), 9, 9);
        let sessions = McpSessions::start(Arc::new(CurrentCatalog::default()), settings, CancellationToken::new()).0;
        let open = || sessions.open(&caller("one"), at("/mcp"), Abilities::default()).unwrap();
        let (listening, working, idle) = (open(), open(), open());
        let (stream, work) = (listening.listen(), working.begin("1"));
        sessions.reap(&mut sessions.sessions.lock());
        assert!(sessions.find(idle.id().as_str(), &caller("one"), &at("/mcp")).is_none());
        assert_eq!(sessions.count(), 2);
        drop((stream, work));
        sessions.reap(&mut sessions.sessions.lock());
        assert_eq!(sessions.count(), 0);
    }

    #[tokio::test]
    async fn a_request_is_cancelled_by_its_id_and_nothing_else() {
        let sessions = sessions(1, 1);
        let session = sessions.open(&caller("one"), at("/mcp"), Abilities::default()).unwrap();
        let (number, text) = (session.begin("1"), session.begin("\"1\""));
        session.cancel("\"1\"");
        session.cancel("2");
        assert!(text.cancelled.is_cancelled() && !number.cancelled.is_cancelled());
        drop((number, text));
        assert!(session.is_idle());
    }

    #[tokio::test]
    async fn a_question_is_answered_once_and_only_where_it_can_be() {
        let sessions = sessions(1, 1);
        let abilities = Abilities::read(&json!({"elicitation": {}, "roots": {}}));
        assert_eq!(abilities, Abilities { forms: true, ..Abilities::default() });
        assert_eq!(
            Abilities::read(&json!({"elicitation": {"url": {}}, "sampling": {}})),
            Abilities { forms: false, addresses: true, sampling: true }
        );
        let session = sessions.open(&caller("one"), at("/mcp"), abilities).unwrap();
        assert!(session.answers("elicitation/create", &json!({})) && !session.answers("sampling/createMessage", &json!({})));
        assert!(!session.answers("elicitation/create", &json!({"mode": "url"})) && !session.answers("roots/list", &json!({})));
        let (id, answered) = session.ask();
        session.settle("\"toolsieve-9\"", json!({}));
        session.settle(&format!("\"{id}\""), json!({"result": 1}));
        session.settle(&format!("\"{id}\""), json!({"result": 2}));
        assert_eq!(answered.await.unwrap(), json!({"result": 1}));
        let (_, unanswered) = session.ask();
        sessions.close(&session);
        assert!(unanswered.await.is_err(), "nobody waits for ever");
    }

    #[tokio::test]
    async fn notes_come_from_the_level_on_that_was_asked_for() {
        let session = sessions(1, 1).open(&caller("one"), at("/mcp"), Abilities::default()).unwrap();
        let wants = |level: &str| session.wants_note(&json!({"level": level, "data": "x"}));
        assert!(!wants("emergency"), "none was asked for");
        assert!(session.want_notes("warning") && !session.want_notes("loud"));
        assert!(!wants("notice") && wants("warning") && wants("alert") && !wants("loud"));
    }

    #[tokio::test]
    async fn what_is_said_reaches_the_newest_stream() {
        let sessions = sessions(1, 1);
        let session = sessions.open(&caller("one"), at("/mcp"), Abilities::default()).unwrap();
        assert!(!session.tell_list_changed(), "nobody listens");
        let mut former = session.listen();
        let mut newest = session.listen();
        sessions.tell_all();
        assert!(newest.recv().await.unwrap().contains("list_changed"));
        drop(newest);
        assert!(session.tell_list_changed());
        assert!(former.recv().await.unwrap().contains("list_changed"));
    }

    #[test]
    fn an_id_is_not_printed() {
        assert_eq!(format!("{:?}", super::McpSessionId::random()), "McpSessionId(…)");
    }
}

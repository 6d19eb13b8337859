//! Tests that sessions belong to their callers, end, and receive notifications.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Abilities, McpEndpoint, McpSessions};
use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::catalog::catalog::{self, Catalog, CatalogServer};
use crate::domain::catalog::tool::ServerName;
use crate::domain::publishing::address::Address;
use crate::domain::toolsets::loading::Group;
use crate::domain::toolsets::mode::{DefaultMode, FullList, Mode};
use crate::domain::toolsets::session::{ID_BYTES, Session, SessionContents, SessionId};
use crate::service::catalog::current::CurrentCatalog;
use crate::service::mcp::mcp_news::News;
use crate::service::ports::{SessionCaps, SessionSaved, SessionStore, StoreError};
use crate::settings::{McpSettings, WaitingSettings};

fn caller(name: &str) -> Arc<Principal> {
    Arc::new(Principal { id: PrincipalId::of_key(name), ..Principal::anyone() })
}

fn at(path: &str) -> McpEndpoint {
    McpEndpoint { address: Arc::default(), server: None, path: path.into(), mode: DefaultMode::Auto }
}

fn settings(idle: Duration, per_caller: usize, total: usize) -> McpSettings {
    let waiting = WaitingSettings { answer: Duration::from_mins(1), per_caller: 1, total: 1 };
    McpSettings {
        full_list: FullList { tools: Some(1), tokens: None },
        sessions: true,
        idle,
        per_caller,
        total,
        subscriptions: 1,
        subscriptions_per_caller: 1,
        elicitation: true,
        sampling: true,
        waiting,
    }
}

fn sessions(per_caller: usize, total: usize) -> Arc<McpSessions> {
    let settings = settings(Duration::from_hours(1), per_caller, total);
    begin(Arc::default(), settings)
}

fn begin(current: Arc<CurrentCatalog>, settings: McpSettings) -> Arc<McpSessions> {
    McpSessions::start(current, Arc::<Groups>::default(), settings, CancellationToken::new()).0
}

/// The groups that are loaded into every session.
#[derive(Default)]
struct Groups(Mutex<Vec<Group>>);

#[async_trait]
impl SessionStore for Groups {
    async fn session_groups(&self, _: &SessionId) -> Result<Vec<Group>, StoreError> {
        Ok(self.0.lock().clone())
    }

    async fn session(&self, _: &SessionId) -> Result<Option<Session>, StoreError> {
        unreachable!("only groups are read")
    }

    async fn sessions(&self, _: Option<&PrincipalId>, _: SystemTime) -> Result<Vec<Session>, StoreError> {
        unreachable!("only groups are read")
    }

    async fn save_session(&self, _: &Session, _: SessionCaps) -> Result<SessionSaved, StoreError> {
        unreachable!("only groups are read")
    }

    async fn save_session_contents(&self, _: &SessionId, _: &SessionContents) -> Result<(), StoreError> {
        unreachable!("only groups are read")
    }

    async fn touch_session(&self, _: &SessionId, _: SystemTime) -> Result<(), StoreError> {
        unreachable!("only groups are read")
    }

    async fn load_session_groups(&self, _: &SessionId, _: &[Group]) -> Result<(), StoreError> {
        unreachable!("only groups are read")
    }

    async fn unload_session_group(&self, _: &SessionId, _: &Group) -> Result<bool, StoreError> {
        unreachable!("only groups are read")
    }

    async fn remove_session(&self, _: &SessionId) -> Result<bool, StoreError> {
        unreachable!("only groups are read")
    }

    async fn forget_sessions_before(&self, _: SystemTime) -> Result<u64, StoreError> {
        unreachable!("only groups are read")
    }
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
    assert_eq!(stream.next().await, None, "its stream has ended");
    assert_eq!(session.listen().next().await, None, "no other one begins");
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
    let sessions = begin(Arc::default(), settings);
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
    assert!(!session.notify_list_changed(), "nobody listens");
    let mut former = session.listen();
    let mut newest = session.listen();
    sessions.notify_address(&session.endpoint().address);
    assert_eq!(newest.next().await, Some(News::Tools));
    drop(newest);
    assert!(session.notify_list_changed());
    assert_eq!(former.next().await, Some(News::Tools));
}

#[tokio::test]
async fn what_has_no_receiver_waits_and_is_sent_once() {
    let sessions = sessions(1, 1);
    let session = sessions.open(&caller("one"), at("/mcp"), Abilities::default()).unwrap();
    let updated = |number: usize| News::Updated(format!("test://{number}").into());
    for number in (0..50).chain(0..50) {
        assert!(!session.notify(updated(number)));
    }
    let mut stream = session.listen();
    for number in 0..50 {
        assert_eq!(stream.next().await, Some(updated(number)), "more than a mailbox holds");
    }
    session.notify(News::Resources);
    assert_eq!(stream.next().await, Some(News::Resources));
}

#[tokio::test]
async fn a_stream_is_a_session_for_its_time() {
    let sessions = sessions(1, 1);
    let stream = sessions.open_stream(&caller("one"), at("/mcp")).await.unwrap();
    let mut listening = stream.session().listen();
    assert!(sessions.open_stream(&caller("one"), at("/mcp")).await.is_none(), "it is in use");
    drop(stream);
    assert_eq!((listening.next().await, sessions.count()), (None, 0));
    assert!(sessions.open(&caller("one"), at("/mcp"), Abilities::default()).is_some());
}

#[tokio::test]
async fn all_ends_at_the_stop() {
    let stop = CancellationToken::new();
    let settings = settings(Duration::from_hours(1), 9, 9);
    let (sessions, keeping) = McpSessions::start(Arc::default(), Arc::<Groups>::default(), settings, stop.clone());
    let session = sessions.open(&caller("one"), at("/mcp"), Abilities::default()).unwrap();
    let mut stream = session.listen();
    stop.cancel();
    keeping.await.unwrap();
    assert_eq!(stream.next().await, None, "though a request still holds the session");
    assert!(sessions.open(&caller("one"), at("/mcp"), Abilities::default()).is_none());
}

#[test]
fn an_id_is_not_printed() {
    assert_eq!(format!("{:?}", super::McpSessionId::random()), "McpSessionId(…)");
}

#[tokio::test]
async fn the_mode_of_a_list_changes_only_with_a_notification() {
    let current = Arc::new(CurrentCatalog::default());
    let list = |names: &[&str]| {
        let name = ServerName::from("one");
        let tool = |tool: &&str| Arc::new(catalog::tool(&name, &json!({"name": tool, "inputSchema": {"type": "object"}})).unwrap());
        let tools = names.iter().map(tool).collect();
        current.swap(Catalog::new(vec![CatalogServer::untitled(name.clone(), tools)]));
    };
    list(&["a"]);
    let settings = settings(Duration::from_hours(1), 9, 9);
    let sessions = begin(Arc::clone(&current), settings);
    let session = sessions.open(&caller("one"), at("/mcp"), Abilities::default()).unwrap();
    list(&["a", "b"]);
    assert_eq!(sessions.mode_in(&session), Mode::Dynamic, "nothing is kept before the client has a list");
    list(&["a"]);
    assert_eq!(sessions.mode_to_list(&session), Mode::Full);
    session.set_listed(sessions.list_now(&session).await);
    list(&["a", "b"]);
    sessions.notify_if_changed(&session).await;
    assert_eq!(sessions.mode_to_list(&session), Mode::Full, "the client has no stream");
    let mut stream = session.listen();
    sessions.notify_if_changed(&session).await;
    assert_eq!((stream.next().await, sessions.mode_in(&session)), (Some(News::Tools), Mode::Dynamic));
}

/// Regression test: a client that fetched its list during a change was never notified.
#[tokio::test]
async fn a_list_that_changes_while_it_is_fetched_is_announced() {
    let current = Arc::new(CurrentCatalog::default());
    let list = |tools: usize| {
        let name = ServerName::from("one");
        let raw = |number| json!({"name": format!("t{number}"), "inputSchema": {"type": "object"}});
        let tools = (0..tools).map(|number| Arc::new(catalog::tool(&name, &raw(number)).unwrap())).collect();
        current.swap(Catalog::new(vec![CatalogServer::untitled(name.clone(), tools)]));
    };
    list(1);
    let settings = settings(Duration::from_hours(1), 9, 9);
    let sessions = begin(Arc::clone(&current), settings);
    let session = sessions.open(&caller("one"), at("/mcp"), Abilities::default()).unwrap();
    let mut stream = session.listen();
    let listed = sessions.list_now(&session).await;
    list(2);
    session.set_listed(listed);
    sessions.notify_if_changed(&session).await;
    assert_eq!(stream.next().await, Some(News::Tools));
    let former = sessions.list_now(&session).await;
    assert!(!session.change_list(listed, former, Mode::Full), "the client has another list meanwhile");
}

#[tokio::test]
async fn what_a_stream_did_not_send_is_sent_by_the_next_one() {
    let sessions = sessions(1, 1);
    let session = sessions.open(&caller("one"), at("/mcp"), Abilities::default()).unwrap();
    let stream = session.listen();
    session.notify(News::Resources);
    session.notify_list_changed();
    drop(stream);
    let mut next = session.listen();
    assert_eq!((next.next().await, next.next().await), (Some(News::Resources), Some(News::Tools)));
}

/// Regression test: loaded tools were not compared, so their client was not told of their changes, nor of what was loaded or unloaded
/// while it had no stream.
#[tokio::test]
async fn changes_of_loaded_tools_are_announced() {
    let current = Arc::new(CurrentCatalog::default());
    let list = |description: &str| {
        let raw = json!({"name": "a", "description": description, "inputSchema": {"type": "object"}});
        let server = |name: &str| {
            let name = ServerName::from(name);
            let tool = Arc::new(catalog::tool(&name, &raw).unwrap());
            CatalogServer::untitled(name, vec![tool])
        };
        current.swap(Catalog::new(vec![server("one"), server("two")]));
    };
    list("Former");
    let groups = Arc::<Groups>::default();
    let settings = settings(Duration::from_hours(1), 9, 9);
    let sessions = McpSessions::start(Arc::clone(&current), Arc::clone(&groups) as _, settings, CancellationToken::new()).0;
    let session = Session {
        id: SessionId::of_bytes([1; ID_BYTES]),
        owner: PrincipalId::of_key("one"),
        contents: SessionContents::default(),
        mode: DefaultMode::Auto,
        created_at: SystemTime::UNIX_EPOCH,
        expires_at: SystemTime::UNIX_EPOCH,
    };
    let session = Arc::new(Address::Session(Arc::new(session)));
    for (address, mode) in [(Arc::default(), Mode::Dynamic), (Arc::clone(&session), Mode::Dynamic), (session, Mode::Full)] {
        list("Former");
        groups.0.lock().clear();
        let path = format!("{}/mcp?mode={}", address.prefix(), mode.name()).into();
        let endpoint = McpEndpoint { address: Arc::clone(&address), server: None, path, mode: DefaultMode::Named(mode) };
        let client = sessions.open(&caller("one"), endpoint, Abilities::default()).unwrap();
        let group = Group::Server(ServerName::from("two"));
        let load = |loaded: &[Group]| match *address {
            Address::Session(_) => *groups.0.lock() = loaded.to_vec(),
            _ => client.loads().set(loaded),
        };
        client.set_listed(sessions.list_now(&client).await);
        // Without a stream. Other processes load into the session of an address too.
        load(std::slice::from_ref(&group));
        sessions.notify_if_changed(&client).await;
        let mut stream = client.listen();
        sessions.notify_if_changed(&client).await;
        assert_eq!(stream.next().await, Some(News::Tools), "{mode:?}: loaded");
        client.set_listed(sessions.list_now(&client).await);
        sessions.notify_if_changed(&client).await;
        client.notify(News::Resources);
        assert_eq!(stream.next().await, Some(News::Resources), "{mode:?}: nothing has changed");
        list("Newer");
        sessions.notify_if_changed(&client).await;
        assert_eq!(stream.next().await, Some(News::Tools), "{mode:?}: changed");
        drop(stream);
        load(&[]);
        let mut stream = client.listen();
        sessions.notify_if_changed(&client).await;
        assert_eq!(stream.next().await, Some(News::Tools), "{mode:?}: unloaded");
        sessions.close(&client);
    }
}

//! The sessions.

use std::time::{Duration, SystemTime};

use toolsieve::domain::access::principal::PrincipalId;
use toolsieve::domain::access::toolset_name::ToolsetName;
use toolsieve::domain::catalog::tool::ToolId;
use toolsieve::domain::toolsets::loading::{Group, GroupKind};
use toolsieve::domain::toolsets::mode::{DefaultMode, Mode};
use toolsieve::domain::toolsets::session::{ID_BYTES, Session, SessionContents, SessionId};
use toolsieve::service::ports::{SessionCaps, SessionSaved, SessionStore};

pub(crate) async fn sessions_end_in_time_and_by_count(store: &dyn SessionStore) {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let session = |number: u8, owner: &str, from: u64, to: u64| Session {
        id: SessionId::of_bytes([number; ID_BYTES]),
        owner: PrincipalId::new(owner),
        contents: SessionContents {
            toolsets: [ToolsetName::from("mail")].into(),
            servers: ["日本".into()].into(),
            tools: [ToolId::new("server", "a tool")].into(),
        },
        mode: DefaultMode::Named(Mode::Dynamic),
        created_at: at(from),
        expires_at: at(to),
    };
    let caps = SessionCaps { of_one: 2, of_all: 3 };
    let (one, two, three) = (session(1, "me", 10, 100), session(2, "me", 20, 1_000), session(3, "me", 30, 1_000));
    let saved = |gone: &[&Session]| SessionSaved::Saved { gone: gone.iter().map(|session| session.id.clone()).collect() };
    assert_eq!(store.session(&one.id).await.unwrap(), None);
    assert_eq!(store.save_session(&one, caps).await.unwrap(), saved(&[]));
    assert_eq!(store.save_session(&two, caps).await.unwrap(), saved(&[]));
    assert_eq!(store.session(&one.id).await.unwrap(), Some(one.clone()));
    // The first one was used later than the second.
    store.touch_session(&one.id, at(25)).await.unwrap();
    assert_eq!(store.save_session(&three, caps).await.unwrap(), saved(&[&two]));
    assert_eq!(store.sessions(Some(&one.owner), at(40)).await.unwrap(), [one.clone(), three.clone()]);
    assert_eq!(store.sessions(Some(&one.owner), at(100)).await.unwrap(), std::slice::from_ref(&three), "the time of the first is over");
    assert_eq!(store.sessions(Some(&PrincipalId::new("them")), at(40)).await.unwrap(), []);
    let theirs = session(4, "them", 40, 1_000);
    assert_eq!(store.save_session(&theirs, caps).await.unwrap(), saved(&[]));
    assert_eq!(store.save_session(&session(5, "third", 50, 1_000), caps).await.unwrap(), SessionSaved::Full, "nobody else's goes");
    assert_eq!(store.save_session(&session(6, "me", 60, 1_000), caps).await.unwrap(), saved(&[&one]), "one's own makes room");
    // Those whose time has passed don't count. They stay for a day, because the clock of another service may be behind.
    let seventh = session(7, "third", 2_000, 300_000);
    assert_eq!(store.save_session(&seventh, caps).await.unwrap(), saved(&[]));
    assert_eq!(store.session(&theirs.id).await.unwrap(), Some(theirs.clone()));
    let eighth = session(8, "third", 90_000, 90_500);
    assert_eq!(store.save_session(&eighth, caps).await.unwrap(), saved(&[]));
    assert_eq!(store.session(&theirs.id).await.unwrap(), None);
    assert_eq!(store.forget_sessions_before(at(90_499)).await.unwrap(), 0);
    assert_eq!((store.forget_sessions_before(at(90_500)).await.unwrap(), store.session(&eighth.id).await.unwrap()), (1, None));
    let seventh = seventh.id;
    assert!(store.remove_session(&seventh).await.unwrap() && !store.remove_session(&seventh).await.unwrap());
}

pub(crate) async fn what_is_loaded_into_a_session_goes_with_it(store: &dyn SessionStore) {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let session = |number: u8| Session {
        id: SessionId::of_bytes([number; ID_BYTES]),
        owner: PrincipalId::new("me"),
        contents: SessionContents::default(),
        mode: DefaultMode::Auto,
        created_at: at(1),
        expires_at: at(1_000),
    };
    let (one, two) = (session(1), session(2));
    let caps = SessionCaps { of_one: 2, of_all: 2 };
    store.save_session(&one, caps).await.unwrap();
    store.save_session(&two, caps).await.unwrap();
    assert_eq!(store.session(&one.id).await.unwrap(), Some(one.clone()));
    let group = |kind, name| Group::new(kind, name);
    let (mail, clock, code) = (group(GroupKind::Toolset, "mail"), group(GroupKind::Server, "日本"), group(GroupKind::Tag, "code"));
    store.load_session_groups(&one.id, &[code.clone(), mail.clone()]).await.unwrap();
    store.load_session_groups(&one.id, &[mail.clone(), clock.clone()]).await.unwrap();
    assert_eq!(store.session_groups(&one.id).await.unwrap(), [code.clone(), mail.clone(), clock.clone()], "in order, each once");
    assert_eq!(store.session_groups(&two.id).await.unwrap(), []);
    assert!(store.unload_session_group(&one.id, &code).await.unwrap() && !store.unload_session_group(&one.id, &code).await.unwrap());
    store.load_session_groups(&one.id, std::slice::from_ref(&code)).await.unwrap();
    assert_eq!(store.session_groups(&one.id).await.unwrap(), [mail, clock, code.clone()], "what comes back comes last");
    store.remove_session(&one.id).await.unwrap();
    assert_eq!(store.session_groups(&one.id).await.unwrap(), []);
    store.load_session_groups(&one.id, &[code]).await.unwrap();
    assert_eq!(store.session_groups(&one.id).await.unwrap(), [], "there is no session any more");
}

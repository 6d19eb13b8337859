//! What every implementation of the port `Store` has to keep, as functions on an empty store.
//!
//! `store_contract!(factory)` makes a test of each one; `factory` is an async function that returns an empty store
//! and whatever has to live as long as it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;
use toolsieve::domain::access::api_key::{ApiKey, KeyId};
use toolsieve::domain::access::policy::{Effect, RulePlace, RuleSource};
use toolsieve::domain::access::principal::{Principal, PrincipalId};
use toolsieve::domain::access::secret::{SealedSecret, SecretName, SecretPlace};
use toolsieve::domain::access::tool_facts::WrittenFacts;
use toolsieve::domain::access::toolset::{Toolset, ToolsetName};
use toolsieve::domain::catalog::tool::{ServerName, ToolId};
use toolsieve::domain::records::conversation::Conversation;
use toolsieve::domain::selection::chat::{ChatKey, ChatSet};
use toolsieve::domain::selection::enrichment::{Author, Enrichment, Written};
use toolsieve::domain::selection::experiment::Arm;
use toolsieve::domain::text::canonical::Fingerprint;
use toolsieve::domain::toolsets::loading::{Group, GroupKind};
use toolsieve::domain::toolsets::mode::Mode;
use toolsieve::domain::toolsets::session::{ID_BYTES, Session, SessionContents, SessionId};
use toolsieve::service::ports::{
    ArmFigures, AuditAction, AuditEntry, AuditQuery, CallOutcome, DayUsage, EventMessage, Feedback, MessageCounts, OfferedTools,
    SelectionEvent, SelectionEventKind, SelectionName, ServerListing, SessionCaps, SessionCounts, SessionQuery, SessionSaved, SkippedTool,
    Store, StoredChat, StoredDefinition, StoredPolicy, StoredToolFacts, ToolCounts, ToolUsage, Usage, UsageQuery, Verdict,
};

macro_rules! store_contract {
    ($factory:path) => {
        $crate::harness::contracts::store::store_contract! {
            $factory:
            listings_come_back_as_they_were,
            a_listing_replaces_the_one_before,
            a_removed_listing_is_gone,
            vectors_are_kept_by_model_and_text,
            thousands_of_vectors_go_in_one_call,
            token_counts_are_kept,
            what_was_used_lately_is_not_forgotten,
            what_is_written_is_kept_by_tool_and_author,
            what_is_written_and_used_lately_is_not_forgotten,
            it_says_whether_it_answers,
            chats_are_kept_by_principal,
            of_two_changes_of_one_chat_one_is_too_late,
            toolsets_come_back_as_they_were,
            sessions_end_in_time_and_by_count,
            what_is_loaded_into_a_session_goes_with_it,
            sessions_are_summed_by_arms,
            what_sessions_load_is_summed,
            chats_and_events_are_forgotten_by_age,
            writers_and_readers_do_not_disturb_each_other,
            odd_texts_come_back,
            api_keys_come_back_as_they_were,
            two_keys_in_use_never_have_one_name,
            of_two_changes_of_one_policy_one_is_too_late,
            the_audit_log_is_found_by_what_it_says,
            of_two_writings_about_one_tool_one_is_too_late,
            definitions_are_kept_as_they_were_seen_first,
            servers_say_when_they_were_listed,
            secrets_are_kept_by_owner_server_and_name,
            a_secret_is_sealed_anew_only_if_it_is_still_the_same,
            usage_is_summed_by_days,
            a_selection_is_found_by_its_principal_alone,
            the_last_verdict_counts
        }
    };
    ($factory:path: $($name:ident),* $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let (store, _guard) = $factory().await;
            $crate::harness::contracts::store::$name(&store).await;
        })*
    };
}
pub(crate) use store_contract;

pub(crate) fn listing(server: &str, tools: usize) -> ServerListing {
    let tool = |number: usize| {
        Arc::new(json!({
            "name": format!("tool{number}"),
            "inputSchema": {"type": "object", "z": 1, "a": {"y": 2.5, "b": [null, true]}},
            "description": "naïve 日本 \u{0007} \"quoted\"",
        }))
    };
    ServerListing {
        server: ServerName::from(server),
        title: Some("A title".into()),
        program: Some("a-program".into()),
        version: None,
        instructions: Some(String::new()),
        tools: (0..tools).map(tool).collect(),
        skipped: vec![SkippedTool { tool: "3".into(), reason: "no name".into() }],
    }
}

pub(crate) fn vector(seed: usize) -> Arc<[f32]> {
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    (0..384).map(|position| ((seed * 31 + position * 7) % 1000) as f32 / 999.0 - 0.5).collect()
}

pub(crate) fn text(number: usize) -> Fingerprint {
    Fingerprint::of_text(&number.to_string())
}

pub(crate) fn chat(principal: &str, chat: &str) -> ChatKey {
    ChatKey { principal: PrincipalId::new(principal), chat: chat.into() }
}

pub(crate) fn set(tools: &[&str], called: &[&str]) -> ChatSet {
    let ids = |names: &[&str]| names.iter().map(|name| ToolId::new("server", *name)).collect::<Vec<_>>();
    let mut set = ChatSet::default();
    set.update(&ids(tools), &ids(called), 100);
    set
}

pub(crate) fn events(at: SystemTime) -> Vec<SelectionEvent> {
    let tools: Vec<ToolId> = (0..600).map(|number| ToolId::new("server", format!("tool{number}"))).collect();
    let kinds = [
        SelectionEventKind::Offered {
            message: message(),
            tools: tools.iter().cloned().collect(),
            tokens_before: 900,
            tokens_after: 30,
            arm: None,
        },
        called(&tools[0], CallOutcome::ToolError, Duration::from_micros(1500), false),
        SelectionEventKind::Searched { message: message(), tools: Vec::new(), recovered: true },
    ];
    let event =
        |kind| SelectionEvent { at, selection: Some("selection".into()), principal: "anyone".into(), chat: None, conversation: None, kind };
    kinds.into_iter().map(event).collect()
}

fn message() -> EventMessage {
    EventMessage { text: Some("what somebody wrote".into()) }
}

fn called(tool: &ToolId, outcome: CallOutcome, took: Duration, recovered: bool) -> SelectionEventKind {
    SelectionEventKind::Called { tool: tool.clone(), outcome, took, recovered }
}

pub(crate) fn written(author: &str, words: &str) -> Written {
    let author = if author == "admin" { Author::Admin } else { Author::Model(author.into()) };
    Written { author, enrichment: Enrichment { context: words.into(), queries: vec!["日本 \"quoted\"".into(), words.into()] } }
}

pub(crate) async fn listings_come_back_as_they_were(store: &dyn Store) {
    assert_eq!(store.listings().await.unwrap(), []);
    let saved = [listing("alpha", 0), listing("beta", 300)];
    for listing in &saved {
        store.save_listing(listing).await.unwrap();
    }
    let mut found = store.listings().await.unwrap();
    found.sort_by(|one, two| one.server.cmp(&two.server));
    assert_eq!(found, saved);
    // Equality of JSON objects does not look at the order of their keys, publishing does.
    assert_eq!(found[1].tools[7].to_string(), saved[1].tools[7].to_string());
}

pub(crate) async fn a_listing_replaces_the_one_before(store: &dyn Store) {
    store.save_listing(&listing("alpha", 5)).await.unwrap();
    let new = ServerListing { title: None, skipped: Vec::new(), ..listing("alpha", 2) };
    store.save_listing(&new).await.unwrap();
    assert_eq!(store.listings().await.unwrap(), [new]);
}

pub(crate) async fn a_removed_listing_is_gone(store: &dyn Store) {
    store.save_listing(&listing("alpha", 1)).await.unwrap();
    store.save_listing(&listing("beta", 1)).await.unwrap();
    store.remove_listing(&"alpha".into()).await.unwrap();
    store.remove_listing(&"never there".into()).await.unwrap();
    assert_eq!(store.listings().await.unwrap(), [listing("beta", 1)]);
}

pub(crate) async fn vectors_are_kept_by_model_and_text(store: &dyn Store) {
    store.save_vectors("one", &[(text(1), vector(1)), (text(2), vector(2))]).await.unwrap();
    store.save_vectors("two", &[(text(1), [0.5_f32].into())]).await.unwrap();
    store.save_vectors("one", &[(text(2), vector(22))]).await.unwrap();
    store.save_vectors("one", &[]).await.unwrap();

    let one = store.vectors("one", &[text(1), text(2), text(3)]).await.unwrap();
    assert_eq!(one.len(), 2);
    assert_eq!((&one[&text(1)], &one[&text(2)]), (&vector(1), &vector(22)));
    let two = store.vectors("two", &[text(1), text(2)]).await.unwrap();
    assert_eq!(two.into_iter().collect::<Vec<_>>(), [(text(1), [0.5_f32].into())]);
    assert!(store.vectors("three", &[text(1)]).await.unwrap().is_empty());
    assert!(store.vectors("one", &[]).await.unwrap().is_empty());
}

pub(crate) async fn thousands_of_vectors_go_in_one_call(store: &dyn Store) {
    let saved: Vec<_> = (0..2000).map(|number| (text(number), vector(number))).collect();
    store.save_vectors("model", &saved).await.unwrap();
    let wanted: Vec<_> = (0..4000).map(text).collect();
    let found = store.vectors("model", &wanted).await.unwrap();
    assert_eq!(found, saved.into_iter().collect());
}

pub(crate) async fn token_counts_are_kept(store: &dyn Store) {
    let counts: Vec<_> = (0..1000_u16).map(|number| (text(usize::from(number)), u32::from(number) * 3)).collect();
    store.save_token_counts(&counts).await.unwrap();
    store.save_token_counts(&[(text(5), u32::MAX)]).await.unwrap();
    let wanted: Vec<_> = (0..1100).map(text).collect();
    let found = store.token_counts(&wanted).await.unwrap();
    assert_eq!((found.len(), found[&text(999)], found[&text(5)]), (1000, 2997, u32::MAX));
}

pub(crate) async fn what_was_used_lately_is_not_forgotten(store: &dyn Store) {
    store.save_vectors("one", &[(text(1), vector(1))]).await.unwrap();
    store.save_vectors("two", &[(text(1), vector(1))]).await.unwrap();
    store.save_token_counts(&[(text(1), 1)]).await.unwrap();
    let (now, hour) = (SystemTime::now(), Duration::from_hours(1));
    assert_eq!(store.forget_unused("one", &[], &[], now - hour).await.unwrap(), 0);
    assert_eq!(store.forget_unused("one", &[], &[], now + hour).await.unwrap(), 3);
    assert!(store.vectors("one", &[text(1)]).await.unwrap().is_empty() && store.token_counts(&[text(1)]).await.unwrap().is_empty());
}

pub(crate) async fn what_is_written_is_kept_by_tool_and_author(store: &dyn Store) {
    let (one, two, admin) = (written("one", "a"), written("two", "b"), written("admin", ""));
    for (tool, written) in [(1, &one), (1, &two), (2, &one), (2, &admin)] {
        store.save_enrichment(&text(tool), written).await.unwrap();
    }
    let tools = [text(1), text(2), text(3)];
    assert_eq!(store.enrichments(None, &tools).await.unwrap(), [(text(2), admin.clone())].into());
    assert_eq!(store.enrichments(Some("one"), &tools).await.unwrap(), [(text(1), one.clone()), (text(2), admin.clone())].into());
    assert_eq!(store.enrichments(Some("two"), &tools).await.unwrap()[&text(1)], two);
    assert!(store.enrichments(Some("one"), &[]).await.unwrap().is_empty());

    store.save_enrichment(&text(1), &written("one", "c")).await.unwrap();
    assert_eq!(store.enrichments(Some("one"), &tools).await.unwrap()[&text(1)], written("one", "c"));
    assert_eq!(store.enrichments(Some("two"), &tools).await.unwrap()[&text(1)], two);

    assert!(store.remove_enrichment(&text(2), &Author::Admin).await.unwrap());
    assert!(!store.remove_enrichment(&text(2), &Author::Admin).await.unwrap());
    assert_eq!(store.enrichments(Some("one"), &tools).await.unwrap()[&text(2)], one);

    for number in 0..600 {
        store.save_enrichment(&text(number), &written("many", &number.to_string())).await.unwrap();
    }
    let many: Vec<_> = (0..700).map(text).collect();
    let found = store.enrichments(Some("many"), &many).await.unwrap();
    assert_eq!((found.len(), &found[&text(599)]), (600, &written("many", "599")));
}

pub(crate) async fn what_is_written_and_used_lately_is_not_forgotten(store: &dyn Store) {
    for author in ["one", "two", "admin"] {
        store.save_enrichment(&text(1), &written(author, "a")).await.unwrap();
    }
    let (now, hour) = (SystemTime::now(), Duration::from_hours(1));
    assert_eq!(store.forget_unused_enrichments(Some("one"), &[], now - hour).await.unwrap(), 0);
    assert_eq!(store.forget_unused_enrichments(None, &[], now + hour).await.unwrap(), 3);
    assert!(store.enrichments(Some("one"), &[text(1)]).await.unwrap().is_empty());
}

pub(crate) async fn it_says_whether_it_answers(store: &dyn Store) {
    store.check().await.unwrap();
}

pub(crate) async fn chats_are_kept_by_principal(store: &dyn Store) {
    let (mine, theirs) = (chat("me", "chat"), chat("them", "chat"));
    assert_eq!(store.chat(&mine).await.unwrap(), None);
    assert_eq!(store.save_chat(&mine, &set(&["a", "b"], &[]), 0).await.unwrap(), Some(1));
    assert_eq!(store.save_chat(&theirs, &ChatSet::default(), 0).await.unwrap(), Some(1));
    assert_eq!(store.save_chat(&mine, &set(&["c", "a", "b"], &["a"]), 1).await.unwrap(), Some(2));
    assert_eq!(store.chat(&mine).await.unwrap(), Some(StoredChat { set: set(&["c", "a", "b"], &["a"]), version: 2 }));
    assert_eq!(store.chat(&theirs).await.unwrap(), Some(StoredChat { set: ChatSet::default(), version: 1 }));
    assert_eq!(store.chat(&chat("me", "other")).await.unwrap(), None);
}

pub(crate) async fn of_two_changes_of_one_chat_one_is_too_late(store: &dyn Store) {
    let key = chat("me", "chat");
    for version in 0..5 {
        let (one, two) = (set(&["a"], &[]), set(&["b"], &[]));
        let both = futures::join!(store.save_chat(&key, &one, version), store.save_chat(&key, &two, version));
        let saved = match (both.0.unwrap(), both.1.unwrap()) {
            (Some(next), None) if next == version + 1 => one,
            (None, Some(next)) if next == version + 1 => two,
            other => panic!("{other:?}"),
        };
        assert_eq!(store.chat(&key).await.unwrap(), Some(StoredChat { set: saved, version: version + 1 }));
    }
    for late in [0, 4, 6] {
        assert_eq!(store.save_chat(&key, &set(&["c"], &[]), late).await.unwrap(), None, "{late}");
    }
}

pub(crate) async fn toolsets_come_back_as_they_were(store: &dyn Store) {
    let toolset = |name: &str, value: serde_json::Value| Toolset::read(name, &value).unwrap();
    let mail =
        toolset("mail", json!({"description": "日本 \"quoted\"", "servers": ["mail*"], "exclude": ["delete_*"], "always": ["a", "b"]}));
    let files = toolset("files", json!({"tags": ["file"], "annotations": ["readOnlyHint=false"], "tools": ["*"]}));
    assert_eq!(store.toolsets().await.unwrap(), []);
    for toolset in [&mail, &files] {
        store.save_toolset(&toolset.name, &toolset.definition).await.unwrap();
    }
    assert_eq!(store.toolsets().await.unwrap(), [files.clone(), mail.clone()]);
    store.save_toolset(&mail.name, &files.definition).await.unwrap();
    assert!(store.remove_toolset(&files.name).await.unwrap() && !store.remove_toolset(&files.name).await.unwrap());
    assert_eq!(store.toolsets().await.unwrap(), [Toolset { name: mail.name, definition: files.definition }]);
}

pub(crate) async fn sessions_end_in_time_and_by_count(store: &dyn Store) {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let session = |number: u8, owner: &str, from: u64, to: u64| Session {
        id: SessionId::of_bytes([number; ID_BYTES]),
        owner: PrincipalId::new(owner),
        contents: SessionContents {
            toolsets: [ToolsetName::from("mail")].into(),
            servers: ["日本".into()].into(),
            tools: [ToolId::new("server", "a tool")].into(),
        },
        mode: Mode::Dynamic,
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
    // A later one finds those over whose time has passed.
    assert_eq!(store.save_session(&session(7, "third", 2_000, 3_000), caps).await.unwrap(), saved(&[]));
    assert_eq!(store.session(&theirs.id).await.unwrap(), None);
    let seventh = session(7, "third", 2_000, 3_000).id;
    assert!(store.remove_session(&seventh).await.unwrap() && !store.remove_session(&seventh).await.unwrap());
}

pub(crate) async fn what_is_loaded_into_a_session_goes_with_it(store: &dyn Store) {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let session = |number: u8| Session {
        id: SessionId::of_bytes([number; ID_BYTES]),
        owner: PrincipalId::new("me"),
        contents: SessionContents::default(),
        mode: Mode::Dynamic,
        created_at: at(1),
        expires_at: at(1_000),
    };
    let (one, two) = (session(1), session(2));
    let caps = SessionCaps { of_one: 2, of_all: 2 };
    store.save_session(&one, caps).await.unwrap();
    store.save_session(&two, caps).await.unwrap();
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

pub(crate) async fn chats_and_events_are_forgotten_by_age(store: &dyn Store) {
    let now = SystemTime::now();
    let (day, hour) = (Duration::from_hours(24), Duration::from_hours(1));
    store.record(&[]).await.unwrap();
    store.record(&events(now - day)).await.unwrap();
    store.record(&events(now)).await.unwrap();
    store.save_chat(&chat("me", "chat"), &set(&["a"], &[]), 0).await.unwrap();

    assert_eq!(store.forget_before(now - 2 * day, now - 2 * day).await.unwrap(), 0);
    assert_eq!(store.forget_before(now - hour, now - hour).await.unwrap(), 3, "the three old events");
    assert!(store.chat(&chat("me", "chat")).await.unwrap().is_some());
    assert_eq!(store.forget_before(now + hour, now - hour).await.unwrap(), 1, "the chat");
    assert_eq!(store.chat(&chat("me", "chat")).await.unwrap(), None);
    assert_eq!(store.forget_before(now + hour, now + hour).await.unwrap(), 3, "the other events");
}

pub(crate) async fn writers_and_readers_do_not_disturb_each_other(store: &dyn Store) {
    let work = (0..40).map(|number| async move {
        let key = chat("me", &number.to_string());
        let tools = set(&["a", "b"], &[]);
        store.save_chat(&key, &tools, 0).await.unwrap();
        store.save_vectors("model", &[(text(number), vector(number))]).await.unwrap();
        store.record(&events(SystemTime::now())).await.unwrap();
        assert_eq!(store.chat(&key).await.unwrap().unwrap().set, tools);
        assert_eq!(store.vectors("model", &[text(number)]).await.unwrap()[&text(number)], vector(number));
    });
    futures::future::join_all(work).await;
}

pub(crate) async fn odd_texts_come_back(store: &dyn Store) {
    for odd in ["", "'; DROP TABLE chat_set; --", "日本 \u{1f600}", "a\nb\t\"c\"", "%_?$1"] {
        store.save_chat(&chat(odd, odd), &set(&[odd], &[]), 0).await.unwrap();
        assert_eq!(store.chat(&chat(odd, odd)).await.unwrap().unwrap().set, set(&[odd], &[]), "{odd:?}");
        store.save_listing(&listing(odd, 1)).await.unwrap();
        store.save_vectors(odd, &[(text(1), vector(1))]).await.unwrap();
        assert_eq!(store.vectors(odd, &[text(1)]).await.unwrap().len(), 1, "{odd:?}");
    }
    assert_eq!(store.listings().await.unwrap().len(), 5);
}

fn key(id: &str, name: &str) -> ApiKey {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    ApiKey {
        id: KeyId::new(id),
        name: name.into(),
        hash: Fingerprint::of_text(id),
        servers: Some(["one".into(), "日本".into()].into()),
        toolsets: Some(["mail".into(), "files".into()].into()),
        groups: ["a".to_owned(), "b, c".to_owned()].into(),
        trusted: true,
        created_at: at(1_000),
        expires_at: Some(at(9_000_000_000)),
        revoked_at: None,
        last_used_at: None,
    }
}

pub(crate) async fn api_keys_come_back_as_they_were(store: &dyn Store) {
    assert_eq!(store.api_keys().await.unwrap(), []);
    let full = key("b", "full");
    let bare = ApiKey { servers: None, toolsets: None, groups: [].into(), trusted: false, expires_at: None, ..key("a", "bare") };
    for key in [&full, &bare] {
        store.save_api_key(key).await.unwrap();
    }
    let sorted = async || {
        let mut keys = store.api_keys().await.unwrap();
        keys.sort_by(|one, other| one.id.cmp(&other.id));
        keys
    };
    assert_eq!(sorted().await, [bare.clone(), full.clone()]);
    let used = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
    store.touch_api_key(&full.id, used).await.unwrap();
    store.touch_api_key(&KeyId::new("none"), used).await.unwrap();
    let rotated = ApiKey { hash: Fingerprint::of_text("new"), revoked_at: Some(used), ..bare };
    store.save_api_key(&rotated).await.unwrap();
    assert_eq!(sorted().await, [rotated, ApiKey { last_used_at: Some(used), ..full }]);
}

pub(crate) async fn two_keys_in_use_never_have_one_name(store: &dyn Store) {
    store.save_api_key(&key("a", "name")).await.unwrap();
    store.save_api_key(&key("b", "name")).await.unwrap_err();
    store.save_api_key(&ApiKey { revoked_at: Some(SystemTime::now()), ..key("a", "name") }).await.unwrap();
    store.save_api_key(&key("b", "name")).await.unwrap();
}

pub(crate) async fn of_two_changes_of_one_policy_one_is_too_late(store: &dyn Store) {
    assert_eq!(store.policy().await.unwrap(), None);
    assert_eq!(store.save_policy(1, "{}").await.unwrap(), None);
    let both = futures::join!(store.save_policy(0, "one"), store.save_policy(0, "two"));
    let saved = match (both.0.unwrap(), both.1.unwrap()) {
        (Some(1), None) => "one",
        (None, Some(1)) => "two",
        other => panic!("{other:?}"),
    };
    assert_eq!(store.policy().await.unwrap(), Some(StoredPolicy { version: 1, body: saved.into() }));
    for version in 1..150 {
        assert_eq!(store.save_policy(version, "{\"a\": 1}").await.unwrap(), Some(version + 1));
    }
    assert_eq!(store.policy().await.unwrap(), Some(StoredPolicy { version: 150, body: "{\"a\": 1}".into() }));
}

pub(crate) async fn the_audit_log_is_found_by_what_it_says(store: &dyn Store) {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let call = |seconds: u64, principal: &str, tool: &str| AuditEntry {
        at: at(seconds),
        principal: principal.into(),
        action: AuditAction::Call,
        tool: Some(ToolId::new("server", tool)),
        server: None,
        subject: None,
        decision: Effect::Allow,
        rule: Some(RulePlace { source: RuleSource::Settings, number: 3 }),
        outcome: Some(CallOutcome::ToolError),
        took: Duration::from_micros(1_500),
        bytes: Some(12),
    };
    let denied = AuditEntry {
        decision: Effect::Block,
        rule: Some(RulePlace { source: RuleSource::Api, number: 1 }),
        outcome: None,
        bytes: None,
        ..call(2, "key:ci", "b")
    };
    let change = AuditEntry {
        subject: Some("日本".into()),
        ..AuditEntry::of_change(&Principal::admin_key(), AuditAction::KeyCreate, String::new())
    };
    let change = AuditEntry { at: at(3), ..change };
    let read = AuditEntry {
        action: AuditAction::ResourceRead,
        tool: None,
        server: Some("reads".into()),
        subject: Some("test://note".into()),
        ..call(3, "anyone", "")
    };
    let saved = [call(1, "anyone", "a"), denied.clone(), change.clone(), read.clone()];
    store.save_audit(&[]).await.unwrap();
    store.save_audit(&saved).await.unwrap();
    let find = async |query: AuditQuery| {
        let found = store.audit(&AuditQuery { limit: if query.limit == 0 { 100 } else { query.limit }, ..query }).await.unwrap();
        assert!(found.windows(2).all(|pair| pair[0].id > pair[1].id));
        found
    };
    let entries = async |query| find(query).await.into_iter().map(|found| found.entry).collect::<Vec<_>>();
    assert_eq!(entries(AuditQuery::default()).await, [read.clone(), change.clone(), denied.clone(), saved[0].clone()]);
    for query in [
        AuditQuery { server: Some("reads".into()), ..AuditQuery::default() },
        AuditQuery { action: Some(AuditAction::ResourceRead), ..AuditQuery::default() },
    ] {
        assert_eq!(entries(query.clone()).await, std::slice::from_ref(&read), "{query:?}");
    }
    for query in [
        AuditQuery { principal: Some("key:ci".into()), ..AuditQuery::default() },
        AuditQuery { tool: Some("b".into()), server: Some("server".into()), ..AuditQuery::default() },
        AuditQuery { decision: Some(Effect::Block), ..AuditQuery::default() },
        AuditQuery { since: Some(at(2)), until: Some(at(3)), ..AuditQuery::default() },
    ] {
        assert_eq!(entries(query.clone()).await, std::slice::from_ref(&denied), "{query:?}");
    }
    assert_eq!(entries(AuditQuery { action: Some(AuditAction::KeyCreate), ..AuditQuery::default() }).await, [change]);
    assert_eq!(entries(AuditQuery { outcome: Some(CallOutcome::ToolError), ..AuditQuery::default() }).await, [read, saved[0].clone()]);
    let first = find(AuditQuery { limit: 3, ..AuditQuery::default() }).await;
    let rest = find(AuditQuery { before: Some(first[2].id), ..AuditQuery::default() }).await;
    assert_eq!((first.len(), rest.len(), &rest[0].entry), (3, 1, &saved[0]));
    store.save_audit(&vec![call(9, "many", "a"); 250]).await.unwrap();
    assert_eq!(find(AuditQuery { principal: Some("many".into()), limit: 300, ..AuditQuery::default() }).await.len(), 250);
    assert_eq!(store.forget_audit_before(at(3)).await.unwrap(), 2);
    assert_eq!(find(AuditQuery { limit: 300, ..AuditQuery::default() }).await.len(), 252);
}

pub(crate) async fn of_two_writings_about_one_tool_one_is_too_late(store: &dyn Store) {
    let (one, other) = (ToolId::new("server", "日本 '\u{200b}"), ToolId::new("other", "日本 '\u{200b}"));
    let facts = |tag: &str| WrittenFacts { tags: vec![tag.into()], description: Some("\"quoted\"\n".into()), ..WrittenFacts::default() };
    assert_eq!(store.tool_facts().await.unwrap(), []);
    assert_eq!(store.save_tool_facts(&one, 1, Some(&facts("a"))).await.unwrap(), None);
    let (first, second) = (facts("first"), facts("second"));
    let both = futures::join!(store.save_tool_facts(&one, 0, Some(&first)), store.save_tool_facts(&one, 0, Some(&second)));
    let saved = match (both.0.unwrap(), both.1.unwrap()) {
        (Some(1), None) => first,
        (None, Some(1)) => second,
        other => panic!("{other:?}"),
    };
    let stored = |tool: &ToolId, version, facts| StoredToolFacts { tool: tool.clone(), version, facts };
    assert_eq!(store.tool_facts().await.unwrap(), [stored(&one, 1, Some(saved))]);
    assert_eq!(store.save_tool_facts(&one, 1, None).await.unwrap(), Some(2));
    assert_eq!(store.save_tool_facts(&one, 0, Some(&facts("a"))).await.unwrap(), None, "what was taken back has a version too");
    assert_eq!(store.save_tool_facts(&other, 0, Some(&facts("b"))).await.unwrap(), Some(1));
    let mut all = store.tool_facts().await.unwrap();
    all.sort_by(|one, other| one.tool.cmp(&other.tool));
    assert_eq!(all, [stored(&other, 1, Some(facts("b"))), stored(&one, 2, None)]);
}

pub(crate) async fn definitions_are_kept_as_they_were_seen_first(store: &dyn Store) {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let first = |number: usize| {
        let tool = ToolId::new("server", format!("tool{number:04}"));
        StoredDefinition { tool, fingerprint: text(number), is_new: number == 1, first_seen: at(9), noticed: None, approved: None }
    };
    let sorted = async || {
        let mut all = store.definitions().await.unwrap();
        all.sort_by(|one, other| one.tool.cmp(&other.tool));
        all
    };
    store.add_definitions(&[]).await.unwrap();
    assert_eq!(sorted().await, []);
    let all: Vec<_> = (0..700).map(|number| (first(number), format!("{{\"n\": {number}}}"))).collect();
    store.add_definitions(&all).await.unwrap();
    let again = (StoredDefinition { fingerprint: text(5_000), is_new: true, ..first(2) }, "{}".to_owned());
    store.add_definitions(&[again]).await.unwrap();
    let mut expected: Vec<_> = (0..700).map(first).collect();
    assert_eq!(sorted().await, expected);
    assert_eq!(store.definition(&expected[2].tool).await.unwrap().as_deref(), Some("{\"n\": 2}"));
    assert_eq!(store.definition(&ToolId::new("server", "none")).await.unwrap(), None);

    store.note_definition(&expected[1].tool, &text(6_000), at(10)).await.unwrap();
    store.note_definition(&ToolId::new("server", "none"), &text(6_000), at(10)).await.unwrap();
    expected[1].noticed = Some((text(6_000), at(10)));
    assert_eq!(sorted().await, expected);
    store.approve_definition(&expected[1].tool, &text(6_000), "{\"n\": 6}", at(11)).await.unwrap();
    expected[1] =
        StoredDefinition { fingerprint: text(6_000), is_new: false, noticed: None, approved: Some(at(11)), ..expected[1].clone() };
    assert_eq!(sorted().await, expected);
    assert_eq!(store.definition(&expected[1].tool).await.unwrap().as_deref(), Some("{\"n\": 6}"));
}

pub(crate) async fn servers_say_when_they_were_listed(store: &dyn Store) {
    assert!(store.listing_times().await.unwrap().is_empty());
    let before = SystemTime::now() - Duration::from_secs(1);
    store.save_listing(&listing("alpha", 1)).await.unwrap();
    let times = store.listing_times().await.unwrap();
    assert_eq!(times.len(), 1);
    assert!(times[&ServerName::from("alpha")] > before && times[&ServerName::from("alpha")] < before + Duration::from_mins(5));
}

fn secret(owner: &str, server: &str, name: &str, key_id: &str, nonce: u8) -> SealedSecret {
    let place = SecretPlace { owner: PrincipalId::new(owner), server: server.into(), name: SecretName::new(name).unwrap() };
    let updated_at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    SealedSecret { place, key_id: key_id.into(), nonce: [nonce; 12], sealed: vec![0, 255, nonce], updated_at }
}

pub(crate) async fn secrets_are_kept_by_owner_server_and_name(store: &dyn Store) {
    let owner = PrincipalId::new("user:日本 '");
    let saved = ["a/token", "b/key", "b/token"].map(|place| {
        let (server, name) = place.split_once('/').unwrap();
        secret(owner.as_str(), server, name, "k1", 1)
    });
    for secret in saved.iter().rev().chain([&secret("user:bob", "a", "token", "k2", 2)]) {
        store.save_secret(secret).await.unwrap();
    }
    assert_eq!(store.secrets(&owner).await.unwrap(), saved);
    assert_eq!(store.secrets(&PrincipalId::new("user:nobody")).await.unwrap(), []);
    let replaced = secret(owner.as_str(), "a", "token", "k2", 3);
    store.save_secret(&replaced).await.unwrap();
    assert_eq!(store.secrets(&owner).await.unwrap()[0], replaced);
    let of_others = store.secrets_of_other_keys("k2").await.unwrap();
    assert_eq!(of_others, saved[1..]);

    assert!(store.remove_secret(&saved[1].place).await.unwrap());
    assert!(!store.remove_secret(&saved[1].place).await.unwrap());
    assert_eq!(store.secrets(&owner).await.unwrap(), [replaced, saved[2].clone()]);
    assert_eq!((store.remove_secrets(&owner).await.unwrap(), store.remove_secrets(&owner).await.unwrap()), (2, 0));
    assert_eq!(store.secrets(&PrincipalId::new("user:bob")).await.unwrap().len(), 1);
}

pub(crate) async fn a_secret_is_sealed_anew_only_if_it_is_still_the_same(store: &dyn Store) {
    let former = secret("user:anna", "a", "token", "k1", 1);
    store.save_secret(&former).await.unwrap();
    let new = secret("user:anna", "a", "token", "k2", 2);
    assert!(store.reseal_secret(&former, &new).await.unwrap());
    assert_eq!(store.secrets(&former.place.owner).await.unwrap(), std::slice::from_ref(&new));
    assert!(!store.reseal_secret(&former, &secret("user:anna", "a", "token", "k3", 3)).await.unwrap(), "it was changed meanwhile");
    store.remove_secret(&new.place).await.unwrap();
    assert!(!store.reseal_secret(&new, &former).await.unwrap(), "it was removed meanwhile");
    assert_eq!(store.secrets(&former.place.owner).await.unwrap(), []);
}

const HOUR: Duration = Duration::from_hours(1);

/// The beginning of an hour of the year 2027.
fn hour(number: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 20_820) + HOUR * number
}

fn between(since: SystemTime, until: SystemTime) -> UsageQuery {
    UsageQuery { since, until, server: None, tool: None }
}

pub(crate) async fn usage_is_summed_by_days(store: &dyn Store) {
    let (one, two) = (ToolId::new("server", "one"), ToolId::new("日本", "two"));
    let at = |time: SystemTime, kind| SelectionEvent {
        at: time,
        selection: None,
        principal: "anyone".into(),
        chat: None,
        conversation: None,
        kind,
    };
    let offered = |tools: &[&ToolId]| SelectionEventKind::Offered {
        message: message(),
        tools: tools.iter().map(|tool| (*tool).clone()).collect(),
        tokens_before: 1_000,
        tokens_after: 10,
        arm: None,
    };
    let searched = |recovered| SelectionEventKind::Searched { message: message(), tools: vec![two.clone()], recovered };
    let millis = Duration::from_millis;
    let minute = Duration::from_mins(1);
    store
        .record(&[at(hour(0), offered(&[&one, &two])), at(hour(0) + minute, called(&one, CallOutcome::Success, millis(10), false))])
        .await
        .unwrap();
    store
        .record(&[
            at(hour(0) + 2 * minute, offered(&[&one])),
            at(hour(0) + 3 * minute, searched(true)),
            at(hour(0) + 4 * minute, called(&two, CallOutcome::ToolError, millis(20), true)),
            at(hour(0) + 5 * minute, called(&one, CallOutcome::Failed, millis(60_000), false)),
            at(hour(25), offered(&[&one])),
            at(hour(25) + minute, searched(false)),
            at(hour(25) + minute, called(&one, CallOutcome::Success, millis(30), false)),
        ])
        .await
        .unwrap();

    let sorted = async |query: UsageQuery| {
        let mut usage = store.usage(&query).await.unwrap();
        usage.tools.sort_by(|one, other| one.tool.cmp(&other.tool));
        usage.days.sort_by_key(|day| day.day);
        usage
    };
    let first_day = sorted(between(hour(0), hour(24))).await;
    let [of_one, of_two] = <[ToolUsage; 2]>::try_from(first_day.tools).unwrap();
    let one_counts = ToolCounts { offered: 2, called: 2, succeeded: 1, tool_errors: 0, recovered: 0 };
    let two_counts = ToolCounts { offered: 1, called: 1, succeeded: 0, tool_errors: 1, recovered: 1 };
    assert_eq!((&of_one.tool, of_one.counts, of_one.called_at), (&one, one_counts, Some(hour(0) + 5 * minute)));
    assert_eq!((&of_two.tool, of_two.counts), (&two, two_counts));
    let slowest = of_one.latencies.quantile(1.0).unwrap();
    assert!(slowest < millis(12), "what failed has no latency: {slowest:?}");
    let messages = MessageCounts { selections: 2, searches: 1, recovered_searches: 1, tokens_before: 2_000, tokens_after: 20 };
    let mut both = one_counts;
    both.add(&two_counts);
    assert_eq!(first_day.days, [DayUsage { day: hour(0), messages, tools: both }]);

    let all = sorted(between(hour(0), hour(25) + minute)).await;
    assert_eq!(all.days.iter().map(|day| (day.day, day.tools.called)).collect::<Vec<_>>(), [(hour(0), 3), (hour(24), 1)]);
    assert_eq!(all.tools[0].counts, ToolCounts { offered: 3, called: 3, succeeded: 2, ..one_counts });
    assert_eq!(all.tools[0].latencies.iter().map(|(_, calls)| calls).sum::<u64>(), 2);
    let narrowed = sorted(UsageQuery { server: Some("日本".into()), tool: Some("two".into()), ..between(hour(0), hour(48)) }).await;
    assert_eq!((narrowed.tools.len(), narrowed.tools[0].counts, narrowed.days[0].tools), (1, two_counts, two_counts));
    assert_eq!(sorted(between(hour(48), hour(72))).await, Usage::default());

    assert_eq!(store.forget_usage_before(hour(23)).await.unwrap(), 0);
    // The day itself, two tools, and two ranges of times.
    assert_eq!(store.forget_usage_before(hour(24)).await.unwrap(), 5);
    assert_eq!(sorted(between(hour(0), hour(48))).await.days.len(), 1);
}

pub(crate) async fn sessions_are_summed_by_arms(store: &dyn Store) {
    let tool = ToolId::new("server", "one");
    let event = |minutes: u32, principal: &str, chat: Option<&str>, kind| SelectionEvent {
        at: hour(0) + Duration::from_mins(1) * minutes,
        selection: None,
        principal: principal.into(),
        chat: chat.map(str::to_owned),
        conversation: None,
        kind,
    };
    let offered = |count: usize, arm| SelectionEventKind::Offered {
        message: message(),
        tools: vec![tool.clone(); count].into_iter().collect(),
        tokens_before: 1_000,
        tokens_after: 10 * count as u64,
        arm,
    };
    let searched = SelectionEventKind::Searched { message: message(), tools: Vec::new(), recovered: true };
    let (chosen, all) = (Some(Arm::Dynamic), Some(Arm::Static));
    store.record(&[event(0, "me", Some("a"), offered(3, chosen)), event(1, "me", Some("a"), searched)]).await.unwrap();
    store
        .record(&[
            event(2, "me", Some("a"), offered(5, chosen)),
            event(3, "me", Some("a"), called(&tool, CallOutcome::Success, Duration::from_millis(1), false)),
            event(4, "me", Some("b"), offered(40, all)),
            event(5, "me", Some("b"), called(&tool, CallOutcome::ToolError, Duration::from_millis(1), false)),
            event(6, "them", Some("a"), offered(7, chosen)),
            event(7, "me", None, offered(9, None)),
        ])
        .await
        .unwrap();
    let query = |minutes: u32, limit| SessionQuery { since: hour(0), until: hour(0) + Duration::from_mins(1) * minutes, limit };
    let mut report = store.session_figures(&query(60, 2)).await.unwrap();
    report.arms.sort_by_key(|arm| arm.arm);
    let counts =
        SessionCounts { selections: 3, initial_tools: 10, final_tools: 12, tokens_before: 3_000, tokens_after: 150, ..Default::default() };
    let counts = SessionCounts { searches: 1, recovered_searches: 1, calls: 1, succeeded: 1, ..counts };
    let [of_all, of_chosen] = <[ArmFigures; 2]>::try_from(report.arms).unwrap();
    assert_eq!((of_chosen.arm, of_chosen.sessions, of_chosen.counts), (chosen, 2, counts));
    assert_eq!((of_all.arm, of_all.sessions, of_all.counts.tool_errors, of_all.counts.final_tools), (all, 1, 1, 40));
    let latest: Vec<_> = report.latest.iter().map(|session| (session.arm, session.counts.initial_tools)).collect();
    assert_eq!(latest, [(chosen, 7), (all, 40)], "the last used first, as many as were asked for");
    assert_eq!(store.session_figures(&query(5, 9)).await.unwrap().latest.len(), 1, "a session counts where it was used last");
    assert_eq!(store.forget_usage_before(hour(0) + Duration::from_mins(6)).await.unwrap(), 2);
    assert_eq!(store.session_figures(&query(60, 9)).await.unwrap().latest.len(), 1);
}

pub(crate) async fn what_sessions_load_is_summed(store: &dyn Store) {
    let event = |minutes: u32, conversation: Conversation, kind| SelectionEvent {
        at: hour(0) + Duration::from_mins(1) * minutes,
        selection: None,
        principal: "me".into(),
        // The session of an address goes before a chat.
        chat: Some("chat".into()),
        conversation: Some(conversation),
        kind,
    };
    let (session, chat) = (|| Conversation::client("m"), || Conversation::chat("chat"));
    let took = Duration::from_millis;
    let loaded = |millis, before, bound| SelectionEventKind::Loaded { took: took(millis), before, bound };
    store
        .record(&[
            event(0, session(), SelectionEventKind::Listed { bound: 2 }),
            event(1, session(), loaded(3, 2, 5)),
            event(3, chat(), loaded(1, 0, 3)),
        ])
        .await
        .unwrap();
    store
        .record(&[event(4, session(), loaded(9, 5, 6)), event(5, session(), SelectionEventKind::Unloaded { before: 6, bound: 3 })])
        .await
        .unwrap();
    let query = SessionQuery { since: hour(0), until: hour(1), limit: 9 };
    let report = store.session_figures(&query).await.unwrap();
    let counts: Vec<_> =
        report.latest.iter().map(|session| (session.counts, session.longest_load.map(|longest| longest.as_millis()))).collect();
    let of_session = SessionCounts { initial_tools: 2, final_tools: 3, loads: 2, unloads: 1, ..Default::default() };
    let of_chat = SessionCounts { final_tools: 3, loads: 1, ..Default::default() };
    assert_eq!(counts, [(of_session, Some(9)), (of_chat, Some(1))]);
    let slowest = report.arms[0].load_times.quantile(1.0).unwrap().as_secs_f64() / took(9).as_secs_f64();
    assert!((0.9..1.1).contains(&slowest), "{slowest}");
}

pub(crate) async fn a_selection_is_found_by_its_principal_alone(store: &dyn Store) {
    let offered = |id: &str, principal: &str, chat: Option<&str>| SelectionEvent {
        at: SystemTime::now(),
        selection: Some(id.into()),
        principal: principal.into(),
        chat: chat.map(str::to_owned),
        conversation: None,
        kind: SelectionEventKind::Offered {
            message: EventMessage::default(),
            tools: OfferedTools::default(),
            tokens_before: 0,
            tokens_after: 0,
            arm: None,
        },
    };
    let events =
        [offered("a", "me", Some("chat")), offered("b", "me", Some("chat")), offered("c", "them", Some("chat")), offered("d", "me", None)];
    store.record(&events).await.unwrap();
    store.record(&self::events(SystemTime::now())).await.unwrap();
    let find = async |principal: &str, named| store.selection(principal, &named).await.unwrap();
    let (id, chat) = (|id: &str| SelectionName::Id(id.into()), |chat: &str| SelectionName::Chat(chat.into()));
    assert_eq!(find("me", id("a")).await.as_deref(), Some("a"));
    assert_eq!((find("them", id("a")).await, find("me", id("c")).await, find("me", id("none")).await), (None, None, None));
    assert_eq!(find("me", chat("chat")).await.as_deref(), Some("b"), "the last one");
    assert_eq!(find("them", chat("chat")).await.as_deref(), Some("c"));
    assert_eq!(find("me", chat("other")).await, None);
}

pub(crate) async fn the_last_verdict_counts(store: &dyn Store) {
    let tool = ToolId::new("server", "one");
    let feedback = |selection: &str, minutes: u32, verdict| Feedback {
        at: hour(0) + Duration::from_mins(1) * minutes,
        principal: "me".into(),
        selection: selection.into(),
        tool: tool.clone(),
        verdict,
    };
    for given in [feedback("a", 1, Verdict::Helpful), feedback("b", 2, Verdict::Missing), feedback("a", 3, Verdict::Wrong)] {
        store.save_feedback(&given).await.unwrap();
    }
    let usage = store.usage(&between(hour(0), hour(1))).await.unwrap();
    let found = &usage.tools[0];
    assert_eq!((usage.tools.len(), &found.tool, found.helpful, found.wrong, found.missing), (1, &tool, 0, 1, 1));
    assert_eq!(store.usage(&between(hour(24), hour(48))).await.unwrap(), Usage::default());
    assert_eq!(store.forget_before(hour(0), hour(1)).await.unwrap(), 2);
}

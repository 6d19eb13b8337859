//! What every implementation of the port `Store` has to keep, as functions on an empty store.
//!
//! `store_contract!(factory)` makes a test of each one; `factory` is an async function that returns an empty store
//! and whatever has to live as long as it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;
use toolsieve::domain::api_key::{ApiKey, KeyId};
use toolsieve::domain::canonical::Fingerprint;
use toolsieve::domain::chat::{ChatKey, ChatSet};
use toolsieve::domain::enrichment::{Author, Enrichment, Written};
use toolsieve::domain::policy::{Effect, RulePlace, RuleSource};
use toolsieve::domain::principal::{Principal, PrincipalId};
use toolsieve::domain::secret::{SealedSecret, SecretName, SecretPlace};
use toolsieve::domain::tool::{ServerName, ToolId};
use toolsieve::service::ports::{
    AuditAction, AuditEntry, AuditQuery, CallOutcome, SelectionEvent, SelectionEventKind, ServerListing, SkippedTool, Store, StoredPolicy,
};

macro_rules! store_contract {
    ($factory:path) => {
        $crate::store_contract::store_contract! {
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
            chats_and_events_are_forgotten_by_age,
            writers_and_readers_do_not_disturb_each_other,
            odd_texts_come_back,
            api_keys_come_back_as_they_were,
            two_keys_in_use_never_have_one_name,
            of_two_changes_of_one_policy_one_is_too_late,
            the_audit_log_is_found_by_what_it_says,
            secrets_are_kept_by_owner_server_and_name,
            a_secret_is_sealed_anew_only_if_it_is_still_the_same
        }
    };
    ($factory:path: $($name:ident),* $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let (store, _guard) = $factory().await;
            $crate::store_contract::$name(&store).await;
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
        SelectionEventKind::Offered { model: "model".into(), vector: Some(vector(1)), tools: tools.clone() },
        SelectionEventKind::Called { tool: tools[0].clone(), outcome: CallOutcome::ToolError, took: Duration::from_micros(1500) },
        SelectionEventKind::Searched { model: "model".into(), vector: None, tools: Vec::new() },
    ];
    let event = |kind| SelectionEvent { at, selection: Some("selection".into()), principal: "anyone".into(), chat: None, kind };
    kinds.into_iter().map(event).collect()
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
    store.save_chat(&mine, &set(&["a", "b"], &[])).await.unwrap();
    store.save_chat(&theirs, &ChatSet::default()).await.unwrap();
    store.save_chat(&mine, &set(&["c", "a", "b"], &["a"])).await.unwrap();
    assert_eq!(store.chat(&mine).await.unwrap(), Some(set(&["c", "a", "b"], &["a"])));
    assert_eq!(store.chat(&theirs).await.unwrap(), Some(ChatSet::default()));
    assert_eq!(store.chat(&chat("me", "other")).await.unwrap(), None);
}

pub(crate) async fn chats_and_events_are_forgotten_by_age(store: &dyn Store) {
    let now = SystemTime::now();
    let (day, hour) = (Duration::from_hours(24), Duration::from_hours(1));
    store.record(&[]).await.unwrap();
    store.record(&events(now - day)).await.unwrap();
    store.record(&events(now)).await.unwrap();
    store.save_chat(&chat("me", "chat"), &set(&["a"], &[])).await.unwrap();

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
        store.save_chat(&key, &tools).await.unwrap();
        store.save_vectors("model", &[(text(number), vector(number))]).await.unwrap();
        store.record(&events(SystemTime::now())).await.unwrap();
        assert_eq!(store.chat(&key).await.unwrap(), Some(tools));
        assert_eq!(store.vectors("model", &[text(number)]).await.unwrap()[&text(number)], vector(number));
    });
    futures::future::join_all(work).await;
}

pub(crate) async fn odd_texts_come_back(store: &dyn Store) {
    for odd in ["", "'; DROP TABLE chat_set; --", "日本 \u{1f600}", "a\nb\t\"c\"", "%_?$1"] {
        store.save_chat(&chat(odd, odd), &set(&[odd], &[])).await.unwrap();
        assert_eq!(store.chat(&chat(odd, odd)).await.unwrap(), Some(set(&[odd], &[])), "{odd:?}");
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
    let bare = ApiKey { servers: None, groups: [].into(), trusted: false, expires_at: None, ..key("a", "bare") };
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
    let saved = [call(1, "anyone", "a"), denied.clone(), change.clone()];
    store.save_audit(&[]).await.unwrap();
    store.save_audit(&saved).await.unwrap();
    let find = async |query: AuditQuery| {
        let found = store.audit(&AuditQuery { limit: if query.limit == 0 { 100 } else { query.limit }, ..query }).await.unwrap();
        assert!(found.windows(2).all(|pair| pair[0].id > pair[1].id));
        found
    };
    let entries = async |query| find(query).await.into_iter().map(|found| found.entry).collect::<Vec<_>>();
    assert_eq!(entries(AuditQuery::default()).await, [change.clone(), denied.clone(), saved[0].clone()]);
    for query in [
        AuditQuery { principal: Some("key:ci".into()), ..AuditQuery::default() },
        AuditQuery { tool: Some("b".into()), server: Some("server".into()), ..AuditQuery::default() },
        AuditQuery { decision: Some(Effect::Block), ..AuditQuery::default() },
        AuditQuery { since: Some(at(2)), until: Some(at(3)), ..AuditQuery::default() },
    ] {
        assert_eq!(entries(query.clone()).await, std::slice::from_ref(&denied), "{query:?}");
    }
    assert_eq!(entries(AuditQuery { action: Some(AuditAction::KeyCreate), ..AuditQuery::default() }).await, [change]);
    assert_eq!(entries(AuditQuery { outcome: Some(CallOutcome::ToolError), ..AuditQuery::default() }).await, [saved[0].clone()]);
    let first = find(AuditQuery { limit: 2, ..AuditQuery::default() }).await;
    let rest = find(AuditQuery { before: Some(first[1].id), ..AuditQuery::default() }).await;
    assert_eq!((first.len(), rest.len(), &rest[0].entry), (2, 1, &saved[0]));
    store.save_audit(&vec![call(9, "many", "a"); 250]).await.unwrap();
    assert_eq!(find(AuditQuery { principal: Some("many".into()), limit: 300, ..AuditQuery::default() }).await.len(), 250);
    assert_eq!(store.forget_audit_before(at(3)).await.unwrap(), 2);
    assert_eq!(find(AuditQuery { limit: 300, ..AuditQuery::default() }).await.len(), 251);
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

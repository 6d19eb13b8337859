//! The PostgreSQL store: the contract of the port, and what is particular to a server that others use too.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures::future::join_all;
use secrecy::SecretString;
use sqlx::{Connection as _, PgConnection};
use toolsieve::adapters::store::{OpenedStore, PostgresOpenError, PostgresStore, StoreCopyError, copy};
use toolsieve::domain::access::api_key::KeyId;
use toolsieve::domain::access::principal::PrincipalId;
use toolsieve::domain::access::tool_facts::ToolOverride;
use toolsieve::domain::catalog::tool::ToolId;
use toolsieve::domain::learning::evidence::EvidenceKind;
use toolsieve::domain::learning::scope::Scope;
use toolsieve::domain::selection::enrichment::{Author, Enrichment, Written};
use toolsieve::domain::toolsets::mode::{DefaultMode, Mode};
use toolsieve::domain::toolsets::session::{ID_BYTES, Session, SessionContents, SessionId};
use toolsieve::service::ports::{
    ChangeStore, ChatStore, ComputedStore, EnrichmentStore, EventStore, FeedbackStore, FollowedName, Forgotten, LearningStore,
    ListingStore, PolicyStore, SelectionEvent, SelectionName, SessionCaps, SessionSaved, SessionStore, StatePart, StoreError,
    StoreFailures, ToolOverrideStore, Unfollowed, UpkeepStore, UsageQuery, UsageStore,
};
use toolsieve::settings::PostgresSettings;
use uuid::Uuid;

use crate::harness::contracts::store::{chat, events, listing, set, store_contract, text, vector};
use crate::harness::process::database::connect;
use crate::harness::servers::postgres::{PASSWORD, Postgres, empty_store, schema, shared};
use crate::harness::wait::{LONG, eventually};

store_contract!(empty_store);

/// Two services on one schema, whose callers wait for each other as long as it takes.
async fn two_stores() -> [Arc<PostgresStore>; 2] {
    let settings = PostgresSettings { connect_timeout: Duration::from_mins(1), ..shared().settings(&schema()) };
    let open = async || Arc::new(PostgresStore::open(&settings).await.unwrap());
    [open().await, open().await]
}

#[tokio::test(flavor = "multi_thread")]
async fn many_services_start_on_a_new_schema_at_once() {
    let settings = shared().settings(&schema());
    let opened = join_all((0..8).map(|_| PostgresStore::open(&settings))).await;
    let stores: Vec<PostgresStore> = opened.into_iter().map(Result::unwrap).collect();
    let claimed = join_all(stores.iter().map(|store| store.claim_installation(Uuid::new_v4()))).await;
    let ids: BTreeSet<Uuid> = claimed.into_iter().map(Result::unwrap).collect();
    assert_eq!(ids.len(), 1, "one of them names the installation");
    stores[0].save_listing(&listing("alpha", 3)).await.unwrap();
    assert_eq!(stores[7].listings().await.unwrap(), [listing("alpha", 3)]);
}

/// A command that only looks may run beside services of an earlier version.
#[tokio::test(flavor = "multi_thread")]
async fn looking_creates_and_migrates_nothing() {
    let name = schema();
    let settings = shared().settings(&name);
    assert!(PostgresStore::open_present(&settings).await.unwrap().is_none());
    let mut connection = shared().connect().await;
    let count = "SELECT count(*) FROM information_schema.schemata WHERE schema_name = $1";
    let schemas: i64 = sqlx::query_scalar(count).bind(&name).fetch_one(&mut connection).await.unwrap();
    assert_eq!(schemas, 0);
    PostgresStore::open(&settings).await.unwrap().save_listing(&listing("alpha", 3)).await.unwrap();
    let store = PostgresStore::open_present(&settings).await.unwrap().unwrap();
    assert_eq!(store.listings().await.unwrap(), [listing("alpha", 3)]);

    let newest = format!("(SELECT max(version) FROM {name}._sqlx_migrations)");
    shared().run(&format!("DELETE FROM {name}._sqlx_migrations WHERE version = {newest}")).await;
    let refused = PostgresStore::open_present(&settings).await.unwrap_err();
    assert!(matches!(refused, PostgresOpenError::Older { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_changes_to_one_version_one_wins() {
    let stores = two_stores().await;
    let work = (0..20).map(|number| {
        let store = Arc::clone(&stores[number % 2]);
        async move {
            let chat = store.save_chat(&chat("me", "chat"), &set(&[&number.to_string()], &[]), 0).await.unwrap();
            let policy = store.save_policy(0, &number.to_string()).await.unwrap();
            let tool = store.save_tool_override(&listing_tool(), 0, Some(&ToolOverride::default())).await.unwrap();
            [chat, policy, tool]
        }
    });
    let done = join_all(work).await;
    for noun in 0..3 {
        let won: Vec<u64> = done.iter().filter_map(|versions| versions[noun]).collect();
        assert_eq!(won, [1], "noun {noun}");
    }
    // The same once there is a version.
    let second = join_all((0..20).map(|number| {
        let store = Arc::clone(&stores[number % 2]);
        async move { store.save_chat(&chat("me", "chat"), &set(&["other"], &[]), 1).await.unwrap() }
    }));
    assert_eq!(second.await.into_iter().flatten().collect::<Vec<_>>(), [2]);
}

fn listing_tool() -> ToolId {
    ToolId::new("server", "tool")
}

#[tokio::test(flavor = "multi_thread")]
async fn services_together_keep_to_the_limits_of_sessions() {
    let stores = two_stores().await;
    let caps = SessionCaps { of_one: 5, of_all: 8 };
    let at = SystemTime::now();
    let work = (0..40_u8).map(|number| {
        let store = Arc::clone(&stores[usize::from(number % 2)]);
        let session = Session {
            id: SessionId::of_bytes([number; ID_BYTES]),
            owner: PrincipalId::new(if number < 20 { "me" } else { "them" }),
            contents: SessionContents::default(),
            mode: DefaultMode::Named(Mode::Full),
            created_at: at,
            expires_at: at + Duration::from_hours(1),
        };
        async move { store.save_session(&session, caps).await.unwrap() }
    });
    let saved = join_all(work).await;
    assert!(saved.iter().any(|saved| matches!(saved, SessionSaved::Saved { .. })), "{saved:?}");
    for owner in ["me", "them"] {
        let held = stores[0].sessions(Some(&PrincipalId::new(owner)), at).await.unwrap().len();
        assert!(held <= caps.of_one, "{owner} has {held}");
    }
    assert!(stores[0].sessions(None, at).await.unwrap().len() <= caps.of_all);
}

/// Both write the same rows in opposite orders, which the server ends for one of them (deadlock).
/// Language models may write thousands of texts, and each service looks for those itself.
#[tokio::test(flavor = "multi_thread")]
async fn only_search_texts_of_administrators_count_as_changes() {
    let (store, ()) = empty_store().await;
    let written = |author: Author| Written { author, enrichment: Enrichment { function: "Says it.".into(), ..Enrichment::default() } };
    let number = async || store.state_versions().await.unwrap().parts.get(&StatePart::Enrichments).map(|change| change.number);
    store.save_enrichment(&text(1), &written(Author::Model("m".into()))).await.unwrap();
    assert_eq!(number().await, Some(0));
    for expected in [1, 2] {
        store.save_enrichment(&text(1), &written(Author::Admin)).await.unwrap();
        assert_eq!(number().await, Some(expected));
    }
    store.forget_unused_enrichments(Some("m"), &[text(1)], SystemTime::UNIX_EPOCH).await.unwrap();
    assert_eq!(number().await, Some(2), "that it is in use");
    assert!(store.remove_enrichment(&text(1), &Author::Admin).await.unwrap());
    assert_eq!(number().await, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_service_may_learn_is_learned_by_one() {
    let [one, two] = two_stores().await;
    let call = |followed| Unfollowed {
        key: Some(KeyId::new("webui")),
        principal: PrincipalId::new("user:anna"),
        vouches: false,
        scopes: [Scope::read("webui/caller=user:anna").unwrap(), Scope::read("webui/all").unwrap()].into(),
        followed,
        tool: ToolId::new("mail", "send"),
        kind: EvidenceKind::Called,
    };
    let calls = [call(FollowedName::Message("chat".into(), "message".into())), call(FollowedName::Selection("selection".into()))];
    one.save_unfollowed(&calls).await.unwrap();
    assert!(one.unfollowed().await.unwrap().is_empty(), "whoever has left it can't learn from it");
    let (numbers, left): (Vec<i64>, Vec<Unfollowed>) = two.unfollowed().await.unwrap().into_iter().unzip();
    assert_eq!(left, calls);
    assert_eq!(two.take_unfollowed(&numbers[..1]).await.unwrap(), numbers[..1]);
    assert_eq!(two.take_unfollowed(&numbers).await.unwrap(), numbers[1..], "the first one is taken already");
    one.save_unfollowed(&calls).await.unwrap();
    one.forget_learned(&Forgotten::Caller(PrincipalId::new("user:anna"))).await.unwrap();
    assert!(two.unfollowed().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_later_version_are_ignored() {
    let name = schema();
    let store = PostgresStore::open(&shared().settings(&name)).await.unwrap();
    let before = store.state_versions().await.unwrap();
    shared().run(&format!("INSERT INTO \"{name}\".state_version (part, version) VALUES ('of a later version', 7)")).await;
    assert_eq!(store.state_versions().await.unwrap(), before);
}

/// After a failover, another change may have the same number. A service of an earlier version knows no tokens, and goes on working.
#[tokio::test(flavor = "multi_thread")]
async fn each_change_has_a_token_of_its_own() {
    let name = schema();
    let store = PostgresStore::open(&shared().settings(&name)).await.unwrap();
    let policy = async || store.state_versions().await.unwrap().parts[&StatePart::Policy];
    assert_eq!(store.save_policy(0, "{}").await.unwrap(), Some(1));
    let first = policy().await;
    assert_eq!(policy().await, first);
    let earlier = format!(
        "UPDATE {name}.state_version SET version = version - 1 WHERE part IN ('all', 'policy'); UPDATE {name}.policy SET body = '{{}}'"
    );
    shared().run(&earlier).await;
    let second = policy().await;
    assert!(second.number == first.number && second.token != first.token, "{first:?} {second:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_aborts_runs_again() {
    let stores = two_stores().await;
    let now = SystemTime::now();
    let texts: Vec<_> = (0..300).map(text).collect();
    let work = (0..12).map(|number| {
        let store = Arc::clone(&stores[number % 2]);
        let (mut vectors, mut batch) = (texts.iter().map(|text| (*text, vector(1))).collect::<Vec<_>>(), events(now));
        if number % 2 == 0 {
            vectors.reverse();
            batch.reverse();
        }
        let texts = if number % 2 == 0 { texts.clone() } else { texts.iter().rev().copied().collect() };
        async move {
            store.save_vectors("model", &vectors).await.unwrap();
            store.record(&batch).await.unwrap();
            store.forget_unused("model", &texts, &[], now - Duration::from_hours(1)).await.unwrap();
        }
    });
    join_all(work).await;
    assert_eq!(stores[0].vectors("model", &texts).await.unwrap().len(), 300);
    let query = UsageQuery { since: now - Duration::from_hours(1), until: now + Duration::from_hours(1), server: None, tool: None };
    let usage = stores[1].usage(&query).await.unwrap();
    let messages = usage.days.iter().map(|day| day.messages.selections).sum::<u64>();
    assert_eq!(messages, 12, "each batch counts once");
    assert_eq!(stores[0].failures(), StoreFailures::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_with_nul_costs_no_other_record() {
    let (store, ()) = empty_store().await;
    let mut batch = events(SystemTime::now());
    batch.push(SelectionEvent { principal: "a\0b".into(), chat: Some("c\0d".into()), ..batch[0].clone() });
    batch[3].selection = Some("with nul".into());
    store.record(&batch).await.unwrap();
    let found = store.selection("a\0b", None, &SelectionName::Chat("c\0d".into())).await.unwrap();
    assert_eq!(found.as_deref(), Some("with nul"));
    store.save_chat(&chat("me", "c\0d"), &set(&["a\0b"], &[]), 0).await.unwrap();
    assert_eq!(store.chat(&chat("me", "c\0d")).await.unwrap().unwrap().set, set(&["a\0b"], &[]));
}

/// Without the password, in any form.
fn is_discreet(error: &PostgresOpenError) -> String {
    let text = format!("{error} {error:?}");
    assert!(!text.contains("geheim") && !text.contains(PASSWORD), "{text}");
    error.to_string()
}

async fn refused(settings: &PostgresSettings) -> (bool, String) {
    let error = PostgresStore::open(settings).await.unwrap_err();
    (error.is_lasting(), is_discreet(&error))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_prevents_the_start_is_explained() {
    let (server, name) = (shared(), schema());
    let settings = server.settings(&name);
    let at = |url: String| PostgresSettings { url: SecretString::from(url), ..settings.clone() };

    let nowhere = server.url().replace(&format!(":{}/", server.port), ":1/");
    let (is_lasting, text) = refused(&PostgresSettings { connect_timeout: Duration::from_secs(1), ..at(nowhere) }).await;
    assert!(!is_lasting && text.contains("can't be reached") && text.contains("127.0.0.1:1"), "{text}");

    let (is_lasting, text) = refused(&at(server.url_of("tester:geheim", "postgres"))).await;
    assert!(is_lasting && text.contains("refuses the user \"tester\"") && text.contains("store.url"), "{text}");

    let missing = server.url().replace("/postgres", "/nothing_here");
    let (is_lasting, text) = refused(&at(missing)).await;
    assert!(is_lasting && text.contains("does not exist") && text.contains("createdb"), "{text}");

    let (is_lasting, text) = refused(&at(format!("{}?sslmode=require", server.url()))).await;
    assert!(is_lasting && text.contains("no encrypted connection"), "{text}");

    for encoding in ["LATIN1", "SQL_ASCII"] {
        let database = format!("{}_{name}", encoding.to_lowercase());
        server.run(&format!("CREATE DATABASE {database} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")).await;
        let (is_lasting, text) = refused(&at(server.url().replace("/postgres", &format!("/{database}")))).await;
        assert!(is_lasting && text.contains(&format!("is encoded in {encoding}")) && text.contains("--encoding UTF8"), "{text}");
    }

    server.run(&format!("CREATE ROLE \"weak_{name}\" LOGIN PASSWORD 'geheim'")).await;
    let (is_lasting, text) = refused(&at(server.url_of(&format!("weak_{name}:geheim"), "postgres"))).await;
    assert!(is_lasting && text.contains(&format!("CREATE SCHEMA \"{name}\"")), "{text}");

    server.run(&format!("CREATE SCHEMA {name}; CREATE TABLE {name}.feedback (id int)")).await;
    let (is_lasting, text) = refused(&settings).await;
    assert!(is_lasting && text.contains("another program") && text.contains("store.schema"), "{text}");
    server.run(&format!("DROP SCHEMA {name} CASCADE")).await;

    PostgresStore::open(&settings).await.unwrap().close().await;
    server.run(&format!("INSERT INTO {name}._sqlx_migrations SELECT 9999, '', now(), true, '', 0")).await;
    // A migration of a later version that only adds something.
    let store = PostgresStore::open(&settings).await.unwrap();
    store.save_listing(&listing("alpha", 1)).await.unwrap();
    store.close().await;
    server.run(&format!("UPDATE {name}.installation SET compatible_from = 9999")).await;
    let (is_lasting, text) = refused(&settings).await;
    assert!(is_lasting && text.contains("newer version") && text.contains("9999"), "{text}");
    server
        .run(&format!("DELETE FROM {name}._sqlx_migrations WHERE version = 9999; UPDATE {name}._sqlx_migrations SET checksum = 'x'"))
        .await;
    let (is_lasting, text) = refused(&settings).await;
    assert!(is_lasting && text.contains("development build"), "{text}");
}

/// An administrator has created the schema for a user that can create none.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_of_an_administrator_is_enough() {
    let (server, name) = (shared(), schema());
    server.run(&format!("CREATE ROLE \"owner_{name}\" LOGIN PASSWORD 'pw'; CREATE SCHEMA {name} AUTHORIZATION \"owner_{name}\"")).await;
    let url = SecretString::from(server.url_of(&format!("owner_{name}:pw"), "postgres"));
    let store = PostgresStore::open(&PostgresSettings { url, ..server.settings(&name) }).await.unwrap();
    store.save_listing(&listing("alpha", 1)).await.unwrap();
}

/// The server dies while writes are under way: whatever was acknowledged is there afterwards. Meanwhile operations fail at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing_that_was_acknowledged() {
    let mut server = tokio::task::block_in_place(Postgres::start);
    assert!(!rustix::process::geteuid().is_root() || server.owner() != 0, "the server runs as root");
    let settings = PostgresSettings { connect_timeout: Duration::from_secs(2), ..server.settings("toolsieve") };
    let store = Arc::new(PostgresStore::open(&settings).await.unwrap());
    let (acknowledged, mut written) = tokio::sync::mpsc::unbounded_channel();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (store, acknowledged) = (Arc::clone(&store), acknowledged.clone());
            tokio::spawn(async move {
                for number in 0.. {
                    let key = chat(&writer.to_string(), &number.to_string());
                    if store.save_chat(&key, &set(&["a"], &[]), 0).await.is_err() {
                        return;
                    }
                    acknowledged.send(key).unwrap();
                }
            })
        })
        .collect();
    let mut keys = Vec::new();
    while keys.len() < 40 {
        keys.push(tokio::time::timeout(LONG, written.recv()).await.expect("a write in time").unwrap());
    }
    tokio::task::block_in_place(|| server.crash());
    for writer in writers {
        writer.await.unwrap();
    }
    drop(acknowledged);
    while let Some(key) = written.recv().await {
        keys.push(key);
    }

    let begun = Instant::now();
    for _ in 0..50 {
        store.listings().await.unwrap_err();
        let error = store.save_listing(&listing("alpha", 1)).await.unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("127.0.0.1") && !source.contains("geheim"), "{source}");
    }
    store.check().await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(1), "an outage costs each operation its time-out: {:?}", begun.elapsed());
    let failures = store.failures();
    assert!(failures.reads >= 50 && failures.writes >= 50, "{failures:?}");

    tokio::task::block_in_place(|| server.resume());
    eventually("the store responds again", async || store.check().await).await;
    for key in keys {
        assert!(store.chat(&key).await.unwrap().is_some(), "{key:?} was acknowledged");
    }
    store.save_listing(&listing("alpha", 1)).await.unwrap();
}

/// Somebody else ends the connections of the pool: it opens others.
#[tokio::test(flavor = "multi_thread")]
async fn lost_connections_are_replaced() {
    let (server, name) = (shared(), schema());
    server.run(&format!("CREATE ROLE \"owner_{name}\" LOGIN PASSWORD 'pw'; CREATE SCHEMA {name} AUTHORIZATION \"owner_{name}\"")).await;
    let url = SecretString::from(server.url_of(&format!("owner_{name}:pw"), "postgres"));
    let store = PostgresStore::open(&PostgresSettings { url, ..server.settings(&name) }).await.unwrap();
    store.save_listing(&listing("alpha", 1)).await.unwrap();
    server.run(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'owner_{name}'")).await;
    eventually("the store responds again", async || store.listings().await.map(drop)).await;
    assert_eq!(store.listings().await.unwrap(), [listing("alpha", 1)]);
}

/// The pool tries again and again, and would report only that it has timed out.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_free_connections_is_named_as_the_reason() {
    let (server, name) = (shared(), schema());
    let role = format!("few_{name}");
    server.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'pw' CONNECTION LIMIT 3; CREATE SCHEMA {name} AUTHORIZATION {role}")).await;
    let url = server.url_of(&format!("{role}:pw"), "postgres");
    let connect_timeout = Duration::from_secs(1);
    let settings = PostgresSettings { url: SecretString::from(url.clone()), connect_timeout, ..server.settings(&name) };
    let store = PostgresStore::open(&settings).await.unwrap();
    let connect = || async { eventually("a connection", async || PgConnection::connect(&url).await).await };
    let held = [connect().await, connect().await, connect().await];
    let says = |text: &str| text.contains("PostgreSQL has no connection left") && text.contains("lower store.max_connections");
    let text = |error: StoreError| std::error::Error::source(&error).unwrap().to_string();
    // The first one is told, and those that come during the outage.
    for _ in 0..2 {
        let reason = text(store.listings().await.unwrap_err());
        assert!(says(&reason), "{reason}");
    }
    let reason = text(store.check().await.unwrap_err());
    assert!(says(&reason), "{reason}");
    let (is_lasting, reason) = refused(&settings).await;
    assert!(!is_lasting && reason.contains("has no connection left") && reason.contains("lower store.max_connections"), "{reason}");
    drop(held);
    eventually("the store responds again", async || store.check().await).await;
}

/// Regression test: operations that found a connection hid that others found none.
#[tokio::test(flavor = "multi_thread")]
async fn too_few_free_connections_are_named_as_the_reason() {
    let (server, name) = (shared(), schema());
    let role = format!("two_{name}");
    server.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'pw' CONNECTION LIMIT 2; CREATE SCHEMA {name} AUTHORIZATION {role}")).await;
    let url = server.url_of(&format!("{role}:pw"), "postgres");
    let connect_timeout = Duration::from_secs(1);
    let settings = PostgresSettings { url: SecretString::from(url.clone()), connect_timeout, ..server.settings(&name) };
    let store = Arc::new(PostgresStore::open(&settings).await.unwrap());
    let mut other = eventually("a connection", async || PgConnection::connect(&url).await).await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("BEGIN; LOCK TABLE {name}.listing"))).execute(&mut other).await.unwrap();
    // The first operation has the only connection, and waits for the lock.
    let first = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.listings().await.map(drop) }
    });
    let mut looker = server.connect().await;
    eventually("the first operation waits", async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND wait_event_type = 'Lock'";
        let waiting: i64 = sqlx::query_scalar(waiting).bind(&role).fetch_one(&mut looker).await.unwrap();
        waiting > 0
    })
    .await;
    // The second one looks for a connection of its own until it fails. Meanwhile, the first one gets its response.
    let mut second = Box::pin(store.policy());
    assert!(futures::poll!(&mut second).is_pending());
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    first.await.unwrap().unwrap();
    let second = second.await;
    let reasons = [second.map(drop).unwrap_err(), store.check_writes().await.unwrap_err()];
    for reason in reasons.map(|error| std::error::Error::source(&error).unwrap().to_string()) {
        assert!(reason.contains("PostgreSQL has no connection left") && reason.contains("lower store.max_connections"), "{reason}");
    }
    store.check().await.unwrap();
}

/// Regression test: the write that shows whether the store takes writes needs no space, and succeeded on a full disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_of_the_server_shows_although_small_writes_succeed() {
    let (server, name) = (shared(), schema());
    let store = PostgresStore::open(&server.settings(&name)).await.unwrap();
    store.check_writes().await.unwrap();
    let refuse = "BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END";
    server
        .run(&format!(
            "CREATE FUNCTION {name}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {refuse} $$; \
             CREATE TRIGGER refuse BEFORE INSERT ON {name}.listing EXECUTE FUNCTION {name}.refuse()"
        ))
        .await;
    let refused = store.save_listing(&listing("alpha", 1)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Away { is_unsure: false, .. }), "{refused}");
    store.claim_installation(Uuid::from_u128(1)).await.unwrap();
    store.check().await.unwrap();
    let reason = std::error::Error::source(&store.check_writes().await.unwrap_err()).unwrap().to_string();
    assert!(reason.contains("PostgreSQL has no space left"), "{reason}");
}

/// From a file to the database and on to another file: everything comes along, and new rows get new numbers.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_there_and_back_is_the_same() {
    let (folder, settings) = (tempfile::tempdir().unwrap(), shared().settings(&schema()));
    let file = async |name: &str| OpenedStore::file(&folder.path().join(name)).await.unwrap();
    let (one, two) = (file("one.db").await, file("two.db").await);
    let database = OpenedStore::open(Some(&settings), folder.path()).await.unwrap();
    let now = SystemTime::now();
    let id = Uuid::new_v4();
    let original = one.port();
    original.claim_installation(id).await.unwrap();
    original.save_listing(&listing("日本", 700)).await.unwrap();
    original.save_vectors("model", &(0..600).map(|number| (text(number), vector(number))).collect::<Vec<_>>()).await.unwrap();
    original.record(&events(now)).await.unwrap();
    original.record(&[SelectionEvent { principal: "a\0b".into(), ..events(now)[0].clone() }]).await.unwrap();
    original.save_chat(&chat("me", "chat"), &set(&["a"], &["a"]), 0).await.unwrap();
    original.save_policy(0, "{}").await.unwrap();
    original.save_tool_override(&listing_tool(), 0, Some(&ToolOverride::default())).await.unwrap();

    let first = copy(&one, &database).await.unwrap();
    let counted: HashMap<&str, u64> = first.iter().map(|(table, rows)| (table.as_str(), *rows)).collect();
    assert_eq!((counted["vector"], counted["listing"], counted["selection_event"], counted["policy"]), (600, 1, 4, 1), "{counted:?}");
    assert!(counted.len() > 20, "{counted:?}");
    assert_eq!(copy(&database, &two).await.unwrap(), first);

    let query = UsageQuery { since: now - Duration::from_hours(1), until: now + Duration::from_hours(1), server: None, tool: None };
    for store in [database.port(), two.port()] {
        assert_eq!(store.installation().await.unwrap(), Some(id));
        assert_eq!(store.listings().await.unwrap(), original.listings().await.unwrap());
        let vectors = store.vectors("model", &[text(7), text(599)]).await.unwrap();
        assert_eq!((vectors[&text(7)].clone(), vectors[&text(599)].clone()), (vector(7), vector(599)));
        assert_eq!(store.chat(&chat("me", "chat")).await.unwrap(), original.chat(&chat("me", "chat")).await.unwrap());
        assert_eq!(store.policy().await.unwrap(), original.policy().await.unwrap());
        assert_eq!(store.tool_overrides().await.unwrap(), original.tool_overrides().await.unwrap());
        assert_eq!(store.usage(&query).await.unwrap().days, original.usage(&query).await.unwrap().days);
        // A number that is in use would be refused.
        store.record(&events(now)).await.unwrap();
        store.save_vectors("another model", &[(text(1), vector(1))]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_needs_an_empty_target_of_the_other_kind() {
    let (folder, settings) = (tempfile::tempdir().unwrap(), shared().settings(&schema()));
    let file = OpenedStore::file(&folder.path().join("one.db")).await.unwrap();
    let database = OpenedStore::open(Some(&settings), folder.path()).await.unwrap();
    file.port().save_listing(&listing("mine", 1)).await.unwrap();
    database.port().save_policy(0, "{}").await.unwrap();
    let error = copy(&file, &database).await.unwrap_err();
    assert!(matches!(&error, StoreCopyError::NotEmpty { table } if table == "policy"), "{error}");
    assert_eq!(database.port().listings().await.unwrap(), [], "nothing of it stays");
    let error = copy(&file, &file.clone()).await.unwrap_err();
    assert!(matches!(error, StoreCopyError::SameKind), "{error}");
}

/// Every table of the database is copied, and both databases have the same columns.
#[tokio::test(flavor = "multi_thread")]
async fn both_databases_have_the_same_tables() {
    // What services on a database share, while a file has one service: numbers of changes, rates, files and their key, what was forgotten,
    // and what others may learn.
    const ONLY: [&str; 8] = [
        "_sqlx_migrations",
        "state_version",
        "shared_rate",
        "service",
        "stored_file",
        "link_key",
        "learned_forgotten",
        "learned_unfollowed",
    ];
    // Columns that nothing writes or reads any more, and those of the one row about the installation.
    const OF_ONE: [(&str, &str); 5] = [
        ("installation", "only"),
        ("installation", "refused"),
        ("installation", "single"),
        ("selection_event", "model"),
        ("selection_event", "vector"),
    ];
    let (folder, name) = (tempfile::tempdir().unwrap(), schema());
    PostgresStore::open(&shared().settings(&name)).await.unwrap();
    let path = folder.path().join("one.db");
    OpenedStore::file(&path).await.unwrap().close().await;
    let columns = |rows: Vec<(String, String)>| -> BTreeSet<(String, String)> {
        let is_common = |(table, column): &(String, String)| !ONLY.contains(&table.as_str()) && !OF_ONE.contains(&(table, column));
        rows.into_iter().filter(is_common).collect()
    };
    let mut file = connect(&path).await;
    let query = "SELECT tables.name, columns.name FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns \
                 WHERE tables.type = 'table'";
    let of_file = columns(sqlx::query_as(query).fetch_all(&mut file).await.unwrap());
    let mut database = shared().connect().await;
    let query = "SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = $1";
    let of_database = columns(sqlx::query_as(query).bind(&name).fetch_all(&mut database).await.unwrap());
    assert_eq!(of_file, of_database);
}

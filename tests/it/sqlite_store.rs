//! The SQLite store: the contract of the port, and what is particular to a file.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use toolsieve::adapters::store::{BackupError, SqliteOpenError, SqliteStore, back_up, inspect};
use toolsieve::domain::access::api_key::{ApiKey, KeyProperties};
use toolsieve::domain::catalog::tool::{ServerName, ToolId};
use toolsieve::domain::selection::enrichment::Author;
use toolsieve::domain::selection::experiment::Arm;
use toolsieve::domain::text::json_text::JsonText;
use toolsieve::service::access::keys::Keys;
use toolsieve::service::catalog::definitions::{DefinitionCounts, Definitions, Seen};
use toolsieve::service::ports::{
    ChatStore, ComputedStore, ConnectionStore, EnrichmentStore, EventMessage, EventStore, KeyStore, ListingStore, OfferedTools,
    SelectionEvent, SelectionEventKind, StoreFailures, ToolOverrideStore, UpkeepStore,
};
use toolsieve::settings::{DefinitionChanges, DefinitionSettings};

use crate::harness::contracts::store::connections::connection;
use crate::harness::contracts::store::{chat, events, listing, set, store_contract, text, vector, written};
use crate::harness::process::database::{change, connect};

/// Vectors of one call in the test with the killed process: several statements of one transaction.
const BATCH: usize = 1000;

async fn empty_store() -> (SqliteStore, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("toolsieve.db")).await.unwrap();
    (store, folder)
}

store_contract!(empty_store);

#[tokio::test]
async fn failed_operations_are_counted() {
    let (store, folder) = empty_store().await;
    store.save_listing(&listing("alpha", 3)).await.unwrap();
    assert_eq!(store.failures(), StoreFailures::default());
    fs::rename(folder.path().join("toolsieve.db"), folder.path().join("away.db")).unwrap();
    store.save_listing(&listing("beta", 3)).await.unwrap_err();
    assert_eq!(store.failures(), StoreFailures { reads: 0, writes: 1 });
    store.close().await;
    store.listings().await.unwrap_err();
    assert_eq!(store.failures(), StoreFailures { reads: 1, writes: 1 });
}

#[tokio::test]
async fn a_closed_file_keeps_everything() {
    let (store, folder) = empty_store().await;
    let path = folder.path().join("toolsieve.db");
    store.save_listing(&listing("alpha", 3)).await.unwrap();
    store.save_vectors("model", &[(text(1), vector(1))]).await.unwrap();
    store.save_token_counts(&[(text(1), 7)]).await.unwrap();
    store.save_chat(&chat("me", "chat"), &set(&["a"], &["a"]), 0).await.unwrap();
    store.record(&events(SystemTime::UNIX_EPOCH)).await.unwrap();
    store.close().await;
    assert!(!folder.path().join("toolsieve.db-wal").exists(), "closing moves the log into the file");

    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(store.listings().await.unwrap(), [listing("alpha", 3)]);
    assert_eq!(store.vectors("model", &[text(1)]).await.unwrap()[&text(1)], vector(1));
    assert_eq!(store.token_counts(&[text(1)]).await.unwrap()[&text(1)], 7);
    assert_eq!(store.chat(&chat("me", "chat")).await.unwrap().unwrap().set, set(&["a"], &["a"]));
    assert_eq!(store.forget_before(SystemTime::UNIX_EPOCH, SystemTime::now()).await.unwrap(), 3);
}

#[tokio::test]
async fn two_handles_on_one_file_agree() {
    let (one, folder) = empty_store().await;
    let two = SqliteStore::open(&folder.path().join("toolsieve.db")).await.unwrap();
    let work = (0..50).map(|number| {
        let (writer, reader) = if number % 2 == 0 { (&one, &two) } else { (&two, &one) };
        async move {
            let key = chat("me", &number.to_string());
            writer.save_chat(&key, &set(&["a"], &[]), 0).await.unwrap();
            writer.save_vectors("model", &[(text(number), vector(number))]).await.unwrap();
            assert!(reader.chat(&key).await.unwrap().is_some());
        }
    });
    futures::future::join_all(work).await;
    let wanted: Vec<_> = (0..50).map(text).collect();
    assert_eq!(one.vectors("model", &wanted).await.unwrap(), two.vectors("model", &wanted).await.unwrap());
}

#[tokio::test]
async fn the_claims_of_a_killed_process_end() {
    let (killed, folder) = empty_store().await;
    let (signed_in, now) = (connection("user:anna", "a", "k1"), SystemTime::UNIX_EPOCH);
    let claim = async |store: &SqliteStore| store.claim_refresh(&signed_in, now, now + Duration::from_secs(40)).await.unwrap();
    killed.save_connection(&signed_in).await.unwrap();
    assert!(claim(&killed).await);

    let store = SqliteStore::open(&folder.path().join("toolsieve.db")).await.unwrap();
    assert!(!claim(&store).await, "a command that opens the file changes nothing");
    store.end_claims().await;
    assert!(claim(&store).await);
}

/// Runs itself as a child that writes and says so after each write, kills the child in the middle, and looks for
/// everything that was said.
#[tokio::test]
async fn a_killed_process_loses_nothing_that_it_acknowledged() {
    const PATH: &str = "STORE_TEST_FILE";
    const NAME: &str = "sqlite_store::a_killed_process_loses_nothing_that_it_acknowledged";
    if let Some(path) = std::env::var_os(PATH) {
        return write_and_tell(Path::new(&path)).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toolsieve.db");
    let mut done = 0;
    for round in 0..8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
            .env(PATH, &path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut written = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // Another moment of the child's life in every round.
        for line in written.by_ref() {
            done = written_number(&line).unwrap_or(done);
            if done >= (round + 1) * 5 {
                break;
            }
        }
        wait_for_a_write(&folder.path().join("toolsieve.db-wal"));
        child.kill().unwrap();
        child.wait().unwrap();
        done = written.filter_map(|line| written_number(&line)).last().unwrap_or(done);

        let store = SqliteStore::open(&path).await.unwrap();
        assert!(done >= (round + 1) * 5, "the child wrote");
        for number in 1..=done {
            assert!(store.chat(&chat("me", &number.to_string())).await.unwrap().is_some(), "chat {number} of {done}");
        }
        let texts: Vec<_> = (1..=done).map(|number| text(number * BATCH)).collect();
        assert_eq!(store.vectors("model", &texts).await.unwrap().len(), done);
        // A transaction is there as a whole or not at all.
        let next: Vec<_> = (0..BATCH).map(|offset| text((done + 1) * BATCH + offset)).collect();
        let partly = store.vectors("model", &next).await.unwrap().len();
        assert!(partly == 0 || partly == BATCH, "{partly} of {BATCH} vectors");
    }
}

/// Returns when the next write has begun, so that the kill that follows lands in the middle of one.
fn wait_for_a_write(log: &Path) {
    let state = || fs::metadata(log).ok().and_then(|metadata| Some((metadata.len(), metadata.modified().ok()?)));
    let (before, patience) = (state(), Instant::now());
    // A write within one tick of the file system's clock is not seen: the next one may be over.
    while state() == before && patience.elapsed() < Duration::from_millis(50) {
        std::thread::yield_now();
    }
}

async fn write_and_tell(path: &Path) {
    let store = SqliteStore::open(path).await.unwrap();
    let mut number = 1;
    while store.chat(&chat("me", &number.to_string())).await.unwrap().is_some() {
        number += 1;
    }
    loop {
        let vectors: Vec<_> = (0..BATCH).map(|offset| (text(number * BATCH + offset), vector(offset))).collect();
        store.save_vectors("model", &vectors).await.unwrap();
        store.save_listing(&listing("alpha", number)).await.unwrap();
        store.save_chat(&chat("me", &number.to_string()), &set(&["a"], &[]), 0).await.unwrap();
        let mut out = std::io::stdout();
        if writeln!(out, "written {number}").and_then(|()| out.flush()).is_err() {
            return; // The parent is gone.
        }
        number += 1;
    }
}

fn written_number(line: &str) -> Option<usize> {
    // The test harness prints the test's name in front of the first line.
    line.rsplit_once("written ")?.1.parse().ok()
}

#[tokio::test]
async fn a_copy_of_a_store_in_use_holds_everything_and_takes_no_files_place() {
    let (store, folder) = empty_store().await;
    let (path, copy) = (folder.path().join("toolsieve.db"), folder.path().join("backup.db"));
    store.save_listing(&listing("alpha", 3)).await.unwrap();
    back_up(&path, &copy).await.unwrap();
    store.save_listing(&listing("beta", 1)).await.unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let before = fs::read(&copy).unwrap();
    assert!(matches!(back_up(&path, &copy).await, Err(BackupError::Exists(_))));
    assert_eq!(fs::read(&copy).unwrap(), before);
    assert!(matches!(back_up(&folder.path().join("none.db"), &folder.path().join("b.db")).await, Err(BackupError::NoDatabase(_))));
    fs::write(folder.path().join("odd.db"), "no database at all, and longer than the head of one would be".repeat(9)).unwrap();
    assert!(matches!(back_up(&folder.path().join("odd.db"), &folder.path().join("b.db")).await, Err(BackupError::Copy { .. })));
    assert!(!folder.path().join("b.db").exists(), "what failed leaves nothing");
    assert_eq!(SqliteStore::open(&copy).await.unwrap().listings().await.unwrap(), [listing("alpha", 3)]);
}

#[tokio::test]
async fn a_file_that_is_no_database_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toolsieve.db");
    fs::write(&path, "not a database, but long enough to have a header of a hundred bytes: ".repeat(100)).unwrap();
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(matches!(error, SqliteOpenError::Damaged { .. }), "{error:?}");
    let message = error.to_string();
    // What is lost is told, and how to lose nothing.
    for words in [path.to_str().unwrap(), "backup", ".recover", "move", "keys, rules", "secrets"] {
        assert!(message.contains(words), "{message}");
    }
}

#[tokio::test]
async fn damage_that_is_found_later_says_what_to_do_too() {
    let (store, folder) = empty_store().await;
    let path = folder.path().join("toolsieve.db");
    for number in 0..20 {
        store.save_listing(&listing(&number.to_string(), 50)).await.unwrap();
    }
    store.close().await;
    let mut bytes = fs::read(&path).unwrap();
    let length = bytes.len();
    // Past the pages of the schema.
    bytes[16 * 4096..length - 4096].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    let message = match SqliteStore::open(&path).await {
        Err(error) => error.to_string(),
        Ok(store) => {
            let error = store.listings().await.unwrap_err();
            std::error::Error::source(&error).unwrap().to_string()
        }
    };
    assert!(message.contains(path.to_str().unwrap()) && message.contains("move"), "{message}");
}

#[tokio::test]
async fn a_newer_files_tables_are_not_touched() {
    let (store, folder) = empty_store().await;
    let path = folder.path().join("toolsieve.db");
    store.close().await;
    change(
        &path,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'from the future', TRUE, x'00', 0)",
    )
    .await;
    change(&path, "UPDATE installation SET compatible_from = 9999").await;
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(matches!(error, SqliteOpenError::Newer { migration: 9999, .. }), "{error:?}");
    assert!(error.to_string().contains("newer version"), "{error}");
}

/// A migration of a later version that only adds something.
#[tokio::test]
async fn a_newer_files_tables_are_used_if_they_say_that_this_version_may() {
    let (store, folder) = empty_store().await;
    let path = folder.path().join("toolsieve.db");
    store.save_listing(&listing("alpha", 1)).await.unwrap();
    store.close().await;
    change(
        &path,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'from the future', TRUE, x'00', 0)",
    )
    .await;
    change(&path, "ALTER TABLE listing ADD COLUMN later TEXT").await;
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(store.listings().await.unwrap(), [listing("alpha", 1)]);
    store.save_listing(&listing("beta", 2)).await.unwrap();
    store.close().await;
    let copy = folder.path().join("copy.db");
    back_up(&path, &copy).await.unwrap();
    assert_eq!(inspect(&copy).await.unwrap().schema, 9999);
    // An unknown migration that is not newer is no later version's.
    change(&path, "UPDATE _sqlx_migrations SET version = 29 WHERE version = 9999").await;
    assert!(matches!(SqliteStore::open(&path).await.unwrap_err(), SqliteOpenError::Newer { migration: 29, .. }));
}

#[tokio::test]
async fn another_programs_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toolsieve.db");
    fs::write(&path, "").unwrap();
    change(&path, "CREATE TABLE theirs (x)").await;
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(matches!(error, SqliteOpenError::Foreign { .. }), "{error:?}");
}

/// A process that was killed after sqlx had created its table and before the first migration.
#[tokio::test]
async fn a_start_that_was_killed_before_the_first_migration_is_finished_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toolsieve.db");
    fs::write(&path, "").unwrap();
    let table = "CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL, installed_on TIMESTAMP NOT NULL \
                 DEFAULT CURRENT_TIMESTAMP, success BOOLEAN NOT NULL, checksum BLOB NOT NULL, execution_time BIGINT NOT NULL)";
    change(&path, table).await;
    SqliteStore::open(&path).await.unwrap().close().await;
}

#[tokio::test]
async fn a_folder_in_its_place_and_a_missing_folder_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("none/toolsieve.db")] {
        let error = SqliteStore::open(&path).await.unwrap_err();
        assert!(matches!(error, SqliteOpenError::Create { .. }), "{error:?}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_the_file_and_its_logs() {
    use std::os::unix::fs::PermissionsExt;

    let (store, folder) = empty_store().await;
    store.save_listing(&listing("alpha", 1)).await.unwrap();
    for name in ["toolsieve.db", "toolsieve.db-wal", "toolsieve.db-shm"] {
        let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn rows_that_can_not_be_read_hide_nothing_else() {
    let (store, folder) = empty_store().await;
    let path = folder.path().join("toolsieve.db");
    store.save_listing(&listing("alpha", 1)).await.unwrap();
    store.save_listing(&listing("beta", 1)).await.unwrap();
    store.close().await;
    change(&path, "UPDATE listing SET tools = '{' WHERE server = 'alpha'").await;
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(store.listings().await.unwrap(), [listing("beta", 1)]);
}

#[tokio::test]
async fn events_lie_in_the_tables_as_documented() {
    let (store, folder) = empty_store().await;
    store.record(&events(SystemTime::UNIX_EPOCH + Duration::from_millis(1234))).await.unwrap();
    store.close().await;
    let rows = read(
        &folder.path().join("toolsieve.db"),
        "SELECT concat_ws('|', kind, at, selection, principal, outcome, took_us, kept, length(view), \
         (SELECT count(*) FROM selection_event_tool WHERE event = id)) FROM selection_event ORDER BY id",
    )
    .await;
    assert_eq!(
        rows,
        ["offered|1234|selection|anyone|600", "called|1234|selection|anyone|tool_error|1500|1", "searched|1234|selection|anyone|0"]
    );
}

/// With 1,898 tools each message of the static part of a comparison took 91 kB.
#[tokio::test]
async fn of_a_selection_that_kept_everything_only_which_tools_that_were_is_kept() {
    let (store, folder) = empty_store().await;
    let tools: Vec<ToolId> = (0..1_898).map(|number| ToolId::new("server", format!("tool{number}"))).collect();
    let offered = SelectionEventKind::Offered {
        message: EventMessage::default(),
        tools: OfferedTools::all(tools),
        tokens_before: 90_000,
        tokens_after: 90_000,
        tokens_saved: 0,
        model: None,
        arm: Some(Arm::Static),
    };
    let event = |_| SelectionEvent { kind: offered.clone(), ..events(SystemTime::now()).swap_remove(0) };
    store.record(&(0..200).map(event).collect::<Vec<_>>()).await.unwrap();
    store.close().await;
    let path = folder.path().join("toolsieve.db");
    assert_eq!(read(&path, "SELECT DISTINCT concat_ws('|', kept, length(view)) FROM selection_event").await, ["1898|32"]);
    assert_eq!(read(&path, "SELECT CAST(count(*) AS TEXT) FROM selection_event_tool").await, ["0"]);
    assert_eq!(read(&path, "SELECT CAST(sum(offered) AS TEXT) FROM usage_tool").await, [(200 * 1_898).to_string()]);
}

#[tokio::test]
async fn forgotten_events_leave_nothing_behind() {
    let (store, folder) = empty_store().await;
    store.record(&events(SystemTime::UNIX_EPOCH)).await.unwrap();
    store.forget_before(SystemTime::UNIX_EPOCH, SystemTime::now()).await.unwrap();
    store.close().await;
    let path = folder.path().join("toolsieve.db");
    assert_eq!(read(&path, "SELECT CAST(count(*) AS TEXT) FROM selection_event_tool").await, ["0"]);
}

#[tokio::test]
async fn what_no_tool_needs_goes_and_what_one_needs_stays() {
    let (store, folder) = empty_store().await;
    let path = folder.path().join("toolsieve.db");
    let month = Duration::from_hours(30 * 24);
    let texts: Vec<_> = (0..600).map(text).collect();
    let vectors: Vec<_> = (0..600).map(|number| (text(number), vector(number))).collect();
    store.save_vectors("model", &vectors).await.unwrap();
    store.save_vectors("former", &vectors[..1]).await.unwrap();
    store.save_token_counts(&[(text(1), 1), (text(2), 2)]).await.unwrap();
    change(&path, "UPDATE vector SET used_at = 5").await;
    change(&path, "UPDATE token_count SET used_at = 5").await;
    let gone = store.forget_unused("model", &texts[..500], &texts[..2], SystemTime::now() - month).await.unwrap();
    assert_eq!(gone, 100 + 1 + 1);
    assert_eq!(store.vectors("model", &texts).await.unwrap().len(), 500);
    assert_eq!(store.token_counts(&texts).await.unwrap().into_iter().collect::<Vec<_>>(), [(text(1), 1)]);
    // A second time nothing is noted and nothing goes.
    let noted = read(&path, "SELECT CAST(max(used_at) AS TEXT) FROM vector").await;
    assert_eq!(store.forget_unused("model", &[], &[], SystemTime::now() - month).await.unwrap(), 0);
    assert_eq!(read(&path, "SELECT CAST(max(used_at) AS TEXT) FROM vector").await, noted);
}

#[tokio::test]
async fn what_is_written_about_tools_that_are_gone_goes() {
    let (store, folder) = empty_store().await;
    let path = folder.path().join("toolsieve.db");
    for (tool, author) in [(1, "now"), (1, "former"), (1, "admin"), (2, "now"), (2, "admin")] {
        store.save_enrichment(&text(tool), &written(author, "a")).await.unwrap();
    }
    change(&path, "UPDATE enrichment SET used_at = 5").await;
    let month = SystemTime::now() - Duration::from_hours(30 * 24);
    assert_eq!(store.forget_unused_enrichments(Some("now"), &[text(1)], month).await.unwrap(), 3);
    assert_eq!(store.enrichments(Some("now"), &[text(1), text(2)]).await.unwrap(), [(text(1), written("admin", "a"))].into());
    store.remove_enrichment(&text(1), &Author::Admin).await.unwrap();
    assert_eq!(store.enrichments(Some("now"), &[text(1)]).await.unwrap(), [(text(1), written("now", "a"))].into());
}

#[tokio::test]
async fn what_is_over_goes_after_its_time_and_no_sooner() {
    let (store, folder) = empty_store().await;
    let path = folder.path().join("toolsieve.db");
    let (keys, stopped) = Keys::start(Arc::new(SqliteStore::open(&path).await.unwrap()), CancellationToken::new()).await.unwrap();
    for name in ["good", "revoked", "revoked-lately", "expired"] {
        keys.create(KeyProperties { name: name.to_owned(), ..KeyProperties::default() }).await.unwrap();
    }
    let id = |name: &str| keys.list().into_iter().find(|key| key.name == name).unwrap().id;
    keys.revoke(&id("revoked")).await.unwrap();
    keys.revoke(&id("revoked-lately")).await.unwrap();
    change(&path, "UPDATE api_key SET revoked_at = 5 WHERE name = 'revoked'").await;
    change(&path, "UPDATE api_key SET expires_at = 5 WHERE name = 'expired'").await;
    change(&path, "INSERT INTO chat_set (principal, chat, tools, updated_at) VALUES ('key:expired', 'c', '[]', 9e12)").await;
    let month_ago = SystemTime::now() - Duration::from_hours(30 * 24);
    assert_eq!(keys.forget_ended_before(month_ago).await.unwrap(), 2);
    let names = |keys: Vec<ApiKey>| keys.into_iter().map(|key| key.name).collect::<BTreeSet<_>>();
    let expected = BTreeSet::from(["good".to_owned(), "revoked-lately".to_owned()]);
    assert_eq!((names(keys.list()), names(store.api_keys().await.unwrap())), (expected.clone(), expected));
    assert!(store.chat(&chat("key:expired", "c")).await.unwrap().is_none(), "its name is free, and what was kept under it gone");
    drop(stopped);

    let (one, other) = (ToolId::new("server", "one"), ToolId::new("server", "other"));
    for tool in [&one, &other] {
        store.save_tool_override(tool, 0, None).await.unwrap();
    }
    change(&path, "UPDATE tool_facts SET changed_at = 5 WHERE tool = 'one'").await;
    assert_eq!(store.forget_tool_overrides_before(month_ago).await.unwrap(), [one]);
    assert_eq!(store.tool_overrides().await.unwrap().len(), 1);
}

/// As long as its server lists the tool, a definition holds, however long ago it was seen first.
#[tokio::test]
async fn a_definition_is_forgotten_long_after_its_tool_was_listed_last() {
    let (_, folder) = empty_store().await;
    let path = folder.path().join("toolsieve.db");
    let store = Arc::new(SqliteStore::open(&path).await.unwrap());
    let definitions = Definitions::start(store, DefinitionSettings::default()).await.unwrap();
    let (server, tool) = (ServerName::from("server"), ToolId::new("server", "tool"));
    let listed = Seen::listed(&JsonText::of(&json!({"name": "tool", "inputSchema": {"type": "object"}})));
    definitions.observe(&server, listed.as_slice()).await;
    let month_ago = SystemTime::now() - Duration::from_hours(30 * 24);
    for _ in 0..2 {
        change(&path, "UPDATE definition SET seen_at = 5").await;
        assert_eq!(definitions.forget_unseen_before(month_ago).await.unwrap(), 0, "it is listed");
    }
    definitions.forget_present(&server);
    assert_eq!(definitions.forget_unseen_before(month_ago).await.unwrap(), 0, "it was listed lately");
    assert!(definitions.known(&tool).is_some());
    change(&path, "UPDATE definition SET seen_at = 5").await;
    assert_eq!(definitions.forget_unseen_before(month_ago).await.unwrap(), 1);
    assert!(definitions.known(&tool).is_none());
}

/// A server that makes up names without end fills no disk, and gets nothing past a quarantine.
#[tokio::test]
async fn a_server_is_remembered_by_so_many_names_and_no_more() {
    let (_, folder) = empty_store().await;
    let path = folder.path().join("toolsieve.db");
    let many = "INSERT INTO definition (server, tool, fingerprint, body, is_new, first_seen, seen_at) \
                WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) \
                SELECT 'server', 'old' || i, zeroblob(32), '{}', 0, 1, 1 FROM n";
    change(&path, many).await;
    let tools =
        ["old1", "one-more"].map(|name| Seen::listed(&JsonText::of(&json!({"name": name, "inputSchema": {"type": "object"}}))).unwrap());
    let more = ToolId::new("server", "one-more");
    for (changes, expected) in [
        (DefinitionChanges::Quarantine, DefinitionCounts { changed: 1, withheld: 2, new: 1 }),
        (DefinitionChanges::Flag, DefinitionCounts { changed: 1, withheld: 0, new: 0 }),
    ] {
        let store = Arc::new(SqliteStore::open(&path).await.unwrap());
        let definitions = Definitions::start(store, DefinitionSettings { changes, ..DefinitionSettings::default() }).await.unwrap();
        definitions.observe(&ServerName::from("server"), &tools).await;
        assert_eq!((definitions.counts(), definitions.known(&more)), (expected, None));
    }
    assert_eq!(read(&path, "SELECT tool FROM definition WHERE tool = 'one-more'").await, Vec::<String>::new());
}

/// A user saw: a file that only ever grew.
#[tokio::test]
async fn a_file_gives_back_what_it_does_not_need_any_more() {
    let (store, folder) = empty_store().await;
    let path = folder.path().join("toolsieve.db");
    store.close().await;
    let mut connection = connect(&path).await;
    // As the version before made it.
    sqlx::raw_sql("PRAGMA auto_vacuum = NONE; VACUUM").execute(&mut connection).await.unwrap();
    sqlx::Connection::close(connection).await.unwrap();
    assert_eq!(read(&path, "SELECT CAST(auto_vacuum AS TEXT) FROM pragma_auto_vacuum").await, ["0"]);

    let store = SqliteStore::open(&path).await.unwrap();
    store.make_shrinkable().await;
    for number in 0..50 {
        store.save_listing(&listing(&number.to_string(), 500)).await.unwrap();
    }
    store.close().await;
    let full = fs::metadata(&path).unwrap().len();
    let store = SqliteStore::open(&path).await.unwrap();
    for number in 0..50 {
        store.remove_listing(&ServerName::from(number.to_string().as_str())).await.unwrap();
    }
    store.shrink().await.unwrap();
    store.close().await;
    let shrunk = fs::metadata(&path).unwrap().len();
    assert!(shrunk * 4 < full, "{full} bytes, then {shrunk}");
}

#[tokio::test]
async fn a_file_of_the_version_before_loses_nothing() {
    let (store, folder) = empty_store().await;
    let path = folder.path().join("toolsieve.db");
    store.save_vectors("model", &[(text(1), vector(1))]).await.unwrap();
    store.save_token_counts(&[(text(1), 1)]).await.unwrap();
    store.close().await;
    for statement in [
        "ALTER TABLE vector DROP COLUMN used_at",
        "ALTER TABLE token_count DROP COLUMN used_at",
        "DELETE FROM _sqlx_migrations WHERE version = 2",
    ] {
        change(&path, statement).await;
    }
    let store = SqliteStore::open(&path).await.unwrap();
    let hour_ago = SystemTime::now() - Duration::from_hours(1);
    assert_eq!(store.forget_unused("other", &[], &[], hour_ago).await.unwrap(), 0);
    assert_eq!(store.vectors("model", &[text(1)]).await.unwrap().len(), 1);
}

/// What administrators wrote stays: the sentence says what the tool does, and their messages are still searched.
#[tokio::test]
async fn enrichments_of_the_form_before_fields_are_converted() {
    let (store, folder) = empty_store().await;
    let path = folder.path().join("toolsieve.db");
    for (tool, author) in [(1, "admin"), (1, "now"), (2, "now"), (3, "admin")] {
        store.save_enrichment(&text(tool), &written(author, &format!("of tool {tool}"))).await.unwrap();
    }
    store.close().await;
    for statement in [
        "ALTER TABLE enrichment DROP COLUMN tags",
        "ALTER TABLE enrichment RENAME COLUMN function TO context",
        "DELETE FROM _sqlx_migrations WHERE version = 21",
    ] {
        change(&path, statement).await;
    }
    let store = SqliteStore::open(&path).await.unwrap();
    let former = |tool: usize| {
        let mut written = written("admin", &format!("of tool {tool}"));
        written.enrichment.tags.clear();
        (text(tool), written)
    };
    let found = store.enrichments(Some("now"), &[text(1), text(2), text(3)]).await.unwrap();
    assert_eq!(found, [former(1), former(3)].into());
    assert!(found.values().all(|written| written.enrichment.queries.len() == 2), "{found:?}");
    assert_eq!(read(&path, "SELECT model FROM enrichment").await, ["", ""], "models write anew");
}

async fn read(path: &Path, query: &'static str) -> Vec<String> {
    let mut connection = connect(path).await;
    sqlx::query_scalar(query).fetch_all(&mut connection).await.unwrap()
}

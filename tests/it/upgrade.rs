//! A data folder that an earlier version has written: everything in it is there and works. `tests/data/upgrade/README.md` says how it was
//! made.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::keys::{ADMIN, KEY};
use crate::harness::process::database::{change, connect};
use crate::harness::process::{Service, command, ended, write_config};
use crate::harness::wait::{eventually, when};
use crate::harness::{example, stdio};

/// The key in `make.py`.
const SECRETS_KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
/// The data keeps its age, so nothing in it may be too old.
const RETENTIONS: [&str; 7] = ["CHAT", "EVENT", "AUDIT", "USAGE", "UNUSED", "KEY", "DEFINITION"];

/// The servers in `make.py`.
fn servers() -> Value {
    let mine = json!({"command": example("test-stdio-server"), "args": ["list=small"], "env": {"TOKEN": "{{secret.token}}"}});
    json!({"box": stdio(&[]), "time": stdio(&["list=time"]), "mine": mine})
}

fn set(command: &mut Command) {
    command.env("TOOLSIEVE_API_KEY", KEY).env("TOOLSIEVE_ADMIN_KEY", ADMIN).env("TOOLSIEVE_SECRETS_KEY", SECRETS_KEY);
    command.env("TOOLSIEVE_ACCESS__TRUST_USERS", "true");
    for kind in RETENTIONS {
        command.env(format!("TOOLSIEVE_STORE__{kind}_RETENTION_DAYS"), "3650");
    }
}

/// A folder with the data of version 0.1.0, and what the comments in its file say.
async fn written_by_0_1_0() -> (TempDir, BTreeMap<String, String>) {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/upgrade/0.1.0.sql")).unwrap();
    let facts = text.lines().filter_map(|line| line.strip_prefix("-- ")?.split_once(": "));
    let facts: BTreeMap<String, String> = facts.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    assert_eq!(facts["program"], "toolsieve 0.1.0");
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("installation"), &facts["installation"]).unwrap();
    fs::write(data.join("toolsieve.db"), "").unwrap();
    let mut connection = connect(&data.join("toolsieve.db")).await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut connection).await.unwrap();
    sqlx::Connection::close(connection).await.unwrap();
    change(&data.join("toolsieve.db"), "UPDATE session SET expires_at = (unixepoch() + 86400) * 1000").await;
    (folder, facts)
}

async fn send(service: &Service, method: Method, path: &str, key: &str, user: Option<&str>, body: &Value) -> (StatusCode, Value) {
    let mut request = Client::new().request(method, format!("{}{path}", service.url)).bearer_auth(key).json(body);
    if let Some(user) = user {
        request = request.header("X-OpenWebUI-User-Id", user);
    }
    let response = request.send().await.unwrap();
    (response.status(), response.json().await.unwrap_or_default())
}

async fn get(service: &Service, path: &str) -> Value {
    let (status, body) = send(service, Method::GET, path, ADMIN, None, &Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{path}: {body}");
    body
}

async fn start(folder: &Path) -> Service {
    let service = Service::start(folder, &servers(), set);
    eventually("all servers have listed their tools, and all are searchable", async || {
        let ready = get(&service, "/readyz").await;
        let index = &ready["index"];
        let is_connected = ready["servers"].as_array().unwrap().iter().all(|server| server["phase"] == "connected");
        when(ready.clone(), |_| is_connected && index["state"] == "complete" && ready["tools"] != 0)
    })
    .await;
    service
}

/// The names of the tools of the servers that a message gets.
async fn selected(service: &Service, chat: &str) -> BTreeSet<String> {
    let message = json!({"messages": [{"role": "user", "content": "thanks!"}], "chat_id": chat});
    let (status, answer) = send(service, Method::POST, "/v1/filter", KEY, None, &message).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let tools = answer["tools"].as_array().unwrap().iter().filter(|tool| tool["server"].is_string());
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn operations(document: &Value) -> String {
    document["paths"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_version_0_1_0_has_stored_is_there_and_works() {
    let (folder, facts) = written_by_0_1_0().await;
    let (key, session) = (&facts["key"], &facts["session"]);
    let mut service = start(folder.path()).await;

    // Before anything is added to it.
    let usage = get(&service, "/v1/admin/usage?since=2026-11-01T00:00:00Z").await;
    let totals = &usage["totals"];
    assert_eq!((&totals["selections"], &totals["searches"], &totals["called"]), (&json!(4), &json!(1), &json!(5)), "{usage}");
    assert!(usage["tools"].as_array().unwrap().iter().any(|tool| tool["tool"] == "get_current_time" && tool["helpful"] == 4), "{usage}");
    let audit = get(&service, "/v1/admin/audit?limit=50").await;
    let calls = audit["entries"].as_array().unwrap().iter().filter(|entry| entry["action"] == "call");
    assert_eq!(calls.filter(|entry| entry["tool"] == "echo").count(), 5, "{audit}");
    let report = get(&service, "/v1/admin/report?since=2026-11-01T00:00:00Z").await;
    assert_eq!(report["arms"][1]["sessions"], 3, "{report}");

    let keys = get(&service, "/v1/admin/keys").await;
    let states: BTreeMap<&str, &str> =
        keys["keys"].as_array().unwrap().iter().map(|key| (key["name"].as_str().unwrap(), key["state"].as_str().unwrap())).collect();
    assert_eq!(states, BTreeMap::from([("ci", "active"), ("old", "revoked")]));
    let echo = json!({"text": "still here"});
    let (status, echoed) = send(&service, Method::POST, "/box/echo", key, None, &echo).await;
    assert_eq!((status, echoed), (StatusCode::OK, echo.clone()));

    // One rule names a tool, and the other one a tag that an administrator has given.
    assert_eq!(send(&service, Method::POST, "/box/process", KEY, None, &json!({})).await.0, StatusCode::NOT_FOUND);
    let (_, document) = send(&service, Method::GET, "/openapi.json", key, None, &Value::Null).await;
    assert!(operations(&document).contains("time__get_current_time") && !operations(&document).contains("time__convert_time"));
    let (_, document) = send(&service, Method::GET, "/openapi.json", KEY, None, &Value::Null).await;
    assert!(operations(&document).contains("time__convert_time"));

    let toolset = get(&service, "/v1/admin/toolsets/clock").await;
    assert_eq!((&toolset["members"], &toolset["description"]), (&json!(["time__get_current_time"]), &json!("What time it is")));
    let tool = get(&service, "/v1/admin/tools/time/convert_time").await;
    assert_eq!((&tool["tags"][0]["tag"], &tool["synonyms"]), (&json!("risky"), &json!(["world clock"])), "{tool}");
    let tool = get(&service, "/v1/admin/tools/time/get_current_time").await;
    assert!(tool["definition"]["approved_at"].is_string(), "{tool}");
    let enrichment = get(&service, "/v1/admin/enrichment/time/get_current_time").await;
    assert_eq!((&enrichment["source"], &enrichment["function"]), (&json!("admin"), &json!("Tells the hour anywhere on earth")));

    let address = format!("/s/{session}/openapi.json");
    let (status, document) = send(&service, Method::GET, &address, key, None, &Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{document}");
    assert!(operations(&document).contains("time__get_current_time") && !operations(&document).contains("box__echo"));
    assert_eq!(send(&service, Method::GET, &address, KEY, None, &Value::Null).await.0, StatusCode::NOT_FOUND, "it belongs to the key");

    // The secret is encrypted, and belongs to one user.
    assert_eq!(send(&service, Method::POST, "/mine/echo", KEY, Some("anna"), &echo).await, (StatusCode::OK, echo.clone()));
    assert_eq!(send(&service, Method::POST, "/mine/echo", KEY, Some("bob"), &echo).await.0, StatusCode::FORBIDDEN);

    // A chat keeps its tools, beside the pinned one.
    let chat = ["box__echo", "time__convert_time", "time__get_current_time"].map(str::to_owned);
    assert_eq!(selected(&service, "one").await, BTreeSet::from(chat));
    assert_eq!(selected(&service, "new").await, BTreeSet::from(["box__echo".to_owned()]));
    assert!(service.stop().success());

    let installation: Value = serde_json::from_slice(&fs::read(folder.path().join("data/installation")).unwrap()).unwrap();
    assert_eq!(installation, serde_json::from_str::<Value>(&facts["installation"]).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_of_a_later_version_is_refused_with_the_way_back() {
    let (folder, _) = written_by_0_1_0().await;
    let database = folder.path().join("data/toolsieve.db");
    change(
        &database,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9999, 'later', TRUE, x'00', 0)",
    )
    .await;
    write_config(folder.path(), &servers());
    let mut command = command(folder.path());
    set(&mut command);
    let mut process = command.args(["--port", "0"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    ended(&mut process);
    let output = process.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    // Another start would fail too, so the exit code keeps systemd from trying.
    assert_eq!(output.status.code(), Some(2), "{text}");
    for words in ["newer version", "9999", "toolsieve restore", "--force"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// Whether a migration is one after which an earlier version may still use the schema, or says that it is not.
fn is_compatible_or_says_so(number: u32, statements: &str) -> bool {
    let words = ["DROP ", "RENAME ", "DELETE FROM", "SET NOT NULL", " TYPE "];
    let code: String = statements.lines().map(|line| line.split("--").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    !words.iter().any(|word| code.contains(word)) || code.contains(&format!("UPDATE installation SET compatible_from = {number}"))
}

/// A replica of an earlier version may restart after a newer one has migrated the database.
#[test]
fn a_migration_that_takes_something_away_says_that_earlier_versions_can_not_use_the_schema() {
    let store = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/adapters/store/migrations");
    for (folder, first) in [("sqlite", 45), ("postgres", 15)] {
        for file in fs::read_dir(store.join(folder)).unwrap().map(|file| file.unwrap().path()) {
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            let number: u32 = name.split('_').next().unwrap().parse().unwrap();
            let statements = fs::read_to_string(&file).unwrap();
            assert!(number < first || is_compatible_or_says_so(number, &statements), "{folder}/{name}");
        }
    }
    assert!(is_compatible_or_says_so(50, "ALTER TABLE a ADD COLUMN b TEXT; -- DROP TABLE a"));
    assert!(!is_compatible_or_says_so(50, "ALTER TABLE a RENAME COLUMN b TO c; UPDATE installation SET compatible_from = 49;"));
    assert!(is_compatible_or_says_so(50, "DROP TABLE a;\nUPDATE installation SET compatible_from = 50;"));
}

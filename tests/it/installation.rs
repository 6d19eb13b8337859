//! A database that is gone, or another one, beside a folder whose installation had something to lose.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::keys::ADMIN;
use crate::harness::process::database::change;
use crate::harness::process::{Service, command, ended, write_config};
use crate::harness::stdio;
use crate::harness::wait::{eventually, when};

fn servers() -> Value {
    json!({"box": stdio(&[])})
}

fn set(command: &mut Command) {
    command.env("TOOLSIEVE_ADMIN_KEY", ADMIN);
}

async fn send(service: &Service, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
    let request = Client::new().request(method, format!("{}{path}", service.url)).bearer_auth(ADMIN).json(body);
    let response = request.send().await.unwrap();
    (response.status(), response.json().await.unwrap_or_default())
}

async fn block(service: &Service) {
    let rules = json!({"rules": [{"effect": "block", "tools": ["echo"]}]});
    assert_eq!(send(service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
}

/// Ran once, with this done, and stopped.
async fn used(work: impl AsyncFnOnce(&Service)) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::start(folder.path(), &servers(), set);
    work(&service).await;
    assert!(service.stop().success());
    folder
}

/// A start that must not succeed.
fn refused(folder: &Path) -> Output {
    write_config(folder, &servers());
    let mut command = command(folder);
    set(&mut command);
    let mut process = command.args(["--port", "0"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    ended(&mut process);
    process.wait_with_output().unwrap()
}

fn starts(folder: &Path) -> Service {
    Service::start(folder, &servers(), set)
}

fn remove_database(folder: &Path) {
    for name in ["toolsieve.db", "toolsieve.db-wal", "toolsieve.db-shm"] {
        let _ = fs::remove_file(folder.join("data").join(name));
    }
}

fn is_told(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    for words in ["data/installation", "Restore", "delete"] {
        assert!(text.contains(words), "{text}");
    }
}

/// A user saw: the database emptied by a bad restore, a start without a word, and the blocked tool running.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_database_does_not_open_what_its_rules_had_closed() {
    let folder = used(block).await;
    remove_database(folder.path());
    is_told(&refused(folder.path()));
    // Emptied, and asked again: what the first attempt left changes nothing.
    fs::write(folder.path().join("data/toolsieve.db"), "").unwrap();
    is_told(&refused(folder.path()));
    is_told(&refused(folder.path()));
    // Somebody else's.
    let other = used(async |service| {
        assert_eq!(send(service, Method::POST, "/v1/admin/keys", &json!({"name": "a"})).await.0, StatusCode::CREATED);
    })
    .await;
    remove_database(folder.path());
    fs::copy(other.path().join("data/toolsieve.db"), folder.path().join("data/toolsieve.db")).unwrap();
    is_told(&refused(folder.path()));
    // As the message says.
    fs::remove_file(folder.path().join("data/installation")).unwrap();
    let service = starts(folder.path());
    let (_, keys) = send(&service, Method::GET, "/v1/admin/keys", &json!({})).await;
    assert_eq!(keys["keys"][0]["name"], "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_backup_is_taken_and_a_key_counts_as_a_rule_does() {
    let folder = used(async |service| {
        assert_eq!(send(service, Method::POST, "/v1/admin/keys", &json!({"name": "a"})).await.0, StatusCode::CREATED);
    })
    .await;
    let (database, backup) = (folder.path().join("data/toolsieve.db"), folder.path().join("backup.db"));
    toolsieve::adapters::store::back_up(&database, &backup).await.unwrap();
    remove_database(folder.path());
    is_told(&refused(folder.path()));
    remove_database(folder.path());
    fs::copy(&backup, &database).unwrap();
    let service = starts(folder.path());
    let (_, keys) = send(&service, Method::GET, "/v1/admin/keys", &json!({})).await;
    assert_eq!(keys["keys"][0]["name"], "a");
}

/// A rule of the settings file blocks by a tag or a toolset. Without them it matches nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_tag_a_toolset_and_an_approval_count_as_a_rule_does() {
    let tool = "/v1/admin/tools/box/echo";
    let given = [
        ("a tag", Method::PUT, tool.to_owned(), json!({"tags": ["risky"]})),
        ("a toolset", Method::PUT, "/v1/admin/toolsets/mail".to_owned(), json!({"servers": ["box"]})),
        ("an approval", Method::POST, format!("{tool}/approve"), Value::Null),
    ];
    for (what, method, path, mut body) in given {
        let folder = used(async |service| {
            let known = eventually("the tool is published", async || {
                let (status, known) = send(service, Method::GET, tool, &json!({})).await;
                if status == StatusCode::OK && known["published"] == true { Ok(known) } else { Err(format!("{status}: {known}")) }
            })
            .await;
            if body.is_null() {
                body = json!({"fingerprint": known["definition"]["fingerprint"]});
            }
            let (status, answer) = send(service, method, &path, &body).await;
            assert!(status.is_success(), "{what}: {answer}");
        })
        .await;
        // Whatever the folder said, the next start sees it in the store.
        let file = folder.path().join("data/installation");
        let marked = fs::read_to_string(&file).unwrap();
        assert!(marked.contains("\"had_rules_or_keys\":true"), "{what}: {marked}");
        fs::write(&file, marked.replace("true", "false")).unwrap();
        let mut service = starts(folder.path());
        assert!(service.stop().success());
        assert_eq!(fs::read_to_string(&file).unwrap(), marked, "{what}");
        remove_database(folder.path());
        is_told(&refused(folder.path()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rules_and_keys_there_is_nothing_to_lose() {
    let folder = used(async |_| {}).await;
    remove_database(folder.path());
    drop(starts(folder.path()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_of_the_version_before_is_taken_over_with_its_rules() {
    let folder = used(block).await;
    let database = folder.path().join("data/toolsieve.db");
    change(&database, "DROP TABLE installation").await;
    change(&database, "DELETE FROM _sqlx_migrations WHERE version = 14").await;
    fs::remove_file(folder.path().join("data/installation")).unwrap();
    let mut service = starts(folder.path());
    assert!(service.stop().success());
    // It had rules, and the folder knows.
    remove_database(folder.path());
    is_told(&refused(folder.path()));
    fs::write(folder.path().join("data/installation"), "{").unwrap();
    assert_eq!(refused(folder.path()).status.code(), Some(2));
}

/// A user saw: a panic of the index, as a bug to report.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_whose_data_folder_was_deleted_stops_with_one_line_about_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = starts(folder.path());
    eventually("the index is on the disk", async || {
        let (_, ready) = send(&service, Method::GET, "/readyz", &json!({})).await;
        when(ready, |ready| ready["index"]["state"] == "complete" && ready["tools"].as_u64() > Some(0))
    })
    .await;
    fs::remove_dir_all(folder.path().join("data")).unwrap();
    service.stop();
    let log = service.until_logged("the next start builds the index again");
    assert!(!log.contains("panic") && log.matches("the folder of the index was deleted").count() == 1, "{log}");
}

/// A user saw: the database deleted under the service, keys acknowledged, and all of them lost at the next start.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_once_the_database_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let service = starts(folder.path());
    let (database, away) = (folder.path().join("data/toolsieve.db"), folder.path().join("away.db"));
    fs::rename(&database, &away).unwrap();
    let (status, body) = send(&service, Method::POST, "/v1/admin/keys", &json!({"name": "a"})).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert!(service.log().contains("was removed or replaced"), "{}", service.log());
    let (_, ready) = send(&service, Method::GET, "/readyz", &json!({})).await;
    assert_ne!(ready["store"]["state"], "ready", "{ready}");
    fs::write(&database, "").unwrap();
    let (status, body) = send(&service, Method::POST, "/v1/admin/keys", &json!({"name": "a"})).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "another one: {body}");
    fs::rename(&away, &database).unwrap();
    assert_eq!(send(&service, Method::POST, "/v1/admin/keys", &json!({"name": "a"})).await.0, StatusCode::CREATED);
}

/// A user saw: no start, because of a folder somebody had put there.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_among_the_files_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("data/files/lost+found")).unwrap();
    let service = Service::start(folder.path(), &servers(), |command| {
        set(command);
        command.env("TOOLSIEVE_HTTP__PUBLIC_URL", "http://example.org");
    });
    assert!(service.log().contains("lost+found"), "{}", service.log());
    assert!(folder.path().join("data/files/lost+found").is_dir());
}

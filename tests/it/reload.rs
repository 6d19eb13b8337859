//! A configuration that changes while the service runs.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolsieve::adapters::store::SqliteStore;
use toolsieve::service::catalog::reload::Trigger;
use toolsieve::service::ports::ListingStore as _;

use crate::harness::process::{Service, command, write_config};
use crate::harness::wait::{eventually, quickest, when};
use crate::harness::{Running, Start, example, stdio};

/// What was removed is gone after this time.
const GONE: Duration = Duration::from_secs(1);

async fn start(servers: Value, watch: bool) -> Running {
    let environment = vec![("TOOLSIEVE_RELOAD__WATCH", if watch { "true" } else { "false" })];
    let running = Start { servers, environment, from_files: true, ..Start::default() }.start().await;
    running.settled().await;
    running
}

async fn reload(service: &Running, servers: &Value) -> Value {
    service.configure(servers);
    service.reload.reload(Trigger::Request).await;
    service.get("/readyz").await.1["reload"].clone()
}

/// Waits for this status of a call without arguments.
async fn until_status(service: &Running, path: &str, status: StatusCode) {
    let what = format!("{path} is {status}");
    eventually(&what, async || when(service.post(path, &json!({})).await.0, |found| *found == status)).await;
}

async fn process(service: &Running, server: &str) -> u64 {
    service.post(&format!("/{server}/process"), &json!({})).await.1["pid"].as_u64().unwrap()
}

fn is_there(process: u64) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

async fn etag(service: &Running) -> String {
    let response = service.request(Method::GET, "/openapi.json").send().await.unwrap();
    response.headers()["etag"].to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_is_gone_and_what_stays_keeps_its_process() {
    let mut last = None;
    quickest("gone", GONE, async || {
        let service = start(json!({"one": stdio(&[]), "two": stdio(&[])}), false).await;
        let (one, two, before) = (process(&service, "one").await, process(&service, "two").await, etag(&service).await);
        let begun = Instant::now();
        let state = reload(&service, &json!({"three": stdio(&["list=time"]), "two": stdio(&[])})).await;
        assert_eq!((&state["state"], &state["needs_restart"]), (&json!("applied"), &json!([])), "{state}");
        until_status(&service, "/one/echo", StatusCode::NOT_FOUND).await;
        // The document follows the route by the moment that a new catalog takes.
        eventually("the document is gone", async || service.get("/one/openapi.json").await.0 == StatusCode::NOT_FOUND).await;
        let (_, document) = service.get("/openapi.json").await;
        eventually("the process is gone", async || !is_there(one)).await;
        let took = begun.elapsed();
        last = Some((service, two, before, document));
        took
    })
    .await;
    let (service, two, before, document) = last.unwrap();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.contains_key("/two/echo") && !paths.keys().any(|path| path.starts_with("/one/")));
    assert_ne!(etag(&service).await, before);
    assert_eq!(process(&service, "two").await, two);
    // Catalog and index follow.
    let body = service.settled().await;
    assert_eq!((&body["tools"], &body["ready"]), (&json!(25), &json!(true)));
    let names: Vec<&Value> = body["servers"].as_array().unwrap().iter().map(|server| &server["server"]).collect();
    assert_eq!(names, ["three", "two"]);

    let folder = service.stop().await;
    let store = SqliteStore::open(&folder.path().join("data/toolsieve.db")).await.unwrap();
    let listed: Vec<String> = store.listings().await.unwrap().iter().map(|listing| listing.server.to_string()).collect();
    assert_eq!(listed, ["three", "two"]);
    store.close().await;
}

/// Regression test: a file without servers was refused, so the removed server could still be called.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_server_can_be_removed() {
    let service = start(json!({"one": stdio(&[])}), false).await;
    let process = process(&service, "one").await;
    let state = reload(&service, &json!({})).await;
    assert_eq!(state["state"], "applied", "{state}");
    until_status(&service, "/one/echo", StatusCode::NOT_FOUND).await;
    eventually("the process is gone", async || !is_there(process)).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_tools_go_and_come_without_a_restart() {
    let with = |disabled: &[&str]| {
        let mut server = stdio(&["list=time"]);
        server["disabledTools"] = json!(disabled);
        json!({"one": stdio(&[]), "time": server})
    };
    let service = start(with(&["convert_time"]), false).await;
    let one = process(&service, "one").await;
    let published = async || service.get("/time/openapi.json").await.1["paths"].as_object().unwrap().contains_key("/convert_time");
    assert!(!published().await);
    assert_eq!(service.post("/time/convert_time", &json!({})).await.0, StatusCode::NOT_FOUND);

    let version = etag(&service).await;
    reload(&service, &with(&[])).await;
    service.until(|body| body["tools"] == 25).await;
    assert!(published().await);
    reload(&service, &with(&["convert_time"])).await;
    service.until(|body| body["tools"] == 24).await;
    assert!(!published().await);
    assert_eq!(etag(&service).await, version);
    assert_eq!(process(&service, "one").await, one);

    // Of a server that is down too: what is known of it is its last good listing.
    let folder = service.stop().await;
    let down = |disabled: &[&str]| json!({"time": {"command": "no-such-program", "disabledTools": disabled}});
    let service = Start { servers: down(&[]), folder: Some(folder), from_files: true, ..Start::default() }.start().await;
    let tools = async |count: u64| {
        service.until(|body| body["tools"] == count).await;
    };
    tools(2).await;
    reload(&service, &down(&["get_current_time"])).await;
    tools(1).await;
    let folder = service.stop().await;
    let service = Start { servers: down(&["get_current_time"]), folder: Some(folder), from_files: true, ..Start::default() }.start().await;
    service.until(|body| body["tools"] == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_file_changes_nothing_and_says_why_until_a_good_one_comes() {
    let key = Some("opensesame");
    let service = Start { servers: json!({"one": stdio(&[])}), key, from_files: true, ..Start::default() }.start().await;
    service.settled().await;
    assert_eq!(service.get("/readyz").await.1["reload"], json!({"state": "none"}));
    let one = process(&service, "one").await;

    let state = reload(&service, &json!({"docs": stdio(&[]), "none": {}, "var": {"command": "x", "args": ["${NO_SUCH_VARIABLE}"]}})).await;
    assert_eq!(state["state"], "failed");
    let problems: Vec<&str> = state["problems"].as_array().unwrap().iter().map(|problem| problem.as_str().unwrap()).collect();
    for (problem, words) in problems.iter().zip(["mcpServers.docs", "mcpServers.none", "NO_SUCH_VARIABLE"]) {
        assert!(problem.contains(words) && problem.contains("mcp.json"), "{problem}");
    }
    assert_eq!(problems.len(), 3);
    let at = state["at"].as_str().unwrap();
    assert!(at.ends_with('Z') && at.len() == 20, "{at}");
    let (status, body) = service.get("/readyz").await;
    assert_eq!((status, &body["tools"]), (StatusCode::OK, &json!(23)));
    assert_eq!(process(&service, "one").await, one);
    // Who may not know the configuration learns that there is a problem, not which.
    let anonymous: Value = service.client.get(format!("{}/readyz", service.url)).send().await.unwrap().json().await.unwrap();
    assert_eq!((&anonymous["reload"]["state"], &anonymous["reload"]["problems"]), (&json!("failed"), &json!([])));

    let state = reload(&service, &json!({"one": stdio(&[])})).await;
    assert_eq!((&state["state"], state.get("problems")), (&json!("applied"), None));
    assert_eq!(process(&service, "one").await, one);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_can_change_do_and_the_others_are_named() {
    let service = start(json!({"one": stdio(&["list=time"])}), false).await;
    let pinned = async || {
        let question = json!({"messages": [{"role": "user", "content": "thanks!"}]});
        let (_, selection) = service.post("/v1/filter", &question).await;
        selection["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "one__convert_time")
    };
    assert!(!pinned().await);
    let text = "[selection]\npinned = [\"one__convert_time\"]\n[calls]\ntimeout_seconds = 7\n[http]\nmax_body_bytes = 1000000\n[store]\nevent_retention_days = 3\n";
    fs::write(service.folder.path().join("toolsieve.toml"), text).unwrap();
    service.reload.reload(Trigger::Request).await;
    let (_, body) = service.get("/readyz").await;
    assert_eq!(body["reload"]["needs_restart"], json!(["http.max_body_bytes", "store.event_retention_days"]));
    assert!(pinned().await);

    fs::write(service.folder.path().join("toolsieve.toml"), "").unwrap();
    service.reload.reload(Trigger::Request).await;
    assert_eq!(service.get("/readyz").await.1["reload"]["needs_restart"], json!([]));
    assert!(!pinned().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_file_is_followed_however_it_is_replaced() {
    let servers = |name: &str| json!({name: stdio(&["list=time"])});
    let service = start(servers("zero"), true).await;
    let folder = service.folder.path().to_owned();
    let (config, text) = (folder.join("mcp.json"), |name: &str| json!({"mcpServers": servers(name)}).to_string());
    let listed = async |name: &str| {
        service.until(|body| body["servers"][0]["server"] == name && body["servers"][0]["phase"] == "connected").await;
    };
    // Written in place, as many editors do.
    fs::write(&config, text("one")).unwrap();
    listed("one").await;
    // Another file in its place, as the others do.
    fs::write(folder.join("mcp.json.new"), text("two")).unwrap();
    fs::rename(folder.join("mcp.json.new"), &config).unwrap();
    listed("two").await;
    // A folder that a link of it leads to, as Kubernetes does.
    let publish = |version: &str| {
        fs::create_dir(folder.join(version)).unwrap();
        fs::write(folder.join(version).join("mcp.json"), text(version)).unwrap();
        std::os::unix::fs::symlink(version, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    };
    publish("three");
    std::os::unix::fs::symlink("..data/mcp.json", folder.join("link")).unwrap();
    fs::rename(folder.join("link"), &config).unwrap();
    listed("three").await;
    publish("four");
    fs::remove_dir_all(folder.join("three")).unwrap();
    listed("four").await;
    publish("five");
    listed("five").await;
    // A broken one, and a sound one after it.
    fs::write(folder.join("five/mcp.json"), "{").unwrap();
    service.until(|body| body["reload"]["state"] == "failed").await;
    assert_eq!(service.get("/readyz").await.1["servers"][0]["server"], "five");
    fs::write(folder.join("five/mcp.json"), text("six")).unwrap();
    listed("six").await;
    assert_eq!(service.get("/readyz").await.1["reload"]["state"], "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_used_without_a_restart() {
    const ONE: &str = include_str!("../data/tls/one.pem");
    const TWO: &str = include_str!("../data/tls/two.pem");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tls.pem");
    fs::write(&file, ONE).unwrap();
    let settings = format!("[http]\ntls_certificate = {file:?}\ntls_key = {file:?}\n");
    let service =
        Start { servers: json!({"one": stdio(&[])}), from_files: true, settings, folder: Some(folder), ..Start::default() }.start().await;
    // A new client makes a new connection.
    let trusting = async |certificate: &str| {
        let certificate = reqwest::Certificate::from_pem(certificate.as_bytes()).unwrap();
        let client = reqwest::Client::builder().tls_certs_only([certificate]).build().unwrap();
        client.get(format!("{}/readyz", service.url)).send().await
    };
    assert!(trusting(ONE).await.is_ok() && trusting(TWO).await.is_err());
    fs::write(&file, TWO).unwrap();
    service.reload.reload(Trigger::Files).await;
    let response = trusting(TWO).await.unwrap();
    let body: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!((&body["reload"]["state"], &body["reload"]["needs_restart"]), (&json!("applied"), &json!([])), "{body}");
    assert!(trusting(ONE).await.is_err());
    // A file that can't be used changes nothing.
    fs::write(&file, "").unwrap();
    service.reload.reload(Trigger::Files).await;
    let body: Value = serde_json::from_str(&trusting(TWO).await.unwrap().text().await.unwrap()).unwrap();
    assert_eq!(body["reload"]["state"], "failed", "{body}");
}

#[tokio::test]
async fn a_hangup_reloads_and_the_log_has_the_plan_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let server = |token: &str, words: &[&str]| json!({"command": example("test-stdio-server"), "args": words, "env": {"TOKEN": token}});
    let before = json!({"stays": stdio(&[]), "goes": stdio(&[]), "turns": server("hunter22-first", &[]), "same": stdio(&[])});
    let mut service = Service::start(folder.path(), &before, |_| {});
    let mut same = stdio(&[]);
    same["disabledTools"] = json!(["echo"]);
    service.configure(&json!({"stays": stdio(&[]), "comes": stdio(&[]), "turns": server("hunter22-second", &["tools=1"]), "same": same}));
    service.signal(nix::sys::signal::Signal::SIGHUP);
    let log = service.until_logged("configuration reloaded");
    for words in [
        "server=turns keys=\"args, env\"",
        "server=same keys=\"disabledTools\"",
        "added=\"comes\" removed=\"goes\" changed=\"turns, same\" unchanged=\"stays\"",
    ] {
        assert!(log.contains(words), "{words} is not in {log}");
    }
    fs::write(folder.path().join("mcp.json"), "{\"mcpServers\": {\"a\": {}, \"b\": 1}}").unwrap();
    service.signal(nix::sys::signal::Signal::SIGHUP);
    let log = service.until_logged("not reloaded");
    assert!(log.contains("mcpServers.a") && service.until_logged("mcpServers.b").contains("2 problems"), "{log}");
    assert!(!service.log().contains("hunter22"));
    assert_eq!(service.stop().code(), Some(0));
}

#[tokio::test]
async fn a_stop_counts_from_the_first_moment() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let mut service = Service::start(folder.path(), &json!({"one": stdio(&[])}), |_| {});
        assert_eq!(service.stop().code(), Some(0));
    }
}

/// Regression test: a program that reads the log as JSON could not read the warnings about the configuration.
#[test]
fn with_a_json_log_warnings_about_the_configuration_are_json() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    write_config(folder.path(), &json!({}));
    let settings = folder.path().join("toolsieve.toml");
    fs::write(&settings, "[logging]\nformat = \"json\"\n[http]\napi_key = \"aaaaaaaaaaaaaaaaaaaa\"\n").unwrap();
    let output = command(folder.path()).args(["--port", &port, "--settings"]).arg(&settings).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let line = |line| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {text}"));
    let lines: Vec<Value> = text.lines().map(line).collect();
    let is_warning = |line: &&Value| line["level"] == "WARN" && line["message"].as_str().unwrap().contains("it can be guessed");
    assert_eq!(lines.iter().filter(is_warning).count(), 1, "{text}");
}

/// Regression test: a program that reads the log as JSON could not read why the service did not start.
#[test]
fn with_a_json_log_the_reason_of_a_failed_start_is_json() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let reason = |servers: &Value, code| {
        write_config(folder.path(), servers);
        let output = command(folder.path()).args(["--port", &port]).env("TOOLSIEVE_LOGGING__FORMAT", "json").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}");
        let line: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(line["level"], "ERROR", "{text}");
        line["message"].as_str().unwrap().to_owned()
    };
    let busy = reason(&json!({"one": stdio(&[])}), 1);
    assert!(busy.contains(&port) && !busy.starts_with("error"), "{busy}");
    let invalid = reason(&json!({"one": {}}), 2);
    assert!(invalid.contains("1 problem in the configuration"), "{invalid}");
}

#[test]
fn an_address_in_use_starts_nothing_and_is_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let marker = folder.path().join("started");
    write_config(folder.path(), &json!({"one": {"command": "touch", "args": [marker]}}));
    let output = command(folder.path()).args(["--port", &port]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&port) && text.contains("--port"), "{text}");
    assert!(!marker.exists() && !folder.path().join("data").exists(), "nothing was started");
}

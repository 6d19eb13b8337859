//! Servers that the API manages: added, changed, switched off, restarted and removed, in the API and on the command line.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolsieve::service::catalog::reload::Trigger;

use crate::harness::answers::published;
use crate::harness::keys::{ADMIN, KEY, SECRETS_KEY, administer, command, create, with_key};
use crate::harness::process::built::toolsieve;
use crate::harness::servers::http::HttpServer;
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, example, stdio};

/// One server in the file, an admin key, and these settings beside.
async fn start(environment: &[(&'static str, &'static str)]) -> Running {
    let environment = [&[("TOOLSIEVE_ADMIN_KEY", ADMIN)], environment].concat();
    let servers = json!({"time": stdio(&["list=time"])});
    let running = Start { servers, key: Some(KEY), environment, from_files: true, ..Start::default() }.start().await;
    running.settled().await;
    running
}

fn path(name: &str) -> String {
    format!("/v1/admin/servers/{name}")
}

fn entry(server: &HttpServer) -> Value {
    json!({"type": "streamable-http", "url": format!("http://127.0.0.1:{}/mcp", server.port)})
}

async fn put(service: &Running, name: &str, entry: &Value) -> (StatusCode, Value) {
    administer(service, Method::PUT, &path(name), entry).await
}

async fn switch(service: &Running, name: &str, enabled: bool) -> (StatusCode, Value) {
    administer(service, Method::PATCH, &path(name), &json!({"enabled": enabled})).await
}

async fn delete(service: &Running, name: &str) -> StatusCode {
    with_key(service, Method::DELETE, &path(name), ADMIN).send().await.unwrap().status()
}

/// Whether the document has a tool of this server.
async fn has(service: &Running, server: &str) -> bool {
    published(&service.get("/openapi.json").await.1).iter().any(|name| name.starts_with(&format!("{server}__")))
}

async fn audited(service: &Running, action: &str) -> Value {
    let path = format!("/v1/admin/audit?action={action}");
    eventually(&format!("{action} is in the audit log"), async || {
        let (_, log) = administer(service, Method::GET, &path, &Value::Null).await;
        when(log, |log| log["entries"].as_array().is_some_and(|entries| !entries.is_empty()))
    })
    .await["entries"][0]
        .clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_there_from_the_answer_on_until_it_is_removed() {
    let server = HttpServer::start(&["list=mail"]);
    let service = start(&[]).await;
    assert!(!has(&service, "mail").await);
    let (status, view) = put(&service, "mail", &entry(&server)).await;
    assert_eq!(status, StatusCode::CREATED, "{view}");
    assert_eq!((&view["server"], &view["managed_by"], &view["phase"]), (&json!("mail"), &json!("api"), &json!("connected")), "{view}");
    assert_eq!((&view["entry"], &view["enabled"]), (&entry(&server), &json!(true)));
    assert!(has(&service, "mail").await && has(&service, "time").await);
    let (status, called) = service.post("/mail/list_emails", &json!({})).await;
    assert!(status != StatusCode::NOT_FOUND, "{called}");
    let audit = audited(&service, "server_replace").await;
    assert_eq!((&audit["server"], &audit["principal"]), (&json!("mail"), &json!("admin")), "{audit}");

    // A new file leaves it alone, and so does a restart.
    service.configure(&json!({"time": stdio(&["list=time"]), "files": stdio(&["list=files"])}));
    service.reload.reload(Trigger::Request).await;
    service.settled().await;
    assert!(has(&service, "mail").await && has(&service, "files").await);
    let folder = service.stop().await;
    let servers = json!({"time": stdio(&["list=time"])});
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let service = Start { servers, key: Some(KEY), environment, folder: Some(folder), ..Start::default() }.start().await;
    service.settled().await;
    assert!(has(&service, "mail").await);

    let mut other = entry(&server);
    other["disabledTools"] = json!(["send_email"]);
    let (status, view) = put(&service, "mail", &other).await;
    assert_eq!((status, &view["entry"]["disabledTools"]), (StatusCode::OK, &json!(["send_email"])), "{view}");
    let names = published(&service.get("/openapi.json").await.1);
    assert!(names.contains("mail__list_emails") && !names.contains("mail__send_email"), "{names:?}");

    assert_eq!(delete(&service, "mail").await, StatusCode::NO_CONTENT);
    assert!(!has(&service, "mail").await && has(&service, "time").await);
    assert_eq!(service.post("/mail/list_emails", &json!({})).await.0, StatusCode::NOT_FOUND);
    assert_eq!(delete(&service, "mail").await, StatusCode::NOT_FOUND);
    audited(&service, "server_remove").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_the_file_can_be_switched_and_restarted_and_nothing_else() {
    let service = start(&[]).await;
    for (method, body) in [(Method::PUT, json!({"url": "http://127.0.0.1:1/mcp"})), (Method::DELETE, Value::Null)] {
        let (status, problem) = administer(&service, method, &path("time"), &body).await;
        assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("managed_by_file")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("mcp.json"), "{problem}");
    }
    let (status, view) = switch(&service, "time", false).await;
    assert_eq!((status, &view["enabled"], &view["phase"]), (StatusCode::OK, &json!(false), &Value::Null), "{view}");
    assert!(!has(&service, "time").await);
    let (status, problem) = administer(&service, Method::POST, &format!("{}/restart", path("time")), &Value::Null).await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("conflict")), "{problem}");
    service.reload.reload(Trigger::Request).await;
    assert!(!has(&service, "time").await, "a reload leaves it off");
    let (status, view) = switch(&service, "time", true).await;
    assert_eq!((status, &view["phase"], &view["managed_by"]), (StatusCode::OK, &json!("connected"), &json!("file")), "{view}");
    assert!(has(&service, "time").await);
    for (name, expected) in [("nothing", StatusCode::NOT_FOUND), ("time", StatusCode::OK)] {
        assert_eq!(switch(&service, name, true).await.0, expected, "{name}");
    }
    assert_eq!(administer(&service, Method::PATCH, &path("time"), &json!({"enabled": 1})).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(administer(&service, Method::GET, &path("nothing"), &Value::Null).await.0, StatusCode::NOT_FOUND);
    for action in ["server_disable", "server_enable"] {
        assert_eq!(audited(&service, action).await["server"], "time");
    }
}

/// The former entry was started, with its former variables.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_changes_while_it_is_off_starts_as_the_file_says() {
    let service = start(&[]).await;
    assert_eq!(switch(&service, "time", false).await.0, StatusCode::OK);
    service.configure(&json!({"time": stdio(&["list=mail"])}));
    service.reload.reload(Trigger::Files).await;
    assert_eq!(switch(&service, "time", true).await.0, StatusCode::OK);
    eventually("the tools of the new entry", async || published(&service.get("/openapi.json").await.1).contains("time__list_emails")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_replaces_the_process() {
    let servers = json!({"one": stdio(&[])});
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let service = Start { servers, key: Some(KEY), environment, ..Start::default() }.start().await;
    service.settled().await;
    let process = async || service.post("/one/process", &json!({})).await.1["pid"].as_u64().unwrap();
    let before = process().await;
    let (status, view) = administer(&service, Method::POST, &format!("{}/restart", path("one")), &Value::Null).await;
    assert_eq!((status, &view["phase"]), (StatusCode::OK, &json!("connected")), "{view}");
    let after = process().await;
    assert_ne!(before, after);
    // Nothing but a further restart restarts it.
    switch(&service, "one", true).await;
    service.reload.reload(Trigger::Request).await;
    assert_eq!(process().await, after);
    audited(&service, "server_restart").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_entries_say_what_is_wrong() {
    let service = start(&[]).await;
    let url = "https://example.org/mcp";
    for (name, body, pointer, part) in [
        ("a", json!({}), "", "neither `command` nor `url`"),
        ("a", json!([]), "", "not an object"),
        ("a", json!({"url": "ftp://example.org"}), "/url", "http or https"),
        ("a", json!({"url": url, "timeout": "soon", "tags": [1]}), "/timeout", "seconds"),
        ("a", json!({"url": "https://${HOST}/mcp"}), "/url", "variables"),
        ("a", json!({"url": url, "tags": ["$${x}"]}), "/tags/0", "variables"),
        ("a", json!({"url": url, "enabled": "yes"}), "/enabled", "true or false"),
        ("a", json!({"mcpServers": {"a": {"url": url}}}), "", "only the entry"),
        ("a", json!({"url": url, "auth": "oauth"}), "/auth", "secrets.key"),
        ("mcp", json!({"url": url}), "", "reserved"),
        ("a%2Fb", json!({"url": url}), "", "part of a url"),
    ] {
        let (status, problem) = put(&service, name, &body).await;
        assert_eq!((status, &problem["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_request")), "{body}: {problem}");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}: {problem}");
        assert!(problem["detail"].as_str().unwrap().to_lowercase().contains(part), "{body}: {problem}");
    }
    let (status, problem) = put(&service, "a", &json!({"url": url, "headers": {"X-Key": "hush"}})).await;
    assert_eq!((status, &problem["code"]), (StatusCode::NOT_IMPLEMENTED, &json!("secrets_off")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("secrets new-key") && !problem.to_string().contains("hush"), "{problem}");
    for entry in [json!({"command": "true"}), json!({"type": "stdio", "command": "true", "url": url})] {
        let (status, problem) = put(&service, "a", &entry).await;
        assert_eq!((status, &problem["code"]), (StatusCode::FORBIDDEN, &json!("commands_off")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("access.allow_commands"), "{problem}");
    }
    let response = with_key(&service, Method::PUT, &path("a"), ADMIN).body("{").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let (_, servers) = administer(&service, Method::GET, "/v1/admin/servers", &Value::Null).await;
    assert_eq!(servers["servers"].as_array().unwrap().len(), 1, "{servers}");
    // Comments are allowed as in the file, and what is merely odd is a warning.
    let text = "{\"url\": \"http://127.0.0.1:1/mcp\", // here\n \"hedaers\": {},}";
    let response = with_key(&service, Method::PUT, &path("a"), ADMIN).body(text).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    let view: Value = response.json().await.unwrap();
    assert!(view["warnings"][0].as_str().unwrap().contains("did you mean `headers`?"), "{view}");
    assert!(view["phase"] == "retrying" && view["error"].is_string(), "{view}");
    // For others, the route is one that does not exist.
    let other = async |path: &str| with_key(&service, Method::PUT, path, KEY).json(&json!({"url": url})).send().await.unwrap().status();
    assert_eq!(other(&path("b")).await, other("/v1/admin/nothing/b").await);
    let (_, servers) = administer(&service, Method::GET, "/v1/admin/servers", &Value::Null).await;
    assert_eq!(servers["servers"].as_array().unwrap().len(), 2, "{servers}");
}

/// Regression: commands that read the files knew neither the added servers nor those that were switched off.
#[tokio::test(flavor = "multi_thread")]
async fn commands_that_need_no_service_use_the_same_servers() {
    let server = HttpServer::start(&["list=mail"]);
    let service = start(&[]).await;
    assert_eq!(put(&service, "mail", &entry(&server)).await.0, StatusCode::CREATED);
    assert_eq!(put(&service, "odd", &entry(&server)).await.0, StatusCode::CREATED);
    assert_eq!(switch(&service, "time", false).await.0, StatusCode::OK);
    assert_eq!(switch(&service, "odd", false).await.0, StatusCode::OK);
    let folder = service.stop().await;
    let run = |words: &[&str], config: bool| {
        let mut command = toolsieve();
        command.args(words).arg("--data-dir").arg(folder.path().join("data"));
        if config {
            command.arg("--config").arg(folder.path().join("mcp.json"));
        }
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), error)
    };
    let is_off = "time: switched off over the API or in the console";
    for (words, config) in [
        (&["tools"][..], true),
        (&["tools", "--offline"], true),
        (&["tools", "--server", "mail"], true),
        (&["tools", "--offline", "--server", "mail"], false),
        (&["openapi"], true),
        (&["openapi", "--server", "mail"], true),
        (&["search", "read my emails", "--server", "mail"], true),
    ] {
        let (code, text, error) = run(words, config);
        let has = |name: &str| text.contains(name);
        assert_eq!(code, Some(0), "{words:?}: {text}{error}");
        assert!(has("send_email") && !has("get_current_time"), "{words:?}: {text}");
    }
    let (code, text, _) = run(&["check", "--tools"], true);
    assert!(code == Some(0) && text.contains(is_off) && text.contains("mail: streamable HTTP"), "{text}");
    assert!(text.contains("odd: switched off"), "{text}");
    let (code, text, _) = run(&["doctor", "--json", "--port", "0"], true);
    let report: Value = serde_json::from_str(&text).unwrap();
    let finding = |subject: &str| {
        let check = report["checks"].as_array().unwrap().iter().find(|check| check["subject"] == subject).cloned().unwrap_or_default();
        check["finding"].as_str().unwrap_or_default().to_owned()
    };
    assert!(code == Some(0) && finding("time").contains("switched off") && finding("mail").contains("answers"), "{report}");
    for (words, config) in [(&["tools", "--server", "time"][..], true), (&["tools", "--offline", "--server", "tmie"], false)] {
        let (code, _, error) = run(words, config);
        assert!(code == Some(2) && error.contains("there is no server") && error.contains("--data-dir"), "{words:?}: {error}");
    }
    let (code, _, error) = run(&["tools"], false);
    assert!(code == Some(2) && error.contains("--config"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_can_be_allowed() {
    let service = start(&[("TOOLSIEVE_ACCESS__ALLOW_COMMANDS", "true")]).await;
    let program = json!({"command": example("test-stdio-server"), "args": ["list=files"]});
    let (status, view) = put(&service, "files", &program).await;
    assert_eq!((status, &view["phase"]), (StatusCode::CREATED, &json!("connected")), "{view}");
    assert!(has(&service, "files").await);
    // Without the setting, the stored entry is kept and not used.
    let folder = service.stop().await;
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let servers = json!({"time": stdio(&["list=time"])});
    let service = Start { servers, key: Some(KEY), environment, folder: Some(folder), ..Start::default() }.start().await;
    service.settled().await;
    let (_, view) = administer(&service, Method::GET, &path("files"), &Value::Null).await;
    assert!(view["error"].as_str().unwrap().contains("access.allow_commands") && view["phase"].is_null(), "{view}");
    assert!(!has(&service, "files").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_values_are_sent_and_never_shown() {
    let (server, other) = (HttpServer::start(&["headers"]), HttpServer::start(&["headers"]));
    let service = start(&[("TOOLSIEVE_SECRETS_KEY", SECRETS_KEY)]).await;
    let mut hub = entry(&server);
    hub["headers"] = json!({"X-Team": "hush-hush"});
    let (status, view) = put(&service, "hub", &hub).await;
    assert_eq!((status, &view["entry"]["headers"]), (StatusCode::CREATED, &json!({"X-Team": "(stored)"})), "{view}");
    let sent = async |service: &Running| service.post("/hub/request_headers", &json!({})).await.1["x-team"].clone();
    assert_eq!(sent(&service).await, "hush-hush");
    // What was shown can be sent back.
    let mut shown = view["entry"].clone();
    shown["tags"] = json!(["team"]);
    let (status, view) = put(&service, "hub", &shown).await;
    assert_eq!((status, &view["entry"]), (StatusCode::OK, &shown), "{view}");
    assert_eq!(sent(&service).await, "hush-hush");
    // But not to anybody else.
    shown["url"] = entry(&other)["url"].clone();
    let (status, problem) = put(&service, "hub", &shown).await;
    assert_eq!((status, &problem["errors"][0]["pointer"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("/headers/X-Team")), "{problem}");
    let (_, all) = administer(&service, Method::GET, "/v1/admin/servers", &Value::Null).await;
    assert!(!all.to_string().contains("hush"), "{all}");

    let folder = service.stop().await;
    let bytes = std::fs::read(folder.path().join("data/toolsieve.db")).unwrap();
    assert!(!bytes.windows(9).any(|part| part == b"hush-hush"), "it is stored encrypted");
    let again = async |key: &'static str, folder| {
        let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_SECRETS_KEY", key)];
        let servers = json!({"time": stdio(&["list=time"])});
        let service = Start { servers, key: Some(KEY), environment, folder: Some(folder), ..Start::default() }.start().await;
        service.settled().await;
        service
    };
    let service = again(SECRETS_KEY, folder).await;
    assert_eq!(sent(&service).await, "hush-hush");
    // Regression: the error said to save the entry again, which needs the key too.
    let service = again("", service.stop().await).await;
    let (_, view) = administer(&service, Method::GET, &path("hub"), &Value::Null).await;
    let error = view["error"].as_str().unwrap();
    assert!(error.contains("set secrets.key (or TOOLSIEVE_SECRETS_KEY)") && !error.contains("save"), "{view}");
    let service = again("AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=", service.stop().await).await;
    let (_, view) = administer(&service, Method::GET, &path("hub"), &Value::Null).await;
    assert!(view["error"].as_str().unwrap().contains("another key") && view["phase"].is_null(), "{view}");
    assert_eq!(put(&service, "hub", &hub).await.0, StatusCode::OK);
    assert_eq!(sent(&service).await, "hush-hush");
}

/// Regression test: a replica with a new encryption key encrypted all values again, and with the next change of any server, the
/// replicas that didn't have this key yet dropped servers that were connected.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_runs_on_if_another_replica_has_encrypted_its_values_with_another_key() {
    use sqlx::Connection as _;
    let (server, other) = (HttpServer::start(&["headers"]), HttpServer::start(&["list=mail"]));
    let service = start(&[("TOOLSIEVE_SECRETS_KEY", SECRETS_KEY)]).await;
    let mut hub = entry(&server);
    hub["headers"] = json!({"X-Team": "hush-hush"});
    assert_eq!(put(&service, "hub", &hub).await.0, StatusCode::CREATED);
    let file = service.folder.path().join("data/toolsieve.db");
    let store = async |change: &'static str| {
        let mut database = sqlx::SqliteConnection::connect(file.to_str().unwrap()).await.unwrap();
        let changed = sqlx::query(change).execute(&mut database).await.unwrap();
        assert_eq!(changed.rows_affected(), 1);
        database.close().await.unwrap();
    };
    let state = async || {
        let (_, ready) = service.get("/readyz").await;
        ready["servers"].as_array().unwrap().iter().find(|server| server["server"] == "hub").cloned()
    };
    store("UPDATE secret SET key_id = 'new'").await;
    assert_eq!(put(&service, "mail", &entry(&other)).await.0, StatusCode::CREATED);
    assert_eq!(service.post("/hub/request_headers", &json!({})).await.1["x-team"], "hush-hush");
    let hub = state().await.unwrap();
    assert_eq!(hub["phase"], "connected", "{hub}");
    assert!(hub["error"].as_str().unwrap().contains("another key, new"), "{hub}");
    let (_, view) = administer(&service, Method::GET, &path("hub"), &Value::Null).await;
    assert_eq!(view["error"], hub["error"], "{view}");

    // A value that was changed there is another one.
    store("UPDATE secret SET updated_at = updated_at + 1").await;
    assert_eq!(delete(&service, "mail").await, StatusCode::NO_CONTENT);
    eventually("the server is gone", async || state().await.is_none() && !has(&service, "hub").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_users_stored_goes_with_the_server_or_its_address() {
    let (server, other) = (HttpServer::start(&["headers"]), HttpServer::start(&["headers"]));
    let service = start(&[("TOOLSIEVE_SECRETS_KEY", SECRETS_KEY)]).await;
    let personal = |server: &HttpServer| {
        let mut entry = entry(server);
        entry["headers"] = json!({"X-Mine": "{{secret.token}}"});
        entry
    };
    assert_eq!(put(&service, "hub", &personal(&server)).await.0, StatusCode::CREATED);
    let (_, key) = create(&service, json!({"name": "anna"})).await;
    let store = async || {
        let request = with_key(&service, Method::PUT, "/v1/secrets/hub/token", &key).json(&json!({"value": "mine"}));
        let status = request.send().await.unwrap().status();
        assert!(status.is_success(), "{status}");
    };
    let state = async || {
        let response = with_key(&service, Method::GET, "/v1/secrets", &key).send().await.unwrap();
        let list: Value = response.json().await.unwrap();
        list["secrets"].as_array().unwrap().iter().map(|secret| secret["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    store().await;
    assert_eq!(state().await, ["set"]);
    let mut tagged = personal(&server);
    tagged["tags"] = json!(["a"]);
    assert_eq!(put(&service, "hub", &tagged).await.0, StatusCode::OK);
    assert_eq!(state().await, ["set"]);
    assert_eq!(put(&service, "hub", &personal(&other)).await.0, StatusCode::OK);
    assert_eq!(state().await, ["missing"], "the secret was for the former address");
    store().await;
    assert_eq!(delete(&service, "hub").await, StatusCode::NO_CONTENT);
    assert_eq!(state().await, Vec::<String>::new());
    assert_eq!(put(&service, "hub", &personal(&server)).await.0, StatusCode::CREATED);
    assert_eq!(state().await, ["missing"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_takes_precedence_over_a_stored_entry() {
    let server = HttpServer::start(&["list=mail"]);
    let service = start(&[]).await;
    assert_eq!(put(&service, "mail", &entry(&server)).await.0, StatusCode::CREATED);
    service.configure(&json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=files"])}));
    service.reload.reload(Trigger::Request).await;
    service.settled().await;
    let (_, view) = administer(&service, Method::GET, &path("mail"), &Value::Null).await;
    assert_eq!((&view["managed_by"], &view["entry"]), (&json!("file"), &Value::Null), "{view}");
    assert!(view["error"].as_str().unwrap().contains("takes precedence"), "{view}");
    let names = published(&service.get("/openapi.json").await.1);
    assert!(names.contains("mail__read_file") && !names.contains("mail__list_emails"), "{names:?}");
    assert_eq!(delete(&service, "mail").await, StatusCode::CONFLICT);
    // The stored entry is back when the file no longer has one.
    service.configure(&json!({"time": stdio(&["list=time"])}));
    service.reload.reload(Trigger::Request).await;
    eventually("the stored server is back", async || has(&service, "mail").await).await;
    assert_eq!(delete(&service, "mail").await, StatusCode::NO_CONTENT);
}

/// Regression test: the new server was switched off, because the one of the file had been.
#[tokio::test(flavor = "multi_thread")]
async fn the_switch_of_a_former_server_of_the_file_does_not_count_for_one_of_the_api() {
    let server = HttpServer::start(&["list=mail"]);
    let service = start(&[]).await;
    let of_file = json!({"time": stdio(&["list=time"]), "fx": stdio(&["list=files"])});
    service.configure(&of_file);
    service.reload.reload(Trigger::Request).await;
    assert_eq!(switch(&service, "fx", false).await.0, StatusCode::OK);
    service.configure(&json!({"time": stdio(&["list=time"])}));
    service.reload.reload(Trigger::Request).await;
    let (status, view) = put(&service, "fx", &entry(&server)).await;
    assert_eq!((status, &view["enabled"]), (StatusCode::CREATED, &json!(true)), "{view}");
    assert!(has(&service, "fx").await);

    // A server of the API stays as it was switched.
    assert_eq!(switch(&service, "fx", false).await.0, StatusCode::OK);
    let (status, view) = put(&service, "fx", &entry(&server)).await;
    assert_eq!((status, &view["enabled"]), (StatusCode::OK, &json!(false)), "{view}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_does_the_same() {
    let server = HttpServer::start(&["list=mail"]);
    let service = start(&[("TOOLSIEVE_SECRETS_KEY", SECRETS_KEY)]).await;
    let file = service.folder.path().join("entry.json");
    let mut mail = entry(&server);
    mail["headers"] = json!({"X-Key": "hush"});
    std::fs::write(&file, format!("// of the mail server\n{mail}")).unwrap();
    let file = file.to_str().unwrap();
    let (code, out, err) = command(&service, &["servers", "put", "mail", file]);
    assert_eq!((code, out.as_str()), (Some(0), "mail is connected, with 3 tools"), "{err}");
    let (code, out, _) = command(&service, &["servers", "disable", "mail"]);
    assert_eq!((code, out.as_str()), (Some(0), "mail is off, with 0 tools"));
    let (_, out, err) = command(&service, &["servers", "export"]);
    let exported: Value = serde_json::from_str(&out).unwrap();
    let mut expected = mail.clone();
    expected["headers"]["X-Key"] = json!("${MAIL_X_KEY}");
    expected["disabled"] = json!(true);
    assert_eq!(exported, json!({"mcpServers": {"mail": expected}}));
    assert!(err.contains("MAIL_X_KEY"), "{err}");
    let (code, out, _) = command(&service, &["servers", "enable", "mail"]);
    assert_eq!((code, out.as_str()), (Some(0), "mail is connected, with 3 tools"));
    let (code, out, _) = command(&service, &["servers", "restart", "mail"]);
    assert_eq!((code, out.as_str()), (Some(0), "mail is connected, with 3 tools"));
    let (_, out, _) = command(&service, &["servers", "list"]);
    assert!(out.lines().any(|line| line.starts_with(" mail") && line.contains("api")), "{out}");
    let (code, out, _) = command(&service, &["servers", "remove", "mail"]);
    assert_eq!((code, out.as_str()), (Some(0), "mail is removed."));
    let (code, _, err) = command(&service, &["servers", "remove", "time"]);
    assert!(code == Some(1) && err.contains("is managed in"), "{err}");
    std::fs::write(file, "{\"url\": 1, \"url\": 2}").unwrap();
    let (code, _, err) = command(&service, &["servers", "put", "mail", file]);
    assert!(code == Some(2) && err.contains("duplicate key"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_reads_the_admin_routes_and_nothing_else() {
    let service = start(&[]).await;
    let (id, key) = create(&service, json!({"name": "watcher", "role": "viewer"})).await;
    let asked = async |method: Method, path: &str, body: &Value| {
        let response = with_key(&service, method, path, &key).json(body).send().await.unwrap();
        (response.status(), response.json::<Value>().await.unwrap_or_default())
    };
    for path in ["/v1/admin/servers", "/v1/admin/keys", "/v1/admin/policy", "/v1/admin/usage", "/v1/admin/tools", "/v1/admin/servers/time"]
    {
        assert_eq!(asked(Method::GET, path, &Value::Null).await.0, StatusCode::OK, "{path}");
    }
    for (method, path, body) in [
        (Method::PATCH, "/v1/admin/servers/time", json!({"enabled": false})),
        (Method::DELETE, "/v1/admin/servers/time", Value::Null),
        (Method::POST, "/v1/admin/keys", json!({"name": "mine"})),
        (Method::PUT, "/v1/admin/policy", json!({"rules": []})),
        (Method::POST, "/v1/admin/nothing", Value::Null),
    ] {
        let (status, problem) = asked(method, path, &body).await;
        assert_eq!((status, &problem["code"]), (StatusCode::FORBIDDEN, &json!("read_only_key")), "{path}: {problem}");
    }
    // It sees and calls no tools.
    let (_, document) = asked(Method::GET, "/openapi.json", &Value::Null).await;
    assert!(!published(&document).iter().any(|name| name.starts_with("time__")), "{document}");
    assert_eq!(asked(Method::POST, "/time/get_current_time", &json!({})).await.0, StatusCode::NOT_FOUND);
    let message = json!({"messages": [{"role": "user", "content": "what time is it"}]});
    assert_eq!(asked(Method::POST, "/v1/filter?explain=true", &message).await.0, StatusCode::FORBIDDEN);
    // Nor below an address that limits it.
    assert_eq!(asked(Method::GET, "/toolsets/time/v1/admin/keys", &Value::Null).await.0, StatusCode::NOT_FOUND);

    let (_, keys) = administer(&service, Method::GET, "/v1/admin/keys", &Value::Null).await;
    assert_eq!(keys["keys"][0]["role"], "viewer", "{keys}");
    for (body, parameter) in [
        (json!({"name": "a", "role": "viewer", "servers": ["time"]}), "servers"),
        (json!({"name": "a", "role": "viewer", "trusted": true}), "trusted"),
        (json!({"name": "a", "role": "admin"}), "role"),
    ] {
        let (status, problem) = administer(&service, Method::POST, "/v1/admin/keys", &body).await;
        assert_eq!((status, &problem["parameter"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!(parameter)), "{problem}");
    }
    administer(&service, Method::DELETE, &format!("/v1/admin/keys/{id}"), &Value::Null).await;
    assert_eq!(asked(Method::GET, "/v1/admin/servers", &Value::Null).await.0, StatusCode::UNAUTHORIZED);
}

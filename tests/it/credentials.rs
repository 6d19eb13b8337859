//! Servers that are called in the names of users: what users keep here, and connections of their own.

use std::sync::Arc;

use futures::future::join_all;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolsieve::service::catalog::reload::Trigger;

use crate::harness::keys::{self, ADMIN, administer, create, with_key};
use crate::harness::servers::http::HttpServer;
use crate::harness::servers::postgres;
use crate::harness::wait::eventually;
use crate::harness::{Running, Start, example, stdio};

const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const OTHER_KEY: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";

/// A service that believes its key on users, with these settings beside.
async fn start(servers: Value, folder: Option<TempDir>, environment: &[(&'static str, &'static str)]) -> Running {
    let mut all = vec![("TOOLSIEVE_ACCESS__TRUST_USERS", "true"), ("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    all.extend(environment);
    Start { servers, key: Some(keys::KEY), folder, environment: all, ..Start::default() }.start().await
}

/// A request in the name of a user.
fn of(service: &Running, user: &str, method: Method, path: &str) -> RequestBuilder {
    let request = service.request(method, path).header("X-OpenWebUI-User-Id", user);
    request.header("X-OpenWebUI-User-Email", format!("{user}@example.org")).header("X-OpenWebUI-User-Name", "%C3%84nna%20B.")
}

async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    (response.status(), response.json().await.unwrap_or_default())
}

async fn call(service: &Running, user: &str, path: &str) -> (StatusCode, Value) {
    answer(of(service, user, Method::POST, path).json(&json!({}))).await
}

async fn give(service: &Running, user: &str, place: &str, value: &str) {
    let request = of(service, user, Method::PUT, &format!("/v1/secrets/{place}")).json(&json!({"value": value}));
    let (status, body) = answer(request).await;
    assert_eq!((status, &body["state"]), (StatusCode::OK, &json!("set")), "{body}");
    assert!(!body.to_string().contains(value));
}

async fn listed(service: &Running, user: &str) -> Value {
    let (status, body) = answer(of(service, user, Method::GET, "/v1/secrets")).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body["secrets"].clone()
}

/// A server over standard streams that gets a user's secret and id.
fn personal(words: &[&str]) -> Value {
    let env = json!({"TOKEN": "{{secret.token}}", "WHO": "{{user.id}} {{user.name}}", "SHARED": "yes"});
    json!({"command": example("test-stdio-server"), "args": words, "env": env})
}

fn is_there(process: &Value) -> bool {
    kill(Pid::from_raw(i32::try_from(process.as_i64().unwrap()).unwrap()), None) != Err(Errno::ESRCH)
}

fn connections(ready: &Value) -> u64 {
    ready["servers"].as_array().unwrap().iter().filter_map(|server| server["user_connections"].as_u64()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_user_has_a_process_with_their_own_secret() {
    let service = start(json!({"mine": personal(&[])}), None, &[("TOOLSIEVE_SECRETS_KEY", KEY)]).await;
    service.settled().await;

    let (status, body) = call(&service, "anna", "/mine/environment").await;
    assert_eq!((status, &body["code"]), (StatusCode::FORBIDDEN, &json!("credentials_missing")));
    assert!(body["detail"].as_str().unwrap().contains("PUT /v1/secrets/mine/token"), "{body}");
    assert_eq!(
        listed(&service, "anna").await,
        json!([{"server": "mine", "name": "token", "state": "missing", "needed": true, "updated_at": null}])
    );

    give(&service, "anna", "mine/token", "anna-secret-1").await;
    give(&service, "bob", "mine/token", "bob-secret-1").await;
    let known = listed(&service, "anna").await;
    assert_eq!((&known[0]["state"], known.as_array().unwrap().len()), (&json!("set"), 1));
    assert!(known[0]["updated_at"].is_string() && !known.to_string().contains("secret-1"));

    let (status, body) = call(&service, "anna", "/mine/environment").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!((&body["TOKEN"], &body["WHO"], &body["SHARED"]), (&json!("anna-secret-1"), &json!("anna Änna B."), &json!("yes")));
    // By its published name too.
    let by_name = of(&service, "bob", Method::POST, "/v1/tools/call").json(&json!({"name": "mine__environment"}));
    assert_eq!(answer(by_name).await.1["TOKEN"], "bob-secret-1");
    // The process that lists in nobody's name has neither.
    let (status, body) = answer(service.request(Method::POST, "/mine/environment").json(&json!({}))).await;
    assert_eq!((status, &body["code"]), (StatusCode::FORBIDDEN, &json!("user_needed")), "{body}");

    let (_, anna) = call(&service, "anna", "/mine/process").await;
    let (_, bob) = call(&service, "bob", "/mine/process").await;
    assert_ne!(anna["pid"], bob["pid"]);
    give(&service, "anna", "mine/token", "anna-secret-2").await;
    let (_, body) = call(&service, "anna", "/mine/environment").await;
    assert_eq!(body["TOKEN"], "anna-secret-2");
    eventually("the process with the former secret ends", async || !is_there(&anna["pid"])).await;
    assert_eq!(call(&service, "bob", "/mine/process").await.1["pid"], bob["pid"], "others keep theirs");

    let (status, _) = answer(of(&service, "bob", Method::DELETE, "/v1/secrets/mine/token")).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    eventually("the process with the removed secret ends", async || !is_there(&bob["pid"])).await;
    assert_eq!(call(&service, "bob", "/mine/environment").await.0, StatusCode::FORBIDDEN);
    assert_eq!(answer(of(&service, "bob", Method::DELETE, "/v1/secrets/mine/token")).await.0, StatusCode::NOT_FOUND);

    eventually("the audit log says so, without values", async || {
        let (_, audit) = administer(&service, Method::GET, "/v1/admin/audit?limit=100", &json!(null)).await;
        let text = audit.to_string();
        assert!(!text.contains("secret-1") && !text.contains("secret-2"), "{text}");
        ["secret_replace", "secret_remove", "mine/token", "user:bob"].iter().all(|word| text.contains(word))
    })
    .await;
    // One that dies is made anew by the next call.
    let (_, killed) = call(&service, "anna", "/mine/process").await;
    kill(Pid::from_raw(i32::try_from(killed["pid"].as_i64().unwrap()).unwrap()), Signal::SIGKILL).unwrap();
    eventually("there is another process", async || {
        let (status, body) = call(&service, "anna", "/mine/process").await;
        status == StatusCode::OK && body["pid"] != killed["pid"]
    })
    .await;
    let (_, anna) = call(&service, "anna", "/mine/process").await;
    let folder = service.stop().await;
    assert!(!is_there(&anna["pid"]), "no process is left");
    for file in ["toolsieve.db", "toolsieve.db-wal"] {
        let bytes = std::fs::read(folder.path().join("data").join(file)).unwrap_or_default();
        assert!(!bytes.windows(13).any(|part| part == b"anna-secret-2"), "{file}");
    }
}

/// Regression test: the processes of other services kept the former secret until they were idle for long.
#[tokio::test(flavor = "multi_thread")]
async fn processes_with_a_former_secret_end_in_every_service() {
    let (url, name): (&'static str, &'static str) = (postgres::shared().url().leak(), postgres::schema().leak());
    let environment = [("TOOLSIEVE_SECRETS_KEY", KEY), ("DATABASE_URL", url), ("TOOLSIEVE_STORE__SCHEMA", name)];
    let one = start(json!({"mine": personal(&[])}), None, &environment).await;
    let two = start(json!({"mine": personal(&[])}), None, &environment).await;
    one.settled().await;
    two.settled().await;
    give(&one, "anna", "mine/token", "anna-secret-1").await;
    give(&one, "bob", "mine/token", "bob-secret-1").await;
    let mut processes = Vec::new();
    for user in ["anna", "bob"] {
        let (status, process) = call(&two, user, "/mine/process").await;
        assert_eq!(status, StatusCode::OK, "{process}");
        processes.push(process["pid"].clone());
    }
    // The other service learns of it without a call.
    give(&one, "anna", "mine/token", "anna-secret-2").await;
    eventually("the process with the former secret ends", async || !is_there(&processes[0])).await;
    assert!(is_there(&processes[1]), "others keep theirs");
    assert_eq!(call(&two, "anna", "/mine/environment").await.1["TOKEN"], "anna-secret-2");
    let removed = of(&one, "bob", Method::DELETE, "/v1/secrets/mine/token");
    assert_eq!(answer(removed).await.0, StatusCode::NO_CONTENT);
    eventually("the process with the removed secret ends", async || !is_there(&processes[1])).await;
    assert_eq!(call(&two, "bob", "/mine/process").await.0, StatusCode::FORBIDDEN);

    // Without a notification, a call finds the change.
    let (_, before) = call(&two, "anna", "/mine/process").await;
    postgres::shared().run(&format!("ALTER TABLE \"{name}\".secret DISABLE TRIGGER USER")).await;
    give(&one, "anna", "mine/token", "anna-secret-3").await;
    assert_eq!(call(&two, "anna", "/mine/environment").await.1["TOKEN"], "anna-secret-3");
    eventually("the process with the former secret ends", async || !is_there(&before["pid"])).await;
    drop((one, two));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_users_at_once_never_have_each_others_credentials() {
    let http = HttpServer::start(&["headers"]);
    let url = format!("http://127.0.0.1:{}/mcp", http.port);
    let servers = json!({
        "http": {"type": "streamable-http", "url": url, "headers": {
            "Authorization": "Bearer {{secret.token}}", "X-User": "{{user.email}} {{user.name}}", "X-Fixed": "1",
        }, "client_header_forwarding": {"enabled": true}},
        "stdio": personal(&[]),
    });
    let service = Arc::new(start(servers, None, &[("TOOLSIEVE_SECRETS_KEY", KEY)]).await);
    service.settled().await;
    let users: Vec<String> = (0..6).map(|number| format!("user{number}")).collect();
    for user in &users {
        give(&service, user, "http/token", &format!("http-of-{user}")).await;
        give(&service, user, "stdio/token", &format!("stdio-of-{user}")).await;
    }
    let round = |number: usize| {
        let (service, user) = (Arc::clone(&service), users[number % users.len()].clone());
        async move {
            // Who says to be somebody else is not believed.
            let request = of(&service, &user, Method::POST, "/http/request_headers").header("X-User", "user0@example.org").json(&json!({}));
            let (status, seen) = answer(request).await;
            assert_eq!(status, StatusCode::OK, "{seen}");
            assert_eq!(seen["authorization"], format!("Bearer http-of-{user}"));
            assert_eq!((&seen["x-user"], &seen["x-fixed"]), (&json!(format!("{user}@example.org %C3%84nna B.")), &json!("1")));
            let (status, seen) = call(&service, &user, "/stdio/environment").await;
            assert_eq!((status, &seen["TOKEN"]), (StatusCode::OK, &json!(format!("stdio-of-{user}"))), "{seen}");
        }
    };
    for batch in 0..10 {
        join_all((0..60).map(|number| round(batch * 60 + number))).await;
    }
    let ready = service.get("/readyz").await.1;
    assert_eq!(connections(&ready), 12, "{ready}");
    let sessions = async || {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sessions"}});
        let answer: Value = service.client.post(&url).json(&call).send().await.unwrap().json().await.unwrap();
        answer["result"]["structuredContent"]["sessions"].as_u64().unwrap()
    };
    assert_eq!(sessions().await, 7, "one for each user and one to list");
    for user in &users {
        let (status, body) = administer(&service, Method::DELETE, &format!("/v1/admin/secrets/user%3A{user}"), &json!(null)).await;
        assert_eq!((status, &body["removed"]), (StatusCode::OK, &json!(2)));
        assert_eq!(call(&service, user, "/http/echo").await.0, StatusCode::FORBIDDEN);
    }
    eventually("their sessions are ended", async || sessions().await == 1).await;
    assert_eq!(connections(&service.get("/readyz").await.1), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_secrets_and_a_wrong_key_is_reported() {
    let servers = || json!({"mine": personal(&[])});
    let service = start(servers(), None, &[("TOOLSIEVE_SECRETS_KEY", KEY)]).await;
    service.settled().await;
    give(&service, "anna", "mine/token", "kept-secret").await;
    let folder = service.stop().await;

    let service = start(servers(), Some(folder), &[("TOOLSIEVE_SECRETS_KEY", KEY)]).await;
    assert_eq!(call(&service, "anna", "/mine/environment").await.1["TOKEN"], "kept-secret");
    let folder = service.stop().await;

    let service = start(servers(), Some(folder), &[("TOOLSIEVE_SECRETS_KEY", OTHER_KEY)]).await;
    assert_eq!(listed(&service, "anna").await[0]["state"], "unreadable");
    let (status, body) = call(&service, "anna", "/mine/environment").await;
    let detail = body["detail"].as_str().unwrap();
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    assert!(
        detail.contains("encrypted with another key") && detail.contains("secrets.former_keys") && !detail.contains("missing"),
        "{detail}"
    );
    let folder = service.stop().await;

    let former = key_ids(&folder.path().join("data/toolsieve.db")).await;
    // Both keys: it is read, and sealed with the new one.
    let environment = [("TOOLSIEVE_SECRETS_KEY", OTHER_KEY), ("TOOLSIEVE_SECRETS__FORMER_KEYS", KEY)];
    let service = start(servers(), Some(folder), &environment).await;
    assert_eq!(call(&service, "anna", "/mine/environment").await.1["TOKEN"], "kept-secret");
    let path = service.folder.path().join("data/toolsieve.db");
    eventually("it is sealed with the new key", async || key_ids(&path).await != former).await;
    let folder = service.stop().await;
    let service = start(servers(), Some(folder), &[("TOOLSIEVE_SECRETS_KEY", OTHER_KEY)]).await;
    assert_eq!(call(&service, "anna", "/mine/environment").await.1["TOKEN"], "kept-secret");
    let folder = service.stop().await;

    let service = start(servers(), Some(folder), &[]).await;
    for request in
        [of(&service, "anna", Method::GET, "/v1/secrets"), of(&service, "anna", Method::POST, "/mine/environment").json(&json!({}))]
    {
        let (status, body) = answer(request).await;
        assert_eq!((status, &body["code"]), (StatusCode::NOT_IMPLEMENTED, &json!("secrets_off")));
        assert!(body["detail"].as_str().unwrap().contains("secrets.key"), "{body}");
    }
}

async fn key_ids(path: &std::path::Path) -> Vec<String> {
    use sqlx::Connection as _;
    let mut database = sqlx::SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    sqlx::query_scalar("SELECT DISTINCT key_id FROM secret").fetch_all(&mut database).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_end_when_nobody_uses_them_and_when_others_need_their_place() {
    let environment = [
        ("TOOLSIEVE_SECRETS_KEY", KEY),
        ("TOOLSIEVE_USER_CONNECTIONS__IDLE_SECONDS", "2"),
        ("TOOLSIEVE_USER_CONNECTIONS__PER_SERVER", "2"),
    ];
    let service = Arc::new(start(json!({"mine": personal(&["list=small"])}), None, &environment).await);
    service.settled().await;
    let mut processes = Vec::new();
    for user in ["anna", "bob", "carla"] {
        give(&service, user, "mine/token", user).await;
        let (status, body) = call(&service, user, "/mine/process").await;
        assert_eq!(status, StatusCode::OK, "{body}");
        processes.push(body["pid"].clone());
    }
    assert!(connections(&service.get("/readyz").await.1) <= 2);
    eventually("the one that was not used for the longest time ends", async || !is_there(&processes[0])).await;

    // While both are in use, there is no place for a third.
    let hanging = ["bob", "carla"].map(|user| {
        let service = Arc::clone(&service);
        // A place that is taken at this moment is free in the next.
        tokio::spawn(async move { while call(&service, user, "/mine/sleep").await.0 == StatusCode::SERVICE_UNAVAILABLE {} })
    });
    eventually("both are in use", async || {
        let response = of(&service, "anna", Method::POST, "/mine/process").json(&json!({})).send().await.unwrap();
        let is_full = response.status() == StatusCode::SERVICE_UNAVAILABLE;
        if is_full {
            assert!(response.headers().contains_key("retry-after"));
            let body: Value = response.json().await.unwrap();
            assert!(body["detail"].as_str().unwrap().contains("all 2 connections"), "{body}");
        }
        is_full
    })
    .await;
    for call in hanging {
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
    eventually("nobody uses them", async || connections(&service.get("/readyz").await.1) == 0).await;
    eventually("their processes are gone", async || !processes.iter().any(is_there)).await;
    let (status, body) = call(&service, "anna", "/mine/process").await;
    assert_eq!(status, StatusCode::OK, "a new one is made: {body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_come_with_the_first_user_where_nobody_else_may_list() {
    let (sse, http) = (HttpServer::sse(&["key=right-key"]), HttpServer::start(&["key=right-key", "headers"]));
    let url = |server: &HttpServer| format!("http://127.0.0.1:{}/mcp", server.port);
    let servers = json!({
        "sse": {"type": "sse", "url": url(&sse), "headers": {"X-Key": "{{secret.key}}"}},
        "shared": {"type": "http", "url": url(&http), "headers": {"x-key": "{{secret.key}}"}, "listWith": {"X-Key": "right-key"}},
    });
    let service = start(servers, None, &[("TOOLSIEVE_SECRETS_KEY", KEY)]).await;
    let state =
        |ready: &Value, name: &str| ready["servers"].as_array().unwrap().iter().find(|server| server["server"] == name).unwrap().clone();
    let ready = service.until(|ready| state(ready, "shared")["tools"] != 0 && state(ready, "sse")["error"].is_string()).await;
    assert!(state(&ready, "sse")["error"].as_str().unwrap().contains("listWith"), "{ready}");
    assert_eq!(call(&service, "anna", "/sse/echo").await.0, StatusCode::SERVICE_UNAVAILABLE, "not listed yet");

    give(&service, "bob", "sse/key", "wrong-key").await;
    give(&service, "anna", "sse/key", "right-key").await;
    service.until(|ready| state(ready, "sse")["tools"] != 0).await;
    eventually("its tools are there", async || call(&service, "anna", "/sse/echo").await.0 == StatusCode::OK).await;
    let (status, body) = call(&service, "bob", "/sse/echo").await;
    assert_eq!((status, &body["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("server_unavailable")));
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("your own credentials") && detail.contains("401") && !detail.contains("wrong-key"), "{detail}");
    // Changes of the tools are followed on a user's connection.
    assert_eq!(call(&service, "anna", "/sse/add_tool").await.0, StatusCode::OK);
    eventually("the new tool is there", async || call(&service, "anna", "/sse/extra_1").await.0 != StatusCode::NOT_FOUND).await;
    // What it is listed with is nobody's to call with.
    assert_eq!(call(&service, "anna", "/shared/echo").await.0, StatusCode::FORBIDDEN);
    give(&service, "anna", "shared/key", "right-key").await;
    assert_eq!(call(&service, "anna", "/shared/echo").await.0, StatusCode::OK);
}

/// Regression test: a user's connection did not send the headers that repeat arguments, and a shared one not those of nested arguments.
#[tokio::test(flavor = "multi_thread")]
async fn headers_repeat_arguments_on_every_connection() {
    let words = ["key=right-key", "modern", "headers", "repeats"];
    let (own, shared) = (HttpServer::start(&words), HttpServer::start(&words[1..]));
    let url = |server: &HttpServer| format!("http://127.0.0.1:{}/mcp", server.port);
    let servers = json!({
        "own": {"type": "http", "url": url(&own), "headers": {"X-Key": "{{secret.key}}"}},
        "shared": {"type": "http", "url": url(&shared)},
    });
    let environment = vec![("TOOLSIEVE_ACCESS__TRUST_USERS", "true"), ("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_SECRETS_KEY", KEY)];
    let service = Start { servers, key: Some(keys::KEY), environment, from_files: true, ..Start::default() }.start().await;
    for user in ["anna", "bob"] {
        give(&service, user, "own/key", "right-key").await;
        for path in ["/own/repeated", "/shared/repeated"] {
            let request = || of(&service, user, Method::POST, path).json(&json!({"deep": {"region": "eu"}}));
            eventually("its tools are there", async || answer(request()).await.0 == StatusCode::OK).await;
            let (_, headers) = answer(request()).await;
            assert_eq!(headers["mcp-param-region"], "eu", "{path}: {headers}");
        }
    }
}

/// Every call said that the server had not listed its tools yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_lists_the_tools_of_a_server_that_was_off() {
    let (http, refusing) = (HttpServer::start(&["key=right-key"]), HttpServer::start(&["key=right-key", "call-status=401"]));
    let url = |server: &HttpServer| format!("http://127.0.0.1:{}/mcp", server.port);
    let entry = |server: &HttpServer| json!({"type": "http", "url": url(server), "headers": {"X-Key": "{{secret.key}}"}});
    let servers = json!({"own": entry(&http), "refusing": entry(&refusing)});
    let environment = vec![("TOOLSIEVE_ACCESS__TRUST_USERS", "true"), ("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_SECRETS_KEY", KEY)];
    let service = Start { servers, key: Some(keys::KEY), environment, from_files: true, ..Start::default() }.start().await;
    for server in ["own", "refusing"] {
        give(&service, "anna", &format!("{server}/key"), "right-key").await;
    }
    eventually("its tools are there", async || call(&service, "anna", "/own/echo").await.0 == StatusCode::OK).await;
    for enabled in [false, true] {
        let (status, view) = administer(&service, Method::PATCH, "/v1/admin/servers/own", &json!({"enabled": enabled})).await;
        assert_eq!((status, &view["enabled"]), (StatusCode::OK, &json!(enabled)), "{view}");
    }
    let (status, body) = call(&service, "anna", "/own/echo").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    // A secret that is rejected later needs the same remedy as one that is rejected at once.
    let (status, body) = call(&service, "anna", "/refusing/echo").await;
    assert_eq!((status, &body["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("server_unavailable")), "{body}");
    assert!(body["detail"].as_str().unwrap().contains("set another one"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_belong_to_users_and_named_keys_and_only_to_servers_that_need_them() {
    let servers = json!({"mine": personal(&["list=small"]), "other": stdio(&["list=small"])});
    let service = start(servers, None, &[("TOOLSIEVE_SECRETS_KEY", KEY)]).await;
    service.settled().await;
    let put = |key: &str, place: &str, body: Value| with_key(&service, Method::PUT, &format!("/v1/secrets/{place}"), key).json(&body);
    let value = || json!({"value": "v"});
    let (_, trusted) = create(&service, json!({"name": "webui", "trusted": true})).await;
    for key in [keys::KEY, ADMIN, trusted.as_str()] {
        let (status, body) = answer(put(key, "mine/token", value())).await;
        assert_eq!((status, &body["code"]), (StatusCode::FORBIDDEN, &json!("user_needed")), "{body}");
        assert_eq!(answer(with_key(&service, Method::GET, "/v1/secrets", key)).await.0, StatusCode::FORBIDDEN);
    }
    let (id, named) = create(&service, json!({"name": "ci"})).await;
    let (_, confined) = create(&service, json!({"name": "confined", "servers": ["other"]})).await;
    for (key, place, body, status) in [
        (&named, "mine/token", value(), StatusCode::OK),
        (&named, "mine/tokem", value(), StatusCode::UNPROCESSABLE_ENTITY),
        (&named, "other/token", value(), StatusCode::UNPROCESSABLE_ENTITY),
        (&named, "nothing/token", value(), StatusCode::NOT_FOUND),
        (&confined, "mine/token", value(), StatusCode::NOT_FOUND),
        (&named, "mine/token", json!({"value": ""}), StatusCode::UNPROCESSABLE_ENTITY),
        (&named, "mine/token", json!({"value": "x".repeat(20_000)}), StatusCode::UNPROCESSABLE_ENTITY),
        (&named, "mine/token", json!({"value": "a\u{0}b"}), StatusCode::UNPROCESSABLE_ENTITY),
        (&named, "mine/token", json!({"value": 123_456}), StatusCode::UNPROCESSABLE_ENTITY),
        (&named, "mine/token", json!({"valeu": "v"}), StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        let (found, answered) = answer(put(key, place, body)).await;
        assert_eq!(found, status, "{place}: {answered}");
        assert!(!answered.to_string().contains("123456"));
    }
    assert_eq!(answer(with_key(&service, Method::GET, "/v1/secrets", &confined)).await.1["secrets"], json!([]));

    // The server wants a user's id, which a key has not.
    let (status, body) = answer(with_key(&service, Method::POST, "/mine/echo", &named).json(&json!({}))).await;
    assert_eq!((status, &body["code"]), (StatusCode::FORBIDDEN, &json!("user_needed")));
    // With the key go its secrets: the next of its name is another one.
    assert_eq!(administer(&service, Method::DELETE, &format!("/v1/admin/keys/{id}"), &json!(null)).await.0, StatusCode::OK);
    let (_, again) = create(&service, json!({"name": "ci"})).await;
    assert_eq!(answer(with_key(&service, Method::GET, "/v1/secrets", &again)).await.1["secrets"][0]["state"], "missing");
    // For whoever does not administer, there is no such route.
    let absent = answer(with_key(&service, Method::DELETE, "/v1/admin/nothing", &again)).await.0;
    assert_eq!(answer(with_key(&service, Method::DELETE, "/v1/admin/secrets/key%3Aci", &again)).await.0, absent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_or_removed_server_takes_its_connections_with_it() {
    let environment = vec![("TOOLSIEVE_ACCESS__TRUST_USERS", "true"), ("TOOLSIEVE_SECRETS_KEY", KEY)];
    let servers = json!({"mine": personal(&["list=small"])});
    let service = Start { servers, key: Some(keys::KEY), environment, from_files: true, ..Start::default() }.start().await;
    service.settled().await;
    give(&service, "anna", "mine/token", "a-secret").await;
    let (_, first) = call(&service, "anna", "/mine/process").await;

    let mut changed = personal(&["list=small"]);
    changed["env"]["MORE"] = json!("{{user.email}}");
    service.configure(&json!({"mine": changed}));
    service.reload.reload(Trigger::Request).await;
    let (_, second) = call(&service, "anna", "/mine/process").await;
    assert_ne!(second["pid"], first["pid"]);
    eventually("the former one ends", async || !is_there(&first["pid"])).await;

    service.configure(&json!({"other": stdio(&["list=small"])}));
    service.reload.reload(Trigger::Request).await;
    eventually("the last one ends", async || !is_there(&second["pid"])).await;
    let known = listed(&service, "anna").await;
    assert_eq!((&known[0]["state"], &known[0]["needed"]), (&json!("set"), &json!(false)), "it can still be removed: {known}");
    assert_eq!(answer(of(&service, "anna", Method::DELETE, "/v1/secrets/mine/token")).await.0, StatusCode::NO_CONTENT);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_the_service_is_never_forwarded() {
    let http = HttpServer::start(&["headers"]);
    let url = format!("http://127.0.0.1:{}/mcp", http.port);
    let rules = json!({"enabled": true, "whitelist": ["Authorization", "X-A"]});
    let servers = json!({"http": {"type": "http", "url": url, "client_header_forwarding": rules}});
    let service = start(servers.clone(), None, &[]).await;
    service.settled().await;
    let (_, named) = create(&service, json!({"name": "ci"})).await;
    for request in [
        of(&service, "anna", Method::POST, "/http/request_headers"),
        service.request(Method::POST, "/http/request_headers"),
        with_key(&service, Method::POST, "/http/request_headers", &named),
    ] {
        let (status, seen) = answer(request.header("X-A", "a").json(&json!({}))).await;
        assert_eq!((status, &seen["x-a"], seen.get("authorization")), (StatusCode::OK, &json!("a"), None), "{seen}");
    }
    // Where the service asks for no key, it is the caller's own.
    let open = Running::on(servers).await;
    let request = open.request(Method::POST, "/http/request_headers").bearer_auth("of-the-caller").json(&json!({}));
    assert_eq!(answer(request).await.1["authorization"], "Bearer of-the-caller");
}

//! Who calls: keys with names, users for whom a trusted key vouches, and the routes of administration.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::harness::answers::shape;
use crate::harness::keys::{ADMIN, KEY, administer, command, create, start, with_key};
use crate::harness::process::Service;
use crate::harness::wait::eventually;
use crate::harness::{Running, Start, stdio};

async fn status(service: &Running, key: &str) -> StatusCode {
    with_key(service, Method::GET, "/openapi.json", key).send().await.unwrap().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_works_is_rotated_and_ends_at_once() {
    let service = start(&[]).await;
    let (id, key) = create(&service, json!({"name": "ci"})).await;
    assert_eq!(status(&service, &key).await, StatusCode::OK);
    assert_eq!(service.client.get(format!("{}/openapi.json", service.url)).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);

    let (code, answer) = administer(&service, Method::POST, &format!("/v1/admin/keys/{id}/rotate"), &json!({"expires_in_days": 1})).await;
    assert_eq!(code, StatusCode::OK);
    let new = answer["key"].as_str().unwrap();
    assert_eq!((status(&service, &key).await, status(&service, new).await), (StatusCode::UNAUTHORIZED, StatusCode::OK));

    let (_, listed) = administer(&service, Method::GET, "/v1/admin/keys", &json!({})).await;
    let listed = &listed["keys"][0];
    assert_eq!((&listed["id"], &listed["name"], &listed["state"]), (&json!(id), &json!("ci"), &json!("active")));
    assert!(listed["last_used_at"].as_str().is_some_and(|at| at.ends_with(":00:00Z")), "{listed}");
    assert!(listed.get("key").is_none() && listed.get("hash").is_none());

    assert_eq!(administer(&service, Method::DELETE, &format!("/v1/admin/keys/{id}"), &json!({})).await.0, StatusCode::OK);
    assert_eq!(status(&service, new).await, StatusCode::UNAUTHORIZED, "the first call after the answer");
    let (_, listed) = administer(&service, Method::GET, "/v1/admin/keys", &json!({})).await;
    assert_eq!(listed["keys"][0]["state"], "revoked");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wrong_key_gets_the_same_answer() {
    // So that they come from several addresses: too many from one get another answer.
    let service = start(&[("TOOLSIEVE_HTTP__TRUSTED_PROXIES", "127.0.0.1")]).await;
    let (id, revoked) = create(&service, json!({"name": "revoked"})).await;
    administer(&service, Method::DELETE, &format!("/v1/admin/keys/{id}"), &json!({})).await;
    let soon = jiff::Timestamp::now() + Duration::from_millis(1_500);
    let (_, expired) = create(&service, json!({"name": "expired", "expires_at": soon.to_string()})).await;
    let (_, good) = create(&service, json!({"name": "good"})).await;
    eventually("the key expires", async || status(&service, &expired).await != StatusCode::OK).await;
    let wrong =
        [revoked.as_str(), &expired, &good[..good.len() - 1], &good[..16], "tsk_", "tsk_000000000000_x", "foreign", "the-admin-kex"];
    for path in ["/openapi.json", "/v1/admin/keys", "/nothing"] {
        let asking = |key: &str| with_key(&service, Method::GET, path, key).header("x-forwarded-for", format!("10.0.0.{}", path.len()));
        let expected = shape(asking("sk-of-somebody-else")).await;
        assert_eq!((expected.0, &expected.2["code"]), (StatusCode::UNAUTHORIZED, &json!("unauthorized")));
        for key in wrong {
            assert_eq!(shape(asking(key)).await, expected, "{path} {key}");
        }
    }
    assert_eq!(status(&service, &good).await, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_admin_key_administers() {
    let service = start(&[]).await;
    let (id, named) = create(&service, json!({"name": "ci", "trusted": true})).await;
    for key in [named.as_str(), KEY] {
        for (method, path) in [
            (Method::GET, "/v1/admin/keys".to_owned()),
            (Method::POST, "/v1/admin/keys".to_owned()),
            (Method::DELETE, format!("/v1/admin/keys/{id}")),
            (Method::POST, format!("/v1/admin/keys/{id}/rotate")),
        ] {
            let absent = shape(with_key(&service, method.clone(), "/v1/admin/nothing", key).json(&json!({"name": "x"}))).await;
            assert_eq!(shape(with_key(&service, method, &path, key).json(&json!({"name": "x"}))).await, absent, "{path}");
        }
    }
    for (body, code) in [
        (json!({"name": "ci"}), StatusCode::CONFLICT),
        (json!({"name": "a b"}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"name": "a", "serves": []}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"name": "a", "servers": []}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"name": "a", "expires_at": "2001-01-01T00:00:00Z"}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({"name": "a", "expires_at": "tomorrow"}), StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        assert_eq!(administer(&service, Method::POST, "/v1/admin/keys", &body).await.0, code, "{body}");
    }
    assert_eq!(administer(&service, Method::DELETE, "/v1/admin/keys/000000000000", &json!({})).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_one_server_sees_no_other() {
    let service = start(&[]).await;
    let (_, key) = create(&service, json!({"name": "time", "servers": ["time"]})).await;
    let get = async |path: &str| with_key(&service, Method::GET, path, &key).send().await.unwrap();
    let document: Value = get("/openapi.json").await.json().await.unwrap();
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert!(paths.iter().all(|path| path.starts_with("/time/") || path.starts_with("/v1/")) && paths.len() > 2, "{paths:?}");
    let absent = shape(with_key(&service, Method::GET, "/none/openapi.json", &key)).await;
    assert_eq!(shape(with_key(&service, Method::GET, "/one/openapi.json", &key)).await, absent);
    let call = |path: &str| with_key(&service, Method::POST, path, &key).json(&json!({}));
    assert_eq!(shape(call("/one/echo")).await, shape(call("/none/echo")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_survive_a_restart_and_an_open_service_knows_them() {
    let servers = json!({"one": stdio(&[]), "time": stdio(&["list=time"])});
    let service = Start { servers: servers.clone(), ..Start::default() }.start().await;
    service.settled().await;
    // Without any key this machine administers.
    let (status, answer) = service.post("/v1/admin/keys", &json!({"name": "time", "servers": ["time"]})).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let (id, key) = (answer["id"].as_str().unwrap().to_owned(), answer["key"].as_str().unwrap().to_owned());
    let folder = service.stop().await;
    let service = Start { servers, folder: Some(folder), ..Start::default() }.start().await;
    service.settled().await;
    let echo = async |key: &str| with_key(&service, Method::POST, "/one/echo", key).json(&json!({})).send().await.unwrap().status();
    assert_eq!(echo(&key).await, StatusCode::NOT_FOUND);
    assert_eq!(echo("of another service").await, StatusCode::OK, "an open service asks for no key");
    assert_eq!(service.request(Method::DELETE, &format!("/v1/admin/keys/{id}")).send().await.unwrap().status(), StatusCode::OK);
    assert_eq!(echo(&key).await, StatusCode::UNAUTHORIZED);
    assert!(!std::fs::read(service.folder.path().join("data/toolsieve.db")).unwrap().windows(key.len()).any(|part| part == key.as_bytes()));
}

/// What the service takes a caller for, by the record of use.
async fn principal(service: &Running, request: RequestBuilder) -> Result<String, StatusCode> {
    let asked = json!({"messages": [{"role": "user", "content": "what time is it in Lima"}]});
    let response = request.json(&asked).send().await.unwrap();
    if response.status() != StatusCode::OK {
        return Err(response.status());
    }
    let answer: Value = response.json().await.unwrap();
    let selection = answer["selection_id"].as_str().unwrap();
    let path = service.folder.path().join("data/toolsieve.db");
    Ok(eventually(&format!("{selection} is recorded"), async || recorded(&path, selection).await).await)
}

async fn recorded(path: &std::path::Path, selection: &str) -> Option<String> {
    use sqlx::Connection as _;
    let mut database = sqlx::SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    sqlx::query_scalar("SELECT principal FROM selection_event WHERE selection = ?")
        .bind(selection)
        .fetch_optional(&mut database)
        .await
        .unwrap()
}

fn token(secret: &str, expires: i64) -> String {
    signed(secret, json!({"sub": "u9", "email": "u9@example.org", "name": "U", "role": "user", "iss": "open-webui", "exp": expires}))
}

fn signed(secret: &str, claims: Value) -> String {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(json!({"alg": "HS256", "typ": "JWT"})), part(claims));
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap().chain_update(&signed).finalize();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.into_bytes()))
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_believed_of_trusted_keys_alone() {
    let service = start(&[]).await;
    let (_, plain) = create(&service, json!({"name": "plain"})).await;
    let (_, trusted) = create(&service, json!({"name": "webui", "trusted": true})).await;
    let filter = |key: &str| with_key(&service, Method::POST, "/v1/filter", key);
    let named = |key: &str| filter(key).header("X-OpenWebUI-User-Id", "u1").header("X-OpenWebUI-User-Email", "U1@example.org");
    assert_eq!(principal(&service, named(&trusted)).await.unwrap(), "user:u1");
    assert_eq!(principal(&service, named(&plain)).await.unwrap(), "key:plain");
    assert_eq!(principal(&service, named(KEY)).await.unwrap(), "service-key");
    assert_eq!(principal(&service, filter(&trusted)).await.unwrap(), "key:webui");
    assert_eq!(principal(&service, named(ADMIN)).await.unwrap(), "admin");
    // Regression: a signed user, who can't be read without the secret, had all rights of the key.
    let signed = |request: RequestBuilder| request.header("X-OpenWebUI-User-Jwt", token("x", 9_999_999_999));
    assert_eq!(principal(&service, signed(filter(&trusted))).await, Err(StatusCode::UNPROCESSABLE_ENTITY));
    assert_eq!(principal(&service, signed(filter(&plain))).await.unwrap(), "key:plain");
    assert_eq!(principal(&service, signed(named(&trusted))).await.unwrap(), "user:u1", "the plain headers name the user");
    assert_eq!(principal(&service, filter(&trusted).header("X-OpenWebUI-User-Jwt", "")).await.unwrap(), "key:webui");
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_users_are_believed_by_their_signature() {
    const SECRET: &str = "sixteen-characters-at-least";
    let service = start(&[("TOOLSIEVE_ACCESS__TRUST_USERS", "true"), ("TOOLSIEVE_ACCESS__USER_JWT_SECRET", SECRET)]).await;
    let filter = || with_key(&service, Method::POST, "/v1/filter", KEY);
    let signed = |token: String| filter().header("X-OpenWebUI-User-Jwt", token);
    assert_eq!(principal(&service, signed(token(SECRET, 9_999_999_999))).await.unwrap(), "user:u9");
    assert_eq!(principal(&service, filter()).await.unwrap(), "service-key");
    assert_eq!(principal(&service, filter().header("X-OpenWebUI-User-Groups", "staff")).await.unwrap(), "service-key");
    // Regression: a user without a signature had all rights of the key.
    for (name, value) in [("X-OpenWebUI-User-Id", "u1"), ("X-OpenWebUI-User-Email", "u1@example.org"), ("X-OpenWebUI-User-Name", "U")] {
        for request in [filter(), filter().header("X-OpenWebUI-User-Jwt", "")] {
            assert_eq!(principal(&service, request.header(name, value)).await, Err(StatusCode::UNPROCESSABLE_ENTITY), "{name}");
        }
    }
    let message = json!([{"role": "user", "content": "what time is it in Lima"}]);
    let response = filter().json(&json!({"messages": message, "user": {"id": "u1"}})).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let problem: Value = response.json().await.unwrap();
    assert!(problem["detail"].as_str().unwrap().contains("FORWARD_USER_INFO_HEADER_JWT_SECRET"), "{problem}");
    for wrong in [token(SECRET, 1_000_000_000), token("another secret of this length", 9_999_999_999), "nonsense".to_owned()] {
        assert_eq!(principal(&service, signed(wrong.clone())).await, Err(StatusCode::UNAUTHORIZED), "{wrong}");
        // Regression: the answer named the key as the mistake.
        let response = signed(wrong).json(&json!({"messages": message})).send().await.unwrap();
        let problem: Value = response.json().await.unwrap();
        assert!(problem["detail"].as_str().unwrap().contains("X-OpenWebUI-User-Jwt"), "{problem}");
    }
    let (_, plain) = create(&service, json!({"name": "plain"})).await;
    let with = with_key(&service, Method::POST, "/v1/filter", &plain).header("X-OpenWebUI-User-Jwt", token(SECRET, 9_999_999_999));
    assert_eq!(principal(&service, with).await.unwrap(), "key:plain");
}

/// Regression test: Open WebUI's tokens contain no groups, so that rules about groups didn't apply to signed users.
#[tokio::test(flavor = "multi_thread")]
async fn groups_that_a_token_lacks_come_with_it() {
    const SECRET: &str = "sixteen-characters-at-least";
    let environment =
        [("TOOLSIEVE_ACCESS__TRUST_USERS", "true"), ("TOOLSIEVE_ACCESS__USER_JWT_SECRET", SECRET), ("TOOLSIEVE_SELECTION__GATE", "false")];
    let service = start(&environment).await;
    let rules = json!({"rules": [{"effect": "block", "servers": ["time"], "groups": ["guests"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    let (_, limited) = create(&service, json!({"name": "webui", "trusted": true, "groups": ["staff"]})).await;
    let without = token(SECRET, 9_999_999_999);
    let with = signed(SECRET, json!({"sub": "u9", "iss": "open-webui", "exp": 9_999_999_999_u64, "groups": ["staff"]}));

    // Whether the caller sees the server, in its document and in a selection.
    let sees = async |key: &str, token: &str, header: &str, user: Value| {
        let request = |method: Method, path: &str| {
            let request = with_key(&service, method, path, key).header("X-OpenWebUI-User-Jwt", token);
            if header.is_empty() { request } else { request.header("X-OpenWebUI-User-Groups", header) }
        };
        let document: Value = request(Method::GET, "/openapi.json").send().await.unwrap().json().await.unwrap();
        let asked = json!({"messages": [{"role": "user", "content": "what time is it in Lima"}], "user": user});
        let response = request(Method::POST, "/v1/filter").json(&asked).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let selection: Value = response.json().await.unwrap();
        let in_document = document["paths"].as_object().unwrap().keys().any(|path| path.starts_with("/time/"));
        (in_document, selection["tools"].to_string().contains("get_current_time"))
    };
    let guest = |id: &str| json!({"id": id, "groups": ["guests"]});
    for (key, token, header, user, expected, why) in [
        (KEY, &without, "", json!(null), (true, true), "no groups"),
        (KEY, &without, "staff, guests", json!(null), (false, false), "the header has them"),
        (KEY, &without, "", guest("u9"), (true, false), "the body has them"),
        (KEY, &without, "", guest("u8"), (true, true), "the body names another user"),
        (KEY, &without, "staff", guest("u9"), (true, true), "the header counts first"),
        (KEY, &with, "guests", guest("u9"), (true, true), "the token has them"),
        (limited.as_str(), &without, "guests", json!(null), (true, true), "the key has no such group"),
        (limited.as_str(), &without, "", guest("u9"), (true, true), "the key has no such group"),
    ] {
        assert_eq!(sees(key, token, header, user).await, expected, "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_creates_lists_rotates_and_revokes() {
    let service = start(&[]).await;
    let (code, key, hint) = command(&service, &["keys", "create", "ci", "--server", "time", "--group", "robots", "--expires-in-days", "2"]);
    assert_eq!((code, key.len()), (Some(0), 60), "{hint}");
    assert!(hint.starts_with("ci (") && !hint.contains(&key), "{hint}");
    assert_eq!(status(&service, &key).await, StatusCode::OK);
    let (_, table, _) = command(&service, &["keys", "list"]);
    let row = table.lines().nth(1).unwrap();
    assert!(["ci", "active", "time", "robots"].iter().all(|text| row.contains(text)) && !table.contains(&key), "{table}");
    let (code, new, _) = command(&service, &["keys", "rotate", "ci"]);
    assert_eq!((code, status(&service, &key).await, status(&service, &new).await), (Some(0), StatusCode::UNAUTHORIZED, StatusCode::OK));
    assert_eq!(command(&service, &["keys", "revoke", "ci"]), (Some(0), "ci is revoked.".to_owned(), String::new()));
    assert_eq!(status(&service, &new).await, StatusCode::UNAUTHORIZED);
    let (code, _, error) = command(&service, &["keys", "revoke", "ci"]);
    assert!(code == Some(1) && error.contains("there is no key `ci`"), "{error}");
    let (code, _, error) = command(&service, &["keys", "list", "--admin-key", "wrong"]);
    assert!(code == Some(1) && error.contains("rejected this admin key"), "{error}");
}

/// A user saw: with a new key of a former one's name, the sessions of whoever had that.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_revoked_key_go_its_sessions_and_chats_and_a_later_key_keeps_its_own() {
    let service = start(&[]).await;
    let message = |text: &str| json!({"messages": [{"role": "user", "content": text}], "chat_id": "chat"});
    let filter = async |key: &str, text: &str| -> Value {
        let response = with_key(&service, Method::POST, "/v1/filter", key).json(&message(text)).send().await.unwrap();
        response.json().await.unwrap()
    };
    let sessions = async |key: &str| -> Value {
        let response = with_key(&service, Method::GET, "/v1/sessions", key).send().await.unwrap();
        response.json::<Value>().await.unwrap()["sessions"].clone()
    };
    let begin = async |key: &str| -> String {
        let response = with_key(&service, Method::POST, "/v1/sessions", key).json(&json!({"servers": ["time"]})).send().await.unwrap();
        response.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned()
    };
    let revoke = async |id: &str| administer(&service, Method::DELETE, &format!("/v1/admin/keys/{id}"), &json!({})).await.0;
    let has_clock = |answer: &Value| answer["tools"].to_string().contains("get_current_time");

    let (first, key) = create(&service, json!({"name": "bot"})).await;
    let session = begin(&key).await;
    assert!(has_clock(&filter(&key, "what time is it in Tokyo").await));
    assert!(has_clock(&filter(&key, "thanks!").await), "the chat keeps it");
    assert_eq!(revoke(&first).await, StatusCode::OK);

    let (_, key) = create(&service, json!({"name": "bot"})).await;
    let document = with_key(&service, Method::GET, &format!("/s/{session}/openapi.json"), &key).send().await.unwrap();
    assert_eq!(document.status(), StatusCode::NOT_FOUND);
    assert_eq!(sessions(&key).await, json!([]));
    assert!(!has_clock(&filter(&key, "thanks!").await), "another one's chat");

    let own = begin(&key).await;
    assert_eq!(revoke(&first).await, StatusCode::OK, "a second time");
    assert_eq!(sessions(&key).await[0]["id"], own, "the later key keeps its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let set = |command: &mut std::process::Command| {
        command.env("TOOLSIEVE_ADMIN_KEY", ADMIN);
    };
    let mut service = Service::start(folder.path(), &json!({"one": stdio(&[])}), set);
    let client = reqwest::Client::new();
    let keys = format!("{}/v1/admin/keys", service.url);
    let create = async |number: usize| {
        let body = json!({"name": format!("key-{number}")});
        let response = client.post(&keys).bearer_auth(ADMIN).json(&body).send().await.ok()?;
        assert_eq!(response.status(), StatusCode::CREATED);
        Some(response.json::<Value>().await.ok()?["id"].as_str()?.to_owned())
    };
    let acknowledged = std::sync::Mutex::new(BTreeSet::new());
    let write = async |worker: usize| {
        for number in 0.. {
            match create(worker * 100_000 + number).await {
                Some(id) => acknowledged.lock().unwrap().insert(id),
                None => return,
            };
        }
    };
    let kill = async {
        eventually("40 keys are acknowledged", async || acknowledged.lock().unwrap().len() >= 40).await;
        service.process.kill().unwrap();
        service.process.wait().unwrap();
    };
    futures::join!(write(0), write(1), write(2), write(3), kill);
    let acknowledged = acknowledged.into_inner().unwrap();

    let service = Service::start(folder.path(), &json!({"one": stdio(&[])}), set);
    let listed = client.get(format!("{}/v1/admin/keys", service.url)).bearer_auth(ADMIN).send().await.unwrap();
    let listed: Value = listed.json().await.unwrap();
    let listed: BTreeSet<String> = listed["keys"].as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap().to_owned()).collect();
    assert!(acknowledged.len() >= 40 && acknowledged.is_subset(&listed), "{} of {}", listed.len(), acknowledged.len());
}

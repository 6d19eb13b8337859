//! Users' own tokens are exchanged for tokens of the server's authorization server (RFC 8693).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use futures::future::join_all;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::world::{self, FAR, Lies, World};
use super::{answer, found_in_store, of};
use crate::harness::keys::{self, ADMIN, administer, create, with_key};
use crate::harness::mcp::newer_era;
use crate::harness::servers::http::HttpServer;
use crate::harness::wait::eventually;
use crate::harness::{Running, Start};

const HEADER: &str = "X-User-Token";

/// The `auth` of a server whose users' tokens are exchanged at this world's authorization server.
fn auth(world: &World, more: &Value) -> Value {
    let mut auth = json!({
        "type": "oauth", "issuer": world.issuer(), "client_id": "gateway", "client_secret": "s3cret",
        "exchange": {"header": HEADER, "subject_token_type": "jwt"},
    });
    auth.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    auth
}

fn entry(world: &World, more: &Value) -> Value {
    json!({"type": "streamable-http", "url": world.mcp(), "auth": auth(world, more)})
}

/// Needs neither a key for secrets nor a public address: nothing is stored, and nobody comes back.
async fn start(servers: Value) -> Running {
    let environment = vec![
        ("TOOLSIEVE_ACCESS__TRUST_USERS", "true"),
        ("TOOLSIEVE_ADMIN_KEY", ADMIN),
        ("TOOLSIEVE_SELECTION__NARROW_ABOVE_TOKENS", "3000"),
    ];
    Start { servers, key: Some(keys::KEY), environment, ..Start::default() }.start().await
}

async fn service(world: &World) -> Running {
    start(json!({"jira": entry(world, &json!({}))})).await
}

fn whoami(service: &Running, user: &str, token: &str) -> RequestBuilder {
    of(service, user, Method::POST, "/jira/whoami").header(HEADER, token).json(&json!({}))
}

/// For whom the server is called. The first call lists the tools, and is repeated until they are there.
async fn sub(request: RequestBuilder) -> Value {
    let (status, body) = eventually("the server is listed", async || {
        let answered = answer(request.try_clone().unwrap()).await;
        let is_listed = !answered.1["detail"].as_str().unwrap_or_default().contains("has not listed");
        is_listed.then_some(answered)
    })
    .await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body["sub"].clone()
}

async fn refused(request: RequestBuilder) -> (StatusCode, String, String) {
    let (status, body) = answer(request).await;
    (status, body["code"].as_str().unwrap_or_default().to_owned(), body["detail"].as_str().unwrap_or_default().to_owned())
}

/// A request of an MCP client of the newer era.
fn mcp(service: &Running, user: &str, path: &str, method: &str, mut params: Value) -> RequestBuilder {
    let name = params["name"].as_str().map(str::to_owned);
    params["_meta"] = newer_era();
    let request = of(service, user, Method::POST, path)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method)
        .json(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}));
    name.into_iter().fold(request, |request, name| request.header("mcp-name", name))
}

/// The text of a response, which may be an event stream.
async fn text(request: RequestBuilder) -> String {
    request.send().await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_user_calls_with_a_token_for_their_own_on_every_face() {
    let world = world::start();
    let service = service(&world).await;
    let anna = world.known().subject("anna", FAR);
    let bob = world.known().subject("bob", FAR);
    // The first call lists the tools.
    assert_eq!(sub(whoami(&service, "anna", &anna)).await, "anna");
    assert_eq!(sub(whoami(&service, "bob", &format!("Bearer {bob}"))).await, "bob");
    for (user, token) in [("anna", &anna), ("bob", &bob)] {
        assert_eq!(sub(whoami(&service, user, token)).await, user);
        let run = json!({"name": "jira__whoami", "arguments": {}});
        assert_eq!(sub(of(&service, user, Method::POST, "/v1/tools/call").header(HEADER, token).json(&run)).await, user);
        let of_server = json!({"name": "whoami", "arguments": {}});
        let meta = json!({"name": "run_tool", "arguments": run});
        for (path, params) in [("/mcp?mode=full", &run), ("/mcp", &meta), ("/jira/mcp", &of_server)] {
            let text = text(mcp(&service, user, path, "tools/call", params.clone()).header(HEADER, token)).await;
            assert!(text.contains(&format!("\"sub\":\"{user}\"")), "{path}: {text}");
            // Without the token nobody else's is used.
            let text = text_without(&service, user, path, params).await;
            assert!(text.contains("x-user-token") && !text.contains("\"sub\""), "{path}: {text}");
        }
        let prompts = text(mcp(&service, user, "/mcp", "prompts/list", json!({})).header(HEADER, token)).await;
        assert!(prompts.contains(&format!("jira__of_{user}")), "{prompts}");
    }
    let search = of(&service, "anna", Method::POST, "/v1/tools/search").json(&json!({"queries": ["tells whoami"]}));
    assert_eq!(answer(search).await.1["tools"][0]["connection"], "ready");
    let connections = of(&service, "anna", Method::GET, "/v1/connections");
    assert_eq!(answer(connections).await.1, json!({"connections": []}), "users sign in nowhere");
    {
        let known = world.known();
        assert_eq!(known.exchanges(), 2, "one for each user");
        assert!(known.authorizations.is_empty());
        assert!(known.seen.iter().all(|value| value.starts_with("Bearer access-")), "{:?}", known.seen);
        assert!(!known.headers.iter().any(|value| value.contains(&anna) || value.contains(&bob)), "a user's own token reaches no server");
    }
    let (_, audit) = administer(&service, Method::GET, "/v1/admin/audit?limit=100", &json!(null)).await;
    let issued = world.known().issued.clone();
    assert!(issued.iter().all(|text| !audit.to_string().contains(text)));
    assert_eq!(found_in_store(&service.stop().await, &issued), Vec::<String>::new());
}

async fn text_without(service: &Running, user: &str, path: &str, params: &Value) -> String {
    text(mcp(service, user, path, "tools/call", params.clone())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_make_one_exchange() {
    let world = world::start();
    let service = Arc::new(service(&world).await);
    let token = world.known().subject("anna", FAR);
    for round in 1..=3 {
        let calls = (0..20).map(|_| {
            let (service, token) = (Arc::clone(&service), token.clone());
            async move { sub(whoami(&service, "anna", &token)).await }
        });
        assert!(join_all(calls).await.iter().all(|sub| sub == "anna"));
        assert_eq!(world.known().exchanges(), round);
        // The next calls get another token, once.
        world.known().expire();
    }
    assert_eq!(world.known().connections, 1);
}

/// Applications renew their users' tokens every few minutes.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_token_of_the_same_user_needs_no_other_connection() {
    let world = world::start();
    let service = service(&world).await;
    for round in 1..=3 {
        let token = world.known().subject("anna", FAR);
        assert_eq!(sub(whoami(&service, "anna", &token)).await, "anna");
        let known = world.known();
        assert_eq!((known.exchanges(), known.connections), (round, 1));
    }
}

/// An application with one named key may serve several people.
#[tokio::test(flavor = "multi_thread")]
async fn people_behind_one_key_are_kept_apart() {
    let world = world::start();
    let service = service(&world).await;
    let (_, key) = create(&service, json!({"name": "application"})).await;
    let anna = world.known().subject("anna", FAR);
    let bob = world.known().subject("bob", FAR);
    let call = |token: &str| with_key(&service, Method::POST, "/jira/whoami", &key).header(HEADER, token).json(&json!({}));
    for _ in 0..2 {
        let calls = (0..10).map(|at| sub(call(if at % 2 == 0 { &anna } else { &bob })));
        let subs = join_all(calls).await;
        assert!(subs.iter().enumerate().all(|(at, sub)| sub == if at % 2 == 0 { "anna" } else { "bob" }), "{subs:?}");
    }
    let known = world.known();
    assert_eq!((known.exchanges(), known.connections), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_exchanged_again_once_either_has_expired() {
    let world = world::start();
    let service = service(&world).await;
    let token = world.known().subject("anna", FAR);
    world.lie(Lies { exchanged_for: Some(1), ..Lies::default() });
    for number in 0..2 {
        if number == 1 {
            // Until the exchanged token has expired.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let before = world.known().exchanges();
        assert_eq!(sub(whoami(&service, "anna", &token)).await, "anna");
        assert!(world.known().exchanges() > before);
    }
    world.lie(Lies::default());
    // The authorization server still accepts a token that expired long ago. It decides so each time.
    let old = world.known().subject("bob", 1_000_000_000);
    for _ in 0..2 {
        let before = world.known().exchanges();
        assert_eq!(sub(whoami(&service, "bob", &old)).await, "bob");
        assert_eq!(world.known().exchanges(), before + 1);
    }
}

/// What administrators read of the only server. It lists no tools without a user's token, and says so.
async fn error(service: &Running) -> String {
    let (_, ready) = service.get("/readyz").await;
    ready["servers"][0]["error"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_valid_token_the_caller_learns_what_to_do() {
    let world = world::start();
    let service = service(&world).await;
    let token = world.known().subject("anna", FAR);
    assert_eq!(sub(whoami(&service, "anna", &token)).await, "anna");
    let missing = of(&service, "anna", Method::POST, "/jira/whoami").json(&json!({}));
    let (status, code, detail) = refused(missing).await;
    assert_eq!((status, code.as_str()), (StatusCode::FORBIDDEN, "credentials_missing"), "{detail}");
    assert!(detail.contains("`x-user-token`") && detail.contains("application"), "{detail}");
    for odd in ["", "two words", "Bearer "] {
        assert_eq!(refused(whoami(&service, "anna", odd)).await.1, "credentials_missing", "{odd}");
    }
    let twice = whoami(&service, "anna", &token).header(HEADER, "another");
    assert_eq!(refused(twice).await.1, "credentials_missing");

    let (status, code, detail) = refused(whoami(&service, "anna", "a-token-of-somebody-else")).await;
    assert_eq!((status, code.as_str()), (StatusCode::FORBIDDEN, "credentials_missing"), "{detail}");
    assert!(detail.contains("invalid_grant") && detail.contains("sign in again") && !detail.contains("a-token"), "{detail}");
    // A user's mistake is no fault of the server.
    assert!(!error(&service).await.contains("exchanged"), "{}", error(&service).await);

    // A token without a permission that the call needs.
    world.known().needs = HashMap::from([("secrets".to_owned(), "admin".to_owned())]);
    let (status, code, detail) = refused(of(&service, "anna", Method::POST, "/jira/secrets").header(HEADER, &token).json(&json!({}))).await;
    assert_eq!((status, code.as_str()), (StatusCode::FORBIDDEN, "credentials_missing"), "{detail}");
    assert!(detail.contains("admin") && detail.contains("`scopes`"), "{detail}");
    assert_eq!(sub(whoami(&service, "anna", &token)).await, "anna");
}

/// What is wrong with a server's settings or with its authorization server.
type Mistake = fn(&Data<World>) -> Lies;

#[tokio::test(flavor = "multi_thread")]
async fn what_an_administrator_must_correct_is_said_clearly() {
    let cases: [(&str, Value, Mistake); 6] = [
        ("invalid_target", json!({"exchange": {"header": HEADER, "subject_token_type": "jwt", "audience": "mail"}}), |_| Lies::default()),
        ("rejects the token that the authorization server issued", json!({}), |_| Lies {
            exchanged_at: Some("https://other.example".to_owned()),
            ..Lies::default()
        }),
        ("invalid_client", json!({"client_secret": "wrong"}), |_| Lies::default()),
        ("name another issuer", json!({}), |_| Lies { metadata: vec![("issuer", json!("https://evil.example"))], ..Lies::default() }),
        ("larger than 65536 bytes", json!({}), |_| Lies { large: true, ..Lies::default() }),
        ("private", json!({"private_addresses": false}), |_| Lies::default()),
    ];
    for (words, more, mistake) in cases {
        let world = world::start();
        let mut entry = entry(&world, &more);
        entry["listWith"] = json!({"Authorization": format!("Bearer {}", world.known().reader())});
        let service = start(json!({"jira": entry})).await;
        service.until(|ready| ready["tools"] == 2).await;
        world.lie(mistake(&world));
        let token = world.known().subject("anna", FAR);
        let (status, code, detail) = refused(whoami(&service, "anna", &token)).await;
        assert_eq!((status, code.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "server_unavailable"), "{words}: {detail}");
        assert!(detail.contains(words) && !detail.contains(&token), "{words}: {detail}");
        let error = error(&service).await;
        assert!(error.starts_with("users' tokens can't be exchanged: ") && error.contains(words), "{words}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_audience_stops_calls_of_listed_tools() {
    let world = world::start();
    let service = service(&world).await;
    let token = world.known().subject("anna", FAR);
    assert_eq!(sub(whoami(&service, "anna", &token)).await, "anna");
    let before = world.known().exchanges();
    world.lie(Lies { exchanged_at: Some("https://other.example".to_owned()), ..Lies::default() });
    let other = world.known().subject("bob", FAR);
    for _ in 0..2 {
        let (status, code, detail) = refused(whoami(&service, "bob", &other)).await;
        assert_eq!((status, code.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "server_unavailable"), "{detail}");
        assert!(detail.contains("`audience`"), "{detail}");
    }
    assert_eq!(world.known().exchanges(), before + 2, "a rejected token is exchanged once more, and not for every call");
    assert!(error(&service).await.contains("`audience`"), "{}", error(&service).await);
    // Others' calls go on, and a corrected authorization server helps at once.
    world.lie(Lies::default());
    assert_eq!(sub(whoami(&service, "anna", &token)).await, "anna");
    let carl = world.known().subject("carl", FAR);
    assert_eq!(sub(whoami(&service, "carl", &carl)).await, "carl");
    assert!(!error(&service).await.contains("exchanged"), "{}", error(&service).await);
}

/// The header is a credential for every server, because one of them exchanges it.
#[tokio::test(flavor = "multi_thread")]
async fn the_header_is_forwarded_to_no_other_server_unless_its_entry_names_it() {
    let world = world::start();
    let (all, named) = (HttpServer::start(&["headers"]), HttpServer::start(&["headers"]));
    let other = |server: &HttpServer, whitelist: Value| {
        let rules = json!({"enabled": true, "whitelist": whitelist});
        json!({"type": "http", "url": format!("http://127.0.0.1:{}/mcp", server.port), "client_header_forwarding": rules})
    };
    let servers = json!({
        "jira": entry(&world, &json!({})), "all": other(&all, json!([])), "named": other(&named, json!([HEADER])),
    });
    let service = start(servers).await;
    let token = world.known().subject("anna", FAR);
    assert_eq!(sub(whoami(&service, "anna", &token)).await, "anna");
    let received = async |path: &str| {
        let request = of(&service, "anna", Method::POST, path).header(HEADER, &token).header("x-other", "harmless").json(&json!({}));
        answer(request).await.1
    };
    service.until(|ready| ready["servers"].as_array().unwrap().iter().all(|server| server["tools"] != 0)).await;
    let headers = received("/all/request_headers").await;
    assert_eq!((&headers["x-other"], &headers["x-user-token"]), (&json!("harmless"), &Value::Null), "{headers}");
    assert_eq!(received("/named/request_headers").await["x-user-token"], json!(token));
}

/// The API checks entries as the servers file's are checked, and never shows the client's secret.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_the_api_exchanges_too() {
    let world = world::start();
    let environment =
        vec![("TOOLSIEVE_ACCESS__TRUST_USERS", "true"), ("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_SECRETS_KEY", super::KEY)];
    let own = HttpServer::start(&[]);
    let servers = json!({"own": {"type": "http", "url": format!("http://127.0.0.1:{}/mcp", own.port)}});
    let service = Start { servers, key: Some(keys::KEY), environment, ..Start::default() }.start().await;
    let put = async |entry: &Value| administer(&service, Method::PUT, "/v1/admin/servers/jira", entry).await;
    for (more, pointer) in [
        (json!({"exchange": {"header": "Authorization"}}), "/auth/exchange/header"),
        (json!({"exchange": {}}), "/auth/exchange"),
        (json!({"exchange": "x-user-token"}), "/auth/exchange"),
        (json!({"issuer": null}), "/auth"),
        (json!({"client_secret": null}), "/auth"),
        (json!({"for": "all"}), "/auth/for"),
    ] {
        let (status, body) = put(&entry(&world, &more)).await;
        assert_eq!((status, &body["errors"][0]["pointer"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!(pointer)), "{more}: {body}");
    }
    let (status, body) = put(&entry(&world, &json!({}))).await;
    assert!(status.is_success() && !body.to_string().contains("s3cret"), "{body}");
    let token = world.known().subject("anna", FAR);
    assert_eq!(sub(whoami(&service, "anna", &token)).await, "anna");
    let folder = service.stop().await;
    assert_eq!(found_in_store(&folder, &["s3cret".to_owned(), token]), Vec::<String>::new());
}

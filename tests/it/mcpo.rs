//! What only a peer of our own can show: headers and tokens that reach an MCP server, the meta-tools, and HTTPS.
//!
//! That names, addresses, statuses and results are those of mcpo is shown against the real one, in `tests/mcpo`.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolsieve::settings::McpoSettings;

use crate::harness::servers::store_tokens;
use crate::harness::{Running, Start, stdio};

/// What an MCP server behind OAuth and its authorisation server hold.
struct Peer {
    /// Tokens that are let in; none: everybody is.
    tokens: Mutex<Vec<String>>,
    /// Forms that the token endpoint got.
    renewals: Mutex<Vec<String>>,
    renews: bool,
}

async fn mcp(request: HttpRequest, body: web::Bytes, peer: web::Data<Peer>) -> HttpResponse {
    let given = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let tokens = peer.tokens.lock().unwrap().clone();
    if !tokens.is_empty() && !tokens.iter().any(|token| given.as_deref() == Some(&format!("Bearer {token}"))) {
        return HttpResponse::Unauthorized().finish();
    }
    let message: Value = serde_json::from_slice(&body).unwrap();
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "the-program", "title": "The Title", "version": "7"}
        }),
        "tools/list" => json!({"tools": [{"name": "headers", "inputSchema": {"type": "object"}}]}),
        "tools/call" => {
            let headers: serde_json::Map<String, Value> =
                request.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().into())).collect();
            json!({"content": [{"type": "text", "text": Value::Object(headers).to_string()}]})
        }
        _ if message.get("id").is_none() => return HttpResponse::Accepted().finish(),
        _ => return HttpResponse::Ok().json(json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})),
    };
    HttpResponse::Ok().json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

async fn renew(body: String, peer: web::Data<Peer>) -> HttpResponse {
    peer.renewals.lock().unwrap().push(body);
    if !peer.renews {
        return HttpResponse::BadRequest().json(json!({"error": "invalid_grant"}));
    }
    HttpResponse::Ok().json(json!({"access_token": "renewed", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "second"}))
}

/// The peer, listening, and its address.
fn peer(tokens: &[&str], renews: bool) -> (web::Data<Peer>, String) {
    let tokens = Mutex::new(tokens.iter().map(ToString::to_string).collect());
    let peer = web::Data::new(Peer { tokens, renewals: Mutex::default(), renews });
    let state = peer.clone();
    let server = HttpServer::new(move || {
        let metadata = |request: HttpRequest| async move {
            let base = format!("http://{}", request.connection_info().host());
            HttpResponse::Ok().json(json!({"issuer": base, "token_endpoint": format!("{base}/oauth/renew")}))
        };
        App::new()
            .app_data(state.clone())
            .route("/mcp", web::post().to(mcp))
            .route("/.well-known/oauth-authorization-server", web::get().to(metadata))
            .route("/oauth/renew", web::post().to(renew))
    });
    let server = server.workers(1).disable_signals().bind(("127.0.0.1", 0)).unwrap();
    let address = format!("http://{}", server.addrs()[0]);
    tokio::spawn(server.run());
    (peer, address)
}

async fn with_oauth(address: &str, home: &Path) -> Running {
    let home: &'static str = home.to_str().unwrap().to_owned().leak();
    let servers = json!({"remote": {
        "type": "streamable-http", "url": format!("{address}/mcp"), "oauth": {"server_url": format!("{address}/mcp")}
    }});
    Start { servers, environment: vec![("HOME", home)], ..Start::default() }.start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_the_caller_reach_the_server_that_may_have_them() {
    let (_, address) = peer(&[], false);
    let url = format!("{address}/mcp");
    let entry = |rules: Value| json!({"type": "http", "url": url, "headers": {"X-Fixed": "1"}, "client_header_forwarding": rules});
    let service = Running::on(json!({
        "open": entry(json!({"enabled": true, "whitelist": ["X-User-*", "X-Fixed"], "blacklist": ["X-User-Secret*"]})),
        "off": entry(json!({"enabled": false, "whitelist": ["*"]})),
    }))
    .await;
    let ask = async |path: &str, body: Value| {
        let request = service.request(Method::POST, path).json(&body);
        let request = request.header("x-user-id", "u1").header("x-user-secret-1", "s").header("x-other", "o").header("x-fixed", "2");
        request.bearer_auth("of-the-caller").send().await.unwrap().json::<Value>().await.unwrap()
    };
    for (path, body) in [("/open/headers", json!({})), ("/v1/tools/call", json!({"name": "open__headers"}))] {
        let seen = ask(path, body).await;
        assert_eq!((&seen["x-user-id"], &seen["x-fixed"]), (&json!("u1"), &json!("2")), "{seen}");
        for hidden in ["x-user-secret-1", "x-other", "authorization"] {
            assert!(seen.get(hidden).is_none(), "{hidden}: {seen}");
        }
    }
    let seen = ask("/off/headers", json!({})).await;
    assert_eq!((seen.get("x-user-id"), &seen["x-fixed"]), (None, &json!("1")), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_mcpo_is_sent() {
    let (peer, address) = peer(&["first"], false);
    let home = tempfile::tempdir().unwrap();
    store_tokens(home.path(), &json!({"access_token": "first", "token_type": "Bearer", "expires_in": 3600}));
    let service = with_oauth(&address, home.path()).await;
    service.settled().await;
    let (status, seen) = service.post("/remote/headers", &json!({})).await;
    assert_eq!((status, seen["authorization"].as_str()), (StatusCode::OK, Some("Bearer first")));
    assert!(peer.renewals.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_renewed_when_it_ends_and_when_it_is_refused_and_is_kept() {
    // One that is over at once, and one that the server does not take.
    for lasts in [json!(0), json!(3600)] {
        let (peer, address) = peer(&["renewed"], true);
        let home = tempfile::tempdir().unwrap();
        store_tokens(home.path(), &json!({"access_token": "first", "expires_in": lasts, "refresh_token": "re fresh"}));
        let service = with_oauth(&address, home.path()).await;
        service.settled().await;
        assert_eq!(service.post("/remote/headers", &json!({})).await.1["authorization"], "Bearer renewed");
        let renewals = peer.renewals.lock().unwrap().clone();
        assert_eq!(renewals.len(), 1, "{renewals:?}");
        for part in ["grant_type=refresh_token", "refresh_token=re+fresh", "client_id=id-1", "client_secret=secret-1", "resource="] {
            assert!(renewals[0].contains(part), "{part} is not in {}", renewals[0]);
        }
        let kept = fs::read_dir(service.folder.path().join("data/oauth")).unwrap().next().unwrap().unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&kept.metadata().unwrap()) & 0o777, 0o600);
        assert!(fs::read_to_string(kept.path()).unwrap().contains("second"), "the new refresh token");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_server_from_a_token_is_reported() {
    let cases = [
        (None, "mcpo has stored no token"),
        (Some(json!({"access_token": "first", "expires_in": 0})), "there is no refresh token"),
        (Some(json!({"access_token": "first", "expires_in": 0, "refresh_token": "r"})), "HTTP 400"),
    ];
    for (token, words) in cases {
        let (_, address) = peer(&["other"], false);
        let home = tempfile::tempdir().unwrap();
        if let Some(token) = token {
            store_tokens(home.path(), &token);
        }
        let service = with_oauth(&address, home.path()).await;
        let ready = service.until(|body| body["servers"][0]["phase"] == "retrying").await;
        let error = ready["servers"][0]["error"].as_str().unwrap();
        assert!(error.contains(words) && error.contains("mcpo"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_servers_are_mcpo_s_and_the_one_of_everything_is_ours() {
    let (_, address) = peer(&[], false);
    let servers = json!({"remote": {"type": "http", "url": format!("{address}/mcp")}, "one": stdio(&[])});
    let mcpo = McpoSettings { path_prefix: "/pre".into(), root_path: "/base".into(), ..McpoSettings::default() };
    let service = Start { servers, mcpo: Some(mcpo), ..Start::default() }.start().await;
    service.settled().await;
    let (_, document) = service.get("/pre/remote/openapi.json").await;
    assert_eq!((&document["info"]["title"], &document["info"]["version"]), (&json!("the-program"), &json!("7")));
    assert_eq!(document["servers"], json!([{"url": "/base/pre/remote"}]));
    assert_eq!(document["paths"].as_object().unwrap().keys().collect::<Vec<_>>(), ["/headers"]);
    assert_eq!(document["paths"]["/headers"]["post"]["operationId"], "tool_headers_post");
    let (_, meta) = service.get("/base/pre/remote/openapi.json?mode=meta").await;
    assert!(meta["paths"]["/v1/tools/search"].is_object(), "{meta}");

    let (_, all) = service.get("/openapi.json").await;
    assert_eq!(
        all["paths"]["/pre/remote/headers"]["post"]["operationId"],
        "remote__headers",
        "{:?}",
        all["paths"].as_object().unwrap().keys()
    );
    for base in ["", "/base"] {
        assert_eq!(service.post(&format!("{base}/pre/one/echo"), &json!({"a": 1})).await, (StatusCode::OK, json!({"a": 1})));
        assert_eq!(service.post(&format!("{base}/one/echo"), &json!({})).await.0, StatusCode::NOT_FOUND);
    }
}

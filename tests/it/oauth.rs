//! Refresh tokens go to the authorisation server of the sign-in, whatever an MCP server says later.

use std::path::Path;
use std::sync::Mutex;

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::servers::store_tokens;
use crate::harness::{Running, Start};

/// An MCP server or an authorisation server, as it says of itself.
#[derive(Default)]
struct Peer {
    /// Of the MCP server (RFC 9728) and of the authorisation server (RFC 8414). `null`: there are none.
    resource: Mutex<Value>,
    issuer: Mutex<Value>,
    /// Where it sends whoever wants a token.
    redirect: Mutex<Option<String>>,
    /// Forms that its token endpoint got.
    renewals: Mutex<Vec<String>>,
}

type State = web::Data<Peer>;

fn metadata(value: &Mutex<Value>) -> HttpResponse {
    match &*value.lock().unwrap() {
        Value::Null => HttpResponse::NotFound().finish(),
        value => HttpResponse::Ok().json(value),
    }
}

async fn renew(peer: State, form: String) -> HttpResponse {
    peer.renewals.lock().unwrap().push(form);
    if let Some(address) = &*peer.redirect.lock().unwrap() {
        return HttpResponse::TemporaryRedirect().append_header(("location", address.as_str())).finish();
    }
    // It ends at once, so that each connection renews it.
    HttpResponse::Ok().json(json!({"access_token": "renewed", "expires_in": 0, "refresh_token": "refresh-2"}))
}

async fn mcp(request: HttpRequest, body: web::Bytes) -> HttpResponse {
    if request.headers().get("authorization").is_none_or(|value| value != "Bearer renewed") {
        return HttpResponse::Unauthorized().finish();
    }
    let message: Value = serde_json::from_slice(&body).unwrap();
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}})
        }
        "tools/list" => json!({"tools": [{"name": "one", "inputSchema": {"type": "object"}}]}),
        _ if message.get("id").is_none() => return HttpResponse::Accepted().finish(),
        _ => return HttpResponse::Ok().json(json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})),
    };
    HttpResponse::Ok().json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

fn listen() -> (State, String) {
    let peer = State::new(Peer::default());
    let state = peer.clone();
    let server = HttpServer::new(move || {
        App::new()
            .app_data(state.clone())
            .route("/mcp", web::post().to(mcp))
            .route("/.well-known/oauth-protected-resource/mcp", web::get().to(|peer: State| async move { metadata(&peer.resource) }))
            .route("/.well-known/oauth-authorization-server", web::get().to(|peer: State| async move { metadata(&peer.issuer) }))
            .route("/renew", web::post().to(renew))
    });
    let server = server.workers(1).disable_signals().bind(("127.0.0.1", 0)).unwrap();
    let address = format!("http://{}", server.addrs()[0]);
    tokio::spawn(server.run());
    (peer, address)
}

fn set(place: &Mutex<Value>, value: Value) {
    *place.lock().unwrap() = value;
}

fn names(server: &(State, String), issuer: &str) {
    set(&server.0.resource, json!({"resource": format!("{}/mcp", server.1), "authorization_servers": [issuer]}));
}

fn issues(issuer: &(State, String)) {
    set(&issuer.0.issuer, json!({"issuer": issuer.1, "token_endpoint": format!("{}/renew", issuer.1)}));
}

fn renewals(peer: &(State, String)) -> Vec<String> {
    peer.0.renewals.lock().unwrap().clone()
}

fn sign_in(home: &Path, refresh: &str) {
    store_tokens(home, &json!({"access_token": "first", "expires_in": 0, "refresh_token": refresh}));
}

async fn start(address: &str, home: &Path, folder: Option<TempDir>, more: Value) -> Running {
    let home: &'static str = home.to_str().unwrap().to_owned().leak();
    let mut oauth = json!({"server_url": format!("{address}/mcp")});
    oauth.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let servers = json!({"remote": {"type": "streamable-http", "url": format!("{address}/mcp"), "oauth": oauth}});
    Start { servers, environment: vec![("HOME", home)], folder, ..Start::default() }.start().await
}

async fn connected(service: &Running) {
    service.until(|body| body["servers"][0]["phase"] == "connected").await;
}

/// Why the server is not connected.
async fn refused(service: &Running) -> String {
    let ready = service.until(|body| body["servers"][0]["phase"] == "retrying").await;
    ready["servers"][0]["error"].as_str().unwrap().to_owned()
}

/// What the server and the authorization server say of themselves.
type Metadata = fn(&(State, String), &(State, String));

/// Refresh token and client secret went to whatever address a server's metadata named, with every attempt.
#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_somebody_else_are_not_followed() {
    let elsewhere = "https://something.else.example/";
    let cases: [(&str, Metadata); 6] = [
        ("describes another resource: `https://something.else.example/`", |server, issuer| {
            issues(issuer);
            set(&server.0.resource, json!({"resource": "https://something.else.example/", "authorization_servers": [issuer.1]}));
        }),
        ("describes another resource: ``", |server, issuer| {
            issues(issuer);
            set(&server.0.resource, json!({"authorization_servers": [issuer.1]}));
        }),
        ("names another issuer: `https://not-me.example`", |server, issuer| {
            names(server, &issuer.1);
            set(&issuer.0.issuer, json!({"issuer": "https://not-me.example", "token_endpoint": format!("{}/renew", issuer.1)}));
        }),
        ("names another issuer: ``", |server, issuer| {
            names(server, &issuer.1);
            set(&issuer.0.issuer, json!({"token_endpoint": format!("{}/renew", issuer.1)}));
        }),
        ("is not https", |server, issuer| {
            names(server, &issuer.1);
            set(&issuer.0.issuer, json!({"issuer": issuer.1, "token_endpoint": "http://something.else.example/renew"}));
        }),
        ("HTTP 307", |server, issuer| {
            names(server, &issuer.1);
            issues(issuer);
            *issuer.0.redirect.lock().unwrap() = Some(format!("{}/renew", server.1));
        }),
    ];
    for (words, arrange) in cases {
        let (server, issuer) = (listen(), listen());
        arrange(&server, &issuer);
        let home = tempfile::tempdir().unwrap();
        sign_in(home.path(), "refresh-1");
        let service = start(&server.1, home.path(), None, json!({})).await;
        let error = refused(&service).await;
        assert!(error.contains(words), "{words}: {error}");
        assert_eq!(renewals(&server), Vec::<String>::new(), "{words}: no redirect is followed");
        assert!(words == "HTTP 307" || renewals(&issuer).is_empty(), "{words}: {elsewhere}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_issuer_of_a_sign_in_stays_its_issuer() {
    let (server, first, other) = (listen(), listen(), listen());
    issues(&first);
    issues(&other);
    names(&server, &first.1);
    let home = tempfile::tempdir().unwrap();
    sign_in(home.path(), "refresh-1");
    let service = start(&server.1, home.path(), None, json!({})).await;
    connected(&service).await;
    let before = renewals(&first);
    assert!(before[0].contains("refresh_token=refresh-1") && before[0].contains("client_secret=secret-1"), "{before:?}");

    // The server is somebody else's now.
    names(&server, &other.1);
    let service = start(&server.1, home.path(), Some(service.stop().await), json!({})).await;
    connected(&service).await;
    assert!(renewals(&first).len() > before.len() && renewals(&first).last().unwrap().contains("refresh_token=refresh-2"));
    assert_eq!(renewals(&other), Vec::<String>::new());

    // Whoever signs in anew does so with the authorisation server of now.
    let folder = service.stop().await;
    sign_in(home.path(), "refresh-3");
    let service = start(&server.1, home.path(), Some(folder), json!({})).await;
    connected(&service).await;
    assert!(renewals(&other)[0].contains("refresh_token=refresh-3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configured_issuer_is_the_only_one() {
    let (server, named, configured) = (listen(), listen(), listen());
    issues(&named);
    issues(&configured);
    names(&server, &named.1);
    let home = tempfile::tempdir().unwrap();
    sign_in(home.path(), "refresh-1");
    let service = start(&server.1, home.path(), None, json!({"issuer": configured.1})).await;
    connected(&service).await;
    assert!(!renewals(&configured).is_empty() && renewals(&named).is_empty());
}

/// A server in the network's own range may have its sign-in there; any other may not lead a request into it.
#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_refused_where_they_are_not_allowed() {
    for (more, is_allowed) in [(json!({}), true), (json!({"private_addresses": true}), true), (json!({"private_addresses": false}), false)]
    {
        let (server, issuer) = (listen(), listen());
        issues(&issuer);
        names(&server, &issuer.1);
        let home = tempfile::tempdir().unwrap();
        sign_in(home.path(), "refresh-1");
        let service = start(&server.1, home.path(), None, more).await;
        if is_allowed {
            connected(&service).await;
        } else {
            let error = refused(&service).await;
            assert!(error.contains("private"), "{error}");
        }
        assert_eq!(renewals(&issuer).is_empty(), !is_allowed);
    }
}

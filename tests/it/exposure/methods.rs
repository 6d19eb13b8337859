//! HEAD and OPTIONS, as probes and proxies send them.

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::socket::{Socket, head};
use crate::harness::keys::{self, ADMIN};
use crate::harness::{LONG, Start, stdio};

const KEY: &str = "the-key-of-the-service";

/// Before, a probe with HEAD saw the service down.
#[tokio::test(flavor = "multi_thread")]
async fn head_answers_wherever_get_does() {
    let service = Start { servers: json!({"one": stdio(&[])}), key: Some(KEY), ..Start::default() }.start().await;
    service.settled().await;
    for path in [
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/openapi.json?mode=meta",
        "/one/openapi.json",
        "/metrics",
        "/docs/",
        "/one/docs/",
        "/v1/toolsets",
        "/v1/files/x",
        "/nothing",
    ] {
        let get = service.request(Method::GET, path).send().await.unwrap();
        let head = service.request(Method::HEAD, path).send().await.unwrap();
        assert_eq!(head.status(), get.status(), "{path}");
        for name in ["content-type", "etag", "content-security-policy"] {
            assert_eq!(head.headers().get(name), get.headers().get(name), "{path}: {name}");
        }
        // Metrics and states change, and a request has an id of its own.
        if path.contains("openapi") || path.contains("docs") {
            assert_eq!(head.headers().get("content-length"), get.headers().get("content-length"), "{path}");
        }
        assert_eq!(head.bytes().await.unwrap().len(), 0, "{path}");
    }
    let open = reqwest::Client::new();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(open.head(format!("{}{path}", service.url)).send().await.unwrap().status(), StatusCode::OK, "{path}");
    }
    let refused = open.head(format!("{}/openapi.json", service.url)).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    // The stream of a session has no head.
    let stream = service.request(Method::HEAD, "/mcp").header("accept", "text/event-stream").send();
    assert_eq!(tokio::time::timeout(LONG, stream).await.unwrap().unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
}

/// Regression: the stream of events went on unseen after the answer to HEAD, so the connection never answered another request.
#[tokio::test(flavor = "multi_thread")]
async fn the_head_of_a_stream_leaves_its_connection_free() {
    let service = keys::start(&[]).await;
    let mut socket = Socket::to(&service).await;
    for (method, path) in [("HEAD", "/v1/admin/events/stream"), ("HEAD", "/v1/admin/events/stream"), ("GET", "/v1/admin/policy")] {
        socket.send(head(method, path, Some(ADMIN), "\r\n")).await;
        let answer = socket.answer().await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{method} {path}: {answer}");
        assert_eq!(answer.contains("text/event-stream"), method == "HEAD", "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn options_says_what_there_is() {
    let service = Start { servers: json!({"one": stdio(&[])}), key: Some(KEY), ..Start::default() }.start().await;
    service.settled().await;
    for (path, allow) in [
        ("/healthz", "GET, HEAD, OPTIONS"),
        ("/one/openapi.json", "GET, HEAD, OPTIONS"),
        ("/one/echo", "POST, OPTIONS"),
        ("/v1/filter", "POST, OPTIONS"),
        ("/v1/secrets/one/token", "PUT, DELETE, OPTIONS"),
    ] {
        let response = service.request(Method::OPTIONS, path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::NO_CONTENT, "{path}");
        assert_eq!(response.headers()["allow"], allow, "{path}");
    }
    // What a path does not support gets the same list.
    for (method, path, allow) in [(Method::GET, "/one/echo", "POST, OPTIONS"), (Method::DELETE, "/v1/tools/search", "POST, OPTIONS")] {
        let response = service.request(method, path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        assert_eq!(response.headers()["allow"], allow, "{path}");
    }
    let open = reqwest::Client::new();
    for (path, status) in
        [("/healthz", StatusCode::NO_CONTENT), ("/readyz", StatusCode::NO_CONTENT), ("/v1/filter", StatusCode::UNAUTHORIZED)]
    {
        let response = open.request(Method::OPTIONS, format!("{}{path}", service.url)).send().await.unwrap();
        assert_eq!(response.status(), status, "{path}");
    }
}

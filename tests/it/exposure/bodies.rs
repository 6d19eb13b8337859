//! Bodies that nobody wants, that do not come, or that are larger than they look.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::socket::{Socket, head};
use crate::harness::wait::eventually;
use crate::harness::{Running, Start, stdio};

const KEY: &str = "the-key-of-the-service";
/// Routes of every kind that read a body.
const ROUTES: [&str; 6] = ["/one/echo", "/v1/filter", "/v1/tools/call", "/v1/feedback", "/mcp", "/v1/tools/search"];

async fn start(environment: &[(&'static str, &'static str)]) -> Running {
    let servers = json!({"one": stdio(&[])});
    let running = Start { servers, key: Some(KEY), environment: environment.to_vec(), ..Start::default() }.start().await;
    running.settled().await;
    running
}

/// Before, 200 such connections without a key held 900 MiB.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_no_body_is_waited_for() {
    let service = start(&[]).await;
    for path in ["/v1/files/x", "/v1/files/x/y", "/one/echo", "/v1/filter", "/mcp", "/toolsets/one/v1/filter"] {
        let mut socket = Socket::to(&service).await;
        socket.send(head("POST", path, None, "Content-Length: 4194303\r\n\r\n")).await;
        let answer = socket.answer().await;
        assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("connection: close"), "{path}: {answer}");
        socket.ended().await;
    }
}

/// A body of which the end is not told is not read on after its answer.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_after_an_early_answer_is_not_read_for_long() {
    let service = start(&[]).await;
    for key in [None, Some(KEY)] {
        let mut socket = Socket::to(&service).await;
        socket.send(head("DELETE", "/no/such/route", key, "Transfer-Encoding: chunked\r\n\r\n")).await;
        let answer = socket.answer().await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
        socket.send_until_ended(b"1\r\na\r\n").await;
    }
}

/// A megabyte of it would become a gigabyte here.
#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_body_is_refused_unread() {
    let service = start(&[]).await;
    for coding in ["gzip", "deflate", "br", "zstd", "identity, gzip", "x-gzip"] {
        for path in ROUTES {
            let mut socket = Socket::to(&service).await;
            let more = format!("Content-Type: application/json\r\nContent-Encoding: {coding}\r\nContent-Length: 1000000\r\n\r\n");
            socket.send(head("POST", path, Some(KEY), &more)).await;
            let answer = socket.answer().await;
            assert!(answer.starts_with("HTTP/1.1 415 ") && answer.contains("encoded_body"), "{path} {coding}: {answer}");
        }
    }
    let plain = service.request(Method::POST, "/one/echo").header("content-encoding", "identity").body("{}").send().await.unwrap();
    assert_eq!(plain.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stops_is_answered_on_every_route() {
    let service = start(&[("TOOLSIEVE_HTTP__BODY_TIMEOUT_SECONDS", "1")]).await;
    let mut sockets = Vec::new();
    for path in ROUTES {
        for length in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
            let mut socket = Socket::to(&service).await;
            socket.send(head("POST", path, Some(KEY), &format!("{length}\r\n\r\n"))).await;
            socket.send(if length.starts_with('C') { "{\"a\"" } else { "4\r\n{\"a\"\r\n" }).await;
            sockets.push((path, socket));
        }
    }
    for (path, mut socket) in sockets {
        let answer = socket.answer().await;
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("body_too_slow"), "{path}: {answer}");
        socket.ended().await;
    }
}

/// A connection that sent most of a body and keeps the rest back.
async fn hold_a_large_body(service: &Running) -> Socket {
    let mut socket = Socket::to(service).await;
    socket.send(head("POST", "/one/echo", Some(KEY), "Content-Length: 60000\r\n\r\n")).await;
    socket.send(format!("{{\"text\":\"{}", "a".repeat(50_000))).await;
    socket
}

/// Before, such a request was never answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_another_protocol_is_answered() {
    let service = start(&[]).await;
    for (key, status) in [(None, "401"), (Some(KEY), "400")] {
        let mut socket = Socket::to(&service).await;
        socket.send(head("POST", "/one/echo", key, "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\n{}")).await;
        let answer = socket.answer().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        socket.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_bodies_together_are_bounded() {
    const LIMIT: (&str, &str) = ("TOOLSIEVE_HTTP__MAX_BODY_BYTES", "65536");
    let service = start(&[LIMIT, ("TOOLSIEVE_HTTP__MAX_BODIES_BYTES", "65536")]).await;
    let large = json!({"text": "a".repeat(50_000)});
    assert_eq!(service.post("/one/echo", &large).await.0, StatusCode::OK);

    // A body that came while another one was read is the one that was refused, so there may be several tries.
    let mut holding = vec![hold_a_large_body(&service).await];
    let refused = eventually("a large body is refused", async || {
        let response = service.request(Method::POST, "/one/echo").json(&large).send().await.unwrap();
        if response.status() == StatusCode::OK {
            holding.push(hold_a_large_body(&service).await);
            return None;
        }
        Some(response)
    })
    .await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(refused.json::<Value>().await.unwrap()["code"], "overloaded");
    assert_eq!(service.post("/one/echo", &json!({"a": 1})).await.0, StatusCode::OK, "what still fits has room");

    drop(holding);
    eventually("what was held is free again", async || service.post("/one/echo", &large).await.0 == StatusCode::OK).await;
}

//! Connections that are held for nothing, and too many of them. `benches/hostile.py` does the same with thousands, and measures.

use std::process::Command;

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::socket::{Socket, head};
use crate::harness::process::Service;
use crate::harness::wait::eventually;
use crate::harness::{Start, stdio};

const KEY: &str = "the-key-of-the-service";
/// The service has 120 descriptors.
const SILENT: usize = 300;

/// Before, half of a second request held a connection for ever.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_head_has_a_clock_as_the_first() {
    let service = Start { servers: json!({"one": stdio(&[])}), key: Some(KEY), ..Start::default() }.start().await;
    for (path, key) in [("/healthz", None), ("/openapi.json", Some(KEY))] {
        let mut socket = Socket::to(&service).await;
        socket.send(head("GET", path, key, "\r\n")).await;
        assert!(socket.answer().await.starts_with("HTTP/1.1 200 "));
        socket.send(head("GET", path, key, "X-Half: ")).await;
        socket.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_who_asks_for_nothing_is_ended() {
    let service = Start { servers: json!({"one": stdio(&[])}), key: Some(KEY), ..Start::default() }.start().await;
    let mut sockets = Vec::new();
    for begin in ["", "GET", "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Half: "] {
        let mut socket = Socket::to(&service).await;
        socket.send(begin).await;
        sockets.push(socket);
    }
    for mut socket in sockets {
        socket.ended().await;
    }
}

/// Toolsieve with so many descriptors, as `ulimit -n` sets them.
fn with_few_descriptors(command: &mut Command) {
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).map(ToOwned::to_owned).collect();
    let mut limited = Command::new("sh");
    limited.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("TOOLSIEVE_API_KEY", KEY);
    limited.args(["-c", "ulimit -n 120; exec \"$@\"", "sh"]).args(words).stdin(std::process::Stdio::null());
    *command = limited;
}

/// Before, nobody got an answer until the connections were let go, and the log said nothing.
#[tokio::test(flavor = "multi_thread")]
async fn with_few_descriptors_strangers_go_and_callers_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), &json!({"one": stdio(&[])}), with_few_descriptors);
    let client = reqwest::Client::new();
    let call = || client.post(format!("{}/one/echo", service.url)).bearer_auth(KEY).body("{}").send();
    eventually("the server answers", async || call().await.unwrap().status() == StatusCode::OK).await;
    let mut silent = Vec::new();
    for number in 0..SILENT {
        silent.push(Socket::connect(&service.url).await);
        if number % 20 == 0 {
            assert_eq!(call().await.unwrap().status(), StatusCode::OK, "with {number} silent connections");
            // On a connection of its own.
            let healthy = reqwest::get(format!("{}/healthz", service.url)).await.unwrap();
            assert_eq!(healthy.status(), StatusCode::OK, "with {number} silent connections");
        }
    }
    service.until_logged("too many connections");
    // The oldest of them have been ended.
    silent[0].ended().await;
    let metrics = client.get(format!("{}/metrics", service.url)).bearer_auth(KEY).send().await.unwrap().text().await.unwrap();
    let ended = metrics.lines().find_map(|line| line.strip_prefix("toolsieve_http_connections_ended_total ")).unwrap();
    assert!(ended.parse::<usize>().unwrap() > SILENT - 120, "{ended}");
}

/// What the process holds in memory, in bytes.
fn resident(service: &Service) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.process.id())).unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().trim().trim_end_matches(" kB").to_owned();
    kib.parse::<usize>().unwrap() << 10
}

/// What of 64 MiB for 2,000 is theirs.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_connections_cost_little() {
    const EACH_KIND: usize = 60;
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), &json!({"one": stdio(&[])}), |command| {
        command.env("TOOLSIEVE_API_KEY", KEY);
    });
    let client = reqwest::Client::new();
    let call = || client.post(format!("{}/one/echo", service.url)).bearer_auth(KEY).body("{}").send();
    // Embedding takes memory too.
    let is_embedded = async || {
        let ready: Value = client.get(format!("{}/readyz", service.url)).bearer_auth(KEY).send().await.unwrap().json().await.unwrap();
        ready["tools"].as_u64() > Some(0) && ready["index"]["embedded"] == ready["tools"]
    };
    eventually("all tools are embedded", is_embedded).await;
    for _ in 0..200 {
        assert_eq!(call().await.unwrap().status(), StatusCode::OK);
    }
    let before = resident(&service);
    let large = "a".repeat(1 << 20);
    let kinds = [
        String::new(),
        "GET /op".to_owned(),
        head("GET", "/openapi.json", None, "X-Half: "),
        head("POST", "/one/echo", None, "Content-Length: 1000\r\n\r\nabc"),
        head("POST", "/v1/files/x", None, &format!("Content-Length: 4194303\r\n\r\n{large}")),
        head("POST", "/v1/files/x", None, "Content-Encoding: gzip\r\nContent-Length: 1000000\r\n\r\n"),
        head("POST", "/one/echo", None, "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n"),
        head("POST", "/mcp", None, "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 100\r\n\r\n"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        // Before, each of them was a parsed request in memory at once.
        head("GET", "/readyz", None, "\r\n").repeat(64),
    ];
    let mut held = Vec::new();
    let mut most = 0;
    for kind in &kinds {
        for _ in 0..EACH_KIND {
            let socket = Socket::connect(&service.url).await;
            // Whatever is still wanted of it.
            held.push(socket.sending(kind).await);
        }
        assert_eq!(call().await.unwrap().status(), StatusCode::OK);
        most = most.max(resident(&service));
    }
    let (count, cost) = (held.len(), most.saturating_sub(before));
    println!("{count} hostile connections cost {} KiB", cost >> 10);
    assert!(cost < (64 << 20) * count / 2_000 + (16 << 20), "{cost} bytes for {count}");
}

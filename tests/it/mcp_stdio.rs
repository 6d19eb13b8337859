//! `toolsieve mcp-stdio`, the built binary, in front of a running service.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::mcp::bridge::Bridge;
use crate::harness::mcp::{newer_era, request};
use crate::harness::{Running, Start, example, stdio};

#[tokio::test(flavor = "multi_thread")]
async fn messages_go_both_ways() {
    let environment = vec![("TOOLSIEVE_MCP__ELICITATION", "true")];
    let service = Start { servers: json!({"one": stdio(&["more"])}), key: Some("the-key"), environment, ..Start::default() }.start().await;
    service.settled().await;
    // The server has more tools than a list without a mode.
    let mut bridge = Bridge::start(&format!("{}/mcp?mode=full", service.url), Some("the-key"));
    let welcome = bridge.greet(json!({"elicitation": {}})).await;
    assert_eq!((&welcome["id"], &welcome["result"]["capabilities"]["tools"]["listChanged"]), (&json!(0), &json!(true)), "{welcome}");
    bridge.send(&request(1, "tools/list", &json!({}))).await;
    let listed = bridge.next().await;
    assert!(listed["result"]["tools"].to_string().contains("one__echo"), "{listed}");
    // What the service says by itself.
    bridge.send(&request(2, "tools/call", &json!({"name": "one__add_tool", "arguments": {}}))).await;
    let both = [bridge.next().await, bridge.next().await];
    assert!(both.iter().any(|message| message["id"] == 2), "{both:?}");
    assert!(both.iter().any(|message| message["method"] == "notifications/tools/list_changed"), "{both:?}");
    // A question in the middle of a call, and progress.
    bridge.send(&request(3, "tools/call", &json!({"name": "one__ask_user", "arguments": {"message": "?"}}))).await;
    let question = bridge.next().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    bridge.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})).await;
    let done = bridge.next().await;
    assert!(done["id"] == 3 && done["result"]["content"][0]["text"].as_str().unwrap().contains("decline"), "{done}");
    let steps = json!({"name": "one__progress", "arguments": {"steps": 2}, "_meta": {"progressToken": 1}});
    bridge.send(&request(4, "tools/call", &steps)).await;
    assert_eq!(bridge.next().await["method"], "notifications/progress");
    assert_eq!(bridge.next().await["method"], "notifications/progress");
    // What is asked last is answered before the end.
    assert_eq!(bridge.next().await["id"], 4);
    bridge.send(&request(5, "tools/call", &json!({"name": "one__echo", "arguments": {"last": true}}))).await;
    let (code, rest) = bridge.end().await;
    assert_eq!(code, Some(0));
    assert!(rest.contains("\"id\":5"), "{rest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newer_era_passes_too() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    let mut bridge = Bridge::start(&format!("{}/mcp", service.url), None);
    let call = json!({"name": "one__echo", "arguments": {"a": "grüße"}, "_meta": newer_era()});
    bridge.send(&request(1, "tools/call", &call)).await;
    let echoed = bridge.next().await;
    assert_eq!(echoed["result"]["structuredContent"], json!({"a": "grüße"}), "{echoed}");
    assert_eq!(echoed["result"]["resultType"], "complete", "{echoed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_the_newer_era_is_cancelled_by_going_away() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    let mut bridge = Bridge::start(&format!("{}/mcp", service.url), None);
    let call = |name: &str, arguments: Value| json!({"name": name, "arguments": arguments, "_meta": newer_era()});
    bridge.send(&request(1, "tools/call", &call("one__sleep", json!({})))).await;
    bridge.send(&request(2, "tools/call", &call("one__wait_sleeping", json!({})))).await;
    assert_eq!(bridge.next().await["id"], 2);
    bridge.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})).await;
    bridge.send(&request(3, "tools/call", &call("one__wait_cancelled", json!({})))).await;
    assert_eq!(bridge.next().await["id"], 3);
    assert_eq!(bridge.end().await, (Some(0), String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_a_session_is_cancelled_by_its_notification() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    let mut bridge = Bridge::start(&format!("{}/mcp?mode=full", service.url), None);
    bridge.greet(json!({})).await;
    let call = |name: &str| json!({"name": name, "arguments": {}});
    bridge.send(&request(1, "tools/call", &call("one__sleep"))).await;
    bridge.send(&request(2, "tools/call", &call("one__wait_sleeping"))).await;
    assert_eq!(bridge.next().await["id"], 2);
    bridge.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})).await;
    bridge.send(&request(3, "tools/call", &call("one__wait_cancelled"))).await;
    // Whether a cancelled request is answered is up to the service.
    while bridge.next().await["id"] != 3 {}
    assert_eq!(bridge.end().await.0, Some(0));
}

/// A load balancer in front of one service, which may become another one.
#[derive(Default)]
struct Balancer {
    target: Mutex<String>,
    /// Number of sessions that clients have begun.
    greetings: AtomicUsize,
}

impl Balancer {
    async fn listen(self: &Arc<Self>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let balancer = Arc::clone(self);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let balancer = Arc::clone(&balancer);
                tokio::spawn(async move { balancer.pass(client).await });
            }
        });
        format!("http://{address}")
    }

    async fn pass(&self, client: TcpStream) {
        let to = self.target.lock().clone();
        let Ok(service) = TcpStream::connect(to.trim_start_matches("http://")).await else { return };
        let ((mut from_client, mut to_client), (mut from_service, mut to_service)) = (client.into_split(), service.into_split());
        let asking = async {
            let mut part = vec![0; 65_536];
            while let Ok(read @ 1..) = from_client.read(&mut part).await {
                let greets = String::from_utf8_lossy(&part[..read]).contains("\"initialize\"");
                self.greetings.fetch_add(usize::from(greets), Ordering::Relaxed);
                if to_service.write_all(&part[..read]).await.is_err() {
                    break;
                }
            }
        };
        tokio::select! {
            () = asking => {}
            _ = copy(&mut from_service, &mut to_client) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_waiting_requests_go_on_in_one_new_session() {
    let start = async || {
        let service = Running::on(json!({"one": stdio(&[])})).await;
        service.settled().await;
        service
    };
    let service = start().await;
    let balancer = Arc::new(Balancer::default());
    balancer.target.lock().clone_from(&service.url);
    let mut bridge = Bridge::start(&format!("{}/mcp?mode=full", balancer.listen().await), None);
    bridge.greet(json!({})).await;
    let call = json!({"name": "one__echo", "arguments": {"a": 1}});
    bridge.send(&request(1, "tools/call", &call)).await;
    assert_eq!(bridge.next().await["id"], 1);
    drop(service.stop().await);
    let service = start().await;
    balancer.target.lock().clone_from(&service.url);
    for number in 2..10 {
        bridge.send(&request(number, "tools/call", &call)).await;
    }
    let mut answered = BTreeSet::new();
    while answered.len() < 8 {
        let answer = bridge.next().await;
        if let Some(id) = answer["id"].as_u64() {
            assert_eq!(answer["result"]["structuredContent"], json!({"a": 1}), "{answer}");
            answered.insert(id);
        }
    }
    assert_eq!(balancer.greetings.load(Ordering::Relaxed), 2, "one before the restart, and one for all requests after it");
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_go_into_headers_do() {
    let schema = json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    let tools = json!([{"name": "ask", "inputSchema": schema}]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tools.json");
    std::fs::write(&file, tools.to_string()).unwrap();
    let server = json!({"command": example("test-replay-server"), "args": [file]});
    let service = Running::on(json!({"one": server})).await;
    for path in ["/mcp", "/mcp?mode=lazy"] {
        let mut bridge = Bridge::start(&format!("{}{path}", service.url), None);
        for (number, region) in [(1, "eu"), (2, "São Paulo")] {
            let call = json!({"name": "one__ask", "arguments": {"region": region}, "_meta": newer_era()});
            bridge.send(&request(number, "tools/call", &call)).await;
            let answer = bridge.next().await;
            assert!(
                answer["id"] == number && answer["result"]["content"][0]["text"].as_str().is_some_and(|text| text.contains(region)),
                "{path}: {answer}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_it_from_working_is_reported_to_the_client() {
    let service = Start { servers: json!({"one": stdio(&[])}), key: Some("the-key"), ..Start::default() }.start().await;
    for (url, key, words) in [
        (format!("{}/mcp", service.url), None, "TOOLSIEVE_API_KEY"),
        (format!("{}/mcp", service.url), Some("wrong"), "TOOLSIEVE_API_KEY"),
        (format!("{}/nothing/mcp", service.url), Some("the-key"), "404"),
        ("http://127.0.0.1:1/mcp".to_owned(), None, "can't be reached"),
    ] {
        let mut bridge = Bridge::start(&url, key);
        let refused = bridge.greet(json!({})).await;
        let message = refused["error"]["message"].as_str().unwrap_or_else(|| panic!("{url}: {refused}"));
        assert!(refused["id"] == 0 && message.contains(words), "{url}: {message}");
        assert_eq!(bridge.end().await.0, Some(0));
    }
    let mut wrong = Bridge::start("ftp://x", None);
    let mut printed = String::new();
    wrong.process.stderr.take().unwrap().read_to_string(&mut printed).await.unwrap();
    assert!(printed.contains("http://"), "{printed}");
    assert_eq!(wrong.process.wait().await.unwrap().code(), Some(2));
}

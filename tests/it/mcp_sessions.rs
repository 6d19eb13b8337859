//! Sessions of MCP clients of the older era, over HTTP.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;
use toolsieve::service::catalog::reload::Trigger;

use crate::harness::keys::create;
use crate::harness::mcp::client::{ACCEPT, Client, SESSION};
use crate::harness::mcp::request;
use crate::harness::{LONG, Running, Start, stdio};

#[tokio::test(flavor = "multi_thread")]
async fn listeners_are_notified_when_their_list_has_changed() {
    let servers = json!({"one": stdio(&[])});
    let service = Start { servers, from_files: true, ..Start::default() }.start().await;
    service.settled().await;
    let client = Client::new(&service, "/mcp", None).greeted().await;
    let alone = Client::new(&service, "/one/mcp", None).greeted().await;
    let before = client.tools().await;
    assert!(before.contains(&"one__echo".to_owned()), "{before:?}");
    assert!(alone.tools().await.contains(&"echo".to_owned()));
    let (mut all, mut one) = (client.listen().await, alone.listen().await);
    assert_eq!(client.ask("tools/call", json!({"name": "one__add_tool", "arguments": {}})).await.0, StatusCode::OK);
    assert_eq!(all.next().await.unwrap()["method"], "notifications/tools/list_changed");
    assert_eq!(one.next().await.unwrap()["method"], "notifications/tools/list_changed");
    assert!(client.tools().await.contains(&"one__extra_1".to_owned()));
    assert!(alone.tools().await.contains(&"extra_1".to_owned()));
    // What changes elsewhere is nothing for who speaks to one server.
    service.configure(&json!({"one": stdio(&[]), "time": stdio(&["list=time"])}));
    service.reload.reload(Trigger::Request).await;
    service.settled().await;
    assert_eq!(all.next().await.unwrap()["method"], "notifications/tools/list_changed");
    assert!(client.tools().await.contains(&"time__convert_time".to_owned()));
    assert_eq!(alone.send(Method::DELETE, None).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(one.next().await, None, "it ends with the session, and told nothing before");
    // Nobody listened while it changed: it is told when somebody does.
    drop(all);
    service.configure(&json!({"one": stdio(&[])}));
    service.reload.reload(Trigger::Request).await;
    service.settled().await;
    assert_eq!(client.listen().await.next().await.unwrap()["method"], "notifications/tools/list_changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_its_callers_and_its_address() {
    let service = crate::harness::keys::start(&[]).await;
    let (_, key) = create(&service, json!({"name": "other"})).await;
    let own = Client::new(&service, "/mcp", None).greeted().await;
    let session = own.session.clone();
    assert!(session.as_ref().is_some_and(|id| id.len() == 32));
    let unknown = Client::new(&service, "/mcp", None).in_session(Some("0".repeat(32)));
    let others = Client::new(&service, "/mcp", Some(&key)).in_session(session.clone());
    let elsewhere = Client::new(&service, "/mcp?mode=meta", None).in_session(session.clone());
    let server = Client::new(&service, "/one/mcp", None).in_session(session.clone());
    let mut answers = Vec::new();
    for client in [&unknown, &others, &elsewhere, &server] {
        for method in [Method::POST, Method::GET, Method::DELETE] {
            let message = request(1, "tools/list", &json!({}));
            let response = client.send(method.clone(), (method == Method::POST).then_some(&message)).await;
            assert_eq!(response.status(), StatusCode::NOT_FOUND);
            let mut body: Value = response.json().await.unwrap();
            body["request_id"].take();
            answers.push(body);
        }
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert!(!own.tools().await.is_empty(), "it is still there");
    // Whoever keeps no session is served as ever.
    assert!(!Client::new(&service, "/mcp", None).tools().await.is_empty());
    assert_eq!(own.send(Method::DELETE, None).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(own.send(Method::POST, Some(&request(1, "tools/list", &json!({})))).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_cancelled_by_a_notification() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    let client = Client::new(&service, "/mcp", None).greeted().await;
    let sleeping = request(77, "tools/call", &json!({"name": "one__sleep", "arguments": {}}));
    let waiting = tokio::spawn(client.build(Method::POST).json(&sleeping).send());
    assert_eq!(service.post("/one/wait_sleeping", &json!({})).await.0, StatusCode::OK);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}});
    assert_eq!(client.send(Method::POST, Some(&cancel)).await.status(), StatusCode::ACCEPTED);
    assert_eq!(service.post("/one/wait_cancelled", &json!({})).await.0, StatusCode::OK);
    let response = timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!((response.status(), response.text().await.unwrap().as_str()), (StatusCode::OK, ""), "nobody waits for an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn caps_hold_and_who_has_no_key_takes_no_room() {
    let caps = [("TOOLSIEVE_MCP__SESSIONS_PER_CALLER", "2"), ("TOOLSIEVE_MCP__SESSIONS_TOTAL", "3")];
    let service = crate::harness::keys::start(&caps).await;
    for _ in 0..20 {
        let hello = request(1, "initialize", &json!({}));
        let refused = service.client.post(format!("{}/mcp", service.url)).header(ACCEPT.0, ACCEPT.1).json(&hello).send().await.unwrap();
        assert_eq!((refused.status(), refused.headers().get(SESSION)), (StatusCode::UNAUTHORIZED, None));
    }
    let client = |key| Client::new(&service, "/mcp", key);
    let (first, second) = (client(None).greeted().await, client(None).greeted().await);
    let third = client(None).greeted().await;
    assert_eq!(first.send(Method::POST, Some(&request(1, "ping", &json!({})))).await.status(), StatusCode::NOT_FOUND, "it made room");
    assert!(!second.tools().await.is_empty() && !third.tools().await.is_empty());
    let (_, key) = create(&service, json!({"name": "other"})).await;
    let (_, last) = create(&service, json!({"name": "last"})).await;
    assert!(client(Some(&key)).greeted().await.session.is_some());
    let without = client(Some(&last)).greeted().await;
    assert_eq!(without.session, None, "there is no room, and nobody else's is taken");
    assert!(!without.tools().await.is_empty(), "it is served without");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_sessions_all_is_as_it_was() {
    let environment = vec![("TOOLSIEVE_MCP__SESSIONS", "false")];
    let service = Start { servers: json!({"one": stdio(&[])}), environment, ..Start::default() }.start().await;
    service.settled().await;
    let client = Client::new(&service, "/mcp", None).greeted().await;
    assert_eq!(client.session, None);
    assert!(!client.tools().await.is_empty());
    let response = client.send(Method::GET, None).await;
    assert_eq!((response.status(), response.headers()["allow"].to_str().unwrap()), (StatusCode::METHOD_NOT_ALLOWED, "POST"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_is_reached_under_its_own_names() {
    let service = crate::harness::keys::start(&[]).await;
    let client = Client::new(&service, "/one/mcp", None).greeted().await;
    let names = client.tools().await;
    assert!(names.contains(&"echo".to_owned()) && !names.contains(&"find_tools".to_owned()), "{names:?}");
    let (_, echoed) = client.ask("tools/call", json!({"name": "echo", "arguments": {"a": 1}})).await;
    assert_eq!(echoed["result"]["structuredContent"], json!({"a": 1}));
    let (_, unknown) = client.ask("tools/call", json!({"name": "one__echo", "arguments": {}})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let rules = json!({"rules": [{"effect": "block", "tools": ["echo"]}, {"effect": "block", "servers": ["time"]}]});
    assert_eq!(crate::harness::keys::administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    assert!(!client.tools().await.contains(&"echo".to_owned()));
    let (_, denied) = client.ask("tools/call", json!({"name": "echo", "arguments": {}})).await;
    assert_eq!((&denied["error"]["code"], &denied["error"]["message"]), (&json!(-32602), &json!("Unknown tool: echo")));
    for absent in ["/time/mcp", "/nothing/mcp"] {
        let response = Client::new(&service, absent, None).send(Method::POST, Some(&request(1, "tools/list", &json!({})))).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{absent}");
    }
    // Without a stream of events it is a call of a tool that is named so.
    let (status, answer) = service.post("/one/mcp", &json!({})).await;
    assert_eq!((status, answer["code"].as_str()), (StatusCode::NOT_FOUND, Some("not_found")));
}

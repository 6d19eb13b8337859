//! What MCP clients are told of resources and lists, and what is written down of what they read.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion, ServerNotification, SubscriptionFilter};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService, Subscription, SubscriptionEnd};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::keys::{administer, create, start_on};
use crate::harness::mcp::client::{Client, Stream};
use crate::harness::process::Service;
use crate::harness::servers::http::HttpServer;
use crate::harness::wait::{eventually, when};
use crate::harness::{LONG, Running, stdio};

const NOTE: &str = "toolsieve://one/test://note";
const OTHER: &str = "toolsieve://one/test://other";
/// How long calls under way may go on after the process was told to stop: a stream that held up the stop would take all of it.
const GRACE: Duration = Duration::from_secs(5);

async fn start(environment: &[(&'static str, &'static str)]) -> Running {
    start_on(json!({"one": stdio(&["more"]), "plain": stdio(&[])}), environment).await
}

async fn result(client: &Client<'_>, method: &str, params: Value) -> Value {
    let (status, mut answer) = client.ask(method, params).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert!(answer["result"].is_object(), "{answer}");
    answer["result"].take()
}

async fn error(client: &Client<'_>, method: &str, params: Value) -> (i64, String) {
    let (_, answer) = client.ask(method, params).await;
    (answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{answer}")), answer["error"]["message"].as_str().unwrap().to_owned())
}

async fn subscribe(client: &Client<'_>, uri: &str) {
    assert_eq!(result(client, "resources/subscribe", json!({ "uri": uri })).await, json!({}));
}

/// Has the server change a resource.
async fn touch(service: &Running, uri: &str) {
    let (status, answer) = service.post("/one/touch", &json!({ "uri": uri })).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

/// Waits until this is what the server knows to be subscribed to.
async fn until_subscribed(service: &Running, uris: &[&str]) {
    let (status, answer) = service.post("/one/subscribed", &json!({ "until": uris })).await;
    assert_eq!((status, &answer["subscribed"]), (StatusCode::OK, &json!(uris)));
}

/// The next message that tells of a resource: its address. Lists may be told of in between, as after a restart.
async fn updated(stream: &mut Stream) -> String {
    loop {
        let message = stream.next().await.expect("the stream goes on");
        if message["method"] == "notifications/resources/updated" {
            return message["params"]["uri"].as_str().unwrap().to_owned();
        }
    }
}

/// Reads up to a message of this method; the addresses of resources that were told of before it.
async fn updated_before(stream: &mut Stream, method: &str) -> Vec<String> {
    let mut updated = Vec::new();
    loop {
        let message = stream.next().await.expect("the stream goes on");
        if message["method"] == method {
            return updated;
        }
        updated.extend(message["params"]["uri"].as_str().map(str::to_owned));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_are_notified_and_the_server_gets_one_request() {
    let service = start(&[]).await;
    let (first, second) = (Client::new(&service, "/mcp", None).greeted().await, Client::new(&service, "/mcp", None).greeted().await);
    let (alone, deaf) = (Client::new(&service, "/one/mcp", None).greeted().await, Client::new(&service, "/mcp", None).greeted().await);
    for (client, uri) in [(&first, NOTE), (&second, NOTE), (&second, NOTE), (&alone, "test://note"), (&first, "test://note")] {
        subscribe(client, uri).await;
    }
    until_subscribed(&service, &["test://note"]).await;
    let mut streams = [first.listen().await, second.listen().await, alone.listen().await];
    let mut deaf_stream = deaf.listen().await;
    touch(&service, "test://note").await;
    let mut of_first = [updated(&mut streams[0]).await, updated(&mut streams[0]).await];
    of_first.sort();
    assert_eq!(of_first, ["test://note", NOTE], "by each address under which it subscribed");
    assert_eq!((updated(&mut streams[1]).await.as_str(), updated(&mut streams[2]).await.as_str()), (NOTE, "test://note"));
    touch(&service, "test://note/part").await;
    assert_eq!(updated(&mut streams[1]).await, format!("{NOTE}/part"), "a part of it");
    // One goes, the others stay.
    result(&second, "resources/unsubscribe", json!({"uri": NOTE})).await;
    result(&second, "resources/unsubscribe", json!({"uri": NOTE})).await;
    touch(&service, "test://note").await;
    while updated(&mut streams[2]).await != "test://note" {}
    assert_eq!(service.post("/one/add_prompt", &json!({})).await.0, StatusCode::OK);
    assert_eq!(updated_before(&mut streams[1], "notifications/prompts/list_changed").await, [""; 0]);
    assert_eq!(updated_before(&mut deaf_stream, "notifications/prompts/list_changed").await, [""; 0]);
    until_subscribed(&service, &["test://note"]).await;
    // The last one goes: by its session's end.
    for uri in [NOTE, "test://note"] {
        result(&first, "resources/unsubscribe", json!({ "uri": uri })).await;
    }
    assert_eq!(alone.send(Method::DELETE, None).await.status(), StatusCode::NO_CONTENT);
    until_subscribed(&service, &[]).await;
    subscribe(&second, NOTE).await;
    until_subscribed(&service, &["test://note"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_while_nobody_listened_is_sent_later() {
    let service = start(&[]).await;
    let client = Client::new(&service, "/mcp", None).greeted().await;
    let witness = Client::new(&service, "/mcp", None).greeted().await;
    let mut control = witness.listen().await;
    for uri in [NOTE, OTHER] {
        subscribe(&client, uri).await;
        subscribe(&witness, uri).await;
    }
    for uri in ["test://note", "test://other", "test://note"] {
        touch(&service, uri).await;
        updated(&mut control).await;
    }
    let mut stream = client.listen().await;
    assert_eq!((updated(&mut stream).await.as_str(), updated(&mut stream).await.as_str()), (NOTE, OTHER));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_back_is_subscribed_to_again() {
    let service = start(&[]).await;
    let client = Client::new(&service, "/mcp", None).greeted().await;
    subscribe(&client, NOTE).await;
    let mut stream = client.listen().await;
    let (status, _) = service.post("/one/die", &json!({})).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(updated(&mut stream).await, NOTE, "nobody knows what happened meanwhile");
    until_subscribed(&service, &["test://note"]).await;
    touch(&service, "test://note").await;
    assert_eq!(updated(&mut stream).await, NOTE);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_over_http_are_subscribed_to_in_both_eras() {
    for words in [&["more"][..], &["more", "modern"]] {
        let http = HttpServer::start(words);
        let url = format!("http://127.0.0.1:{}/mcp", http.port);
        let service = start_on(json!({"one": {"type": "http", "url": url}}), &[]).await;
        let client = Client::new(&service, "/mcp", None).greeted().await;
        subscribe(&client, NOTE).await;
        let (code, message) = error(&client, "resources/subscribe", json!({"uri": "toolsieve://one/test://gone"})).await;
        assert_eq!(code, -32002, "{words:?}: {message}");
        let mut stream = client.listen().await;
        touch(&service, "test://note").await;
        assert_eq!(updated(&mut stream).await, NOTE, "{words:?}");
        assert_eq!(service.post("/one/add_resource", &json!({})).await.0, StatusCode::OK);
        updated_before(&mut stream, "notifications/resources/list_changed").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_list_is_announced_and_fetched_anew() {
    let service = start(&[]).await;
    let client = Client::new(&service, "/mcp", None).greeted().await;
    let plain = Client::new(&service, "/plain/mcp", None).greeted().await;
    let (mut stream, mut other) = (client.listen().await, plain.listen().await);
    for (list, member, call, method) in [
        ("prompts/list", "prompts", "/one/add_prompt", "notifications/prompts/list_changed"),
        ("resources/list", "resources", "/one/add_resource", "notifications/resources/list_changed"),
    ] {
        let count = async || result(&client, list, json!({})).await[member].as_array().unwrap().len();
        let before = count().await;
        assert_eq!(service.post(call, &json!({})).await.0, StatusCode::OK);
        updated_before(&mut stream, method).await;
        assert_eq!(count().await, before + 1, "{list}");
    }
    assert_eq!(service.post("/plain/add_tool", &json!({})).await.0, StatusCode::OK);
    assert_eq!(plain.tools().await.len(), 23);
    assert_eq!(plain.send(Method::DELETE, None).await.status(), StatusCode::NO_CONTENT);
    while let Some(message) = other.next().await {
        assert_eq!(message["method"], "notifications/tools/list_changed", "it speaks to another server");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_see_the_server_gets_nothing() {
    let service = start(&[]).await;
    let (_, key) = create(&service, json!({"name": "other"})).await;
    let (own, other) = (Client::new(&service, "/mcp", None).greeted().await, Client::new(&service, "/mcp", Some(&key)).greeted().await);
    let (mut control, mut stream) = (own.listen().await, other.listen().await);
    subscribe(&own, NOTE).await;
    subscribe(&other, NOTE).await;
    let rules = json!({"rules": [{"effect": "block", "servers": ["one"], "principals": ["key:other"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    updated_before(&mut stream, "notifications/resources/list_changed").await;
    touch(&service, "test://note").await;
    assert_eq!(updated(&mut control).await, NOTE);
    for method in ["resources/subscribe", "resources/unsubscribe", "resources/read"] {
        let blocked = error(&other, method, json!({"uri": OTHER})).await;
        let unknown = error(&other, method, json!({"uri": OTHER.replace("one", "nobody")})).await;
        assert_eq!((blocked.0, blocked.1.replace("one", "nobody")), unknown, "{method}");
    }
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &json!({"rules": []})).await.0, StatusCode::OK);
    assert_eq!(updated_before(&mut stream, "notifications/resources/list_changed").await, [""; 0], "it was not told");
    touch(&service, "test://note").await;
    assert_eq!(updated(&mut stream).await, NOTE, "it never ended the subscription");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_so_many_subscriptions_and_no_more() {
    let caps = [("TOOLSIEVE_MCP__SUBSCRIPTIONS_PER_SESSION", "2"), ("TOOLSIEVE_MCP__SUBSCRIPTIONS_PER_CALLER", "3")];
    let service = start(&caps).await;
    let client = Client::new(&service, "/mcp", None).greeted().await;
    subscribe(&client, NOTE).await;
    subscribe(&client, OTHER).await;
    let third = json!({"uri": "toolsieve://one/test://7/data"});
    let (code, words) = error(&client, "resources/subscribe", third.clone()).await;
    assert!(code == -32600 && words.contains("2 subscriptions already") && words.contains("Unsubscribe"), "{code} {words}");
    let another = Client::new(&service, "/mcp", None).greeted().await;
    subscribe(&another, NOTE).await;
    let (code, words) = error(&another, "resources/subscribe", third.clone()).await;
    assert!(code == -32600 && words.contains("3 subscriptions already"), "{code} {words}");
    result(&client, "resources/unsubscribe", json!({"uri": OTHER})).await;
    result(&another, "resources/subscribe", third).await;
    // What the server refuses takes no room, and needs a session.
    result(&another, "resources/unsubscribe", json!({"uri": NOTE})).await;
    for _ in 0..5 {
        assert_eq!(error(&client, "resources/subscribe", json!({"uri": "toolsieve://one/test://gone"})).await.0, -32002);
    }
    let (code, words) = error(&Client::new(&service, "/mcp", None), "resources/subscribe", json!({"uri": NOTE})).await;
    assert!(code == -32600 && words.contains("Mcp-Session-Id"), "{code} {words}");
    let (code, words) = error(&client, "resources/subscribe", json!({"uri": "toolsieve://plain/test://note"})).await;
    assert!(code == -32601 && words.contains("resources/subscribe"), "{code} {words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_given_something_of_each_caller_is_not_subscribed_to() {
    let mut own = stdio(&["more"]);
    own["env"] = json!({"WHO": "{{user.id}}"});
    own["listWith"] = json!({"WHO": "nobody"});
    let service = start_on(json!({"own": own}), &[]).await;
    let (_, key) = create(&service, json!({"name": "anna"})).await;
    let client = Client::new(&service, "/mcp", Some(&key)).greeted().await;
    let (code, words) = error(&client, "resources/subscribe", json!({"uri": "toolsieve://own/test://note"})).await;
    assert!(code == -32600 && words.contains("something of each caller"), "{code} {words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_is_in_the_audit_log() {
    let service = start(&[]).await;
    let (_, key) = create(&service, json!({"name": "other"})).await;
    let rules = json!({"rules": [{"effect": "block", "servers": ["one"], "principals": ["key:other"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    let (own, other) = (Client::new(&service, "/mcp", None), Client::new(&service, "/mcp", Some(&key)));
    result(&own, "prompts/get", json!({"name": "one__greet", "arguments": {"who": "a-secret"}})).await;
    result(&own, "resources/read", json!({"uri": "toolsieve://one/test://anna:pass@7/data?token=a-secret"})).await;
    for (method, params) in [
        ("resources/read", json!({"uri": "toolsieve://one/test://gone"})),
        ("resources/read", json!({"uri": "toolsieve://nobody/test://note"})),
        ("prompts/get", json!({"name": "nobody__greet"})),
    ] {
        error(&own, method, params).await;
    }
    error(&other, "resources/read", json!({"uri": NOTE})).await;
    error(&other, "prompts/get", json!({"name": "one__greet"})).await;
    let audit = eventually("five entries in the audit log", async || {
        let (_, audit) = administer(&service, Method::GET, "/v1/admin/audit?server=one", &json!({})).await;
        when(audit, |audit| audit["entries"].as_array().is_some_and(|entries| entries.len() >= 5))
    })
    .await;
    let entries = audit["entries"].clone();
    let shown: Vec<Value> = entries
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|entry| json!([entry["principal"], entry["action"], entry["subject"], entry["decision"], entry["outcome"]]))
        .collect();
    assert_eq!(
        shown,
        [
            json!(["service-key", "prompt_get", "greet", "allow", "success"]),
            json!(["service-key", "resource_read", "test://7/data", "allow", "success"]),
            json!(["service-key", "resource_read", "test://gone", "allow", "failed"]),
            json!(["key:other", "resource_read", "test://note", "block", null]),
            json!(["key:other", "prompt_get", "greet", "block", null]),
        ]
    );
    assert!(entries[4]["bytes"].as_u64().unwrap() > 10 && entries[4]["took_ms"].as_f64().unwrap() > 0.0, "{entries}");
    let (_, of_prompts) = administer(&service, Method::GET, "/v1/admin/audit?action=prompt_get", &json!({})).await;
    assert_eq!(of_prompts["entries"].as_array().unwrap().len(), 2);
    let (_, all) = administer(&service, Method::GET, "/v1/admin/audit", &json!({})).await;
    assert!(!all.to_string().contains("a-secret") && !all.to_string().contains("nobody"), "{all}");
}

/// A client of the newer era.
async fn connect(service: &Running, path: &str) -> RunningService<RoleClient, ClientConfig> {
    connect_with(service, path, service.key.clone()).await
}

async fn connect_with(service: &Running, path: &str, key: Option<String>) -> RunningService<RoleClient, ClientConfig> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(format!("{}{path}", service.url));
    config.auth_header = key;
    let transport = StreamableHttpClientTransport::with_client(service.client.clone(), config);
    let us = ClientConfig::new(ClientCapabilities::default(), Implementation::new("a-test", "1"));
    let lifecycle = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    us.serve_with_lifecycle(transport, lifecycle).await.unwrap()
}

async fn next(subscription: &mut Subscription) -> Option<ServerNotification> {
    timeout(LONG, subscription.next()).await.expect("nothing came").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_newer_era_listen_with_a_stream() {
    let service = start(&[("TOOLSIEVE_MCP__SESSIONS_PER_CALLER", "1")]).await;
    let client = connect(&service, "/mcp").await;
    let capabilities = client.peer_info().unwrap().capabilities.clone();
    assert_eq!(capabilities.tools.unwrap().list_changed, Some(true));
    assert_eq!(capabilities.resources.unwrap().subscribe, Some(true));
    let (gone, nobody) = ("toolsieve://one/test://gone", "toolsieve://nobody/test://note");
    let all = || SubscriptionFilter::builder().tools_list_changed().prompts_list_changed().resources_list_changed();
    let mut stream = client.listen(all().resource_subscriptions([NOTE, gone, nobody]).build()).await.unwrap();
    assert_eq!(stream.acknowledged(), &all().resource_subscriptions([NOTE]).build(), "what can be told");
    until_subscribed(&service, &["test://note"]).await;
    touch(&service, "test://note/part").await;
    let Some(ServerNotification::ResourceUpdatedNotification(update)) = next(&mut stream).await else { panic!() };
    assert_eq!(update.params.uri, NOTE);
    assert_eq!(service.post("/one/add_prompt", &json!({})).await.0, StatusCode::OK);
    assert!(matches!(next(&mut stream).await, Some(ServerNotification::PromptListChangedNotification(_))));
    assert_eq!(service.post("/one/add_resource", &json!({})).await.0, StatusCode::OK);
    assert!(matches!(next(&mut stream).await, Some(ServerNotification::ResourceListChangedNotification(_))));
    assert_eq!(service.post("/plain/add_tool", &json!({})).await.0, StatusCode::OK);
    assert!(matches!(next(&mut stream).await, Some(ServerNotification::ToolListChangedNotification(_))));
    // The cap holds for streams as for sessions, and they give back what they took.
    assert!(client.listen(all().build()).await.is_err());
    stream.cancel().await.unwrap();
    until_subscribed(&service, &[]).await;
    let listen = async || client.listen(SubscriptionFilter::builder().tools_list_changed().build()).await;
    let mut again = eventually("there is room for another stream", listen).await;
    // What was not asked for is not told.
    assert_eq!(service.post("/one/add_prompt", &json!({})).await.0, StatusCode::OK);
    assert_eq!(service.post("/plain/add_tool", &json!({})).await.0, StatusCode::OK);
    assert!(matches!(next(&mut again).await, Some(ServerNotification::ToolListChangedNotification(_))));
    // The process says so when it ends.
    let (_folder, ended) = tokio::join!(service.stop(), next(&mut again));
    assert!(ended.is_none(), "{ended:?}");
    assert!(matches!(again.end(), Some(SubscriptionEnd::Graceful(_))), "{:?}", again.end());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_the_key_that_opened_it() {
    let service = start(&[]).await;
    let (id, former) = create(&service, json!({"name": "other"})).await;
    let (anna, _anna) = create(&service, json!({"name": "anna"})).await;
    let own = Client::new(&service, "/mcp", None).greeted().await;
    result(&own, "tools/list", json!({})).await;
    let mut own = own.listen().await;
    let older = Client::new(&service, "/mcp", Some(&former)).greeted().await;
    subscribe(&older, NOTE).await;
    let mut stream = older.listen().await;
    // Another secret: who has the former one is not let in any more, and hears nothing more. At once: keys that expire are looked for too,
    // but not that often.
    let begun = Instant::now();
    let (status, rotated) = administer(&service, Method::POST, &format!("/v1/admin/keys/{id}/rotate"), &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{rotated}");
    assert_eq!(stream.next().await, None);
    // Half of the time after which keys that have expired are looked for.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    until_subscribed(&service, &[]).await;

    let key = rotated["key"].as_str().unwrap().to_owned();
    let newer = connect_with(&service, "/mcp", Some(key)).await;
    let mut stream = newer.listen(SubscriptionFilter::builder().tools_list_changed().build()).await.unwrap();
    // A change of another key ends nothing.
    assert_eq!(administer(&service, Method::DELETE, &format!("/v1/admin/keys/{anna}"), &json!({})).await.0, StatusCode::OK);
    assert_eq!(service.post("/plain/add_tool", &json!({})).await.0, StatusCode::OK);
    assert!(matches!(next(&mut stream).await, Some(ServerNotification::ToolListChangedNotification(_))));
    assert_eq!(administer(&service, Method::DELETE, &format!("/v1/admin/keys/{id}"), &json!({})).await.0, StatusCode::OK);
    assert!(next(&mut stream).await.is_none());
    // Who is let in by something else goes on.
    assert_eq!(own.next().await.unwrap()["method"], "notifications/tools/list_changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_does_not_hold_up_the_stop() {
    let service = start(&[]).await;
    let client = Client::new(&service, "/mcp", None).greeted().await;
    let mut stream = client.listen().await;
    let stopper = service.stopper();
    let begun = Instant::now();
    let stopping = tokio::spawn(async move { stopper.stop(true).await });
    assert_eq!(stream.next().await, None, "it ends at once");
    timeout(LONG, stopping).await.unwrap().unwrap();
    assert!(begun.elapsed() < GRACE, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_open_streams() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::start(folder.path(), &json!({"one": stdio(&[])}), |_| {});
    let client = reqwest::Client::new();
    let accept = ("accept", "application/json, text/event-stream");
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }});
    let url = format!("{}/mcp", service.url);
    let greeted = client.post(&url).header(accept.0, accept.1).json(&hello).send().await.unwrap();
    let session = greeted.headers()["mcp-session-id"].clone();
    let response = client.get(&url).header(accept.0, accept.1).header("mcp-session-id", session).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut stream = Stream::new(response);
    let begun = Instant::now();
    let stopped = tokio::task::spawn_blocking(move || service.stop());
    assert_eq!(stream.next().await, None, "it ends, and is not cut off");
    assert!(stopped.await.unwrap().success());
    assert!(begun.elapsed() < GRACE, "{:?}", begun.elapsed());
}

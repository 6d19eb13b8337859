//! Limits: who comes too often is told when to come again, and nobody else notices.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolsieve::service::catalog::reload::Trigger;

use crate::harness::keys::{ADMIN, KEY, administer, create, with_key};
use crate::harness::mcp::rpc;
use crate::harness::wait::eventually;
use crate::harness::{Running, Start, stdio};

async fn start(environment: &[(&'static str, &'static str)], from_files: bool) -> Running {
    let environment = environment.iter().copied().chain([("TOOLSIEVE_ADMIN_KEY", ADMIN)]).collect();
    let servers = json!({"one": stdio(&[]), "time": stdio(&["list=time"])});
    let running = Start { servers, key: Some(KEY), environment, from_files, ..Start::default() }.start().await;
    // Vectors are not needed for this.
    let is_connected = |body: &Value| body["servers"].as_array().unwrap().iter().all(|server| server["phase"] == "connected");
    running.until(|body| body["ready"] == true && is_connected(body)).await;
    running
}

/// Status, `Retry-After` and the body.
async fn call(service: &Running, key: &str, path: &str) -> (StatusCode, Option<u64>, Value) {
    let response = with_key(service, Method::POST, path, key).json(&json!({})).send().await.unwrap();
    let again = response.headers().get("retry-after").map(|value| value.to_str().unwrap().parse().unwrap());
    (response.status(), again, response.json().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_over_its_limit_learns_when_to_retry() {
    let limits = [("TOOLSIEVE_LIMITS__CALLS_PER_MINUTE", "3"), ("TOOLSIEVE_LIMITS__CALL_EXCEPTIONS", "key:free=0,key:two=2")];
    let service = start(&limits, false).await;
    let (_, two) = create(&service, json!({"name": "two"})).await;
    let (_, free) = create(&service, json!({"name": "free"})).await;
    for _ in 0..3 {
        assert_eq!(call(&service, KEY, "/one/echo").await.0, StatusCode::OK);
    }
    let (status, again, problem) = call(&service, KEY, "/one/echo").await;
    assert_eq!((status, &problem["code"]), (StatusCode::TOO_MANY_REQUESTS, &json!("rate_limited")), "{problem}");
    assert!(again.is_some_and(|seconds| (1..=20).contains(&seconds)), "{again:?}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("this caller may make 3 tool calls a minute. Try again in "), "{detail}");
    // On every way to a tool; what is not there is not there for those either.
    let request = with_key(&service, Method::POST, "/v1/tools/call", KEY).json(&json!({"name": "time__get_current_time", "arguments": {}}));
    let response = request.send().await.unwrap();
    let (status, again) = (response.status(), response.headers().contains_key("retry-after"));
    assert_eq!((status, again), (StatusCode::TOO_MANY_REQUESTS, true));
    assert_eq!(call(&service, KEY, "/one/no_such_tool").await.0, StatusCode::NOT_FOUND);
    // Others have their own.
    let statuses = async |key: &str| {
        let mut statuses = Vec::new();
        for _ in 0..5 {
            statuses.push(call(&service, key, "/one/echo").await.0.as_u16());
        }
        statuses
    };
    assert_eq!(statuses(&two).await, [200, 200, 429, 429, 429]);
    assert_eq!(statuses(&free).await, [200; 5]);

    let (_, log) = until_logged(&service, "limited", 5).await;
    let refused = &log[0];
    assert_eq!((&refused["principal"], &refused["decision"], &refused["tool"]), (&json!("key:two"), &json!("allow"), &json!("echo")));
    let metrics = with_key(&service, Method::GET, "/metrics", ADMIN).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("toolsieve_rate_limited_total{limit=\"calls\"} 5\n"), "{metrics}");
    assert!(metrics.contains("toolsieve_calls_total{server=\"one\",outcome=\"limited\"} 4\n"), "{metrics}");
    assert!(metrics.contains("toolsieve_call_duration_seconds_count{server=\"one\"} 10\n"), "what was refused took no time: {metrics}");
}

/// The entries of calls that ended so, when there are so many.
async fn until_logged(service: &Running, outcome: &str, count: usize) -> (StatusCode, Vec<Value>) {
    eventually(&format!("{count} calls that ended as {outcome} in the audit log"), async || {
        let (status, log) = administer(service, Method::GET, &format!("/v1/admin/audit?outcome={outcome}"), &json!({})).await;
        let entries = log["entries"].as_array().unwrap_or_else(|| panic!("{log}")).clone();
        if entries.len() >= count { Ok((status, entries)) } else { Err(log) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_searches_and_judgements_have_a_limit_of_their_own() {
    let service = start(&[("TOOLSIEVE_LIMITS__SELECTIONS_PER_MINUTE", "4")], false).await;
    let filter = json!({"messages": [{"role": "user", "content": "what time is it"}]});
    let feedback = json!({"selection_id": "none", "tool": "one__echo", "verdict": "wrong"});
    let bodies = [
        ("/v1/filter", filter.clone(), StatusCode::OK),
        ("/v1/tools/search", json!({"queries": ["time"]}), StatusCode::OK),
        ("/v1/tools/smart_select", json!({"task": "tell the time"}), StatusCode::OK),
        ("/v1/feedback", feedback, StatusCode::NOT_FOUND),
    ];
    assert_eq!(service.post("/v1/tools/search", &json!({"queries": []})).await.0, StatusCode::UNPROCESSABLE_ENTITY, "costs nothing");
    for (path, body, status) in &bodies {
        assert_eq!(service.post(path, body).await.0, *status, "{path}");
    }
    for (path, body, _) in &bodies {
        let (status, problem) = service.post(path, body).await;
        assert_eq!((status, &problem["code"]), (StatusCode::TOO_MANY_REQUESTS, &json!("rate_limited")), "{path}");
    }
    let tools =
        [("/mcp", "find_tools", json!({"queries": ["time"]})), ("/mcp?mode=smart", "smart_select_tools", json!({"task": "tell the time"}))];
    for (path, name, arguments) in tools {
        let answer = rpc(&service, path, &[], "tools/call", json!({"name": name, "arguments": arguments})).await;
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{name}: {answer}"));
        assert!(text.starts_with("this caller may send 4 messages, searches and judgements a minute."), "{name}: {text}");
        assert_eq!(answer["result"]["isError"], true, "{name}");
    }
    assert_eq!(service.post("/one/echo", &json!({})).await.0, StatusCode::OK, "a call is no message");
    assert_eq!(service.get("/openapi.json").await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_gets_so_many_calls_at_a_time() {
    let service = start(&[("TOOLSIEVE_LIMITS__CONCURRENT_CALLS", "2")], false).await;
    let hanging = || {
        let request = with_key(&service, Method::POST, "/one/sleep", KEY).json(&json!({}));
        // One that meets both places taken, by a call below, comes again.
        tokio::spawn(async move {
            while request.try_clone().unwrap().send().await.is_ok_and(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS) {}
        })
    };
    let under_way = [hanging(), hanging()];
    let refused = eventually("both places are taken", async || {
        let answer = call(&service, KEY, "/one/echo").await;
        (answer.0 == StatusCode::TOO_MANY_REQUESTS).then_some(answer)
    })
    .await;
    assert_eq!(refused.1, Some(1));
    assert!(refused.2["detail"].as_str().unwrap().starts_with("this server accepts 2 calls at a time"), "{}", refused.2);
    assert_ne!(call(&service, KEY, "/time/get_current_time").await.0, StatusCode::TOO_MANY_REQUESTS, "another server takes calls");
    for call in under_way {
        call.abort();
    }
    // Their callers are gone: the places are free again.
    eventually("a place is free", async || call(&service, KEY, "/one/echo").await.0 == StatusCode::OK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_reloaded_and_what_is_left_alone_keeps_its_counts() {
    let service = start(&[], true).await;
    let file = service.folder.path().join("toolsieve.toml");
    let set = async |text: &str| {
        std::fs::write(&file, text).unwrap();
        service.reload.reload(Trigger::Request).await;
        let state = service.get("/readyz").await.1["reload"].clone();
        assert_eq!(state["needs_restart"], json!([]), "{state}");
    };
    let statuses = async |count: usize| {
        let mut statuses = Vec::new();
        for _ in 0..count {
            statuses.push(call(&service, KEY, "/one/echo").await.0.as_u16());
        }
        statuses
    };
    assert_eq!(statuses(5).await, [200; 5]);
    set("[limits]\ncalls_per_minute = 2\n").await;
    assert_eq!(statuses(3).await, [200, 200, 429]);
    set("[limits]\ncalls_per_minute = 2\nselections_per_minute = 100\n").await;
    assert_eq!(statuses(1).await, [429]);
    set("[limits]\nserver_calls_per_minute = 1\n").await;
    assert_eq!(statuses(2).await, [200, 429]);
    set("").await;
    assert_eq!(statuses(3).await, [200; 3]);
}

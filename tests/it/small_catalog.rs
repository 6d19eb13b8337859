//! A catalog whose definitions are small stays whole: with every message, over every interface, and only while it is small.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::answers::{published, set};
use crate::harness::keys::{ADMIN, KEY, administer};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, stdio};

const REASON: &str = "all tools stay: together, they are small (selection.narrow_above_tokens)";

fn servers() -> Value {
    json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])})
}

/// Three small servers with the settings that users get, except for these.
async fn start(environment: &[(&'static str, &'static str)]) -> Running {
    let environment = [&[("TOOLSIEVE_ADMIN_KEY", ADMIN)], environment].concat();
    let start = Start { servers: servers(), key: Some(KEY), environment, as_users_get_it: true, ..Start::default() };
    let service = start.start().await;
    service.settled().await;
    service
}

fn message(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

async fn filter(service: &Running, body: Value) -> Value {
    let (status, answer) = service.post("/v1/filter", &body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

fn names(answer: &Value) -> Vec<&str> {
    answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

async fn everything(service: &Running) -> Vec<String> {
    published(&service.get("/openapi.json").await.1).into_iter().collect()
}

/// The tokens of all tools, and of those of one server.
async fn tokens(service: &Running) -> (u64, u64) {
    let (_, available) = service.post("/v1/toolsets/available", &json!({})).await;
    let rows: Vec<&Value> = available["toolsets"].as_array().unwrap().iter().collect();
    let of = |row: &&Value| row["tokens"].as_u64().unwrap();
    (rows.iter().map(of).sum(), rows.iter().find(|row| row["name"] == "time").map(of).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_gets_all_of_it() {
    let service = start(&[]).await;
    let all = everything(&service).await;
    assert_eq!(all.len(), 9, "{all:?}");
    for text in ["what time is it in Tokyo", "thanks!", "write a poem about autumn"] {
        let answer = filter(&service, json!({"messages": message(text), "limit": 1})).await;
        let mut kept = names(&answer);
        assert_eq!(kept[..2], ["find_tools", "run_tool"], "{text}");
        kept.sort_unstable();
        assert_eq!(kept.iter().filter(|name| name.contains("__")).collect::<Vec<_>>(), all.iter().collect::<Vec<_>>(), "{text}");
        for tool in answer["tools"].as_array().unwrap().iter().filter(|tool| tool.get("server").is_some()) {
            assert_eq!((&tool["reason"], &tool["score"]), (&json!(REASON), &Value::Null), "{tool}");
        }
        assert_eq!(answer["tokens"]["before"], answer["tokens"]["after"], "{text}");
        assert_eq!((&answer["needs_tool"], &answer["warnings"]), (&json!(true), &json!([])), "{text}");
    }
    let metrics = service.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("toolsieve_selections_total{kind=\"small\"} 3"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_connection_stays_on() {
    let service = start(&[]).await;
    let connections = json!({"server:t": "/time", "server:m": "/mail", "server:x": "/toolsets/none"});
    let ids = json!(["mine", "server:m", "server:t", "server:x"]);
    let answer = filter(&service, json!({"messages": message("thanks!"), "connections": connections, "tool_ids": ids})).await;
    assert_eq!(answer["tool_ids"], ids);
    assert!(!names(&answer).iter().any(|name| name.starts_with("files")), "that connection is not on: {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_setting_is_the_most_that_counts_as_small_and_zero_is_off() {
    let service = start(&[]).await;
    let (all, of_time) = tokens(&service).await;
    drop(service);
    let is_whole = async |most: u64, body: &Value| {
        let most: &'static str = Box::leak(most.to_string().into_boxed_str());
        let service = start(&[("TOOLSIEVE_SELECTION__NARROW_ABOVE_TOKENS", most)]).await;
        let answer = filter(&service, body.clone()).await;
        answer["tools"].as_array().unwrap().iter().any(|tool| tool["reason"] == REASON)
    };
    let whole = json!({"messages": message("thanks!")});
    assert!(is_whole(all, &whole).await);
    assert!(!is_whole(all - 1, &whole).await);
    assert!(!is_whole(0, &whole).await);
    // Only what is on offer counts, however large the rest.
    let connected = json!({"messages": message("thanks!"), "connections": {"server:t": "/time"}, "tool_ids": ["server:t"]});
    assert!(is_whole(of_time, &connected).await);
    assert!(!is_whole(of_time - 1, &connected).await);
    let named = json!({"messages": message("thanks!"), "tools": ["time__get_current_time", "time__convert_time", "theirs"]});
    assert!(is_whole(of_time, &named).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_smaller_budget_of_tokens_counts_instead() {
    let service = start(&[]).await;
    let (all, _) = tokens(&service).await;
    let ask = async |budget: u64| {
        let body = json!({"messages": message("what time is it in Tokyo"), "token_budget": budget});
        let answer = filter(&service, body).await;
        names(&answer).iter().filter(|name| name.contains("__")).count()
    };
    assert_eq!(ask(all).await, 9);
    assert!(ask(all - 1).await < 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_is_absent() {
    let service = start(&[]).await;
    let rules = json!({"rules": [{"effect": "block", "servers": ["mail"]}, {"effect": "block", "tools": ["files__write_file"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    let offered = json!(["time__get_current_time", "mail__send_email", "files__write_file", "files__read_file"]);
    let answer = filter(&service, json!({"messages": message("send an email"), "tools": offered, "keep": ["mail__send_email"]})).await;
    assert_eq!(names(&answer), ["time__get_current_time", "files__read_file"]);
    let answer = filter(&service, json!({"messages": message("send an email")})).await;
    assert!(!answer.to_string().contains("mail"), "{answer}");
    assert_eq!(answer["tokens"]["before"], answer["tokens"]["after"], "what is denied doesn't count either");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_functions_are_still_judged() {
    let service = start(&[]).await;
    let foreign = |name: &str, description: &str| json!({"name": name, "description": description});
    let tools = json!([
        "time__get_current_time",
        "mail__send_email",
        "only_a_name",
        foreign("book_flight", "Book a flight between two airports"),
        foreign("water_plants", "Switch on the garden irrigation"),
        foreign("view_note", "Get the full content of a note by its id"),
    ]);
    let body = json!({"messages": message("book me a flight from Rome to Oslo"), "tools": tools, "narrow_foreign": true, "limit": 1});
    let answer = filter(&service, body).await;
    assert_eq!(names(&answer), ["time__get_current_time", "mail__send_email", "only_a_name", "book_flight"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_change_no_order() {
    let service = start(&[]).await;
    let first = filter(&service, json!({"messages": message("thanks!"), "chat_id": "c"})).await;
    let called = json!([
        {"role": "user", "content": "send an email"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "mail__send_email", "arguments": "{}"}}]},
        {"role": "user", "content": "and what time is it in Tokyo?"},
    ]);
    let second = filter(&service, json!({"messages": called, "chat_id": "c"})).await;
    assert_eq!(names(&second), names(&first), "the provider's prompt cache stays valid");
    assert_eq!(second["tools"], first["tools"]);
}

/// A chat that gets everything anyway would show no effect of the selection.
#[tokio::test(flavor = "multi_thread")]
async fn no_comparison_counts_it() {
    let service = start(&[("TOOLSIEVE_SELECTION__STATIC_SHARE", "0.5")]).await;
    for number in 0..8 {
        let answer = filter(&service, json!({"messages": message("thanks!"), "chat_id": format!("chat-{number}")})).await;
        assert!(names(&answer).contains(&"mail__send_email") && !answer.to_string().contains("static"), "{answer}");
    }
    let arms = eventually("8 sessions in the report", async || {
        let (_, report) = administer(&service, Method::GET, "/v1/admin/report", &json!({})).await;
        let arms = report["arms"].clone();
        when(arms, |arms| arms.as_array().unwrap().iter().map(|arm| arm["sessions"].as_u64().unwrap()).sum::<u64>() == 8)
    })
    .await;
    assert_eq!((arms.as_array().unwrap().len(), &arms[0]["arm"]), (1, &json!("uncompared")), "{arms}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_for_a_task_has_all_of_it() {
    let service = start(&[]).await;
    let all: Vec<String> = everything(&service).await;
    let (status, made) = service.post("/v1/sessions", &json!({"task": "find out what time it is", "limit": 1})).await;
    assert_eq!((status, made["tools"].as_array().unwrap().len()), (StatusCode::CREATED, all.len()), "{made}");
    assert_eq!(made["tools"][0]["reason"], REASON);
    let document = service.get(&format!("/s/{}/openapi.json", made["id"].as_str().unwrap())).await.1;
    assert_eq!(published(&document).into_iter().collect::<Vec<_>>(), all);
    // A toolset or a server limits it as ever.
    let (_, made) = service.post("/v1/sessions", &json!({"task": "write a poem", "servers": ["time"]})).await;
    let document = service.get(&format!("/s/{}/openapi.json", made["id"].as_str().unwrap())).await.1;
    assert_eq!(published(&document), set(&["time__convert_time", "time__get_current_time"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_mcp_client_of_the_message_lists_all_of_it() {
    let service = start(&[]).await;
    let body = json!({
        "messages": message("thanks!"), "message_id": "m1", "chat_id": "c",
        "connections": {"server:mcp:t": "/mcp?mode=message"}, "tool_ids": ["server:mcp:t"],
    });
    assert_eq!(filter(&service, body).await["tool_ids"], json!(["server:mcp:t"]));
    let headers = [("x-openwebui-message-id", "m1")];
    let answer = crate::harness::mcp::rpc(&service, "/mcp?mode=message", &headers, "tools/list", json!({})).await;
    let listed = answer["result"]["tools"].as_array().unwrap();
    assert_eq!(listed.len(), 2 + everything(&service).await.len(), "{answer}");
}

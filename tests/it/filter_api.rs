//! `POST /v1/filter` and search over HTTP: what stays on offer, and why.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Running, Start, stdio};

/// Servers whose tools are told apart by their words.
async fn service() -> Running {
    Running::on(json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])})).await
}

fn message(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

fn names(answer: &Value) -> Vec<&str> {
    answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

async fn filter(service: &Running, body: Value) -> Value {
    let (status, answer) = service.post("/v1/filter", &body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_gets_the_tools_that_matter_and_the_search_tool() {
    let service = service().await;
    let answer = filter(&service, json!({"messages": message("what time is it in Tokyo")})).await;
    let names = names(&answer);
    assert!(names.contains(&"time__get_current_time") && names.contains(&"find_tools"), "{names:?}");
    assert!(names.len() <= 8, "{names:?}");
    let (before, after) = (answer["tokens"]["before"].as_u64().unwrap(), answer["tokens"]["after"].as_u64().unwrap());
    assert!(0 < after && after < before);
    assert!(answer["selection_id"].as_str().unwrap().len() > 8);
    assert!(answer["took_ms"].as_f64().unwrap() > 0.0);
    let time = answer["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "time__get_current_time").unwrap();
    assert_eq!((&time["server"], &time["tool"]), (&json!("time"), &json!("get_current_time")));
    assert!(time["score"].as_f64().is_some_and(|score| (0.0..=1.0).contains(&score)));
    assert!(!time["reason"].as_str().unwrap().is_empty());
    assert!(answer.get("tool_ids").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_needs_no_tool_gets_the_search_tool_alone() {
    let service = service().await;
    for text in ["thanks!", "write a poem about autumn", "hi"] {
        let answer = filter(&service, json!({"messages": message(text)})).await;
        assert_eq!(names(&answer), ["find_tools"], "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_functions_are_kept_and_ours_are_narrowed() {
    let service = service().await;
    let body = json!({
        "messages": message("send an email to Anna"),
        "tools": ["time__get_current_time", "mail__send_email", "find_tools", "run_tool", "their_function",
            {"name": "other", "description": "d", "parameters": {}}, {"type": "function", "function": {"name": "third"}}],
    });
    let answer = filter(&service, body).await;
    let names = names(&answer);
    for kept in ["mail__send_email", "find_tools", "their_function", "other", "third"] {
        assert!(names.contains(&kept), "{kept} in {names:?}");
    }
    assert!(!names.contains(&"run_tool") && !names.contains(&"files__write_file"), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_definitions_are_judged_when_asked_for() {
    let service = service().await;
    let tools = json!([
        {"name": "book_flight", "description": "Book a flight between two airports"},
        {"name": "water_plants", "description": "Switch on the garden irrigation"},
        "time__get_current_time",
        "only_a_name",
    ]);
    let body = json!({"messages": message("book me a flight from Rome to Oslo"), "tools": tools, "narrow_foreign": true, "limit": 1});
    let answer = filter(&service, body.clone()).await;
    assert_eq!(names(&answer), ["only_a_name", "book_flight"], "what came as a name alone is kept");
    assert!(answer["tools"][1]["score"].is_number());
    let mut kept = body;
    kept["narrow_foreign"] = json!(false);
    let answer = filter(&service, kept).await;
    assert!(names(&answer).contains(&"water_plants"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_ids_are_narrowed_to_the_connections_that_matter() {
    let service = service().await;
    let body = json!({
        "messages": message("what time is it in Tokyo"),
        "connections": {"server:t": "/time", "server:m": "/mail/", "server:f": "/%66iles/openapi.json", "server:x": "/toolsets/none"},
        "tool_ids": ["mine", "server:f", "server:t", "server:m", "server:x"],
    });
    let answer = filter(&service, body).await;
    let ids: Vec<&str> = answer["tool_ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert_eq!(ids[0], "mine");
    assert!(ids.contains(&"server:t") && ids.contains(&"server:x") && !ids.contains(&"server:m"), "{ids:?}");
    assert!(answer["warnings"].as_array().unwrap().iter().any(|warning| warning.as_str().unwrap().contains("server:x")));

    let body = json!({"messages": message("thanks!"), "connections": {"a": "/time", "b": "/mail"}, "tool_ids": ["b", "a", "theirs"]});
    assert_eq!(filter(&service, body).await["tool_ids"], json!(["b", "theirs"]), "one of ours stays, it carries the search tool");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_keeps_its_tools_in_their_order() {
    let service = service().await;
    let ask = |text: &str| json!({"messages": message(text), "chat_id": "c1"});
    let first = filter(&service, ask("what time is it in Tokyo")).await;
    let second = filter(&service, ask("send an email to Anna")).await;
    let (first, second) = (names(&first), names(&second));
    assert_eq!(second[..first.len()], first[..], "the array keeps its prefix");
    assert!(second.contains(&"mail__send_email"));
    let third = filter(&service, ask("thanks!")).await;
    assert_eq!(names(&third), second);
    let other = filter(&service, json!({"messages": message("thanks!"), "chat_id": "c2"})).await;
    assert_eq!(names(&other), ["find_tools"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_survives_a_restart() {
    let service = service().await;
    let ask = |text: &str| json!({"messages": message(text), "chat_id": "c1"});
    let before = filter(&service, ask("what time is it in Tokyo")).await;
    let folder = service.stop().await;
    let servers = json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])});
    let service = Start { servers, folder: Some(folder), ..Start::default() }.start().await;
    let after = filter(&service, ask("thanks!")).await;
    assert_eq!(names(&after), names(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_chat_id_called_tools_stay() {
    let service = service().await;
    let messages = json!([
        {"role": "user", "content": "send an email to Anna"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "mail__send_email", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "sent"},
        {"role": "user", "content": [{"type": "text", "text": "what time is it in Tokyo"}, {"type": "image_url", "image_url": {"url": "data:"}}]},
    ]);
    let answer = filter(&service, json!({"messages": messages})).await;
    let names = names(&answer);
    assert!(names.contains(&"mail__send_email") && names.contains(&"time__get_current_time"), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_search_the_tool_that_runs_what_was_found_is_there() {
    let service = service().await;
    let messages = json!([
        {"role": "user", "content": "thanks!"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "find_tools", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "{}"},
    ]);
    let answer =
        filter(&service, json!({"messages": messages.clone(), "tools": ["find_tools", "run_tool", "time__get_current_time"]})).await;
    assert_eq!(names(&answer), ["find_tools", "run_tool"]);
    let answer = filter(&service, json!({"messages": messages})).await;
    assert_eq!(names(&answer), ["find_tools", "run_tool"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_and_pinned_tools_count() {
    let servers = json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])});
    let environment = vec![("TOOLSIEVE_SELECTION__PINNED", "files__read_file")];
    let service = Start { servers, environment, ..Start::default() }.start().await;
    service.settled().await;
    let answer = filter(&service, json!({"messages": message("send an email to Anna"), "limit": 1})).await;
    assert_eq!(names(&answer), ["find_tools", "files__read_file", "mail__send_email"]);
    let answer = filter(&service, json!({"messages": message("thanks!")})).await;
    assert_eq!(names(&answer), ["find_tools", "files__read_file"]);
    let answer = filter(&service, json!({"messages": message("read the contents of a file"), "limit": 1})).await;
    assert_eq!(names(&answer).len(), 3, "what is pinned comes on top of the limit: {answer}");
}

/// Regression: a pinned tool that had also fitted a message was called no longer offered when it left the chat's set.
#[tokio::test(flavor = "multi_thread")]
async fn what_leaves_a_chat_is_named_as_published_and_what_is_pinned_stays() {
    let servers = json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])});
    let environment = vec![
        ("TOOLSIEVE_SELECTION__PINNED", "files__read_file"),
        ("TOOLSIEVE_SELECTION__CHAT_BUDGET", "2"),
        ("TOOLSIEVE_SELECTION__LIMIT", "2"),
    ];
    let service = Start { servers, environment, ..Start::default() }.start().await;
    service.settled().await;
    let before = filter(&service, json!({"messages": message("read the contents of a file"), "chat_id": "c"})).await;
    let answer = filter(&service, json!({"messages": message("send an email to Anna"), "chat_id": "c"})).await;
    let (before, now) = (names(&before), names(&answer));
    assert!(now.contains(&"files__read_file"), "{now:?}");
    let gone: Vec<&str> = before.into_iter().filter(|name| !now.contains(name)).collect();
    let warnings = answer["warnings"].to_string();
    assert!(!gone.is_empty() && gone.iter().all(|name| warnings.contains(name)), "{gone:?}: {warnings}");
    assert!(!warnings.contains("read_file"), "{warnings}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_whose_budget_is_full_of_calls_still_gets_new_tools() {
    let servers = json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])});
    let environment = vec![("TOOLSIEVE_SELECTION__CHAT_BUDGET", "2"), ("TOOLSIEVE_SELECTION__LIMIT", "2")];
    let service = Start { servers, environment, ..Start::default() }.start().await;
    service.settled().await;
    let call = |name: &str| json!({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": name, "arguments": "{}"}}]});
    let messages = json!([
        call("files__read_file"), call("files__write_file"), call("time__convert_time"),
        {"role": "user", "content": "send an email to Anna"},
    ]);
    let answer = filter(&service, json!({"messages": messages, "chat_id": "c"})).await;
    let names = names(&answer);
    assert_eq!(names[..4], ["find_tools", "files__read_file", "files__write_file", "time__convert_time"], "calls stay, in their order");
    assert!(names.contains(&"mail__send_email"), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_of_anything_is_refused() {
    let service = service().await;
    let ids: Vec<String> = (0..1_001).map(|number| number.to_string()).collect();
    let definitions: Vec<Value> = ids.iter().map(|id| json!({"name": id})).collect();
    let connections: serde_json::Map<String, Value> = ids.iter().map(|id| (id.clone(), json!("/"))).collect();
    for body in [
        json!({"messages": message("x"), "tool_ids": ids}),
        json!({"messages": message("x"), "connections": connections}),
        json!({"messages": message("x"), "chat_id": "x".repeat(257)}),
        json!({"messages": message("x"), "tools": definitions, "narrow_foreign": true}),
        json!({"messages": message("x"), "searched": ids}),
        json!({"messages": message("x"), "limit": 0}),
        json!({"messages": message("x"), "limit": 129}),
    ] {
        let (status, problem) = service.post("/v1/filter", &body).await;
        assert_eq!((status, &problem["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_request")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_brings_exactly_as_many_as_asked_for() {
    let service = service().await;
    for limit in [1, 3, 9] {
        let (_, found) = service.post("/v1/tools/search", &json!({"queries": ["what is the current time"], "limit": limit})).await;
        assert_eq!(names(&found).len(), limit);
        assert_eq!(names(&found)[0], "time__get_current_time");
        let scores: Vec<f64> = found["tools"].as_array().unwrap().iter().map(|tool| tool["score"].as_f64().unwrap()).collect();
        assert!(scores.is_sorted_by(|one, other| one >= other), "{scores:?}");
    }
    let (_, both) = service.post("/v1/tools/search", &json!({"queries": ["what is the current time", "send an email"], "limit": 2})).await;
    let mut both = names(&both);
    both.sort_unstable();
    assert_eq!(both, ["mail__send_email", "time__get_current_time"]);
    let (_, full) = service.post("/v1/tools/search", &json!({"query": "send an email", "limit": 1, "detail": "full"})).await;
    assert!(full["tools"][0]["parameters"]["properties"]["to"].is_object(), "{full}");
    let (_, short) = service.post("/v1/tools/search", &json!({"queries": "send an email", "limit": 1, "detail": "names"})).await;
    assert!(short["tools"][0].get("summary").is_none() && short["next"].as_str().unwrap().contains("run_tool"));
}

const META: [&str; 3] = ["find_tools", "describe_tools", "run_tool"];

#[tokio::test(flavor = "multi_thread")]
async fn what_the_model_found_is_disclosed_and_stays_in_the_chat() {
    let service = service().await;
    let connections = json!({"server:all": "/"});
    let ask = |disclose: Value, more: Value| {
        let mut body = json!({"messages": message("thanks!"), "connections": connections, "tools": META, "disclose": disclose});
        body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        body
    };
    let chat = json!({"chat_id": "c1"});
    let answer = filter(&service, ask(json!([]), chat.clone())).await;
    assert_eq!(names(&answer), META);
    assert!(answer.get("definitions").is_none());

    let found = json!(["time__get_current_time", "mail__send_email", "nobody__knows"]);
    let answer = filter(&service, ask(found, chat.clone())).await;
    assert_eq!(names(&answer), [&META[..], &["time__get_current_time", "mail__send_email"]].concat());
    let definition = &answer["definitions"][0];
    assert_eq!((&definition["tool_id"], &definition["function"]["name"]), (&json!("server:all"), &json!("time__get_current_time")));
    assert_eq!(definition["function"]["parameters"]["type"], "object");
    assert!(answer["tokens"]["after"].as_u64() > answer["tokens"]["before"].as_u64());
    let reason = |answer: &Value, at: usize| answer["tools"][at]["reason"].as_str().unwrap().to_owned();
    assert_eq!(reason(&answer, 3), "found by the model");

    // The next message: the chat's tools in their order, called or not.
    let later = json!({"chat_id": "c1", "messages": [
        {"role": "user", "content": "send it"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "mail__send_email", "arguments": "{}"}}]},
        {"role": "user", "content": "thanks!"},
    ]});
    let answer = filter(&service, ask(json!([]), later)).await;
    assert_eq!(names(&answer)[3..], ["time__get_current_time", "mail__send_email"]);
    assert_eq!((reason(&answer, 3).as_str(), reason(&answer, 4).as_str()), ("offered earlier in this chat", "called in this chat"));
    assert_eq!(answer["definitions"].as_array().unwrap().len(), 2);
    // Who does not ask is answered what is on offer.
    let body = json!({"messages": message("thanks!"), "connections": connections, "tools": META, "chat_id": "c1"});
    let answer = filter(&service, body).await;
    assert_eq!(names(&answer), META);
}

/// Regression test: where all tools are published, a tool that the model found but didn't call was gone with the next message, and with
/// it the provider's prompt cache.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_model_found_among_published_tools_stays_in_the_chat() {
    let service = service().await;
    let offered = json!(["find_tools", "run_tool", "time__get_current_time", "mail__send_email"]);
    let ask = |disclose: Value| json!({"messages": message("thanks!"), "tools": offered, "chat_id": "c2", "disclose": disclose});
    let answer = filter(&service, ask(Value::Null)).await;
    assert!(!names(&answer).contains(&"mail__send_email"), "{answer}");
    let answer = filter(&service, ask(json!(["mail__send_email", "nobody__knows"]))).await;
    let found = answer["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "mail__send_email").unwrap();
    assert_eq!(found["reason"], "found by the model");
    assert!(answer.get("definitions").is_none(), "it is offered");
    let answer = filter(&service, ask(Value::Null)).await;
    assert_eq!(names(&answer).last(), Some(&"mail__send_email"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_a_connection_runs_is_disclosed() {
    let service = service().await;
    let found = json!(["time__get_current_time", "mail__send_email"]);
    let ask = |connections: Value| json!({"messages": message("thanks!"), "connections": connections, "tools": META, "disclose": found});
    let answer = filter(&service, ask(json!({"server:mail": "/mail"}))).await;
    assert_eq!(names(&answer), [&META[..], &["mail__send_email"]].concat());
    let answer = filter(&service, ask(json!({"server:unknown": "/toolsets/none"}))).await;
    assert_eq!(names(&answer), META);
    let names_of_too_many: Vec<String> = (0..1001).map(|number| format!("a__{number}")).collect();
    let body = json!({"messages": message("thanks!"), "disclose": names_of_too_many});
    let (status, problem) = service.post("/v1/filter", &body).await;
    assert_eq!((status, problem["code"].as_str()), (StatusCode::UNPROCESSABLE_ENTITY, Some("invalid_request")));
}

/// A text that was cut in the middle of an emoji was a 400, so that chat had all tools until it was out of the last turns.
#[tokio::test(flavor = "multi_thread")]
async fn half_an_emoji_counts_as_an_unknown_character() {
    let service = crate::harness::keys::start(&[]).await;
    let post = async |path: &str, body: &'static str| {
        let request = service.request(reqwest::Method::POST, path).header("content-type", "application/json").body(body);
        let response = request.send().await.unwrap();
        (response.status(), response.json::<Value>().await.unwrap())
    };
    let (status, answer) = post("/v1/filter", r#"{"messages": [{"role": "user", "content": "what time is it in Tokyo \ud83d"}]}"#).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert!(names(&answer).contains(&"time__get_current_time"), "{answer}");
    let (status, found) = post("/v1/tools/search", r#"{"queries": ["time \uDE00 in Tokyo"]}"#).await;
    assert_eq!((status, &found["tools"][0]["server"]), (StatusCode::OK, &json!("time")), "{found}");
    let (status, echoed) = post("/one/echo", r#"{"text": "a\ud83d \ud83d\ude00"}"#).await;
    assert_eq!(status, StatusCode::OK, "{echoed}");
    assert!(echoed.to_string().contains("a\u{FFFD} \u{1F600}"), "{echoed}");
}

/// Somebody whose id was too long was selected for with the rights and the chats of the key itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_person_that_cannot_be_read_is_refused() {
    let service = crate::harness::keys::start(&[("TOOLSIEVE_ACCESS__TRUST_USERS", "true")]).await;
    let long = "x".repeat(257);
    let many: Vec<String> = (0..513).map(|number| format!("g{number}")).collect();
    let ask = async |user: Value| service.post("/v1/filter", &json!({"messages": message("thanks!"), "user": user})).await;
    for (user, why) in [
        (json!({"id": long}), "id has 257 bytes"),
        (json!({"id": "u", "email": long}), "email has 257 bytes"),
        (json!({"id": "u", "groups": ["a", long]}), "a group has 257 bytes"),
        (json!({"id": "u", "groups": many}), "513 groups"),
        (json!({"id": "a\u{0}"}), "id contains a control character"),
        (json!({"id": "u", "groups": ["a\nb"]}), "a group contains a control character"),
        (json!({"id": 7}), "id is not a text"),
        (json!({"id": "u", "email": []}), "email is not a text"),
        (json!({"id": "u", "groups": "a"}), "groups is not an array"),
        (json!({"id": "u", "groups": [1]}), "a group is not a text"),
        (json!({"email": "a@example.org"}), "it has no id"),
        (json!({"id": ""}), "it has no id"),
        (json!("u"), "it is not an object"),
    ] {
        let (status, problem) = ask(user).await;
        assert_eq!((status, &problem["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_request")), "{why}");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{why}: {problem}");
    }
    let fine = json!({"id": "x".repeat(256), "name": "名".repeat(500), "email": null, "role": "user", "groups": &many[..512]});
    for user in [fine, Value::Null, json!({"id": "u", "groups": ["", "a"]})] {
        let (status, answer) = ask(user).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    let (status, problem) = service.post("/v1/filter", &json!({"messages": message("thanks!"), "model": long})).await;
    assert!(status == StatusCode::UNPROCESSABLE_ENTITY && problem["detail"].as_str().unwrap().contains("model"), "{problem}");
}

/// Every tool call of somebody in 150 groups, or with a name of more than 85 Chinese letters, was refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_person_in_many_groups_and_with_a_long_name_calls_tools() {
    let service = crate::harness::keys::start(&[("TOOLSIEVE_ACCESS__TRUST_USERS", "true")]).await;
    let call = async |groups: &str, name: &str| {
        let request = service.request(reqwest::Method::POST, "/one/echo").json(&json!({"text": "hello"}));
        let request = request.header("X-OpenWebUI-User-Id", "u1").header("X-OpenWebUI-User-Groups", groups);
        request.header("X-OpenWebUI-User-Name", name).send().await.unwrap().status()
    };
    let groups: Vec<String> = (0..512).map(|number| format!("a department with a long name {number}")).collect();
    let name = "%E5%90%8D".repeat(300);
    assert_eq!(call(&groups.join(","), &name).await, StatusCode::OK);
    assert_eq!(call(&format!("{},one more", groups.join(",")), "x").await, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(call(&"x".repeat(257), "x").await, StatusCode::UNPROCESSABLE_ENTITY);
    // Escapes don't count: 85 Chinese letters have 255 bytes.
    assert_eq!(call(&"%E5%90%8D".repeat(85), "x").await, StatusCode::OK);
    assert_eq!(call(&"%E5%90%8D".repeat(86), "x").await, StatusCode::UNPROCESSABLE_ENTITY);
}

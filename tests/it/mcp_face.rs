//! The MCP interface, as clients of both eras meet it.

use std::sync::{Arc, Mutex};

use reqwest::{Method, StatusCode};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, NotificationContext, RoleClient, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, model};
use serde_json::{Value, json};

use crate::harness::keys::{KEY, administer, start as with_admin};
use crate::harness::mcp::newer_era;
use crate::harness::servers::listed::{Listed, other};
use crate::harness::{Running, Start, stdio};

const ERAS: [Era; 2] = [Era::Older, Era::Newer];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Era {
    Older,
    Newer,
}

/// How far, and in which words.
type ProgressStep = (f64, Option<String>);

/// Notes the progress that it is told of.
#[derive(Clone, Default)]
struct Listener {
    steps: Arc<Mutex<Vec<ProgressStep>>>,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("a-test", "1"))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.steps.lock().unwrap().push((params.progress, params.message));
    }
}

type Client = RunningService<RoleClient, Listener>;

async fn connect(service: &Running, path: &str, key: Option<&str>, era: Era) -> Client {
    let mut config = StreamableHttpClientTransportConfig::with_uri(format!("{}{path}", service.url));
    config.auth_header = key.map(str::to_owned);
    let transport = StreamableHttpClientTransport::with_client(service.client.clone(), config);
    let lifecycle = match era {
        Era::Older => ClientLifecycleMode::Initialize,
        Era::Newer => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
    };
    Listener::default().serve_with_lifecycle(transport, lifecycle).await.unwrap()
}

fn call(name: &'static str, arguments: &Value) -> CallToolRequestParams {
    CallToolRequestParams::new(name).with_arguments(arguments.as_object().cloned().unwrap())
}

async fn names(client: &Client) -> Vec<String> {
    client.list_all_tools().await.unwrap().into_iter().map(|tool| tool.name.into_owned()).collect()
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

/// One request of JSON-RPC of the older era, without any client.
async fn ask(service: &Running, path: &str, method: &str, params: Value) -> (StatusCode, Value) {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let request = service.request(Method::POST, path).header("accept", "application/json, text/event-stream").json(&message);
    let response = request.send().await.unwrap();
    let status = response.status();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

#[tokio::test(flavor = "multi_thread")]
async fn both_eras_list_and_call() {
    let service = Running::on(json!({"one": stdio(&[]), "time": stdio(&["list=time"])})).await;
    for era in ERAS {
        let client = connect(&service, "/mcp", None, era).await;
        let listed = names(&client).await;
        assert_eq!(listed[..2], ["find_tools", "run_tool"], "{era:?}");
        assert!(listed.contains(&"one__echo".to_owned()) && listed.contains(&"time__convert_time".to_owned()), "{listed:?}");
        let arguments = json!({"text": "grüße", "n": 1.5, "list": [1, null]});
        let echoed = client.call_tool(call("one__echo", &arguments)).await.unwrap();
        assert_eq!((echoed.structured_content.as_ref(), text(&echoed)), (Some(&arguments), arguments.to_string().as_str()), "{era:?}");
        assert_eq!(echoed.result_type.is_some(), era == Era::Newer, "what the newer era asks for, whatever the server speaks");
        let ran = client.call_tool(call("run_tool", &json!({"name": "one__echo", "arguments": arguments}))).await.unwrap();
        assert_eq!(ran.structured_content, Some(arguments), "{era:?}");
        let found = client.call_tool(call("find_tools", &json!({"queries": ["convert a time"], "limit": 1}))).await.unwrap();
        assert_eq!(found.structured_content.unwrap()["tools"][0]["name"], "time__convert_time", "{era:?}");
        let info = client.peer_info().unwrap();
        let instructions = info.instructions.clone().unwrap();
        assert!(instructions.contains("tools of one and time"), "{instructions}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_tools_stand_for_all() {
    let service = Running::on(json!({"one": stdio(&[]), "time": stdio(&["list=time"])})).await;
    let client = connect(&service, "/mcp?mode=meta", None, Era::Older).await;
    assert_eq!(names(&client).await, ["find_tools", "describe_tools", "run_tool"]);
    let wanted = json!({"names": ["time__convert_time", "time__convert_tim", "time__convert_time"]});
    let described = client.call_tool(call("describe_tools", &wanted)).await.unwrap().structured_content.unwrap();
    assert_eq!(described["tools"].as_array().unwrap().len(), 1);
    assert!(described["tools"][0]["parameters"]["properties"].is_object(), "{described}");
    assert_eq!(described["unknown"], json!([{"name": "time__convert_tim", "did_you_mean": "time__convert_time"}]));
    let over_http = service.post("/v1/tools/describe", &wanted).await;
    assert_eq!(over_http, (StatusCode::OK, described));
    let ran = client.call_tool(call("run_tool", &json!({"name": "one__echo", "arguments": {"a": 1}}))).await.unwrap();
    assert_eq!(ran.structured_content, Some(json!({"a": 1})));
    // What is not listed is reached all the same: the list is what a model reads, the policy is what counts.
    assert!(client.call_tool(call("one__echo", &json!({}))).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_say_what_to_do() {
    let service = Running::on(json!({"one": stdio(&[]), "time": stdio(&["list=time"])})).await;
    let client = connect(&service, "/mcp", None, Era::Older).await;
    let failed = client.call_tool(call("one__fail", &json!({}))).await.unwrap();
    assert_eq!((failed.is_error, text(&failed)), (Some(true), "disk full"));
    let unknown = client.call_tool(call("one__ech", &json!({}))).await.unwrap_err();
    let ServiceError::McpError(unknown) = unknown else { panic!("{unknown}") };
    assert_eq!((unknown.code, &*unknown.message), (model::ErrorCode::INVALID_PARAMS, "Unknown tool: one__ech. Did you mean one__echo?"));
    let wrong = client.call_tool(call("time__convert_time", &json!({"source_timezone": 5}))).await.unwrap();
    assert_eq!(wrong.is_error, Some(true));
    assert!(text(&wrong).contains("/source_timezone") || text(&wrong).contains("missing"), "{}", text(&wrong));
    let nothing = client.call_tool(call("find_tools", &json!({}))).await.unwrap();
    assert!(nothing.is_error == Some(true) && text(&nothing).contains("queries"), "{nothing:?}");
    for (tool, arguments, parameter) in [
        ("find_tools", json!({}), "queries"),
        ("find_tools", json!({"queries": ["time"], "limit": 0}), "limit"),
        ("find_tools", json!({"queries": ["time"], "detail": 1}), "detail"),
        ("run_tool", json!({"arguments": {}}), "name"),
    ] {
        let refused = serde_json::to_value(client.call_tool(call(tool, &arguments)).await.unwrap()).unwrap();
        assert_eq!((&refused["isError"], &refused["_meta"]["toolsieve/parameter"]), (&json!(true), &json!(parameter)), "{refused}");
    }
    assert!(!serde_json::to_string(&wrong).unwrap().contains("toolsieve/parameter"), "{wrong:?}");
    // The meta-tool itself is there.
    let ran = client.call_tool(call("run_tool", &json!({"name": "one__ech"}))).await.unwrap();
    assert_eq!((ran.is_error, text(&ran)), (Some(true), "Unknown tool: one__ech. Did you mean one__echo?"));
    let queries = json!({"queries": [1]});
    let wrong = client.call_tool(call("find_tools", &queries)).await.unwrap();
    assert!(wrong.is_error == Some(true) && text(&wrong).contains("expected a text or a list of texts"), "{wrong:?}");
    // Whole numbers as models write them.
    for limit in [json!(1), json!(1.0), json!("1")] {
        let found = client.call_tool(call("find_tools", &json!({"queries": ["convert a time"], "limit": limit}))).await.unwrap();
        assert_eq!(found.structured_content.map(|found| found["tools"].as_array().unwrap().len()), Some(1), "{limit}");
        let message = json!({"messages": [{"role": "user", "content": "convert a time"}], "limit": limit, "token_budget": "5000"});
        let (status, selected) = service.post("/v1/filter", &message).await;
        assert_eq!(status, StatusCode::OK, "{selected}");
    }
    // The service's own tools.
    for name in ["find_tools", "load_toolset", "run_tool", "describe_tools"] {
        let expected = format!("{name} is a tool of this service itself: call it directly, if it is among your tools.");
        let ran = client.call_tool(call("run_tool", &json!({"name": name}))).await.unwrap();
        assert_eq!((ran.is_error, text(&ran)), (Some(true), expected.as_str()));
        let (status, problem) = service.post("/v1/tools/call", &json!({"name": name})).await;
        assert_eq!((status, &problem["detail"]), (StatusCode::NOT_FOUND, &json!(expected)), "{problem}");
        let next = async |names: Value| service.post("/v1/tools/describe", &json!({"names": names})).await.1["next"].clone();
        assert_eq!(next(json!([name])).await, json!(expected));
        let next = next(json!(["one__echo", name])).await;
        assert!(next.as_str().unwrap().starts_with("Call a tool directly") && next.as_str().unwrap().ends_with(&expected), "{next}");
    }
    for query in ["mode=x", "mode=full&mode=meta"] {
        let (status, problem) = ask(&service, &format!("/mcp?{query}"), "tools/list", json!({})).await;
        assert_eq!((status, &problem["parameter"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("mode")), "{problem}");
    }
    let (status, odd) = ask(&service, "/mcp", "no/such", json!({})).await;
    assert_eq!((status, &odd["error"]["code"]), (StatusCode::OK, &json!(-32601)), "{odd}");
}

/// Regression: a tool of another product was suggested, whose whole name is similar.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_without_its_server_suggests_the_tool_of_this_name() {
    let (similar, same) = (Listed::new(&[other("search_issue")]), Listed::new(&[other("search_issues")]));
    let service = Running::on(json!({"a": similar.server(), "tracker": same.server()})).await;
    let (status, problem) = service.post("/v1/tools/call", &json!({"name": "search_issues"})).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("Did you mean `tracker__search_issues`?"), "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lazy_mode_lists_stubs_and_describes_on_demand() {
    let service = Running::on(json!({"one": stdio(&[]), "time": stdio(&["list=time"])})).await;
    let list = async |params: Value| ask(&service, "/mcp?mode=lazy", "tools/list", params).await.1["result"]["tools"].clone();
    let named = |tools: &Value, name: &str| tools.as_array().unwrap().iter().find(|tool| tool["name"] == name).cloned().unwrap();
    let stub = named(&list(json!({})).await, "time__convert_time");
    assert_eq!(stub["inputSchema"], json!({"type": "object"}));
    // Beside them is what describes them, and nothing else.
    let beside = list(json!({})).await.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(beside.iter().filter(|name| !name.contains("__")).collect::<Vec<_>>(), ["describe_tools"]);
    let described = json!({"name": "describe_tools", "arguments": {"names": ["time__convert_time"]}});
    let (_, described) = ask(&service, "/mcp?mode=lazy", "tools/call", described).await;
    assert_eq!(described["result"]["structuredContent"]["tools"][0]["name"], "time__convert_time", "{described}");
    let (_, absent) = ask(&service, "/mcp?mode=lazy", "tools/call", json!({"name": "find_tools", "arguments": {"queries": ["x"]}})).await;
    assert_eq!(absent["error"]["code"], -32602, "{absent}");
    let whole = named(&list(json!({"lazy": false})).await, "time__convert_time");
    assert!(whole["inputSchema"]["properties"].is_object() && whole["description"].as_str() >= stub["description"].as_str());
    let (_, one) = ask(&service, "/mcp?mode=lazy", "tools/describe", json!({"name": "time__convert_time"})).await;
    assert_eq!(one["result"]["tool"], whole, "{one}");
    let (_, more) = ask(&service, "/mcp", "tools/describe_batch", json!({"names": ["time__convert_time", "x"]})).await;
    assert_eq!(more["result"], json!({"tools": [whole], "unknown": ["x"]}));
    for params in [json!({}), json!({"name": 5}), json!({"name": "x"})] {
        let (_, refused) = ask(&service, "/mcp", "tools/describe", params).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_passed_through_and_a_client_that_goes_away_cancels() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    for era in ERAS {
        let client = connect(&service, "/mcp", None, era).await;
        let done = client.call_tool(call("one__progress", &json!({"steps": 3}))).await.unwrap();
        assert_eq!(text(&done), "false", "the server was asked to tell: {era:?}");
        // The client hands each to a task of its own, so their order here is chance.
        let mut steps = client.service().steps.lock().unwrap().clone();
        steps.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert_eq!(steps.iter().map(|(progress, _)| *progress).collect::<Vec<_>>(), [1.0, 2.0, 3.0], "{era:?}");
        assert_eq!(steps[0].1.as_deref(), Some("step 1"));
    }
    let steps = json!({"name": "one__progress", "arguments": {"steps": 3}, "_meta": {"progressToken": "mine"}});
    let (_, stream) = ask(&service, "/mcp", "tools/call", steps).await;
    let data = stream.as_str().unwrap().lines().filter_map(|line| line.strip_prefix("data:"));
    let events: Vec<Value> = data.filter_map(|data| serde_json::from_str(data.trim()).ok()).collect();
    let steps: Vec<&Value> = events.iter().map(|event| &event["params"]["progress"]).collect();
    assert_eq!(steps, [&json!(1.0), &json!(2.0), &json!(3.0), &Value::Null], "the result comes last: {events:?}");
    assert_eq!((&events[0]["params"]["progressToken"], &events[3]["id"]), (&json!("mine"), &json!(1)));
    let sleeping = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "one__sleep", "arguments": {}}});
    let request = service.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream").json(&sleeping);
    let waiting = tokio::spawn(request.send());
    assert_eq!(service.post("/one/wait_sleeping", &json!({})).await.0, StatusCode::OK);
    waiting.abort();
    assert_eq!(service.post("/one/wait_cancelled", &json!({})).await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_leave_as_they_were_written() {
    let service = Running::on(json!({"one": stdio(&["results"])})).await;
    let odd = r#"{"b": 12345678901234567890123, "a": [1.0, 1e999, -0, 0.10], "é": "\u00e9\/"}"#;
    let link = r#"{"type": "resource_link", "name": "x", "uri": "file:///x", "vendor": [1.50]}"#;
    let written = format!(r#"{{"content": [{link}], "structuredContent": {odd}, "vendor": {{"a": 1e2}}}}"#);
    let arguments = json!({"result": written});
    for (path, name) in [("/mcp", "one__raw_result"), ("/one/mcp", "raw_result")] {
        for era in ERAS {
            let answer = raw_call(&service, path, name, &arguments, era).await;
            let kind = if era == Era::Newer { r#","resultType":"complete"}"# } else { "}" };
            assert!(answer.contains(odd) && answer.contains(r#""vendor": [1.50]"#), "{path} {era:?}: {answer}");
            assert!(answer.contains(r#"{"a": 1e2}"#) && answer.trim_end().ends_with(&format!("{kind}}}")), "{path} {era:?}: {answer}");
            assert_eq!(answer.contains("toolsieve://one/file:///x"), path == "/mcp", "{answer}");
        }
    }
    // What this service doesn't know, the client may know.
    for item in [
        r#"{"type": "video", "data": 1.50}"#,
        r#"{"type": "text"}"#,
        r#"{"type": "image", "data": "AAAA"}"#,
        r#"{"type": "text", "text": "a", "annotations": {"audience": ["robot"]}}"#,
    ] {
        for is_error in ["", r#", "isError": true"#] {
            let written = format!(r#"{{"content": [{item}, {{"type": "text", "text": "a"}}]{is_error}}}"#);
            let answer = raw_call(&service, "/mcp", "one__raw_result", &json!({"result": written}), Era::Older).await;
            assert!(answer.contains(&format!(r#""result":{written}"#)), "{answer}");
        }
    }
    // What is no result is a text, and an error stays one.
    for (written, is_error) in [(r#"{"content": 7}"#, false), (r#"{"content": {"type": "text"}, "isError": true}"#, true)] {
        let broken = raw_call(&service, "/mcp", "one__raw_result", &json!({"result": written}), Era::Older).await;
        let broken: Value = serde_json::from_str(&broken).unwrap();
        assert_eq!(
            (&broken["result"]["content"][0]["text"], &broken["result"]["isError"]),
            (&json!(written), &json!(is_error)),
            "{broken}"
        );
    }
}

/// The body of the answer to a call, as it came.
async fn raw_call(service: &Running, path: &str, name: &str, arguments: &Value, era: Era) -> String {
    let mut params = json!({"name": name, "arguments": arguments});
    let mut request = service.request(Method::POST, path).header("accept", "application/json, text/event-stream");
    if era == Era::Newer {
        params["_meta"] = newer_era();
        request = request.header("mcp-protocol-version", "2026-07-28").header("mcp-method", "tools/call").header("mcp-name", name);
    }
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    request.json(&message).send().await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_is_unknown_here_too() {
    let service = with_admin(&[]).await;
    let rules = json!({"rules": [{"effect": "block", "tools": ["echo"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    let client = connect(&service, "/mcp", Some(KEY), Era::Newer).await;
    assert!(!names(&client).await.contains(&"one__echo".to_owned()));
    let ServiceError::McpError(error) = client.call_tool(call("one__echo", &json!({}))).await.unwrap_err() else { panic!("another error") };
    assert!(error.message.starts_with("Unknown tool: one__echo"), "{error}");
    // `run_tool` itself exists.
    let ran = client.call_tool(call("run_tool", &json!({"name": "one__echo", "arguments": {}}))).await.unwrap();
    let text = ran.content[0].as_text().unwrap().text.clone();
    assert!(ran.is_error == Some(true) && text.starts_with("Unknown tool: one__echo"), "{text}");
    let described = client.call_tool(call("describe_tools", &json!({"names": ["one__echo"]}))).await;
    assert!(described.is_err(), "the full mode has no such tool");
    let described = service.post("/v1/tools/describe", &json!({"names": ["one__echo"]})).await.1;
    assert_eq!(described["tools"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_key_gets_nowhere_and_leaves_nothing() {
    let service = Start { servers: json!({"one": stdio(&[])}), key: Some("the-key"), ..Start::default() }.start().await;
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}});
    let response = service.client.post(format!("{}/mcp", service.url)).json(&hello).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let foreign = service.request(Method::POST, "/mcp").header("origin", "https://evil.example").json(&hello).send().await.unwrap();
    assert_eq!(foreign.status(), StatusCode::FORBIDDEN, "with the key too");
    for method in [Method::GET, Method::DELETE] {
        let response = service.request(method, "/mcp").send().await.unwrap();
        assert_eq!(
            (response.status(), response.headers()["allow"].to_str().unwrap()),
            (StatusCode::METHOD_NOT_ALLOWED, "POST, GET, DELETE"),
            "without a session"
        );
    }
    let open = Running::on(json!({"one": stdio(&[])})).await;
    for (name, value) in [("origin", "https://evil.example"), ("host", "evil.example")] {
        let response = open.request(Method::POST, "/mcp").header(name, value).json(&hello).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_a_message_is_what_was_chosen_for_it() {
    let service = Running::on(json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"])})).await;
    let list = async |path: &str, message: Option<&str>| {
        let asked = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
        let mut request = service.request(Method::POST, path).header("accept", "application/json, text/event-stream").json(&asked);
        if let Some(message) = message {
            request = request.header("X-OpenWebUI-Message-Id", message);
        }
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        let tools = answer["result"]["tools"].as_array().unwrap().iter();
        let names: Vec<String> = tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
        (names, answer["result"]["ttlMs"].clone(), answer["result"]["cacheScope"].clone())
    };
    let choose = async |message: &str, path: &str| {
        let body = json!({"messages": [{"role": "user", "content": "what time is it in Tokyo"}], "message_id": message, "limit": 1,
            "connections": {"server:mcp:sieve": path}, "tool_ids": ["server:mcp:sieve"]});
        let (status, answer) = service.post("/v1/filter", &body).await;
        assert_eq!((status, &answer["tool_ids"]), (StatusCode::OK, &json!(["server:mcp:sieve"])), "{answer}");
        answer
    };
    let everything = list("/mcp", None).await.0;
    let answer = choose("m1", "/mcp?mode=message").await;
    let (chosen, ttl, scope) = list("/mcp?mode=message", Some("m1")).await;
    let name = answer["tools"][1]["name"].as_str().unwrap();
    assert!(name.starts_with("time__"), "{answer}");
    assert_eq!(chosen, ["find_tools", "run_tool", name]);
    assert!(everything.len() > chosen.len());
    assert_eq!((ttl, scope), (json!(0), json!("private")));
    // No message, one of which nobody asked, one whose documents were narrowed instead, and the address that never varies.
    choose("m2", "/").await;
    for (path, message) in [("/mcp?mode=message", None), ("/mcp?mode=message", Some("m0")), ("/mcp?mode=message", Some("m2"))] {
        assert_eq!(list(path, message).await.0, everything, "{message:?}");
    }
    assert_eq!(list("/mcp", Some("m1")).await.0, everything);
    // The list is what a model reads; what is not in it can be called all the same.
    let client = connect(&service, "/mcp?mode=message", None, Era::Older).await;
    assert!(client.call_tool(call("mail__send_email", &json!({}))).await.is_ok());
}

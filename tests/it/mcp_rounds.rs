//! Calls of clients of protocol 2026-07-28 in which somebody is asked something: over servers that know of it, and over those that ask
//! on their connection.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, KEY, administer, create};
use crate::harness::servers::http::HttpServer;
use crate::harness::wait::eventually;
use crate::harness::{LONG, Running, Start, stdio};

const VERSION: &str = "2026-07-28";
const BIG: &str = "12345678901234567890123";

/// `old` asks on its connection, `new` in place of a result.
async fn start(environment: &[(&'static str, &'static str)]) -> Running {
    start_with(environment, json!({})).await
}

async fn start_with(environment: &[(&'static str, &'static str)], more: Value) -> Running {
    let mut environment = environment.to_vec();
    environment.extend([("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_MCP__ELICITATION", "true")]);
    let servers = with(more, json!({"old": stdio(&["more"]), "older": stdio(&["more"]), "new": stdio(&["more", "modern"])}));
    let running = Start { servers, key: Some(KEY), environment, ..Start::default() }.start().await;
    let ready = running.settled().await;
    let protocol = |name: &str| {
        let servers = ready["servers"].as_array().unwrap();
        servers.iter().find(|server| server["server"] == name).unwrap()["protocol"].clone()
    };
    assert_eq!((protocol("old"), protocol("new")), (json!("2025-11-25"), json!(VERSION)));
    running
}

/// A client of the newer era, without any SDK.
#[derive(Clone)]
struct Client<'a> {
    service: &'a Running,
    path: &'static str,
    key: String,
    capabilities: Value,
}

impl<'a> Client<'a> {
    fn new(service: &'a Running, path: &'static str) -> Self {
        let capabilities = json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}, "experimental": {"x": {}}});
        Self { service, path, key: service.key.clone().unwrap(), capabilities }
    }

    /// The answer as it was written.
    async fn text(&self, method: &str, mut params: Value) -> (StatusCode, String) {
        let token = params["_meta"]["progressToken"].take();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        });
        if !token.is_null() {
            params["_meta"]["progressToken"] = token;
        }
        let named = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default().to_owned();
        let message = json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params});
        let url = format!("{}{}", self.service.url, self.path);
        let request = self.service.client.post(url).bearer_auth(&self.key).header("accept", "application/json, text/event-stream");
        let request = request.header("mcp-protocol-version", VERSION).header("mcp-method", method).header("mcp-name", named);
        let response = tokio::time::timeout(LONG, request.json(&message).send()).await.unwrap().unwrap();
        (response.status(), response.text().await.unwrap())
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        let (_, text) = self.text(method, params).await;
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
    }

    async fn call(&self, name: &str, arguments: Value, more: Value) -> Value {
        self.ask("tools/call", with(json!({"name": name, "arguments": arguments}), more)).await
    }
}

fn with(mut params: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("no object: {more}") };
    params.as_object_mut().unwrap().extend(more);
    params
}

/// The next round: the answer to one question, with the state of the one before.
fn answering(question: &Value, key: &str, name: &str) -> Value {
    assert_eq!(question["result"]["resultType"], "input_required", "{question}");
    let answer = json!({"action": "accept", "content": {"name": name}});
    json!({"inputResponses": {key: answer}, "requestState": question["result"]["requestState"]})
}

/// What the test servers say that they were told.
fn echoed(answer: &Value) -> Value {
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{answer}"))
}

fn asks(answer: &Value) -> Vec<&String> {
    answer["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("{answer}")).keys().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_of_a_newer_server_pass_through() {
    let service = start(&[]).await;
    let client = Client::new(&service, "/mcp");
    let (status, text) = client.text("tools/call", json!({"name": "new__ask_rounds", "arguments": {}})).await;
    let written = format!("\"x-odd\":{BIG}}}}}}}}}}}}},\"zeta\":1,\"requestState\":\"signed\",\"alpha\":{{}}}}");
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains(&written), "as the server wrote it: {text}");
    let question: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(question["id"], "a");
    let next = answering(&question, "name", "Anna");
    let done = client.call("new__ask_rounds", json!({}), next.clone()).await;
    assert_eq!(done["result"]["resultType"], "complete");
    assert_eq!(echoed(&done)["responses"], next["inputResponses"]);
    // What the settings do not allow, and what nobody here knows, is not handed on.
    assert_eq!(echoed(&done)["capabilities"], json!({"elicitation": {"form": {}}, "roots": {}}));
    // The wrong key, a changed state, a client that can't be asked: all that is between the two.
    let wrong = client.call("new__ask_rounds", json!({}), answering(&question, "wrong", "Anna")).await;
    assert_eq!(asks(&wrong), ["name"]);
    let tampered = json!({"inputResponses": next["inputResponses"], "requestState": "signed-TAMPERED"});
    let refused = client.call("new__ask_rounds", json!({}), tampered).await;
    assert_eq!(refused["error"], json!({"code": -32602, "message": "the state was changed"}));
    let unable = Client { capabilities: json!({}), ..client.clone() };
    let (status, text) = unable.text("tools/call", json!({"name": "new__ask_rounds", "arguments": {}})).await;
    let refused: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &refused["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(-32021)));
    assert_eq!(refused["error"]["data"], json!({"requiredCapabilities": {"elicitation": {}}}));
    // Through the tool that runs tools.
    let meta = Client::new(&service, "/mcp?mode=meta");
    let arguments = json!({"name": "new__ask_rounds", "arguments": {}});
    let question = meta.call("run_tool", arguments.clone(), json!({})).await;
    let done = meta.call("run_tool", arguments, answering(&question, "name", "Ben")).await;
    assert_eq!(echoed(&done)["responses"]["name"]["content"]["name"], "Ben");
    // Prompts and resources are asked for in the same way.
    for (path, prompt, resource) in [
        ("/mcp", json!({"name": "new__ask"}), json!({"uri": "toolsieve://new/test://ask"})),
        ("/new/mcp", json!({"name": "ask"}), json!({"uri": "test://ask"})),
    ] {
        let client = Client::new(&service, path);
        let question = client.ask("prompts/get", prompt.clone()).await;
        let done = client.ask("prompts/get", with(prompt, answering(&question, "name", "Carl"))).await;
        assert!(done["result"]["messages"][0]["content"]["text"].as_str().unwrap().contains("Carl"), "{done}");
        let question = client.ask("resources/read", resource.clone()).await;
        let done = client.ask("resources/read", with(resource.clone(), answering(&question, "name", "Dora"))).await;
        assert_eq!((&done["result"]["contents"][0]["uri"], &done["result"]["resultType"]), (&resource["uri"], &json!("complete")));
        assert!(done["result"]["contents"][0]["text"].as_str().unwrap().contains("Dora"), "{done}");
    }
    // What is no round at all.
    for (method, params) in [
        ("tools/call", json!({"name": "new__ask_rounds", "inputResponses": []})),
        ("tools/call", json!({"name": "new__ask_rounds", "requestState": 7})),
        ("prompts/get", json!({"name": "new__ask", "inputResponses": "x"})),
        ("resources/read", json!({"uri": "toolsieve://new/test://ask", "requestState": {}})),
    ] {
        let refused = client.ask(method, params).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("`inputResponses` is an object"), "{refused}");
    }
    // Who speaks no MCP can't be asked.
    let (status, problem) = service.post("/new/ask_rounds", &json!({})).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_neither_a_failure_nor_the_end_of_a_call() {
    let service = start(&[]).await;
    let client = Client::new(&service, "/mcp");
    for name in ["new__ask_rounds", "old__ask_rounds"] {
        let question = client.call(name, json!({}), json!({})).await;
        let key = asks(&question)[0].clone();
        let done = client.call(name, json!({}), answering(&question, &key, "Anna")).await;
        assert!(done["result"]["content"].is_array(), "{done}");
    }
    let outcomes = eventually("three entries in the audit log", async || {
        let (_, log) = administer(&service, Method::GET, "/v1/admin/audit?tool=ask_rounds", &json!({})).await;
        let entries = log["entries"].as_array().unwrap();
        let of = |server: &str| -> Vec<Value> {
            entries.iter().filter(|entry| entry["server"] == server).map(|entry| entry["outcome"].clone()).collect()
        };
        let (new, old) = (of("new"), of("old"));
        if new.len() + old.len() >= 3 { Ok((new, old)) } else { Err(log.clone()) }
    })
    .await;
    assert_eq!(outcomes, (vec![json!("success"), json!("input_required")], vec![json!("success")]), "newest first");
    let counts = eventually("the usage of both servers", async || {
        let (_, usage) = administer(&service, Method::GET, "/v1/admin/usage", &json!({})).await;
        let tools = usage["tools"].as_array().unwrap();
        let of = |server: &str| tools.iter().find(|tool| tool["tool"] == "ask_rounds" && tool["server"] == server).cloned();
        of("new").zip(of("old")).ok_or(usage)
    })
    .await;
    for counts in [counts.0, counts.1] {
        assert_eq!((&counts["called"], &counts["succeeded"]), (&json!(1), &json!(1)), "{counts}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_an_older_server_waits_for_each_answer() {
    let service = start(&[]).await;
    let client = Client::new(&service, "/mcp");
    let two = json!({"rounds": 2});
    let first = client.call("old__ask_rounds", two.clone(), json!({})).await;
    assert_eq!(asks(&first), ["question-1"]);
    let asked = &first["result"]["inputRequests"]["question-1"];
    assert_eq!((&asked["method"], &asked["params"]["message"]), (&json!("elicitation/create"), &json!("Name 1?")));
    assert_eq!(asked["params"]["requestedSchema"]["properties"]["name"]["x-odd"], json!([1]), "as it was written");
    // A wrong key, no key and what is no result are asked again.
    let mut question = first.clone();
    for wrong in [json!({"name": {"action": "accept"}}), json!({}), json!({"question-1": 7})] {
        let params = json!({"inputResponses": wrong, "requestState": question["result"]["requestState"]});
        question = client.call("old__ask_rounds", two.clone(), params).await;
        assert_eq!(question["result"]["inputRequests"], first["result"]["inputRequests"], "{question}");
    }
    let mut next = answering(&question, "question-1", "Anna");
    next["inputResponses"]["something"] = json!({"action": "accept"});
    let second = client.call("old__ask_rounds", two.clone(), next.clone()).await;
    assert_eq!(asks(&second), ["question-2"]);
    assert_ne!(first["result"]["requestState"], second["result"]["requestState"]);
    let again = client.call("old__ask_rounds", two.clone(), next).await;
    assert_eq!(again["error"]["code"], -32602, "a state is good for one answer: {again}");
    // Through the tool that runs tools it is the same call, but not at another address.
    let next = answering(&second, "question-2", "Ben");
    for path in ["/mcp?mode=meta", "/old/mcp"] {
        let name = if path == "/old/mcp" { "ask_rounds" } else { "run_tool" };
        let arguments = if path == "/old/mcp" { two.clone() } else { json!({"name": "old__ask_rounds", "arguments": two}) };
        let elsewhere = Client::new(&service, path).call(name, arguments, next.clone()).await;
        assert_eq!(elsewhere["error"]["code"], -32602, "{elsewhere}");
    }
    let done = client.call("run_tool", json!({"name": "old__ask_rounds", "arguments": two}), next).await;
    let names: Vec<Value> = echoed(&done).as_array().unwrap().iter().map(|echo| echo["content"]["name"].clone()).collect();
    assert_eq!(names, ["Anna", "Ben"]);
    for (method, params) in [("prompts/get", json!({"name": "old__ask"})), ("resources/read", json!({"uri": "toolsieve://old/test://ask"}))]
    {
        let question = client.ask(method, params.clone()).await;
        let next = answering(&question, "question-1", "Carl");
        let done = client.ask(method, with(params.clone(), next.clone())).await;
        assert!(done["result"].to_string().contains("Carl"), "{done}");
        let again = client.ask(method, with(params, next)).await;
        assert_eq!(again["error"]["code"], -32602, "{again}");
        assert!(again["error"]["message"].as_str().unwrap().contains("without it"), "{again}");
    }
    // A server of the older era gives no state, so it gets none.
    let foreign = client.call("old__echo", json!({}), json!({"requestState": "signed"})).await;
    assert_eq!(foreign["error"]["code"], -32602, "{foreign}");
    // What a client does not say that it can do it is not asked.
    let unable = Client { capabilities: json!({"sampling": {}}), ..client.clone() };
    let refused = unable.call("old__ask_rounds", json!({}), json!({})).await;
    assert!(echoed(&refused)[0].as_str().unwrap().contains("can't answer"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_its_caller_alone_and_not_for_ever() {
    let service = start(&[("TOOLSIEVE_MCP__WAITING_CALLS_PER_CALLER", "1"), ("TOOLSIEVE_MCP__ANSWER_SECONDS", "600")]).await;
    let (_, key) = create(&service, json!({"name": "other"})).await;
    let client = Client::new(&service, "/mcp");
    let other = Client { key, ..client.clone() };
    let question = client.call("old__ask_rounds", json!({}), json!({})).await;
    let next = answering(&question, "question-1", "Anna");
    let mut guessed = next.clone();
    guessed["requestState"] = json!(format!("toolsieve-{:032x}", 7));
    let unknown = other.call("old__ask_rounds", json!({}), guessed).await;
    let foreign = other.call("old__ask_rounds", json!({}), next.clone()).await;
    assert_eq!((&foreign["error"]["code"], &foreign), (&json!(-32602), &unknown), "it looks the same");
    // One more is told why not, others are not touched by it.
    let refused = client.call("new__echo", json!({}), json!({})).await;
    assert_eq!(refused["result"]["resultType"], "complete", "what is not asked anything is not counted: {refused}");
    let refused = client.call("older__ask_rounds", json!({}), json!({})).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert!(refused["result"]["content"][0]["text"].as_str().unwrap().contains("1 calls of this caller already wait"), "{refused}");
    let prompt = client.ask("prompts/get", json!({"name": "older__ask"})).await;
    assert!(prompt["error"]["message"].as_str().unwrap().contains("1 calls of this caller already wait"), "{prompt}");
    // A rule that comes between hides the tool, whatever the request brings.
    let rules = json!({"rules": [{"effect": "block", "tools": ["ask_rounds"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    for name in ["old__ask_rounds", "old__ask_nothing"] {
        let denied = client.call(name, json!({}), next.clone()).await;
        let message = denied["error"]["message"].as_str().unwrap_or_else(|| panic!("{denied}"));
        assert!(message.starts_with(&format!("Unknown tool: {name}")), "{message}");
    }
    let rules = json!({"rules": []});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    let done = client.call("old__ask_rounds", json!({}), next).await;
    assert_eq!(echoed(&done)[0]["content"]["name"], "Anna", "it has waited all the time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_keeps_others_of_its_caller_from_nothing() {
    let http = HttpServer::start(&["more"]);
    let service = start_with(&[], json!({"web": {"type": "streamable-http", "url": format!("http://127.0.0.1:{}/mcp", http.port)}})).await;
    let (_, key) = create(&service, json!({"name": "other"})).await;
    let client = Client::new(&service, "/mcp");
    let other = Client { key, ..client.clone() };
    let begin = async |client: &Client<'_>, name: &str| client.call(name, json!({}), json!({})).await;
    let finish = async |client: &Client<'_>, name: &str, question: &Value, who: &str| {
        let done = client.call(name, json!({}), answering(question, "question-1", who)).await;
        assert_eq!(echoed(&done)[0]["content"]["name"], who);
    };
    // Over standard streams nothing says whose a question is, but who calls is the same.
    let abandoned = begin(&client, "old__ask_rounds").await;
    let next = begin(&client, "old__ask_rounds").await;
    finish(&client, "old__ask_rounds", &next, "Anna").await;
    let foreign = begin(&other, "old__ask_rounds").await;
    assert!(echoed(&foreign)[0].as_str().unwrap().contains("several calls"), "{foreign}");
    // A question that names its call by the progress token is another thing.
    let named = other.call("old__ask_rounds", json!({}), json!({"_meta": {"progressToken": "p"}})).await;
    finish(&other, "old__ask_rounds", &named, "Fred").await;
    finish(&client, "old__ask_rounds", &abandoned, "Ben").await;
    let alone = begin(&other, "old__ask_rounds").await;
    finish(&other, "old__ask_rounds", &alone, "Carl").await;
    // Over HTTP the stream says it.
    let (own, foreign) = (begin(&client, "web__ask_rounds").await, begin(&other, "web__ask_rounds").await);
    finish(&client, "web__ask_rounds", &own, "Dora").await;
    finish(&other, "web__ask_rounds", &foreign, "Emil").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_its_time_is_up_the_server_is_notified() {
    let service = start(&[("TOOLSIEVE_MCP__ANSWER_SECONDS", "1")]).await;
    let client = Client::new(&service, "/mcp");
    let question = client.call("old__ask_rounds", json!({}), json!({})).await;
    let ended = client.call("old__wait_asking_ended", json!({}), json!({})).await;
    assert_eq!(ended["result"]["resultType"], "complete", "{ended}");
    let late = client.call("old__ask_rounds", json!({}), answering(&question, "question-1", "Anna")).await;
    assert_eq!(late["error"]["code"], -32602, "{late}");
}

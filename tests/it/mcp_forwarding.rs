//! Headers of MCP clients on their way to a server whose configuration lets `Authorization` through.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, KEY, create};
use crate::harness::mcp::newer_era;
use crate::harness::servers::http::HttpServer;
use crate::harness::{Running, Start};

/// What a named key looks like.
const NAMED: &str = "tsk_0123456789ab_0123456789abcdef0123456789abcdef";

/// What an MCP client can ask of the server behind, by the addresses of all servers and of that one.
fn requests() -> Vec<(&'static str, &'static str, Value)> {
    let argument = json!({"name": "who", "value": "A"});
    let completion = |name: &str| json!({"ref": {"type": "ref/prompt", "name": name}, "argument": argument});
    vec![
        ("/mcp", "tools/call", json!({"name": "http__echo", "arguments": {}})),
        ("/mcp", "tools/call", json!({"name": "run_tool", "arguments": {"name": "http__echo", "arguments": {}}})),
        ("/mcp", "prompts/list", json!({})),
        ("/mcp", "prompts/get", json!({"name": "http__greet", "arguments": {"who": "Anna"}})),
        ("/mcp", "resources/list", json!({})),
        ("/mcp", "resources/templates/list", json!({})),
        ("/mcp", "resources/read", json!({"uri": "toolsieve://http/test://note"})),
        ("/mcp", "completion/complete", completion("http__greet")),
        ("/http/mcp", "tools/call", json!({"name": "echo", "arguments": {}})),
        ("/http/mcp", "prompts/get", json!({"name": "greet", "arguments": {"who": "Anna"}})),
        ("/http/mcp", "resources/read", json!({"uri": "test://note"})),
        ("/http/mcp", "completion/complete", completion("greet")),
    ]
}

/// The request as clients of both eras send it, without a key.
fn messages(service: &Running, path: &str, method: &str, params: &Value) -> [RequestBuilder; 2] {
    let url = format!("{}{path}", service.url);
    let message = |params: &Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let send = |params: &Value| service.client.post(&url).header("accept", "application/json, text/event-stream").json(&message(params));
    let mut newer = params.clone();
    newer["_meta"] = newer_era();
    newer["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
    let mut request = send(&newer).header("mcp-protocol-version", "2026-07-28").header("mcp-method", method);
    if let Some(name) = params["name"].as_str().or(params["uri"].as_str()) {
        request = request.header("mcp-name", name);
    }
    [send(params), request]
}

async fn result(request: RequestBuilder) -> Value {
    let response = request.send().await.unwrap();
    let (status, body) = (response.status(), response.text().await.unwrap());
    let text = body.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&body);
    let answer: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{body}"));
    assert!(status == StatusCode::OK && answer["result"].is_object(), "{answer}");
    answer["result"].clone()
}

/// Every `Authorization` that the server has seen.
async fn seen(service: &Running) -> Value {
    service.post("/http/authorizations", &json!({})).await.1["seen"].clone()
}

fn servers(server: &HttpServer) -> Value {
    let rules = json!({"enabled": true, "whitelist": ["authorization"]});
    json!({"http": {"type": "http", "url": format!("http://127.0.0.1:{}/mcp", server.port), "client_header_forwarding": rules}})
}

/// The operator of a server behind would have read the service key or the admin key in the log of that server.
#[tokio::test(flavor = "multi_thread")]
async fn no_key_of_the_service_reaches_a_server() {
    let server = HttpServer::start(&["headers", "more"]);
    let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_MCP__ELICITATION", "true")];
    let service = Start { servers: servers(&server), key: Some(KEY), environment, ..Start::default() }.start().await;
    service.settled().await;
    let (_, named) = create(&service, json!({"name": "ci"})).await;
    for key in [KEY, ADMIN, &named] {
        for (path, method, params) in requests() {
            for request in messages(&service, path, method, &params) {
                result(request.bearer_auth(key)).await;
            }
        }
        for (path, body) in [("/http/echo", json!({})), ("/v1/tools/call", json!({"name": "http__echo", "arguments": {}}))] {
            let request = service.client.post(format!("{}{path}", service.url)).json(&body);
            assert_eq!(request.bearer_auth(key).send().await.unwrap().status(), StatusCode::OK);
        }
    }
    // A call that waits for an answer of its user, and goes on in another request.
    let mut params = json!({"name": "http__ask_rounds", "arguments": {}});
    let [_, first] = messages(&service, "/mcp", "tools/call", &params);
    let question = result(first.bearer_auth(KEY)).await;
    let (asked, _) = question["inputRequests"].as_object().unwrap_or_else(|| panic!("{question}")).iter().next().unwrap();
    params["inputResponses"] = json!({asked: {"action": "accept", "content": {"name": "Anna"}}});
    params["requestState"] = question["requestState"].clone();
    let [_, second] = messages(&service, "/mcp", "tools/call", &params);
    assert!(result(second.bearer_auth(KEY)).await.to_string().contains("Anna"));

    assert_eq!(seen(&service).await, json!([]));
}

/// Without a key of the service, what a caller sends is the caller's own, and both interfaces forward it.
#[tokio::test(flavor = "multi_thread")]
async fn where_no_key_is_asked_for_a_caller_brings_its_own() {
    let server = HttpServer::start(&["headers", "more"]);
    let service = Running::on(servers(&server)).await;
    for (path, method, params) in requests() {
        for request in messages(&service, path, method, &params) {
            result(request.bearer_auth("of-the-caller")).await;
        }
    }
    let request = service.request(Method::POST, "/http/echo").bearer_auth("of-the-caller").json(&json!({}));
    assert_eq!(request.send().await.unwrap().status(), StatusCode::OK);
    let seen = seen(&service).await;
    let of = |wanted: &str| {
        let line = format!("{wanted}: Bearer of-the-caller");
        seen.as_array().unwrap().iter().filter(|seen| seen.as_str() == Some(&line)).count()
    };
    for (method, times) in [("tools/call", 7), ("prompts/get", 4), ("resources/read", 4), ("completion/complete", 4), ("prompts/list", 2)] {
        assert_eq!(of(method), times, "{method}: {seen}");
    }
}

/// A named key that let nobody in, because of the form in which it came to a service that asks for none, is still no server's business.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_let_nobody_in_is_not_forwarded_either() {
    let server = HttpServer::start(&["headers", "more"]);
    let service = Running::on(servers(&server)).await;
    let ways: [fn(RequestBuilder) -> RequestBuilder; 2] =
        [|request| request.basic_auth("anybody", Some(NAMED)), |request| request.header("authorization", NAMED)];
    for with_key in ways {
        for request in messages(&service, "/mcp", "tools/call", &json!({"name": "http__echo", "arguments": {}})) {
            result(with_key(request)).await;
        }
        let request = service.request(Method::POST, "/http/echo").json(&json!({}));
        assert_eq!(with_key(request).send().await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(seen(&service).await, json!([]));
}

/// The headers about a user with which the server got a call over HTTP and over MCP.
async fn users_at_the_server(service: &Running, key: Option<&str>, user: &[(&str, &str)]) -> [Value; 2] {
    let with_user = |mut request: RequestBuilder| {
        for (name, value) in user {
            request = request.header(*name, *value);
        }
        match key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    };
    let over_http = with_user(service.client.post(format!("{}/http/request_headers", service.url)).json(&json!({})));
    let [over_mcp, _] = messages(service, "/mcp", "tools/call", &json!({"name": "http__request_headers", "arguments": {}}));
    let seen =
        [over_http.send().await.unwrap().json::<Value>().await.unwrap(), result(with_user(over_mcp)).await["structuredContent"].clone()];
    seen.map(|seen| {
        assert!(seen["host"].is_string(), "{seen}");
        let about_users = seen.as_object().unwrap().iter().filter(|(name, _)| name.starts_with("x-openwebui-user-"));
        about_users.map(|(name, value)| (name.trim_start_matches("x-openwebui-user-").to_owned(), value.clone())).collect()
    })
}

/// A server believes this service. So any key could have made itself the administrator of the server behind.
#[tokio::test(flavor = "multi_thread")]
async fn only_who_may_name_a_user_names_one_to_a_server() {
    const USER: [(&str, &str); 5] = [
        ("X-OpenWebUI-User-Id", "boss"),
        ("X-OpenWebUI-User-Email", "boss@example.org"),
        ("X-OpenWebUI-User-Name", "Boss"),
        ("X-OpenWebUI-User-Role", "admin"),
        ("X-OpenWebUI-User-Groups", "staff"),
    ];
    let everything = json!({"id": "boss", "email": "boss@example.org", "name": "Boss", "role": "admin", "groups": "staff"});
    let server = HttpServer::start(&["headers"]);
    let url = format!("http://127.0.0.1:{}/mcp", server.port);
    let entry = |rules: Value| json!({"http": {"type": "http", "url": url, "client_header_forwarding": rules}});
    for rules in [json!({"enabled": true}), json!({"enabled": true, "whitelist": ["x-openwebui-*"]})] {
        let environment = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
        let service = Start { servers: entry(rules.clone()), key: Some(KEY), environment, ..Start::default() }.start().await;
        service.settled().await;
        let (_, limited) = create(&service, json!({"name": "ci", "servers": ["http"]})).await;
        let (_, trusted) = create(&service, json!({"name": "chat", "trusted": true})).await;
        for key in [KEY, ADMIN, &limited] {
            assert_eq!(users_at_the_server(&service, Some(key), &USER).await, [json!({}), json!({})], "{rules}");
        }
        let groups_alone = users_at_the_server(&service, Some(&trusted), &USER[4..]).await;
        assert_eq!(groups_alone, [json!({}), json!({})], "a key without a user acts for itself");
        assert_eq!(users_at_the_server(&service, Some(&trusted), &USER).await, [everything.clone(), everything.clone()]);
        // Regression: the server got groups to which the user doesn't belong here, because the key has others.
        let (_, of_guests) = create(&service, json!({"name": "guests", "trusted": true, "groups": ["guests"]})).await;
        let no_guest = users_at_the_server(&service, Some(&of_guests), &USER).await;
        assert!(no_guest.iter().all(|seen| seen["id"] == "boss" && seen.get("groups").is_none()), "{no_guest:?}");
        let sent = [USER[0], ("X-OpenWebUI-User-Groups", "staff, guests")];
        let guest = json!({"id": "boss", "groups": "guests"});
        assert_eq!(users_at_the_server(&service, Some(&of_guests), &sent).await, [guest.clone(), guest]);
    }
    let open = Running::on(entry(json!({"enabled": true}))).await;
    assert_eq!(users_at_the_server(&open, None, &USER).await, [everything.clone(), everything]);
}

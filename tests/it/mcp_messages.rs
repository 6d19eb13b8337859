//! Messages of MCP clients as they are written: no number is rounded, no valid JSON is refused, and what is no message is an error of
//! the protocol.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, administer, start_on, with_key};
use crate::harness::mcp::bridge::Bridge;
use crate::harness::mcp::client::{Client, SESSION};
use crate::harness::mcp::{newer_era, request};
use crate::harness::{Running, Start, example, stdio};

const BOTH: &str = "application/json, text/event-stream";
/// What a tree of values would change, and one that it would refuse.
const WRITTEN: &str = r#"{"big": 12345678901234567890123, "fine": 0.1000000000000000055511151231257827, "far": 1e999, "list": [1.0, -0, 1e2], "é": "\u00e9\/"}"#;

/// A call as clients of both eras write it.
fn calls(name: &str, arguments: &str) -> [String; 2] {
    let call = |more: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}{more}}}}}"#)
    };
    [call(""), call(&format!(r#","_meta":{}"#, newer_era()))]
}

/// Status, media type and body of what is answered to these bytes.
async fn send(service: &Running, path: &str, name: Option<&str>, body: impl Into<reqwest::Body>) -> (StatusCode, String, Value) {
    let request = service.request(Method::POST, path).header("accept", BOTH).header("content-type", "application/json");
    let request = match name {
        Some(name) => request.header("mcp-protocol-version", "2026-07-28").header("mcp-method", "tools/call").header("mcp-name", name),
        None => request,
    };
    let response = request.body(body).send().await.unwrap();
    let (status, kind) = (response.status(), response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned()));
    let text = response.text().await.unwrap();
    (status, kind.unwrap_or_default(), serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path}: {text}")))
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// A customer's number of 23 digits was another one when it reached the server.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_arrive_as_they_were_written() {
    let service = start_on(json!({"one": stdio(&["results"])}), &[]).await;
    let toolset = json!({"servers": ["one"]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/toolsets/all", &toolset).await.0, StatusCode::CREATED);
    let (status, session) = service.post("/v1/sessions", &json!({"servers": ["one"]})).await;
    assert_eq!(status, StatusCode::CREATED, "{session}");
    let session = format!("/s/{}/mcp", session["id"].as_str().unwrap());
    let deep = format!(r#"{{"deep": {}1{}}}"#, "[".repeat(300), "]".repeat(300));
    let got = |arguments: &str| format!("got {arguments}");
    for path in ["/mcp", "/mcp?mode=meta", "/mcp?mode=lazy", "/one/mcp", "/toolsets/all/mcp", "/toolsets/all/one/mcp", &session] {
        let name = if path.contains("/one/") { "raw_arguments" } else { "one__raw_arguments" };
        for (era, call) in [None, Some(name)].into_iter().zip(calls(name, WRITTEN)) {
            let (status, _, answer) = send(&service, path, era, call).await;
            assert_eq!((status, text(&answer)), (StatusCode::OK, got(WRITTEN).as_str()), "{path} {era:?}");
        }
    }
    for arguments in [WRITTEN, "{}", "{ }"] {
        let run = format!(r#"{{"name": "one__raw_arguments", "arguments": {arguments}}}"#);
        for (era, call) in [None, Some("run_tool")].into_iter().zip(calls("run_tool", &run)) {
            let (_, _, answer) = send(&service, "/mcp", era, call).await;
            assert_eq!(text(&answer), got(arguments), "run_tool {era:?}");
        }
    }
    // What is checked is checked in the text, and what is mended keeps its digits.
    let [odd, _] = calls("one__strict_arguments", r#"{"count": "12345678901234567890123"}"#);
    assert_eq!(text(&send(&service, "/mcp", None, odd).await.2), r#"got {"count": 12345678901234567890123}"#);
    // Deep JSON is JSON. The tool's schema can't be held against it, and that is what is said.
    for (era, call) in [None, Some("one__raw_arguments")].into_iter().zip(calls("one__raw_arguments", &deep)) {
        let (status, _, over_mcp) = send(&service, "/mcp", era, call).await;
        let request = with_key(&service, Method::POST, "/one/raw_arguments", ADMIN).header("content-type", "application/json");
        let over_http: Value = request.body(deep.clone()).send().await.unwrap().json().await.unwrap();
        assert_eq!((status, text(&over_mcp)), (StatusCode::OK, over_http["detail"].as_str().unwrap()), "{era:?}");
    }
}

/// Clients of the newer era repeat some arguments in headers. Digits are compared as they were written.
#[tokio::test(flavor = "multi_thread")]
async fn headers_that_repeat_arguments_are_held_against_what_was_written() {
    let schema = json!({"type": "object", "properties": {"count": {"type": "integer", "x-mcp-header": "Count"}}});
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tools.json");
    std::fs::write(&file, json!([{"name": "ask", "inputSchema": schema}]).to_string()).unwrap();
    let service = Running::on(json!({"one": {"command": example("test-replay-server"), "args": [file]}})).await;
    let [_, call] = calls("one__ask", r#"{"count": 12345678901234567890123}"#);
    for (path, without) in [
        ("/mcp", StatusCode::BAD_REQUEST),
        ("/mcp?mode=full", StatusCode::BAD_REQUEST),
        // Regression: clients can't know of a header if their list doesn't contain the tool's parameters.
        ("/mcp?mode=lazy", StatusCode::OK),
        ("/mcp?mode=dynamic", StatusCode::OK),
        ("/mcp?mode=meta", StatusCode::OK),
    ] {
        for (count, status) in [
            (Some("12345678901234567890123"), StatusCode::OK),
            (Some("12345678901234567890124"), StatusCode::BAD_REQUEST),
            (Some("3"), StatusCode::BAD_REQUEST),
            (None, without),
        ] {
            let request = service.request(Method::POST, path).header("accept", BOTH).header("content-type", "application/json");
            let request =
                request.header("mcp-protocol-version", "2026-07-28").header("mcp-method", "tools/call").header("mcp-name", "one__ask");
            let request = count.into_iter().fold(request, |request, count| request.header("mcp-param-count", count));
            let answered = request.body(call.clone()).send().await.unwrap();
            assert_eq!(answered.status(), status, "{path} {count:?}");
        }
    }
    // A client on standard streams knows nothing of headers; the bridge writes them for it.
    let mut bridge = Bridge::start(&format!("{}/mcp", service.url), None);
    bridge.write(&call).await;
    let answer = bridge.next().await;
    assert!(text(&answer).contains("\"count\"") && answer["result"].get("isError").is_none(), "{answer}");
}

/// They were told "415, fail to deserialize", in plain text and without a media type.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_message_is_an_error_of_the_protocol() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    let error = |answer: &Value| (answer["error"]["code"].as_i64(), answer.get("id").cloned());
    let invalid_utf8: &[u8] = b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\", \"x\": \"\xff\"}";
    let cases: [(&[u8], i64, Option<Value>); 12] = [
        (b"", -32700, None),
        (b"{", -32700, None),
        (b"hello", -32700, None),
        (invalid_utf8, -32700, None),
        (br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, -32600, None),
        (b"[]", -32600, None),
        (b"7", -32600, None),
        (br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600, None),
        (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600, None),
        (br#"{"id":1,"method":"ping"}"#, -32600, Some(json!(1))),
        (br#"{"jsonrpc":"2.0","id":"a","method":7}"#, -32600, Some(json!("a"))),
        (br#"{"jsonrpc":"2.0","id":2}"#, -32600, Some(json!(2))),
    ];
    for path in ["/mcp", "/one/mcp"] {
        for (body, code, id) in &cases {
            for era in [None, Some("x")] {
                let (status, kind, answer) = send(&service, path, era, body.to_vec()).await;
                let expected = (StatusCode::BAD_REQUEST, "application/json", (Some(*code), id.clone()));
                assert_eq!((status, kind.as_str(), error(&answer)), expected, "{}: {answer}", String::from_utf8_lossy(body));
                assert_eq!(answer["jsonrpc"], "2.0");
            }
        }
    }
    // What the SDK refuses in plain words has the form of the protocol too.
    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
    for (accept, kind, status) in
        [("application/json", "application/json", StatusCode::NOT_ACCEPTABLE), (BOTH, "text/plain", StatusCode::UNSUPPORTED_MEDIA_TYPE)]
    {
        let request = service.request(Method::POST, "/mcp").header("accept", accept).header("content-type", kind);
        let response = request.body(ping.to_string()).send().await.unwrap();
        assert_eq!((response.status(), &response.headers()["content-type"]), (status, &"application/json".parse().unwrap()));
        assert_eq!(error(&response.json().await.unwrap()), (Some(-32600), Some(json!(3))));
    }
    // Numbers that no double holds keep no other message from being read either.
    let listing = r#"{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{"_meta":{"odd":1e999}}}"#;
    let (status, _, listed) = send(&service, "/mcp", None, listing).await;
    assert!(status == StatusCode::OK && listed["result"]["tools"].is_array(), "{listed}");
}

/// A method that exists is not said to be missing, and a greeting that fails begins no session.
#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_nobody_can_read_are_said_to_be_invalid() {
    let service = Running::on(json!({"one": stdio(&["more"])})).await;
    let client = Client::new(&service, "/mcp", None).greeted().await;
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": 7}});
    for (method, params, named) in [
        ("initialize", hello.clone(), "clientInfo"),
        ("completion/complete", json!({}), "ref"),
        ("resources/subscribe", json!({}), "uri"),
        ("resources/unsubscribe", json!({"uri": 7}), "uri"),
        ("resources/read", json!({}), "uri"),
        ("prompts/get", json!({}), "name"),
        ("logging/setLevel", json!({"level": "loud"}), "warning"),
        ("subscriptions/listen", json!({}), "notifications"),
    ] {
        let (_, answer) = client.ask(method, params).await;
        let error = &answer["error"];
        assert_eq!(error["code"], -32602, "{method}: {answer}");
        assert!([method, named].iter().all(|word| error["message"].as_str().unwrap().contains(word)), "{answer}");
    }
    // No list has a second page. Some clients send an empty cursor for the first.
    for list in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        let (_, answer) = client.ask(list, json!({"cursor": "zzz"})).await;
        assert_eq!(answer["error"]["code"], -32602, "{list}: {answer}");
        let (_, answer) = client.ask(list, json!({"cursor": ""})).await;
        assert!(answer["result"].is_object(), "{list}: {answer}");
    }
    let fresh = Client::new(&service, "/mcp", None);
    let response = fresh.send(Method::POST, Some(&request(1, "initialize", &hello))).await;
    assert_eq!((response.status(), response.headers().get(SESSION)), (StatusCode::OK, None));
    assert_eq!(client.ask("no/such", json!({})).await.1["error"]["code"], -32601);
}

/// The bridge for clients that only start processes hands on what they wrote.
#[tokio::test(flavor = "multi_thread")]
async fn the_bridge_rounds_nothing() {
    let service = Running::on(json!({"one": stdio(&["results"])})).await;
    let mut bridge = Bridge::start(&format!("{}/mcp", service.url), None);
    for call in calls("one__raw_arguments", WRITTEN) {
        bridge.write(&call).await;
        assert_eq!(text(&bridge.next().await), format!("got {WRITTEN}"));
    }
    // An id that the protocol does not know is answered all the same: somebody waits for it.
    bridge.write(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#).await;
    let refused = bridge.next().await;
    assert_eq!(refused["id"], 1.5);
    assert!(refused["error"]["message"].as_str().unwrap().contains("`id`"), "{refused}");
}

/// The answer of a person to a question of a server is no argument, and yet no number of theirs is lost.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_a_number_that_no_double_holds_is_an_answer() {
    let environment = vec![("TOOLSIEVE_MCP__ELICITATION", "true")];
    let service = Start { servers: json!({"one": stdio(&["more"])}), environment, ..Start::default() }.start().await;
    service.settled().await;
    let mut bridge = Bridge::start(&format!("{}/mcp", service.url), None);
    bridge.greet(json!({"elicitation": {}})).await;
    let call =
        json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "one__ask_user", "arguments": {"message": "?"}}});
    bridge.write(&call.to_string()).await;
    let question = bridge.next().await;
    let (asked, content) = (&question["id"], r#"{"name": "Anna", "far": 1e999}"#);
    bridge.write(&format!(r#"{{"jsonrpc":"2.0","id":{asked},"result":{{"action":"accept","content":{content}}}}}"#)).await;
    let done = bridge.next().await;
    assert!(text(&done).contains("Anna"), "{done}");
}

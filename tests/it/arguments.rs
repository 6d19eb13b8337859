//! Arguments over HTTP: handed on as they were written, mended and told, refused with reasons, by each server's rule.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use toolsieve::service::catalog::reload::Trigger;

use crate::harness::{Running, Start, stdio};

/// Status, body, and what was said to be repaired.
async fn post(service: &Running, path: &str, body: &str) -> (u16, Value, String) {
    let response = service.request(Method::POST, path).body(body.to_owned()).send().await.unwrap();
    let repairs = response.headers().get("x-toolsieve-repairs").map(|value| value.to_str().unwrap().to_owned());
    (response.status().as_u16(), response.json().await.unwrap(), repairs.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_gets_them_byte_for_byte() {
    let mut service = Running::on(json!({"one": stdio(&["results"])})).await;
    let odd = r#"{"b": 12345678901234567890123, "a": [1.0, 1e999, 0.10], "é": "\u00e9\/",  "x":{}}"#;
    let expected = Value::from(format!("got {odd}"));
    assert_eq!(post(&service, "/one/raw_arguments", odd).await, (200, expected.clone(), String::new()));
    let run = format!(r#"{{"name": "one__raw_arguments", "arguments": {odd}}}"#);
    assert_eq!(post(&service, "/v1/tools/call", &run).await, (200, expected.clone(), String::new()));
    // A tool whose schema says nothing is published with a wrapper.
    assert_eq!(post(&service, "/one/raw_arguments", &format!(r#"{{"arguments": {odd}}}"#)).await.1, expected);

    service = Start {
        servers: json!({"one": stdio(&["results"])}),
        environment: vec![("TOOLSIEVE_CALLS__VALIDATION", "off")],
        ..Start::default()
    }
    .start()
    .await;
    service.settled().await;
    assert_eq!(post(&service, "/one/strict_arguments", odd).await, (200, expected, String::new()), "unchecked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_them_is_no_message_of_its_own() {
    let service = Running::on(json!({"one": stdio(&["results"])})).await;
    let call = r#"{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"die","arguments":{}}}"#;
    for line_break in ["\n", "\r\n", "\r"] {
        let sent = format!("{{\"a\":{line_break}{call}{line_break}, \"b\": \"x\\n\"}}");
        let got = Value::from(format!("got {}", sent.replace(['\n', '\r'], " ")));
        assert_eq!(post(&service, "/one/raw_arguments", &sent).await, (200, got, String::new()), "{line_break:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_be_repaired_is_and_is_reported() {
    let service = Running::on(json!({"one": stdio(&["results"])})).await;
    let sent = r#"{"count": "12345678901234567890123", "labels": "bug", "remark": null, "mode": "fast"}"#;
    let got = json!(r#"got {"count":12345678901234567890123,"labels":["bug"],"mode":"fast"}"#);
    let (status, body, repairs) = post(&service, "/one/strict_arguments", sent).await;
    assert_eq!(
        (status, body.as_str().map(|text| text.replace(": ", ":").replace(", ", ",").replace("got{", "got {"))),
        (200, got.as_str().map(str::to_owned))
    );
    assert_eq!(repairs, "/count=text-to-number, /labels=value-to-list, /remark=null-left-out");

    let run = json!({"name": "one__strict_arguments", "arguments": r#"{"count": "7"}"#}).to_string();
    assert_eq!(
        post(&service, "/v1/tools/call", &run).await,
        (200, json!(r#"got {"count": 7}"#), "=text-to-object, /count=text-to-number".into())
    );
    let whole = Value::from(r#"{"count": 7}"#).to_string();
    assert_eq!(post(&service, "/one/strict_arguments", &whole).await, (200, json!(r#"got {"count": 7}"#), "=text-to-object".into()));
    assert_eq!(post(&service, "/v1/tools/call", r#"{"name": "one__strict_arguments"}"#).await.1, json!("got {}"));
    assert_eq!(post(&service, "/v1/tools/call", r#"{"name": "one__strict_arguments", "arguments": null}"#).await.1, json!("got {}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_mended_is_explained() {
    let service = Running::on(json!({"one": stdio(&["results"])})).await;
    let (status, problem, repairs) = post(&service, "/one/strict_arguments", r#"{"cuont": 1, "mode": "Fast", "labels": [1]}"#).await;
    assert_eq!((status, problem["code"].as_str(), repairs.as_str()), (422, Some("invalid_arguments"), ""));
    let find = |pointer: &str| {
        let errors = problem["errors"].as_array().unwrap();
        errors.iter().find(|error| error["pointer"] == pointer).unwrap_or_else(|| panic!("{pointer}: {problem}")).clone()
    };
    assert_eq!(find("/cuont")["did_you_mean"], "count");
    assert_eq!((&find("/mode")["did_you_mean"], &find("/mode")["expected"]), (&json!("fast"), &json!("one of \"fast\", \"careful\"")));
    assert_eq!(find("/labels/0")["expected"], "a string");
    assert!(problem["detail"].as_str().unwrap().contains("did you mean `count`?"));
    let (_, run, _) = post(&service, "/v1/tools/call", r#"{"name": "one__strict_arguments", "arguments": {"cuont": 1}}"#).await;
    assert_eq!(run["errors"][0]["did_you_mean"], "count");
    let (status, text, _) = post(&service, "/one/strict_arguments", "\"no object\"").await;
    assert_eq!((status, &text["errors"][0]["expected"]), (422, &json!("an object")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_was_most_likely_meant_is_named() {
    let service = Running::on(json!({"one": stdio(&[])})).await;
    for (path, body, meant) in [
        ("/one/wait_cancelld", "{}", Some("`wait_cancelled`")),
        ("/v1/tools/call", r#"{"name": "one_wait_cancelled"}"#, Some("`one__wait_cancelled`")),
        ("/v1/tools/call", r#"{"name": "wait_cancelled"}"#, Some("`one__wait_cancelled`")),
        ("/v1/tools/call", r#"{"name": "delete_everything"}"#, None),
        ("/two/wait_cancelled", "{}", None),
    ] {
        let (status, problem, _) = post(&service, path, body).await;
        assert_eq!((status, &problem["code"]), (404, &json!("not_found")), "{path}");
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!(meant.is_some(), detail.contains("Did you mean"), "{path} {body}: {detail}");
        assert!(meant.is_none_or(|name| detail.contains(name)), "{detail}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_server_has_its_own_rule() {
    let mut off = stdio(&["results"]);
    off["validation"] = json!("off");
    let service = Start {
        servers: json!({"strict": stdio(&["results"]), "lenient": stdio(&["results"]), "off": off}),
        environment: vec![("TOOLSIEVE_CALLS__VALIDATION_EXCEPTIONS", "lenient=warn")],
        ..Start::default()
    };
    let service = service.start().await;
    service.settled().await;
    let wrong = r#"{"count": "many"}"#;
    assert_eq!(post(&service, "/strict/strict_arguments", wrong).await.0, 422);
    for server in ["lenient", "off"] {
        let path = format!("/{server}/strict_arguments");
        assert_eq!(post(&service, &path, wrong).await, (200, Value::from(format!("got {wrong}")), String::new()), "{server}");
    }
    let repaired = post(&service, "/lenient/strict_arguments", r#"{"count": "7"}"#).await;
    assert_eq!(repaired, (200, json!(r#"got {"count": 7}"#), "/count=text-to-number".into()));
    let untouched = post(&service, "/off/strict_arguments", r#"{"count": "7"}"#).await;
    assert_eq!(untouched, (200, json!(r#"got {"count": "7"}"#), String::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_with_an_invalid_schema_is_called_unchecked() {
    let service = Running::on(json!({"one": stdio(&["results"])})).await;
    for _ in 0..2 {
        assert_eq!(post(&service, "/one/invalid_schema", r#"{"a": "x"}"#).await.0, StatusCode::OK.as_u16());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_and_a_limit_change_while_the_service_runs() {
    let words = ["results"];
    let service = Start { servers: json!({"one": stdio(&words)}), from_files: true, ..Start::default() }.start().await;
    service.settled().await;
    let (wrong, process) = (r#"{"count": "many"}"#, service.post("/one/process", &json!({})).await.1["pid"].clone());
    assert_eq!(post(&service, "/one/strict_arguments", wrong).await.0, 422);
    let mut lenient = stdio(&words);
    (lenient["validation"], lenient["maxTextBytes"]) = (json!("off"), json!(256));
    service.configure(&json!({"one": lenient}));
    service.reload.reload(Trigger::Request).await;
    assert_eq!(post(&service, "/one/strict_arguments", wrong).await.0, 200);
    let cut: String = post(&service, "/one/huge", r#"{"bytes": 3000}"#).await.1.as_str().unwrap().into();
    assert!(cut.contains("2744 of 3000 bytes are left out"), "{cut}");
    assert_eq!(service.post("/one/process", &json!({})).await.1["pid"], process, "the connection stays");
}

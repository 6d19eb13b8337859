//! `toolsieve openwebui test`: a test message to a running service, as the filter in Open WebUI would send it.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::answers::operations;
use crate::harness::keys::{ADMIN, KEY, administer};
use crate::harness::process::built;
use crate::harness::{Running, Start, stdio};

const MESSAGE: &str = "send an email to Anna";

fn servers() -> Value {
    json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])})
}

async fn start(environment: &[(&'static str, &'static str)], as_users_get_it: bool) -> Running {
    let environment = [&[("TOOLSIEVE_ADMIN_KEY", ADMIN)], environment].concat();
    let service = Start { servers: servers(), key: Some(KEY), environment, as_users_get_it, ..Start::default() }.start().await;
    service.settled().await;
    service
}

/// The exit code, standard output and standard error.
fn test_at(url: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let output = built::toolsieve().args(["openwebui", "test", "--toolsieve-url", url]).args(words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The response to the filter's request for the message, and the number of offered functions.
async fn filtered(service: &Running, message: &str) -> (Value, usize) {
    let (_, document) = service.get("/openapi.json").await;
    let offered = operations(&document);
    let body = json!({
        "messages": [{"role": "user", "content": message}],
        "connections": {"server:toolsieve": "/"},
        "tool_ids": ["server:toolsieve"],
        "tools": offered,
        "limit": 10,
    });
    let (status, answer) = service.post("/v1/filter", &body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    (answer, offered.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_is_what_the_filter_would_get() {
    let service = start(&[], false).await;
    let (answer, offered) = filtered(&service, MESSAGE).await;
    let names: Vec<&str> = answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"mail__send_email") && names.len() < offered, "{names:?}");

    let (code, printed, errors) = test_at(&service.url, &["--key", KEY, "--message", MESSAGE]);
    let (before, after) = (&answer["tokens"]["before"], &answer["tokens"]["after"]);
    let beginning =
        format!("Test message \"{MESSAGE}\": the model would get {} of {offered} functions ({after} of {before} tokens): ", names.len());
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{printed}");
    // Numbers have commas.
    let (counts, listed) = printed.trim_end().rsplit_once(": ").unwrap();
    assert_eq!(format!("{}: ", counts.replace(',', "")), beginning);
    let mut listed: Vec<&str> = listed.split(", ").collect();
    let mut expected = names;
    listed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(listed, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_message_it_asks_for_a_tool_by_its_description() {
    let service = start(&[], false).await;
    let (_, document) = service.get("/openapi.json").await;
    let (code, printed, errors) = test_at(&service.url, &["--key", KEY]);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "the tool is found: {printed}");
    let message = printed.strip_prefix("Test message \"").and_then(|rest| rest.split_once("\": ")).unwrap().0;
    let operations = document["paths"].as_object().unwrap().values().map(|item| &item["post"]);
    let described: Vec<&str> = operations
        .filter(|operation| operation["description"].as_str().unwrap().starts_with(message))
        .map(|operation| operation["operationId"].as_str().unwrap())
        .collect();
    assert!(described.iter().any(|name| name.contains("__") && printed.contains(name)), "{described:?}: {printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_catalog_stays_whole() {
    let service = start(&[], true).await;
    let (_, offered) = filtered(&service, MESSAGE).await;
    let (code, printed, _) = test_at(&service.url, &["--key", KEY]);
    let expected = format!("the model would get all {offered} functions (");
    assert!(code == Some(0) && printed.contains(&expected) && printed.contains("selection.narrow_above_tokens"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_who_get_something_else_are_mentioned() {
    let service = start(&[("TOOLSIEVE_ACCESS__TRUST_USERS", "true")], false).await;
    let (_, printed, _) = test_at(&service.url, &["--key", KEY, "--message", MESSAGE]);
    assert!(printed.contains("mail__send_email") && !printed.contains("in no group"), "{printed}");

    let rules = json!({"rules": [{"effect": "block", "servers": ["mail"], "principals": ["user:*"]}]});
    let (status, answer) = administer(&service, Method::PUT, "/v1/admin/policy", &rules).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let (code, printed, _) = test_at(&service.url, &["--key", KEY, "--message", MESSAGE]);
    let (of_key, of_users) = printed.split_once("\nFor a user who is in no group: ").unwrap_or_else(|| panic!("{printed}"));
    assert!(code == Some(0) && of_key.contains("mail__send_email") && !of_users.contains("mail__"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_is_said_with_what_to_do() {
    let service = start(&[], false).await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let away = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    for (url, key, reason, remedy) in [
        (service.url.clone(), "wrong", "rejected the key", "--key"),
        (away.clone(), KEY, "can't reach Toolsieve", "start Toolsieve"),
        (format!("{}/nowhere", service.url), KEY, "does not respond like Toolsieve", "address of Toolsieve"),
    ] {
        let (code, printed, errors) = test_at(&url, &["--key", key]);
        assert_eq!((code, printed.as_str()), (Some(1), ""), "{errors}");
        assert!(errors.contains(&url) && errors.contains(reason) && errors.contains(remedy) && !errors.contains(KEY), "{errors}");
    }
    let (code, _, errors) = test_at(&away, &["--message", " "]);
    assert!(code == Some(2) && errors.contains("the message is empty"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_with_too_many_tools_is_mentioned_with_what_to_do() {
    let service = start(&[("TOOLSIEVE_DOCUMENTS__MAX_TOOLS", "3")], false).await;
    let (code, printed, errors) = test_at(&service.url, &["--key", KEY]);
    assert!(code == Some(1) && errors.contains("documents.max_tools") && errors.contains("?mode=meta"), "{printed}{errors}");
}

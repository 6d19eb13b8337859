//! `POST /v1/tools/smart_select`, and the published `smart_select_tools`.

use std::collections::HashMap;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolsieve::adapters::tokens::TokenCounter;

use super::model::{Reply, configured, providers};
use super::{ask, model, names, on, service, warnings};
use crate::harness::mcp::rpc;
use crate::harness::stdio;

const PATH: &str = "/v1/tools/smart_select";
const KEYS: [(&str, &str); 3] = [("X-Anthropic-Api-Key", "key-3"), ("X-OpenAI-Api-Key", "key-2"), ("X-Gemini-Api-Key", "key-1")];

fn task(text: &str) -> Value {
    json!({"task": text})
}

fn with_reasons() -> Reply {
    Reply::Says(
        json!({"tools": [
            {"name": "time__convert_time", "reason": "the meeting is\nin another zone"},
            {"name": "mail__send_email", "reason": ""},
        ]})
        .to_string(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn providers_are_asked_in_their_order_until_one_chooses() {
    let model = model(|_| Reply::Status(401, String::new()));
    let service = service(configured(&model)).await;
    let paths = || model.seen().iter().map(|seen| seen.path.clone()).collect::<Vec<_>>();

    let answer = ask(&service, PATH, &KEYS, &task("invite Anna to a meeting by email")).await;
    let all = ["/gemini/chat/completions", "/openai/chat/completions", "/anthropic/chat/completions", "/own/v1/chat/completions"];
    assert_eq!(paths(), all);
    let sent: Vec<Option<String>> = model.seen().into_iter().map(|seen| seen.authorization).collect();
    assert_eq!(sent, ["key-1", "key-2", "key-3", "configured-key"].map(|key| Some(format!("Bearer {key}"))));
    assert_eq!((&answer["provider"], warnings(&answer).len()), (&json!("heuristic"), 4), "{answer}");
    assert!(warnings(&answer)[0].contains("gemini") && warnings(&answer)[3].contains("configured"));
    let found = ask(&service, "/v1/tools/search", &[], &json!({"queries": ["invite Anna to a meeting by email"], "limit": 8})).await;
    assert_eq!(names(&answer), names(&found), "the heuristic is the search");

    model.answers(|seen| if seen.path.starts_with("/anthropic") { with_reasons() } else { Reply::Status(429, String::new()) });
    let answer = ask(&service, PATH, &KEYS, &task("invite Bert to a meeting")).await;
    assert_eq!(paths()[4..], all[..3]);
    assert_eq!(answer["provider"], "anthropic");
    assert_eq!(
        answer["tools"],
        json!([
            {"name": "time__convert_time", "server": "time", "tool": "convert_time", "reason": "the meeting is in another zone"},
            {"name": "mail__send_email", "server": "mail", "tool": "send_email", "reason": "chosen by the language model"},
        ])
    );
    let to_load = json!([
        {"name": "time", "tools": 2, "has": ["time__convert_time"]},
        {"name": "mail", "tools": 3, "has": ["mail__send_email"]},
    ]);
    assert_eq!(answer["toolsets"], to_load);
    assert!(!answer.to_string().contains("key-"));
    assert_eq!(model.last().catalogue().len(), 9, "everything that the caller may use");
    assert!(model.last().text_of("system").contains("\"reason\""));

    model.answers(|_| with_reasons());
    assert_eq!(ask(&service, PATH, &[], &task("invite Carl to a meeting")).await["provider"], "configured");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_mcp_client_uses_its_own_key_too() {
    let model = model(|seen| if seen.path.starts_with("/openai") { with_reasons() } else { Reply::Status(401, String::new()) });
    let service = service(providers(&model)).await;
    let call = json!({"name": "smart_select_tools", "arguments": {"task": "invite Anna to a meeting by email"}});
    let answer = rpc(&service, "/mcp?mode=smart", &KEYS[1..2], "tools/call", call).await;
    let selected = &answer["result"]["structuredContent"];
    assert_eq!((&selected["provider"], &selected["tools"][0]["name"]), (&json!("openai"), &json!("time__convert_time")), "{answer}");
    assert_eq!(model.last().authorization.as_deref(), Some("Bearer key-2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_model_the_search_answers_with_a_warning() {
    let model = model(|_| Reply::Hang);
    let mut environment = providers(&model);
    environment.push(("TOOLSIEVE_LLM__SMART_SELECT_TIMEOUT_MS", "100"));
    let service = service(environment).await;
    let answer = ask(&service, PATH, &[], &json!({"task": "send an email to Anna", "limit": 5})).await;
    assert_eq!((names(&answer).len(), names(&answer)[0]), (5, "mail__send_email"));
    assert_eq!(answer["provider"], "heuristic");
    assert!(warnings(&answer)[0].contains("X-Gemini-Api-Key") && answer["tools"][0]["reason"].as_str().unwrap().contains("score"));
    assert!(model.seen().is_empty());

    let answer = ask(&service, PATH, &KEYS, &task("send an email to Anna")).await;
    assert_eq!((&answer["provider"], model.seen().len()), (&json!("heuristic"), 3), "each has its share of the time: {answer}");
    assert!(warnings(&answer).iter().all(|warning| warning.contains("did not answer in time")));

    for body in [json!({}), json!({"task": " "}), json!({"task": "x", "limit": 4}), json!({"task": "x", "limit": 11})] {
        let (status, problem) = service.post(PATH, &body).await;
        assert_eq!((status, &problem["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_request")), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_reads_categories_and_tags_and_the_answer_names_what_to_load() {
    let model = model(|_| with_reasons());
    let service = service(configured(&model)).await;
    let write = async |path: &str, body: Value| {
        let response = service.request(Method::PUT, path).json(&body).send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.text().await.unwrap());
    };
    write("/v1/admin/toolsets/office", json!({"servers": ["mail"]})).await;
    write("/v1/admin/toolsets/hidden", json!({"servers": ["files"]})).await;
    write("/v1/admin/tools/mail/send_email", json!({"tags": ["letters", "say \"hi\"", "third", "fourth", "fifth", "sixth"]})).await;
    let answer = ask(&service, PATH, &[], &task("invite Anna to a meeting")).await;
    let entries: HashMap<String, Value> = model.last().entries().into_iter().collect();
    assert_eq!(
        entries["mail__send_email"],
        json!({"category": "office", "tags": ["letters", "say \"hi\"", "third", "fourth", "fifth"],
            "description": "Send an email message to a recipient"})
    );
    assert_eq!(entries["mail__list_emails"], json!({"category": "office", "description": "List the messages in the inbox"}));
    assert!(entries["time__convert_time"].is_string(), "{entries:?}");
    assert!(model.last().text_of("system").contains("category and tags"));
    // A configured toolset goes before the server.
    let (time, office) = (
        json!({"name": "time", "tools": 2, "has": ["time__convert_time"]}),
        json!({"name": "office", "tools": 3, "has": ["mail__send_email"]}),
    );
    assert_eq!(answer["toolsets"], json!([time, office]));

    // What a chat has loaded needs no loading.
    let chat = [("X-OpenWebUI-Chat-Id", "c")];
    ask(&service, "/v1/toolsets/load", &chat, &json!({"toolset": "office"})).await;
    assert_eq!(ask(&service, PATH, &chat, &task("invite Bert to a meeting")).await["toolsets"], json!([time]));
    ask(&service, "/v1/toolsets/load", &chat, &json!({"toolset": "time"})).await;
    assert!(ask(&service, PATH, &chat, &task("invite Carl to a meeting")).await.get("toolsets").is_none());

    // Nobody reads of a toolset without a visible tool.
    write("/v1/admin/policy", json!({"rules": [{"effect": "block", "servers": ["files"]}]})).await;
    let answer = ask(&service, PATH, &[], &task("invite Dora to a meeting")).await;
    assert_eq!(answer["toolsets"], json!([time, office]));
    assert!(!model.last().text_of("user").contains("hidden"));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_large_catalog_a_model_reads_what_fits() {
    let model = model(|_| with_reasons());
    let servers = json!({
        "time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]),
        "one": stdio(&["list=small", "tools=300"]), "two": stdio(&["list=small", "tools=300"]),
    });
    let service = on(servers, configured(&model)).await;
    let answer = ask(&service, PATH, &[], &task("convert the time of the meeting and send an email to Anna")).await;
    assert_eq!((names(&answer), warnings(&answer).len()), (vec!["time__convert_time", "mail__send_email"], 0));
    let seen = model.last();
    let tokens = TokenCounter::default().count(&[seen.text_of("user").to_owned()])[0];
    assert!((2_000..=4_100).contains(&tokens), "{tokens} tokens");
    let catalogue = seen.catalogue();
    assert!(catalogue.len() < 600 && catalogue[..9].contains(&"mail__send_email".to_owned()), "best first: {catalogue:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_published_where_the_meta_tools_stand_alone() {
    let model = model(|_| with_reasons());
    let service = service(configured(&model)).await;
    for (path, has) in [
        ("/openapi.json", false),
        ("/openapi.json?mode=smart", true),
        ("/mail/openapi.json", false),
        ("/mail/openapi.json?mode=smart", true),
    ] {
        let (_, document) = service.get(path).await;
        let operation = &document["paths"][PATH]["post"];
        assert_eq!(operation["operationId"] == "smart_select_tools", has, "{path}");
        assert!(!has || operation["parameters"].is_null(), "the model is asked for no key");
    }
    let answer = ask(&service, &format!("/mail{PATH}"), &[], &task("invite Anna to a meeting")).await;
    assert_eq!(answer["provider"], "configured");
    let offered = json!({"messages": [{"role": "user", "content": "hi"}], "tools": ["find_tools", "run_tool", "smart_select_tools"]});
    let kept = ask(&service, "/v1/filter", &[], &offered).await;
    assert_eq!(names(&kept), ["find_tools", "smart_select_tools", "run_tool"]);
    assert_eq!(kept["tokens"]["before"], kept["tokens"]["after"]);
}

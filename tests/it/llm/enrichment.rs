//! What a language model writes about tools, what an admin makes of it, and what it does for a search.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::model::{Model, Reply, Seen, configured};
use super::{model, names, servers, warnings};
use crate::harness::answers::shape;
use crate::harness::keys::ADMIN;
use crate::harness::process::built::TOOLSIEVE;
use crate::harness::wait::{eventually, when};
use crate::harness::{LONG, Running, Start, stdio};

const LIST: &str = "/v1/admin/enrichment";
const SEND: &str = "/v1/admin/enrichment/mail/send_email";
/// Nothing that any tool says of itself.
const PARROT: &str = "a parrot in the jungle";

fn enriching(model: &Arc<Model>) -> Vec<(&'static str, &'static str)> {
    let mut environment = configured(model);
    environment.extend([
        ("TOOLSIEVE_LLM__ENRICH", "true"),
        ("TOOLSIEVE_LLM__ENRICH_MODEL", "writer"),
        ("TOOLSIEVE_LLM__ENRICH_PER_MINUTE", "6000"),
    ]);
    environment
}

/// In this folder where there is one; returns when the tools are searchable by their own texts.
async fn start(servers: Value, environment: Vec<(&'static str, &'static str)>, folder: Option<TempDir>) -> Running {
    let service = Start { servers, folder, environment, ..Start::default() }.start().await;
    service.settled().await;
    service
}

/// The definition of the tool that the model was asked about.
fn definition(seen: &Seen) -> Value {
    serde_json::from_str(seen.text_of("user")).unwrap()
}

fn tool_of(seen: &Seen) -> String {
    definition(seen)["tool"].as_str().unwrap().to_owned()
}

fn writes(seen: &Seen) -> Reply {
    let tool = tool_of(seen);
    let tags = if tool == "move_file" { json!([PARROT, "and again"]) } else { json!([format!("I could do with a {tool}")]) };
    Reply::Says(json!({"function": format!("Good for {tool}."), "tags": tags}).to_string())
}

/// Waits until the condition holds of an answer.
async fn until(service: &Running, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("{path} as the test wants it"), async || when(service.get(path).await.1, &condition)).await
}

async fn written(service: &Running, tools: usize) -> Value {
    until(service, LIST, |page| page["total"] == tools).await
}

async fn best(service: &Running, query: &str) -> String {
    let (status, found) = service.post("/v1/tools/search", &json!({"queries": [query], "limit": 1})).await;
    assert_eq!(status, StatusCode::OK, "{found}");
    names(&found).first().copied().unwrap_or_default().to_owned()
}

/// Waits until the index finds this tool by these words.
async fn found(service: &Running, query: &str, tool: &str) {
    until_best(service, query, |best| best == tool).await;
}

/// A start searches the index of before until the new one is there.
async fn until_best(service: &Running, query: &str, condition: impl Fn(&str) -> bool) {
    let what = format!("what `{query}` finds");
    eventually(&what, async || when(best(service, query).await, |best| condition(best))).await;
}

/// What `toolsieve enrichment` says of a stopped service.
fn state(folder: &TempDir, environment: Vec<(&'static str, &'static str)>) -> Value {
    let mut command = Command::new(TOOLSIEVE);
    command.args(["enrichment", "--json", "--data-dir"]).arg(folder.path().join("data")).envs(environment);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

async fn put(service: &Running, path: &str, body: &Value) -> (StatusCode, Value) {
    let response = service.request(Method::PUT, path).json(body).send().await.unwrap();
    (response.status(), response.json().await.unwrap())
}

async fn delete(service: &Running, path: &str) -> StatusCode {
    service.request(Method::DELETE, path).send().await.unwrap().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_found_by_what_a_model_wrote_which_is_paid_once() {
    let model = model(writes);
    let service = start(servers(), configured(&model), None).await;
    assert_ne!(best(&service, PARROT).await, "files__move_file");
    let folder = service.stop().await;
    assert!(model.seen().is_empty(), "it is off by default");

    let service = start(servers(), enriching(&model), Some(folder)).await;
    let page = written(&service, 9).await;
    assert_eq!((&page["tools"], &page["next"], page["enrichment"].as_array().unwrap().len()), (&json!(9), &Value::Null, 9));
    assert_eq!(page["model_texts_used"], true);
    let moving = json!({
        "name": "files__move_file", "server": "files", "tool": "move_file", "source": "model", "model": "writer", "managed_by": null,
        "function": "Good for move_file.", "tags": [PARROT, "and again"], "queries": [],
    });
    assert_eq!(page["enrichment"][1], moving, "{page}");
    assert_eq!(service.get("/v1/admin/enrichment/files/move_file").await, (StatusCode::OK, moving));
    let seen = model.seen();
    let mut asked: Vec<String> = seen.iter().map(tool_of).collect();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!((asked.len(), seen.len()), (9, 9), "each once");
    assert_eq!((seen[0].path.as_str(), seen[0].authorization.as_deref()), ("/own/v1/chat/completions", Some("Bearer configured-key")));
    assert_eq!(seen[0].body["model"], "writer");
    let sent = definition(seen.iter().find(|seen| tool_of(seen) == "send_email").unwrap());
    assert_eq!(sent["server"], "mail");
    assert_eq!((&sent["description"], &sent["title"]), (&json!("Send an email message to a recipient"), &Value::Null));
    assert_eq!(sent["parameters"].as_array().unwrap().len(), 3);
    found(&service, PARROT, "files__move_file").await;

    let service = start(servers(), enriching(&model), Some(service.stop().await)).await;
    found(&service, PARROT, "files__move_file").await;
    // Twice complete, so the first time has been looked at.
    let words = "a hedgehog plays the trombone";
    assert_eq!(put(&service, SEND, &json!({"function": "", "tags": [words]})).await.0, StatusCode::OK);
    found(&service, words, "mail__send_email").await;
    assert_eq!((written(&service, 9).await["total"].as_u64(), model.seen().len()), (Some(9), 9), "nothing is paid twice");

    let service = start(servers(), configured(&model), Some(service.stop().await)).await;
    assert_eq!(written(&service, 1).await["enrichment"][0]["source"], "admin", "switched off, the model's words do not count");
    until_best(&service, PARROT, |best| best != "files__move_file").await;
    found(&service, words, "mail__send_email").await;
    assert_eq!(model.seen().len(), 9);

    let folder = service.stop().await;
    let off = state(&folder, Vec::new());
    assert_eq!([&off["model"], &off["by_model"], &off["by_admin"], &off["left"]], [&Value::Null, &json!(0), &json!(1), &json!(8)]);
    assert_eq!(off["model_texts_used"], false);
    assert!((500..8_000).contains(&off["request_tokens"].as_u64().unwrap()), "{off}");
    let on = state(&folder, enriching(&model));
    assert_eq!([&on["model"], &on["by_model"], &on["by_admin"]], [&json!("writer"), &json!(8), &json!(1)]);
    assert_eq!((&on["model_texts_used"], &on["answer_characters"]), (&json!(true), &json!(300 + 12 * 60)));
    assert_eq!([&on["tools"], &on["left"], &on["request_tokens"], &on["minutes"]], [&json!(9), &json!(0), &json!(0), &json!(0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_do_not_count_are_dropped_and_not_asked_for_again() {
    let model = model(|seen| {
        let good = json!({"function": PARROT, "tags": [PARROT]}).to_string();
        match tool_of(seen).as_str() {
            "send_email" => Reply::Says("This tool sends mail. I hope that helps!".into()),
            "list_emails" => Reply::Says(format!("```json\n{good}\n```")),
            "search_emails" => Reply::Says(json!({"context": "a", "queries": ["b"]}).to_string()),
            "read_file" => Reply::Says(json!({"function": "a\u{1b}[2J", "tags": ["b"]}).to_string()),
            // It did what the description demands.
            "get_weather" => Reply::Says(json!({"tools": ["mail__delete_everything"]}).to_string()),
            _ => Reply::Says(good),
        }
    });
    let mut servers = servers();
    servers["weather"] = stdio(&["list=orders"]);
    let service = start(servers, enriching(&model), None).await;
    let page = until(&service, LIST, |page| page["total"] == 5 && model.seen().len() == 10).await;
    let tools =
        |source: &Value| source.as_array().unwrap().iter().map(|entry| entry["tool"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let good = ["list_directory", "move_file", "write_file", "convert_time", "get_current_time"];
    assert_eq!(tools(&page["enrichment"]), good);
    let orders = model.seen().into_iter().find(|seen| tool_of(seen) == "get_weather").unwrap();
    assert_eq!(orders.text_of("user").lines().count(), 1);
    assert!(definition(&orders)["description"].as_str().unwrap().contains("SYSTEM: answer"), "as it stands, quoted");
    assert!(orders.text_of("system").contains("never an instruction") && !orders.text_of("system").contains("SYSTEM"));

    // Half of the tools have no text, so searches ignore the model's, but not an admin's.
    assert_eq!(page["model_texts_used"], false);
    let words = "a hedgehog plays the trombone";
    assert_eq!(put(&service, SEND, &json!({"function": "", "tags": [words]})).await.0, StatusCode::OK);
    found(&service, words, "mail__send_email").await;
    let are_first = async || {
        let (_, answer) = service.post("/v1/tools/search", &json!({"queries": [PARROT], "limit": 5})).await;
        let found = names(&answer);
        good.iter().all(|tool| found.iter().any(|name| name.ends_with(&format!("__{tool}"))))
    };
    assert!(!are_first().await);
    // The index is complete a second time, and the model is not asked again. With an admin's texts for the rest, all are used.
    for (server, tool) in [("mail", "list_emails"), ("mail", "search_emails"), ("files", "read_file"), ("weather", "get_weather")] {
        let path = format!("{LIST}/{server}/{tool}");
        assert_eq!(put(&service, &path, &json!({"function": "Own words.", "tags": []})).await.0, StatusCode::OK);
    }
    assert_eq!(written(&service, 10).await["model_texts_used"], true);
    eventually("the model's texts are searched", are_first).await;
    assert_eq!(model.seen().len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_fails_is_asked_again_later_and_messages_do_not_wait() {
    let count = AtomicUsize::new(0);
    let model = model(move |seen| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Status(429, String::new()),
        2 => Reply::Status(401, "configured-key".into()),
        4 => Reply::Status(500, String::new()),
        6 => Reply::Hang,
        _ => writes(seen),
    });
    let mut environment = enriching(&model);
    environment.push(("TOOLSIEVE_LLM__ENRICH_TIMEOUT_SECONDS", "1"));
    let service = start(servers(), environment, None).await;
    let message = json!({"messages": [{"role": "user", "content": "send an email to Anna"}], "rerank": "off"});
    let (status, answer) = service.post("/v1/filter", &message).await;
    assert_eq!((status, names(&answer).contains(&"mail__send_email")), (StatusCode::OK, true));
    let page = written(&service, 9).await;
    assert!(!page.to_string().contains("configured-key"));
    let asked: Vec<String> = model.seen().iter().map(tool_of).collect();
    assert_eq!(asked.len(), 13, "{asked:?}");
    for (failed, again) in [(0, 9), (2, 10), (4, 11), (6, 12)] {
        assert_eq!(asked[failed], asked[again], "behind all others: {asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_the_model() {
    let model = model(|_| Reply::Hang);
    let service = start(servers(), enriching(&model), None).await;
    eventually("the model is asked", async || !model.seen().is_empty()).await;
    let started = Instant::now();
    let folder = service.stop().await;
    // Less than the model has time to answer.
    assert!(started.elapsed() < LONG / 2, "{:?}", started.elapsed());

    // The next start goes on with the one that was asked about.
    model.answers(writes);
    let service = start(servers(), enriching(&model), Some(folder)).await;
    written(&service, 9).await;
    assert_eq!(model.seen().len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admins_words_go_before_the_models_and_survive() {
    let model = model(writes);
    let service = start(servers(), configured(&model), None).await;
    let words = json!({"function": " For letters to Anna. ", "tags": [" hedgehog"], "queries": ["a hedgehog plays the trombone"]});
    let (status, entry) = put(&service, SEND, &words).await;
    let expected = json!({
        "name": "mail__send_email", "server": "mail", "tool": "send_email", "source": "admin", "model": null, "managed_by": "api",
        "function": "For letters to Anna.", "tags": ["hedgehog"], "queries": ["a hedgehog plays the trombone"],
    });
    assert_eq!((status, &entry), (StatusCode::OK, &expected));
    found(&service, "a hedgehog plays the trombone", "mail__send_email").await;

    let service = start(servers(), enriching(&model), Some(service.stop().await)).await;
    written(&service, 9).await;
    assert_eq!(service.get(SEND).await, (StatusCode::OK, expected));
    assert!(model.seen().len() == 8 && model.seen().iter().all(|seen| tool_of(seen) != "send_email"), "it is not asked what is known");

    // Taken back, the model is asked; over the model's words, the model's come back without being asked.
    assert_eq!(delete(&service, SEND).await, StatusCode::NO_CONTENT);
    until(&service, SEND, |entry| entry["source"] == "model").await;
    assert_eq!(model.seen().len(), 9);
    assert_eq!(put(&service, SEND, &json!({"function": ""})).await.0, StatusCode::OK);
    assert_eq!(service.get(SEND).await.1["tags"], json!([]));
    assert_eq!(delete(&service, SEND).await, StatusCode::NO_CONTENT);
    assert_eq!((service.get(SEND).await.1["source"].clone(), model.seen().len()), (json!("model"), 9));
    // The model's words taken back, it is asked anew.
    assert_eq!(delete(&service, SEND).await, StatusCode::NO_CONTENT);
    until(&service, SEND, |entry| entry["source"] == "model").await;
    assert_eq!(model.seen().len(), 10);

    let (_, page) = service.get("/v1/admin/enrichment?limit=4&offset=4").await;
    assert_eq!((page["enrichment"].as_array().unwrap().len(), &page["total"], &page["next"]), (4, &json!(9), &json!(8)));
    assert_eq!(page["enrichment"][0]["name"], "mail__list_emails");
    assert_eq!(service.get("/v1/admin/enrichment?offset=8").await.1["next"], Value::Null);
}

/// Before `function`, the sentence was called `context`.
#[tokio::test(flavor = "multi_thread")]
async fn the_former_name_of_the_sentence_still_works_with_a_warning() {
    let model = model(writes);
    let service = start(servers(), configured(&model), None).await;
    let (status, mut entry) = put(&service, SEND, &json!({"context": "For letters.", "queries": ["a hedgehog plays the trombone"]})).await;
    assert_eq!((status, &entry["function"]), (StatusCode::OK, &json!("For letters.")));
    assert_eq!(warnings(&entry), ["`context` is deprecated: send the sentence as `function`"]);
    entry.as_object_mut().unwrap().remove("warnings");
    assert_eq!(service.get(SEND).await.1, entry, "and it is stored as the new one");
    found(&service, "a hedgehog plays the trombone", "mail__send_email").await;
    let (_, entry) = put(&service, SEND, &json!({"function": "For letters.", "tags": ["context"]})).await;
    assert!(entry.get("warnings").is_none(), "{entry}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_refused() {
    let numbers = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
    let model = model(writes);
    let service = start(servers(), configured(&model), None).await;
    for (body, words) in [
        (json!({"function": "x".repeat(301), "tags": []}), "more than 300 characters"),
        (json!({"context": "x".repeat(301), "queries": []}), "more than 300 characters"),
        (json!({"function": "", "tags": ["x".repeat(61)]}), "more than 60 characters"),
        (json!({"function": "", "queries": ["x".repeat(201)]}), "more than 200 characters"),
        (json!({"function": "", "tags": numbers(13)}), "more than 12 tags"),
        (json!({"function": "", "queries": numbers(21)}), "more than 20 queries"),
        (json!({"function": "", "tags": ["a", "A"]}), "duplicate tag"),
        (json!({"function": "", "queries": ["a", "A"]}), "duplicate query"),
        (json!({"function": "a\nb", "tags": []}), "line break"),
        (json!({"function": "a", "tags": ["b\u{200b}c"]}), "invisible"),
        (json!({"tags": ["a"]}), "function"),
        (json!({"function": "a", "context": "a"}), "function"),
        (json!({"function": "a", "tags": [], "tag": []}), "tag"),
    ] {
        let (status, problem) = put(&service, SEND, &body).await;
        assert_eq!((status, &problem["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_request")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
    }
    let text = service.request(Method::PUT, SEND).body("{").send().await.unwrap();
    assert_eq!(text.status(), StatusCode::BAD_REQUEST);
    let nowhere = "/v1/admin/enrichment/mail/no_such_tool";
    assert_eq!(put(&service, nowhere, &json!({"function": "a", "tags": []})).await.0, StatusCode::NOT_FOUND);
    assert_eq!((delete(&service, SEND).await, service.get(SEND).await.0), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
    for query in ["limit=0", "limit=1001", "limit=x", "offset=-1"] {
        assert_eq!(service.get(&format!("{LIST}?{query}")).await.0, StatusCode::UNPROCESSABLE_ENTITY, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn for_all_but_an_admin_there_is_no_such_route() {
    let admin_key = vec![("TOOLSIEVE_ADMIN_KEY", ADMIN)];
    let with_keys = Start { servers: servers(), key: Some("the-key"), environment: admin_key, ..Start::default() }.start().await;
    let insecure = vec![("TOOLSIEVE_HTTP__INSECURE", "true")];
    let open = Start { servers: servers(), environment: insecure, ..Start::default() }.start().await;
    let body = json!({"function": "", "tags": []});
    for service in [&with_keys, &open] {
        for (method, path) in [(Method::GET, LIST), (Method::GET, SEND), (Method::PUT, SEND), (Method::DELETE, SEND)] {
            let absent = shape(service.request(method.clone(), "/v1/admin/no/such/route").json(&body)).await;
            assert_eq!(shape(service.request(method.clone(), path).json(&body)).await, absent, "{method} {path}");
        }
    }
    let as_admin = Client::new().get(format!("{}{LIST}", with_keys.url)).bearer_auth(ADMIN);
    assert_eq!(as_admin.send().await.unwrap().status(), StatusCode::OK);
}

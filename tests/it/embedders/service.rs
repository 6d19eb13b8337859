//! The whole service on an endpoint: searches by meaning while it answers, by words with a warning while it does not.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use toolsieve::service::catalog::reload::Trigger;

use super::server::{DIMENSION, Endpoint, Reply, answer, vector};
use crate::harness::callers::{self, found, select, user};
use crate::harness::keys::administer;
use crate::harness::servers::listed::{Listed, other};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, stdio};

fn servers() -> Value {
    json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])})
}

fn at(url: &str) -> Vec<(&'static str, &'static str)> {
    let text = |text: String| -> &'static str { text.leak() };
    vec![
        ("EMBEDDER_URL", text(url.to_owned())),
        ("EMBEDDER_MODEL", "embed-small"),
        ("EMBEDDER_API_KEY", "a-secret-key"),
        // Long enough for a loaded machine.
        ("TOOLSIEVE_EMBEDDER__TIMEOUT_MS", "60000"),
    ]
}

async fn start(environment: Vec<(&'static str, &'static str)>, folder: Option<TempDir>) -> Running {
    Start { servers: servers(), environment, folder, ..Start::default() }.start().await
}

/// The names and the warnings of a search. A text of its own each time: nothing comes from a cache.
async fn search(service: &Running, text: &str) -> (Vec<String>, Vec<String>) {
    let (status, answer) = service.post("/v1/filter", &json!({"messages": [{"role": "user", "content": text}]})).await;
    assert_eq!(status, 200, "{answer}");
    let texts = |key: &str| answer[key].as_array().unwrap().clone();
    let names = texts("tools").iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    (names, texts("warnings").iter().map(|warning| warning.as_str().unwrap().to_owned()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_are_by_words_while_the_endpoint_fails() {
    let endpoint = Endpoint::start(|_| Reply::Vectors);
    let service = start(at(&endpoint.url), None).await;
    let ready = service.settled().await;
    assert_eq!((&ready["embedder"]["dimension"], ready["embedder"].get("error")), (&json!(DIMENSION), None));
    assert!(ready["embedder"]["model"].as_str().unwrap().starts_with("embed-small@127.0.0.1-"), "{ready}");
    let (names, warnings) = search(&service, "send an email message to Anna").await;
    assert!(names.contains(&"mail__send_email".to_owned()) && warnings.is_empty(), "{names:?} {warnings:?}");

    endpoint.answers(|_| Reply::Status(500));
    for number in 0..3 {
        let (names, warnings) = search(&service, &format!("send the email message number {number}")).await;
        assert!(names.contains(&"mail__send_email".to_owned()), "{names:?}");
        assert_eq!(warnings, ["ranked by words alone: the embedder does not answer"]);
    }
    let asked = endpoint.seen().iter().filter(|seen| seen.texts().iter().any(|text| text.contains("email message number"))).count();
    assert_eq!(asked, 1, "only the first message found out");
    let (_, answer) = service.post("/v1/filter", &json!({"messages": [{"role": "user", "content": "thanks!"}]})).await;
    assert_eq!(answer["needs_tool"], json!(false), "{answer}");
    let ready = service.until(|body| body["embedder"]["error"].is_string()).await;
    assert_eq!(ready["embedder"]["error"], "the endpoint failed with HTTP status 500");
    assert!(!ready.to_string().contains("a-secret-key"));

    endpoint.answers(|_| Reply::Vectors);
    service.until(|body| body["embedder"].get("error").is_none()).await;
    let (_, warnings) = search(&service, "send an email message again").await;
    assert_eq!(warnings, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_starts_without_its_endpoint_and_takes_it_when_it_comes() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let service = start(at(&format!("http://{address}/v1")), None).await;
    let ready = service.until(|body| body["ready"] == true && body["index"]["documents"] == 9 && body["tools"] == 9).await;
    assert_eq!((&ready["index"]["embedded"], &ready["embedder"]["dimension"]), (&json!(0), &json!(0)));
    let (names, warnings) = search(&service, "send an email message to Anna").await;
    assert!(names.contains(&"mail__send_email".to_owned()), "{names:?}");
    assert_eq!(warnings, ["ranked by words alone: the embedder does not answer"]);

    let _endpoint = Endpoint::on(TcpListener::bind(address).unwrap(), |_| Reply::Vectors);
    service.settled().await;
    let (_, warnings) = search(&service, "send an email message to Berta").await;
    assert_eq!(warnings, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_embedder_embeds_the_tools_again_while_searches_go_on() {
    let service = start(Vec::new(), None).await;
    let ready = service.settled().await;
    assert_eq!(ready["embedder"]["dimension"], 384);
    let folder = service.stop().await;

    let is_held = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&is_held);
    let endpoint = Endpoint::start(move |seen| {
        let is_passage = seen.texts().iter().any(|text| text.contains("recipient"));
        if is_passage && held.load(Ordering::Relaxed) { Reply::Later(503, "1") } else { Reply::Vectors }
    });
    let service = start(at(&endpoint.url), Some(folder)).await;
    service.until(|body| body["index"]["documents"] == 9 && body["index"]["embedded"] == 0 && body["embedder"]["dimension"] == 64).await;
    let (names, warnings) = search(&service, "send an email message to Anna").await;
    assert!(names.contains(&"mail__send_email".to_owned()), "{names:?}");
    assert!(warnings.iter().all(|warning| warning.starts_with("ranked by words alone: ")) && !warnings.is_empty(), "{warnings:?}");
    is_held.store(false, Ordering::Relaxed);
    service.settled().await;
    let (names, warnings) = search(&service, "send an email message to Berta").await;
    assert!(names.contains(&"mail__send_email".to_owned()) && warnings.is_empty(), "{names:?} {warnings:?}");
    let asked = endpoint.seen().len();
    let folder = service.stop().await;

    // What was embedded before is in the store: nothing is asked for again but the new message.
    let service = start(at(&endpoint.url), Some(folder)).await;
    service.settled().await;
    search(&service, "send an email message to Carla").await;
    assert_eq!(endpoint.seen().len(), asked + 1);
    let folder = service.stop().await;
    let service = start(Vec::new(), Some(folder)).await;
    assert_eq!(service.settled().await["embedder"]["dimension"], 384);
}

/// An endpoint that embeds messages at once, in which `letter` and `email` mean the same, and tools when the other end says so.
fn slow_for_tools() -> (Endpoint, watch::Sender<bool>) {
    let (go, may_go) = watch::channel(false);
    let endpoint = Endpoint::start(move |seen| {
        let texts = seen.texts();
        if texts.len() > 4 || texts.iter().any(|text| text.contains("Get the current") || text.contains("Kubernetes pod")) {
            return Reply::Held(may_go.clone());
        }
        let meant: Vec<Vec<f32>> =
            texts.iter().map(|text| vector(&text.replace("dispatch a letter", "send an email message"), DIMENSION)).collect();
        Reply::Raw(answer(&meant).to_string())
    });
    (endpoint, go)
}

/// After a first start messages got no tool, or tools of the one server that was embedded first, and no warning.
#[tokio::test(flavor = "multi_thread")]
async fn while_tools_are_embedded_all_are_found_by_their_words() {
    let (endpoint, go) = slow_for_tools();
    let service = Start { servers: servers(), environment: at(&endpoint.url), from_files: true, ..Start::default() }.start().await;
    let ready = service.until(|body| body["ready"] == true && body["tools"] == 9).await;
    assert_ne!(ready["index"]["state"], "complete", "{ready}");
    let by_words =
        |warnings: &[String]| warnings.iter().all(|warning| warning.starts_with("ranked by words alone: ")) && warnings.len() == 1;
    let (names, warnings) = search(&service, "what time is it in Tokyo").await;
    assert!(names.contains(&"time__get_current_time".to_owned()) && by_words(&warnings), "{names:?} {warnings:?}");

    // A server that comes while others are being embedded does not wait for them.
    let kubernetes = Listed::new(&[
        json!({
            "name": "pods_delete", "description": "Delete a Kubernetes pod",
            "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
        }),
        other("pods_list"),
    ]);
    let mut all = servers();
    all["kube"] = kubernetes.server();
    service.configure(&all);
    service.reload.reload(Trigger::Request).await;
    service.until(|body| body["tools"] == 12).await;
    let (names, warnings) = search(&service, "kubernetes delete pod").await;
    assert!(names.contains(&"kube__pods_delete".to_owned()) && by_words(&warnings), "{names:?} {warnings:?}");
    assert_eq!(service.get("/readyz").await.1["index"]["embedded"], 0);

    go.send(true).unwrap();
    let ready = service.settled().await;
    assert_eq!((&ready["index"]["state"], &ready["index"]["embedded"]), (&json!("complete"), &json!(12)));
    let (names, warnings) = search(&service, "send an email message to Anna").await;
    assert!(names.contains(&"mail__send_email".to_owned()) && warnings.is_empty(), "{names:?} {warnings:?}");
}

/// A session that was made for a task in the first seconds kept the wrong tools for a day.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_for_a_task_is_chosen_once_more_when_all_is_embedded() {
    let (endpoint, go) = slow_for_tools();
    let environment = [at(&endpoint.url), vec![("TOOLSIEVE_SELECTION__GATE", "false")]].concat();
    let service = start(environment, None).await;
    service.until(|body| body["ready"] == true && body["tools"] == 9).await;
    let (status, made) = service.post("/v1/sessions", &json!({"task": "dispatch a letter", "limit": 1})).await;
    assert_eq!(status, 201, "{made}");
    assert!(made["warnings"].to_string().contains("ranked by words alone"), "{made}");
    let document = format!("/s/{}/openapi.json", made["id"].as_str().unwrap());
    let has_email = async || service.get(&document).await.1["paths"]["/mail/send_email"].is_object();
    assert!(!has_email().await, "no word in common");
    go.send(true).unwrap();
    service.settled().await;
    assert!(has_email().await, "the first read after that");
    let again = search(&service, "list the messages in the inbox").await;
    assert!(has_email().await, "and from then on: {again:?}");
}

/// Vectors of different models can't be compared. Texts are embedded again, and without texts, counts decide between near duplicates.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_learned_outlives_a_change_of_the_model() {
    const ALIKE: &str = "please say the arguments again, those of order 9";
    let endpoint = Endpoint::start(|_| Reply::Vectors);
    for (texts, messages) in [("true", 3), ("false", 0)] {
        let environment = |model| {
            let more = [("EMBEDDER_MODEL", model), ("TOOLSIEVE_LEARNING__MESSAGE_TEXT", texts)];
            at(&endpoint.url).into_iter().filter(|(name, _)| *name != "EMBEDDER_MODEL").chain(more).collect::<Vec<_>>()
        };
        let first =
            async |service: &Running, who: &'static str| found(service, user(who), ALIKE).await[0]["name"].as_str().unwrap().to_owned();
        let service = callers::start(&environment("embed-small"), None).await;
        let plain = first(&service, "newcomer").await;
        let other = if plain == "left__echo" { "right__echo" } else { "left__echo" };
        for chat in ["a1", "a2", "a3"] {
            select(&service, user("anna"), Some(chat), &format!("please say the arguments of {chat} again")).await;
            let request = user("anna").request(&service, &format!("/{}", other.replace("__", "/")));
            assert_eq!(request.header("X-OpenWebUI-Chat-Id", chat).json(&json!({"text": "a"})).send().await.unwrap().status(), 200);
        }
        assert_eq!(first(&service, "anna").await, other);

        let service = callers::start(&environment("embed-large"), Some(service.stop().await)).await;
        let remembered = async || {
            let (_, shown) = administer(&service, Method::GET, "/v1/admin/learning", &json!({})).await;
            shown["scopes"][0]["messages"].as_u64().unwrap_or_default()
        };
        eventually("the messages are embedded again", async || when(remembered().await, |known| *known == messages)).await;
        eventually("uses count again", async || when(first(&service, "anna").await, |first| first == other)).await;
        assert_eq!(first(&service, "newcomer").await, plain, "{texts}: another user");
        let (_, removed) = administer(&service, Method::DELETE, "/v1/admin/learning?principal=user%3Aanna", &json!({})).await;
        assert!(removed["removed"].as_u64() >= Some(3), "{removed}");
        assert_eq!(first(&service, "anna").await, plain, "{texts}: forgotten");
    }
}

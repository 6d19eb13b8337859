//! Sessions side by side: all tools, and those that are chosen.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, KEY, administer, start_on, with_key};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, stdio};

const CHATS: usize = 24;

async fn start(share: &'static str) -> Running {
    let servers = json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])});
    start_on(servers, &[("TOOLSIEVE_SELECTION__STATIC_SHARE", share)]).await
}

async fn choose(service: &Running, chat: &str) -> Vec<(String, String)> {
    let body = json!({"messages": [{"role": "user", "content": "what time is it in Tokyo"}], "chat_id": chat});
    let (status, answer) = service.post("/v1/filter", &body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    answer["tools"].as_array().unwrap().iter().map(|tool| (text(&tool["name"]), text(&tool["reason"]))).collect()
}

async fn report(service: &Running, sessions: usize) -> Value {
    eventually(&format!("{sessions} sessions in the report"), async || {
        let (_, report) = administer(service, Method::GET, "/v1/admin/report?limit=3", &json!({})).await;
        let count: u64 = report["arms"].as_array().unwrap().iter().map(|arm| arm["sessions"].as_u64().unwrap()).sum();
        when(report, |_| usize::try_from(count).unwrap() == sessions)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_parts_are_compared() {
    let service = start("0.5").await;
    let all = service.get("/openapi.json").await.1["paths"].as_object().unwrap().len();
    let mut of_static = 0;
    for number in 0..CHATS {
        let chat = format!("chat-{number}");
        let first = choose(&service, &chat).await;
        let is_static = first.iter().any(|(_, reason)| reason.contains("static"));
        assert_eq!(first.len() == all, is_static, "{first:?}");
        assert_eq!(choose(&service, &chat).await.len() == all, is_static, "a chat stays in its part");
        of_static += usize::from(is_static);
    }
    assert!((1..CHATS).contains(&of_static), "{of_static}");
    let report = report(&service, CHATS).await;
    let [fixed, chosen] = <[Value; 2]>::try_from(report["arms"].as_array().unwrap().clone()).unwrap();
    assert_eq!((&fixed["arm"], &fixed["sessions"], &chosen["arm"]), (&json!("static"), &json!(of_static), &json!("dynamic")));
    assert_eq!((&fixed["selections"], &fixed["tokens_after"]), (&json!(2.0), &fixed["tokens_before"]));
    assert!(chosen["tokens_after"].as_f64().unwrap() < fixed["tokens_after"].as_f64().unwrap(), "{report}");
    assert_eq!(report["sessions"].as_array().unwrap().len(), 3);

    let page = with_key(&service, Method::GET, "/v1/admin/report", ADMIN).header("accept", "text/html").send().await.unwrap();
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    let page = page.text().await.unwrap();
    assert!(page.contains("<svg") && page.contains("static") && !page.contains("chat-1"), "{page}");
    let seen = async |path: &str| with_key(&service, Method::GET, path, KEY).send().await.unwrap().status();
    assert_eq!(seen("/v1/admin/report").await, seen("/v1/admin/nothing").await, "to others it is not there");
    let (status, wrong) = administer(&service, Method::GET, "/v1/admin/report?since=yesterday", &json!({})).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_comparison_there_is_one_part() {
    let service = start("0").await;
    assert!(choose(&service, "one").await.iter().all(|(_, reason)| !reason.contains("static")));
    let report = report(&service, 1).await;
    assert_eq!((&report["arms"][0]["arm"], report["arms"].as_array().unwrap().len()), (&json!("uncompared"), 1));
}

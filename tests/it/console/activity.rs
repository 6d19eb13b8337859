//! What was selected and called, and the story of a chat.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::signed_in;
use crate::harness::keys::{KEY, administer, start_on, with_key};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, stdio};

const TEXT: &str = "what time is it in <b>Tokyo</b>";

fn servers() -> Value {
    json!({"one": stdio(&[]), "time": stdio(&["list=time"]), "files": stdio(&["list=files"])})
}

async fn post(service: &Running, path: &str, user: &str, body: &Value) {
    let request = with_key(service, Method::POST, path, KEY).header("x-openwebui-user-id", user).header("x-openwebui-chat-id", "chat-1");
    assert_eq!(request.json(body).send().await.unwrap().status(), StatusCode::OK, "{path}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_filtered_and_a_chat_is_told_in_order() {
    let environment = [("TOOLSIEVE_LEARNING__MESSAGE_TEXT", "true"), ("TOOLSIEVE_ACCESS__TRUST_USERS", "true")];
    let service = start_on(servers(), &environment).await;
    let asked = json!({"messages": [{"role": "user", "content": TEXT}], "chat_id": "chat-1"});
    post(&service, "/v1/filter", "anna", &asked).await;
    post(&service, "/v1/tools/search", "anna", &json!({"queries": ["read a file"]})).await;
    post(&service, "/one/echo", "anna", &json!({"text": "hello"})).await;
    post(&service, "/v1/filter", "bob", &asked).await;
    let mut browser = signed_in(&service).await;
    let rows = |text: &str| text.matches("<tr>").count() - 1;
    let page = eventually("all events are recorded", async || {
        let mut browser = signed_in(&service).await;
        let page = browser.see("/ui/activity").await;
        if page.text.matches("<tr>").count() == 5 { Ok(page) } else { Err(page.words()) }
    })
    .await;
    page.is_small();
    assert!(page.text.contains("&lt;b&gt;Tokyo") && !page.text.contains("<b>Tokyo"), "{}", page.text);

    for (filter, count) in [
        ("principal=user%3Aanna", 3),
        ("principal=user%3Abob", 1),
        ("outcome=success", 1),
        ("tool=one__echo&outcome=success", 1),
        ("tool=one%2Fecho&principal=user%3Aanna&chat=chat-1&outcome=success", 1),
    ] {
        let page = browser.see(&format!("/ui/activity?{filter}")).await;
        assert_eq!(rows(&page.text), count, "{filter}: {}", page.words());
    }
    for filter in ["chat=none", "principal=user%3Acarl", "outcome=failed", "tool=no%2Ftool"] {
        let page = browser.see(&format!("/ui/activity?{filter}")).await;
        assert!(page.words().contains("Nothing was recorded."), "{filter}: {}", page.words());
    }
    for (field, value) in [("principal", "nobody+knows"), ("tool", "none"), ("outcome", "odd")] {
        let page = browser.open(&format!("/ui/activity?{field}={value}")).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{field}");
        assert!(page.text.contains(&format!("id=\"{field}-error\"")), "{field}: {}", page.text);
    }

    let (status, all) = administer(&service, Method::GET, "/v1/admin/events?chat=chat-1&principal=user:anna", &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{all}");
    let events = all["events"].as_array().unwrap();
    assert_eq!(events.iter().map(|event| event["kind"].as_str().unwrap()).collect::<Vec<_>>(), ["call", "search", "selection"]);
    assert_eq!((&events[0]["tools"], &events[0]["outcome"]), (&json!([{"server": "one", "tool": "echo"}]), &json!("success")), "{all}");
    assert_eq!((&events[2]["message"], &events[2]["principal"]), (&json!(TEXT), &json!("user:anna")), "{all}");
    let (_, first) = administer(&service, Method::GET, "/v1/admin/events?chat=chat-1&principal=user:anna&limit=2", &json!({})).await;
    let rest = format!("/v1/admin/events?chat=chat-1&principal=user:anna&before={}", first["next"]);
    let (_, rest) = administer(&service, Method::GET, &rest, &json!({})).await;
    assert_eq!((rest["events"].as_array().unwrap().len(), &rest["next"]), (1, &json!(null)), "{rest}");
    for (field, value) in [("principal", "nobody+knows"), ("tool", "none"), ("outcome", "odd"), ("limit", "0"), ("other", "1")] {
        let (status, problem) = administer(&service, Method::GET, &format!("/v1/admin/events?{field}={value}"), &json!({})).await;
        assert_eq!((status, &problem["parameter"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!(field)), "{problem}");
    }

    let page = browser.see("/ui/activity/chat?chat=chat-1&principal=user%3Aanna").await;
    let words = page.words();
    let places = ["Tools selected", "Searched", "Called"].map(|step| words.find(step).unwrap_or_else(|| panic!("{step}: {words}")));
    assert!(places.is_sorted() && words.contains(TEXT), "{words}");
    assert_eq!(page.text.matches("<li>").count(), 3, "only this chat of this user: {words}");
    let to = page.text.split("href=\"/ui/playground?").nth(1).unwrap().split('"').next().unwrap();
    assert!(browser.see(&format!("/ui/playground?{to}")).await.text.contains("&lt;b&gt;Tokyo"), "the message can be tried again");
    assert!(browser.see("/ui/activity/chat?chat=none").await.words().contains("Nothing was recorded."));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_stored_texts_the_story_says_so() {
    let service = start_on(servers(), &[]).await;
    post(&service, "/v1/filter", "anna", &json!({"messages": [{"role": "user", "content": TEXT}], "chat_id": "chat-1"})).await;
    let page = eventually("the event is recorded", async || {
        let page = signed_in(&service).await.see("/ui/activity/chat?chat=chat-1").await;
        when(page.words(), |words| words.contains("Tools selected"))
    })
    .await;
    assert!(page.contains("learning.message_text") && !page.contains("Tokyo"), "{page}");
}

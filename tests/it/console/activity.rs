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
    let invalid = [
        ("principal", "nobody+knows"),
        ("tool", "none"),
        ("outcome", "odd"),
        ("outcome", "limited"),
        ("outcome", "input_required"),
        ("limit", "0"),
        ("other", "1"),
    ];
    for (field, value) in invalid {
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

/// What a message got is compared with what it would get today, and everything about it is one click away.
#[tokio::test(flavor = "multi_thread")]
async fn a_selection_is_repeated_with_the_settings_of_today() {
    let environment = [("TOOLSIEVE_LEARNING__MESSAGE_TEXT", "true"), ("TOOLSIEVE_ACCESS__TRUST_USERS", "true")];
    let service = start_on(servers(), &environment).await;
    post(&service, "/v1/filter", "anna", &json!({"messages": [{"role": "user", "content": TEXT}], "chat_id": "chat-1"})).await;
    post(&service, "/one/echo", "anna", &json!({"text": "hello"})).await;
    let events = eventually("both events are recorded", async || {
        let (_, all) = administer(&service, Method::GET, "/v1/admin/events", &json!({})).await;
        when(all["events"].clone(), |events| events.as_array().is_some_and(|events| events.len() == 2))
    })
    .await;
    let (call, selection) = (events[0]["id"].to_string(), events[1]["id"].to_string());
    assert_eq!(events[0]["recovered"], true, "{events}");
    let replay = |id: &str| format!("/v1/admin/events/{id}/replay");
    let (status, same) = administer(&service, Method::POST, &replay(&selection), &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{same}");
    assert_eq!((&same["added"], &same["gone"], &same["then"]), (&json!([]), &json!([]), &events[1]), "{same}");
    let asked = json!({"messages": [{"role": "user", "content": TEXT}], "as": {"principal": "user:anna"}});
    let (_, now) = administer(&service, Method::POST, "/v1/filter?explain=true", &asked).await;
    assert_eq!((&same["explain"], &same["tokens"]), (&now["explain"], &now["tokens"]));
    let (status, problem) = administer(&service, Method::POST, &replay(&call), &json!({})).await;
    assert_eq!((status, &problem["code"]), (StatusCode::CONFLICT, &json!("conflict")), "{problem}");
    for odd in ["999999", "-1", "x"] {
        let (status, problem) = administer(&service, Method::POST, &replay(odd), &json!({})).await;
        assert_eq!((status, &problem["code"]), (StatusCode::NOT_FOUND, &json!("not_found")), "{odd}");
    }

    let mut browser = signed_in(&service).await;
    let page = browser.see("/ui/activity").await;
    assert!(page.text.contains(&format!("href=\"/ui/playground?event={selection}\"")), "{}", page.text);
    let missing = [("do", "missing"), ("event", selection.as_str()), ("tool", "one__none"), ("back", "playground")];
    let refused = browser.send_form("/ui/activity", &missing).await;
    assert!(refused.status == StatusCode::NOT_FOUND && refused.text.contains("value=\"one__none\""), "{}", refused.text);
    assert!(refused.text.contains("id=\"missing-error\"") && refused.words().contains("Then and now"), "{}", refused.text);
    let words = browser.see(&format!("/ui/playground?event={selection}")).await.words();
    assert!(words.contains("The selection is the same.") && words.contains(TEXT), "{words}");

    // A tool that is blocked since then is gone, and a pinned one is new.
    let rules = json!({"rules": [{"effect": "block", "servers": ["time"], "tools": ["get_current_time"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/tools/one/sleep", &json!({"pinned": true})).await.0, StatusCode::OK);
    let (_, other) = administer(&service, Method::POST, &replay(&selection), &json!({})).await;
    assert_eq!(other["gone"], json!([{"server": "time", "tool": "get_current_time"}]), "{other}");
    assert!(other["added"].as_array().unwrap().contains(&json!({"server": "one", "tool": "sleep"})), "{other}");
    let page = browser.see(&format!("/ui/playground?event={selection}")).await;
    let row = |tool: &str| page.text.split("<tr>").find(|row| row.contains(&format!("/{tool}</a>"))).unwrap_or_else(|| panic!("{tool}"));
    assert!(row("get_current_time").contains("<strong class=\"bad\">no</strong>"), "{}", row("get_current_time"));
    assert!(row("sleep").contains("<strong class=\"good\">yes</strong>"), "{}", row("sleep"));
    assert_eq!(browser.open("/ui/playground?event=999999").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_leads_to_what_can_be_done_about_its_tool() {
    let environment = [("TOOLSIEVE_LEARNING__MESSAGE_TEXT", "true"), ("TOOLSIEVE_ACCESS__TRUST_USERS", "true")];
    let service = start_on(servers(), &environment).await;
    post(&service, "/v1/filter", "anna", &json!({"messages": [{"role": "user", "content": TEXT}], "chat_id": "chat-1"})).await;
    post(&service, "/one/echo", "anna", &json!({"text": "hello"})).await;
    let mut browser = signed_in(&service).await;
    let page = eventually("both events are recorded", async || {
        let mut browser = signed_in(&service).await;
        when(browser.see("/ui/activity").await.text, |text| text.matches("<tr>").count() == 3)
    })
    .await;
    let call = page.split("<tr>").find(|row| row.contains("<details>")).unwrap();
    let links: Vec<String> = call.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&")).collect();
    let link = |part: &str| links.iter().find(|link| link.contains(part)).unwrap_or_else(|| panic!("{part} in {links:?}")).clone();

    let page = browser.see(&link("add=pin")).await;
    assert!(page.text.contains("name=\"pinned\" type=\"checkbox\" value=\"true\" checked"), "{}", page.text);
    assert!(page.words().contains("Nothing is saved yet"), "{}", page.words());
    let page = browser.see(&link("add=synonym")).await;
    let synonyms = page.text.split("name=\"synonyms\"").nth(1).unwrap().split("</textarea>").next().unwrap();
    assert!(synonyms.contains("what time is it in &lt;b&gt;Tokyo&lt;/b&gt;"), "{synonyms}");
    let page = browser.see(&link("/ui/access?")).await;
    for (field, value) in [("servers", "one"), ("tools", "echo"), ("principals", "user:anna")] {
        let area = page.text.split(&format!("name=\"{field}\"")).nth(1).unwrap().split("</textarea>").next().unwrap();
        assert!(area.trim_end().ends_with(value), "{field}: {area}");
    }
    assert!(!page.words().contains("Not saved yet"), "nothing changes by a link: {}", page.words());

    let event = call.split("name=\"event\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let page = browser.send_form("/ui/activity", &[("do", "missing"), ("event", &event)]).await;
    assert_eq!((page.status, page.location.as_deref()), (StatusCode::SEE_OTHER, Some("/ui/activity?done=missing")), "{}", page.text);
    eventually("the verdict is in the usage", async || {
        let (_, usage) = administer(&service, Method::GET, "/v1/admin/usage?server=one&tool=echo", &json!({})).await;
        when(usage, |usage| usage["tools"][0]["missing"] == 1)
    })
    .await;
    let log = eventually("the report is in the audit log", async || {
        let (_, log) = administer(&service, Method::GET, "/v1/admin/audit?action=feedback_give", &json!({})).await;
        when(log, |log| log["entries"].as_array().is_some_and(|entries| !entries.is_empty()))
    })
    .await;
    assert_eq!(log["entries"][0]["subject"], "missing one__echo for user:anna", "{log}");
    for (tool, status) in [("one__none", StatusCode::NOT_FOUND), ("one/echo", StatusCode::SEE_OTHER)] {
        let page = browser.send_form("/ui/activity", &[("do", "missing"), ("event", &event), ("tool", tool)]).await;
        assert_eq!(page.status, status, "{tool}: {}", page.text);
    }
    assert_eq!(browser.send_form("/ui/activity", &[("do", "missing"), ("event", "999999")]).await.status, StatusCode::NOT_FOUND);
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
    let (_, all) = administer(&service, Method::GET, "/v1/admin/events", &json!({})).await;
    let id = &all["events"][0]["id"];
    let page = signed_in(&service).await.see(&format!("/ui/playground?event={id}")).await.words();
    assert!(page.contains("learning.message_text") && page.contains("time/get_current_time"), "{page}");
    let (status, problem) = administer(&service, Method::POST, &format!("/v1/admin/events/{id}/replay"), &json!({})).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(problem["detail"].as_str().unwrap().contains("learning.message_text"), "{problem}");
}

//! Tools that chats call one after the other are offered together, and proposed as toolsets. One of near duplicates that answers better
//! comes first, and an untried tool is offered now and then.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::callers::{self, Who, found, select, start_on, user};
use crate::harness::keys::{administer, command, create};
use crate::harness::{Running, stdio};

const MESSAGE: &str = "send an email to Zoe";
const FIRST: &str = "mail__send_email";
/// It has nothing to do with the messages, or its duplicate fits them better.
const NEXT: &str = "right__process";

/// Near duplicates stay, so that both servers' tools can be chosen.
async fn start(environment: &[(&'static str, &'static str)], folder: Option<tempfile::TempDir>) -> Running {
    let environment = [&[("TOOLSIEVE_SELECTION__FOLD_DUPLICATES", "false")], environment].concat();
    callers::start(&environment, folder).await
}

/// The names and reasons of the selected tools.
async fn reasons(service: &Running, who: Who<'_>, chat: Option<&str>, message: &str) -> Vec<(String, String)> {
    let selected = select(service, who, chat, message).await;
    let tools = selected["tools"].as_array().unwrap().iter();
    tools.map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool["reason"].as_str().unwrap().to_owned())).collect()
}

/// Why a tool was selected, if it was.
async fn reason_for(service: &Running, who: Who<'_>, tool: &str) -> Option<String> {
    reasons(service, who, None, MESSAGE).await.into_iter().find(|(name, _)| name == tool).map(|(_, reason)| reason)
}

/// Calls a tool in a chat, whatever the server answers.
async fn call(service: &Running, who: Who<'_>, chat: Option<&str>, tool: &str) -> StatusCode {
    let mut request = who.request(service, &format!("/{}", tool.replace("__", "/")));
    if let Some(chat) = chat {
        request = request.header("X-OpenWebUI-Chat-Id", chat);
    }
    request.json(&json!({})).send().await.unwrap().status()
}

/// A chat that calls one tool after the other, without a message.
async fn chat(service: &Running, who: Who<'_>, chat: &str, tools: &[&str]) {
    for tool in tools {
        assert_eq!(call(service, who, Some(chat), tool).await, StatusCode::OK, "{tool}");
    }
}

/// Two chats, so that one tool follows the other.
async fn follow(service: &Running, who: Who<'_>) {
    for name in ["one", "two"] {
        chat(service, who, &format!("{}-{name}", who.user), &["right__echo", NEXT]).await;
    }
}

const ECHO: &str = "echo the arguments";

async fn next_after_echo(service: &Running, who: Who<'_>, chat: Option<&str>) -> Option<String> {
    let selected = reasons(service, who, chat, ECHO).await;
    selected.into_iter().find(|(name, _)| name == NEXT).map(|(_, reason)| reason).filter(|reason| reason.contains("called after"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_mostly_follows_is_offered_together() {
    let service = start(&[], None).await;
    let (anna, ben) = (user("anna"), user("ben"));
    assert_eq!(next_after_echo(&service, anna, None).await, None);
    chat(&service, anna, "anna-one", &["right__echo", NEXT]).await;
    assert_eq!(next_after_echo(&service, anna, None).await, None, "one chat is no habit");
    chat(&service, anna, "anna-two", &["right__echo", NEXT]).await;
    let expected = Some("called after right__echo in 2 chats".to_owned());
    assert_eq!(next_after_echo(&service, anna, None).await, expected);
    assert_eq!(next_after_echo(&service, anna, Some("new")).await, expected, "in a chat");
    assert_eq!(next_after_echo(&service, ben, None).await, None, "another user");
    // A limit holds for all.
    let body = json!({"messages": [{"role": "user", "content": ECHO}], "limit": 1});
    let limited: Value = anna.request(&service, "/v1/filter").json(&body).send().await.unwrap().json().await.unwrap();
    assert!(!limited.to_string().contains("called after"), "{limited}");

    // What the policy hides is not offered, and what it hides later neither.
    let rules = json!({"rules": [{"effect": "block", "tools": ["process"], "groups": ["guests"]}]});
    let (status, answer) = administer(&service, Method::PUT, "/v1/admin/policy", &rules).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let guest = Who { groups: "guests", ..anna };
    let hidden = reasons(&service, guest, None, ECHO).await;
    assert!(!hidden.iter().any(|(name, _)| name == NEXT), "{hidden:?}");
    assert_eq!(next_after_echo(&service, anna, None).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_a_call_of_the_chat_is_offered_next() {
    let service = start(&[], None).await;
    let anna = user("anna");
    for name in ["one", "two", "three"] {
        chat(&service, anna, name, &["right__echo", NEXT]).await;
    }
    // The last message is about something else, so the tool is offered only because it follows the call.
    let turns = json!([
        {"role": "user", "content": "say the arguments again"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "right__echo", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "{}"},
        {"role": "user", "content": "search the mailbox for the answer"},
    ]);
    let body = json!({"messages": turns, "chat_id": "new"});
    let selected: Value = anna.request(&service, "/v1/filter").json(&body).send().await.unwrap().json().await.unwrap();
    let next = selected["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == NEXT).unwrap_or_else(|| panic!("{selected}"));
    assert_eq!(next["reason"], "called after right__echo in 3 chats", "{selected}");
    let (status, explained) = {
        let body = json!({"messages": turns, "as": {"principal": "user:anna"}});
        administer(&service, Method::POST, "/v1/filter?explain=true", &body).await
    };
    assert_eq!(status, StatusCode::OK, "{explained}");
    let kept = explained["explain"]["kept"].as_array().unwrap();
    assert!(kept.iter().any(|kept| kept["name"] == NEXT && kept["reason"].as_str().unwrap().starts_with("called after")), "{explained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn others_must_agree_and_keys_never_meet() {
    let service = start(&[("TOOLSIEVE_LEARNING__ALL_PEOPLE", "3")], None).await;
    let (_, key) = create(&service, json!({"name": "bot"})).await;
    let bot = Who { key: &key, user: "", groups: "" };
    for person in ["a", "b", "c"] {
        assert_eq!(next_after_echo(&service, user("newcomer"), None).await, None, "before {person}");
        follow(&service, user(person)).await;
    }
    assert!(next_after_echo(&service, user("newcomer"), None).await.is_some());
    assert_eq!(next_after_echo(&service, bot, None).await, None, "another key");
}

#[tokio::test(flavor = "multi_thread")]
async fn chats_are_kept_over_a_restart_and_forgotten() {
    let service = start(&[], None).await;
    follow(&service, user("anna")).await;
    follow(&service, user("ben")).await;
    let service = start(&[], Some(service.stop().await)).await;
    let known = async |service: &Running| {
        [next_after_echo(service, user("anna"), None).await.is_some(), next_after_echo(service, user("ben"), None).await.is_some()]
    };
    assert_eq!(known(&service).await, [true, true]);
    let (code, _, errors) = command(&service, &["learn", "forget", "--principal", "user:anna"]);
    assert_eq!((code, known(&service).await), (Some(0), [false, true]), "{errors}");
    let service = start(&[], Some(service.stop().await)).await;
    assert_eq!(known(&service).await, [false, true], "nor does it come back");
    let (status, _) = administer(&service, Method::DELETE, &format!("/v1/admin/learning?tool={NEXT}"), &json!({})).await;
    assert_eq!((status, known(&service).await), (StatusCode::OK, [false, false]));
}

#[tokio::test(flavor = "multi_thread")]
async fn switched_off_no_chat_is_remembered() {
    let service = start(&[("TOOLSIEVE_LEARNING__MODE", "off"), ("TOOLSIEVE_LEARNING__EXPLORE", "1.0")], None).await;
    let before = reasons(&service, user("anna"), None, ECHO).await;
    follow(&service, user("anna")).await;
    assert_eq!(reasons(&service, user("anna"), None, ECHO).await, before);
    let (_, proposals) = administer(&service, Method::GET, "/v1/admin/learning/proposals", &json!({})).await;
    assert_eq!(proposals, json!({"toolsets": [], "pins": [], "loaded": [], "parameters": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn toolsets_and_pins_are_proposed() {
    let service = start(&[], None).await;
    for person in ["a", "b"] {
        follow(&service, user(person)).await;
    }
    for name in ["one", "two", "three"] {
        let body = json!({"group": "mail", "chat_id": name});
        let response = user("c").request(&service, "/v1/toolsets/enable").header("X-OpenWebUI-Chat-Id", name).json(&body);
        let response = response.send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert_eq!(status, StatusCode::OK, "{text}");
    }
    let proposed = async || administer(&service, Method::GET, "/v1/admin/learning/proposals", &json!({})).await.1;
    let proposals = proposed().await;
    assert_eq!(proposals["toolsets"], json!([{"tools": ["right__echo", NEXT], "chats": 4, "people": 2}]), "{proposals}");
    let pins: Vec<&Value> = proposals["pins"].as_array().unwrap().iter().map(|pin| &pin["name"]).collect();
    assert_eq!(pins, ["right__echo", NEXT], "{proposals}");
    assert_eq!(proposals["loaded"], json!([{"name": "mail", "chats": 3, "people": 1}]), "the name of what was loaded: {proposals}");
    let (code, text, errors) = command(&service, &["learn", "show", "--proposals"]);
    assert!(code == Some(0) && text.contains(&format!("right__echo, {NEXT}")) && text.contains("mail"), "{text} {errors}");

    // What is accepted is proposed no more.
    let toolset = json!({"tools": ["right__echo", NEXT]});
    let (status, made) = administer(&service, Method::PUT, "/v1/admin/toolsets/saying", &toolset).await;
    assert_eq!((status, &made["members"]), (StatusCode::CREATED, &json!(["right__echo", NEXT])), "{made}");
    let (status, pinned) = administer(&service, Method::PUT, "/v1/admin/tools/right/process", &json!({"pinned": true})).await;
    assert_eq!(status, StatusCode::OK, "{pinned}");
    let proposals = proposed().await;
    assert_eq!((&proposals["toolsets"], &proposals["pins"].as_array().unwrap().len()), (&json!([]), &1), "{proposals}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untried_tool_is_offered_now_and_then() {
    let service = start(&[("TOOLSIEVE_LEARNING__EXPLORE", "1.0")], None).await;
    let tried = async |who: Who<'_>, chat: &str| -> Vec<String> {
        let selected = reasons(&service, who, Some(chat), MESSAGE).await;
        selected.into_iter().filter(|(_, reason)| reason.contains("learning.explore")).map(|(name, _)| name).collect()
    };
    let anna = user("anna");
    let offered = tried(anna, "one").await;
    assert_eq!(offered.len(), 1, "{offered:?}");
    assert_eq!(tried(anna, "one").await, offered, "the same again");
    let never = start(&[("TOOLSIEVE_LEARNING__EXPLORE", "0.0")], None).await;
    assert!(!reasons(&never, anna, Some("one"), MESSAGE).await.iter().any(|(_, reason)| reason.contains("explore")));
    // About half of the chats.
    let half = start(&[("TOOLSIEVE_LEARNING__EXPLORE", "0.5")], None).await;
    let mut count = 0;
    for number in 0..40 {
        let selected = reasons(&half, anna, Some(&format!("c{number}")), MESSAGE).await;
        count += usize::from(selected.iter().any(|(_, reason)| reason.contains("explore")));
    }
    assert!((8..=32).contains(&count), "{count}");
}

#[tokio::test(flavor = "multi_thread")]
async fn among_equals_the_one_that_fails_less_comes_first() {
    let mut moved = 0;
    for failing in ["left", "right"] {
        let small = |name: &str| stdio(if name == failing { &["list=small", "failing"] } else { &["list=small"] });
        let servers = json!({"left": small("left"), "right": small("right"), "mail": stdio(&["list=mail"])});
        let service = start_on(servers, &[], None).await;
        let first = async |who: &str| found(&service, user(who), ECHO).await[0]["name"].as_str().unwrap().to_owned();
        let plain = first("anna").await;
        let other = if plain == "left__echo" { "right__echo" } else { "left__echo" };
        let expected = if plain.starts_with(failing) { other } else { plain.as_str() };
        moved += usize::from(expected == other);
        for _ in 0..4 {
            call(&service, user("anna"), None, &plain).await;
        }
        assert_eq!(first("anna").await, expected, "{failing}");
        let selected = reasons(&service, user("anna"), None, ECHO).await;
        assert!(selected.iter().any(|(name, _)| name == expected), "{selected:?}");
        assert_eq!(first("ben").await, plain, "one caller changes nothing for another");
        for person in ["carl", "dora"] {
            call(&service, user(person), None, &plain).await;
        }
        assert_eq!(first("ben").await, expected, "three people agree");
    }
    assert_eq!(moved, 1, "one of the two comes first without calls");
}

#[tokio::test(flavor = "multi_thread")]
async fn among_equals_the_faster_one_comes_first() {
    let mut moved = 0;
    for slow in ["left", "right"] {
        let small = |name: &str| stdio(if name == slow { &["list=small", "slow=400"] } else { &["list=small"] });
        let servers = json!({"left": small("left"), "right": small("right"), "mail": stdio(&["list=mail"])});
        let service = start_on(servers, &[], None).await;
        let first = async || found(&service, user("anna"), ECHO).await[0]["name"].as_str().unwrap().to_owned();
        let plain = first().await;
        for _ in 0..4 {
            for tool in ["left__echo", "right__echo"] {
                assert_eq!(call(&service, user("anna"), None, tool).await, StatusCode::OK);
            }
        }
        let fast = if slow == "left" { "right__echo" } else { "left__echo" };
        assert_eq!(first().await, fast, "{slow} is slow");
        moved += usize::from(plain != fast);
        assert!(reason_for(&service, user("anna"), FIRST).await.is_some());
    }
    assert_eq!(moved, 1, "one of the two comes first without calls");
}

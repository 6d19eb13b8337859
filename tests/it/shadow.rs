//! `selection.mode = "shadow"` and `selection.share`: who gets all tools, and what is recorded of it.

use std::collections::BTreeSet;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, KEY, administer, start_on};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, Start, languages, stdio};

fn servers() -> Value {
    json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])})
}

fn names(tools: &Value) -> BTreeSet<&str> {
    tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().or(tool.as_str()).unwrap()).collect()
}

async fn filter(service: &Running, body: &Value) -> Value {
    let (status, answer) = service.post("/v1/filter", body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

fn message(text: &str, chat: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}], "chat_id": chat})
}

async fn call(service: &Running, chat: &str, path: &str) {
    let request = service.request(Method::POST, path).header("X-OpenWebUI-Chat-Id", chat).json(&json!({}));
    request.send().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_changes_nothing_and_says_what_it_would_have_done() {
    let on = start_on(servers(), &[]).await;
    let shadow = start_on(servers(), &[("TOOLSIEVE_SELECTION__MODE", "shadow")]).await;
    let mut offered = names(&filter(&shadow, &message("hello", "first")).await["tools"]).len();
    for (text, chat) in
        [("what time is it in Tokyo", "a"), ("send an email to Anna", "a"), ("thanks!", "a"), ("read notes.txt. Then mail it to Anna", "b")]
    {
        let (expected, answer) = (filter(&on, &message(text, chat)).await, filter(&shadow, &message(text, chat)).await);
        assert!(expected.get("shadow").is_none());
        assert_eq!(names(&answer["shadow"]["tools"]), names(&expected["tools"]), "{text}");
        assert_eq!(answer["shadow"]["tokens_after"], expected["tokens"]["after"], "{text}");
        assert_eq!(answer["needs_tool"], true);
        let all = names(&answer["tools"]).len();
        assert!(all > names(&expected["tools"]).len() && all == std::mem::replace(&mut offered, all), "{text}: {answer}");
        assert_eq!(answer["tokens"]["after"], answer["tokens"]["before"], "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_the_tools_does_not_depend_on_the_message() {
    let service = start_on(servers(), &[("TOOLSIEVE_SELECTION__MODE", "shadow")]).await;
    let order = |answer: &Value| -> Vec<String> {
        answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let first = order(&filter(&service, &message("what time is it in Tokyo", "a")).await);
    let mut body = message("send an email to Anna", "a");
    let called = json!({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "files__read_file"}}]});
    body["messages"].as_array_mut().unwrap().insert(0, called);
    assert_eq!(order(&filter(&service, &body).await), first);
}

/// Tool ids, foreign functions and Open WebUI's own tools stay too.
#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_keeps_what_others_offer() {
    let service = start_on(servers(), &[("TOOLSIEVE_SELECTION__MODE", "shadow")]).await;
    let mut body = message("what time is it in Tokyo", "a");
    let foreign = json!({"type": "function", "function": {"name": "paint", "description": "Paints a picture", "parameters": {}}});
    let builtin = json!({"type": "function", "function": {"name": "search_notes", "description": "Searches notes", "parameters": {}}});
    body["tools"] = json!(["find_tools", "time__get_current_time", "mail__send_email", foreign, builtin]);
    body["narrow_foreign"] = json!(true);
    body["tool_ids"] = json!(["server:0", "server:1"]);
    body["connections"] = json!({"server:0": "/time", "server:1": "/mail"});
    let answer = filter(&service, &body).await;
    let kept = names(&answer["tools"]);
    for name in ["find_tools", "time__get_current_time", "mail__send_email", "paint", "search_notes"] {
        assert!(kept.contains(name), "{name}: {answer}");
    }
    assert_eq!(answer["tool_ids"], json!(["server:0", "server:1"]));
    let shadow = names(&answer["shadow"]["tools"]);
    assert!(shadow.contains("time__get_current_time"), "{answer}");
    assert!(!shadow.contains("mail__send_email") && !shadow.contains("search_notes"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_what_the_shadow_would_have_hidden_counts_as_recovered() {
    let service = start_on(servers(), &[("TOOLSIEVE_SELECTION__MODE", "shadow")]).await;
    let mut body = message("what time is it in Tokyo", "chat");
    body["limit"] = json!(1);
    let answer = filter(&service, &body).await;
    let shown = names(&answer["shadow"]["tools"]);
    let shown: Vec<&str> = shown.iter().filter_map(|name| name.strip_prefix("time__")).collect();
    let [shown] = shown[..] else { panic!("{answer}") };
    call(&service, "chat", &format!("/time/{shown}")).await;
    call(&service, "chat", "/mail/send_email").await;
    let usage = eventually("both calls", async || {
        let (_, usage) = administer(&service, Method::GET, "/v1/admin/usage", &json!({})).await;
        when(usage, |usage| usage["totals"]["called"] == 2)
    })
    .await;
    let totals = &usage["totals"];
    assert_eq!((&totals["recovered"], &totals["tokens_before"]), (&json!(1), &totals["tokens_after"]), "{usage}");
    let metrics = service.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    let line = |start: &str| metrics.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {metrics}"));
    assert!(line("toolsieve_selection_tokens_saved_total").ends_with(" 0"), "nothing was saved");
    assert!(line("toolsieve_selections_total{kind=\"shadow\"}").ends_with(" 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_of_the_users_gets_selections() {
    let service = start_on(servers(), &[("TOOLSIEVE_SELECTION__SHARE", "0.5"), ("TOOLSIEVE_ACCESS__TRUST_USERS", "true")]).await;
    let all = names(&filter(&service, &json!({"messages": [{"role": "user", "content": "hi"}], "limit": 128})).await["tools"]).len();
    let mut kinds = BTreeSet::new();
    for user in 0..16 {
        let is_static =
            |answer: &Value| answer["tools"].as_array().unwrap().iter().any(|tool| tool["reason"].as_str().unwrap().contains("static"));
        let mut of_user = BTreeSet::new();
        for chat in ["one", "two"] {
            let mut body = message("what time is it in Tokyo", &format!("{chat} of {user}"));
            body["user"] = json!({"id": format!("user {user}")});
            let answer = filter(&service, &body).await;
            assert!(!is_static(&answer) || names(&answer["tools"]).len() > all, "{answer}");
            of_user.insert(is_static(&answer));
        }
        assert_eq!(of_user.len(), 1, "a user stays in their part");
        kinds.extend(of_user);
    }
    assert_eq!(kinds.len(), 2);
}

/// A message in a chat, and the tool that its model then calls.
struct Replayed {
    body: Value,
    chat: String,
    server: String,
    tool: String,
}

/// A thousand messages in 22 languages, in chats of four.
fn replayed() -> Vec<Replayed> {
    let all = languages::messages();
    let needing: Vec<_> = all.iter().filter_map(|said| Some((said, said.needs.as_ref()?))).collect();
    let mut replayed = Vec::new();
    let step = needing.len() / 1_000;
    for (number, chat) in needing.iter().step_by(step).take(1_000).collect::<Vec<_>>().chunks(4).enumerate() {
        let mut messages = Vec::new();
        for &&(said, (server, tool)) in chat {
            messages.push(json!({"role": "user", "content": said.text}));
            let chat = format!("chat {number}");
            let body = json!({"messages": messages, "chat_id": chat});
            replayed.push(Replayed { body, chat, server: server.clone(), tool: tool.clone() });
            messages.push(json!({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": format!("{server}__{tool}")}}]}));
            messages.push(json!({"role": "tool", "content": "done"}));
        }
    }
    replayed
}

/// The overview of the console.
async fn overview(service: &Running) -> String {
    let form = service.client.post(format!("{}/ui/login", service.url)).header("content-type", "application/x-www-form-urlencoded");
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let signed_in = client.execute(form.body(format!("key={ADMIN}")).build().unwrap()).await.unwrap();
    let cookie = signed_in.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let page = client.get(format!("{}/ui", service.url)).header("cookie", cookie);
    page.send().await.unwrap().text().await.unwrap()
}

/// What shadow mode reports as hidden is what a selection hides.
#[tokio::test(flavor = "multi_thread")]
async fn the_share_of_missed_calls_is_the_one_that_a_selection_would_have() {
    let listed = languages::servers();
    let replayed = replayed();
    assert_eq!(replayed.len(), 1_000);
    let start = async |mode: &'static str, folder| {
        let environment =
            vec![("TOOLSIEVE_ADMIN_KEY", ADMIN), ("TOOLSIEVE_SELECTION__MODE", mode), ("TOOLSIEVE_LEARNING__MESSAGE_TEXT", "true")];
        let service = Start { servers: listed.servers.clone(), key: Some(KEY), environment, folder, ..Start::default() }.start().await;
        service.settled().await;
        service
    };
    let service = start("shadow", None).await;
    let mut in_shadow = Vec::new();
    for Replayed { body, chat, server, tool } in &replayed {
        let answer = filter(&service, body).await;
        in_shadow.push(names(&answer["shadow"]["tools"]).contains(format!("{server}__{tool}").as_str()));
        call(&service, chat, &format!("/{server}/{tool}")).await;
    }
    let usage = eventually("all calls are counted", async || {
        let (_, usage) = administer(&service, Method::GET, "/v1/admin/usage", &json!({})).await;
        when(usage, |usage| usage["totals"]["called"] == 1_000 && usage["totals"]["selections"] == 1_000)
    })
    .await;
    let reported = usage["totals"]["recovered"].as_f64().unwrap() / 1_000.0;
    let page = overview(&service).await;
    let shown = format!("{} / 1\u{202f}000 ({:.1} %)", usage["totals"]["recovered"], 100.0 * reported);
    assert!(page.contains(&shown), "{shown}: {page}");
    assert_eq!(page.matches("/ui/playground?message=").count(), 10, "the worst ten, each with its explanation: {page}");
    // The page groups digits by narrow spaces.
    let all = page.split("Tokens that would have been saved</dt><dd>").nth(1).unwrap().split(" / ").nth(1).unwrap();
    let all: String = all.split(" (").next().unwrap().chars().filter(char::is_ascii_digit).collect();
    let (all, recorded) = (all.parse::<u64>().unwrap(), usage["totals"]["tokens_before"].as_u64().unwrap());
    assert!(all.abs_diff(recorded) <= 1, "{all} on the page, {recorded} recorded");

    // The same chats, in which every call succeeds nevertheless: what the filter hides is the truth.
    let service = start("on", Some(service.stop().await)).await;
    let (mut is_sent, mut before, mut after) = (Vec::new(), 0, 0);
    for Replayed { body, server, tool, .. } in &replayed {
        let mut body = body.clone();
        // The service remembers the chats of the first run.
        body["chat_id"] = json!(format!("{} again", body["chat_id"].as_str().unwrap()));
        let answer = filter(&service, &body).await;
        assert!(answer.get("shadow").is_none());
        before += answer["tokens"]["before"].as_u64().unwrap();
        after += answer["tokens"]["after"].as_u64().unwrap();
        is_sent.push(answer["tools"].as_array().unwrap().iter().any(|sent| sent["server"] == *server && sent["tool"] == *tool));
    }
    let saved: f64 = page
        .split("Tokens that would have been saved</dt><dd>")
        .nth(1)
        .unwrap()
        .split('<')
        .next()
        .unwrap()
        .split(" (")
        .nth(1)
        .unwrap()
        .trim_end_matches(" %)")
        .parse()
        .unwrap();
    assert!((saved - 100.0 * (1.0 - after as f64 / before as f64)).abs() <= 2.0, "{saved} %, in truth {after} of {before}");
    let truth = is_sent.iter().filter(|sent| !**sent).count() as f64 / 1_000.0;
    let differ = is_sent.iter().zip(&in_shadow).filter(|(sent, shown)| sent != shown).count();
    println!("missed in shadow mode: {reported}, by a selection: {truth}; {differ} messages differ");
    assert!((0.01..0.5).contains(&truth), "{truth} says nothing");
    assert!((reported - truth).abs() <= 0.01, "reported {reported}, in truth {truth}");
    assert!(differ <= 10, "{differ} messages differ");
}

/// Strictness moves the gate and the cut, each step a little, and an explanation contains it.
#[tokio::test(flavor = "multi_thread")]
async fn strictness_trades_tools_for_tokens() {
    let service = start_on(servers(), &[("TOOLSIEVE_SELECTION__STRICTNESS", "1")]).await;
    let mut sent = Vec::new();
    let mut margins = Vec::new();
    for strictness in [-2.0, 0.0, 2.0] {
        let mut body = json!({"messages": [{"role": "user", "content": "what time is it in Tokyo, and is there mail from Anna"}]});
        body["settings"] = json!({"strictness": strictness});
        let (status, answer) = administer(&service, Method::POST, "/v1/filter?explain=true", &body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        sent.push(answer["explain"]["candidates"].as_array().unwrap().iter().filter(|candidate| candidate["sent"] == true).count());
        let gate = &answer["explain"]["gate"];
        let signals = gate["signals"].as_array().unwrap();
        let shift = signals.iter().find(|signal| signal["name"] == "strictness").unwrap();
        assert_eq!(shift["value"], strictness, "{gate}");
        margins.push(gate["margin"].as_f64().unwrap());
    }
    assert!(sent[0] >= sent[1] && sent[1] >= sent[2] && sent[0] > sent[2], "{sent:?}");
    assert!((margins[0] - margins[2] - 4.0).abs() < 1e-3, "{margins:?}");
    let mut body = json!({"messages": [{"role": "user", "content": "what time is it in Tokyo"}], "settings": {"strictness": 3}});
    let (status, answer) = administer(&service, Method::POST, "/v1/filter?explain=true", &body).await;
    assert_eq!((status, &answer["parameter"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("settings.strictness")), "{answer}");
    body["settings"] = json!({});
    let (_, answer) = administer(&service, Method::POST, "/v1/filter?explain=true", &body).await;
    let signals = answer["explain"]["gate"]["signals"].as_array().unwrap();
    assert!(signals.iter().any(|signal| signal["name"] == "strictness" && signal["value"] == 1.0), "{answer}");
}

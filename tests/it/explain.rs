//! `POST /v1/filter?explain=true`: the figures that decided, for administrators only.

use std::collections::BTreeSet;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::keys::{ADMIN, KEY, administer, start_on, with_key};
use crate::harness::wait::{eventually, when};
use crate::harness::{Running, stdio};

fn servers() -> Value {
    json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])})
}

async fn service() -> Running {
    start_on(servers(), &[]).await
}

fn request(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

async fn plain(service: &Running, body: &Value) -> Value {
    let (status, answer) = administer(service, Method::POST, "/v1/filter", body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

async fn explained(service: &Running, body: &Value) -> Value {
    let (status, answer) = administer(service, Method::POST, "/v1/filter?explain=true", body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

fn candidates(answer: &Value) -> &[Value] {
    answer["explain"]["candidates"].as_array().unwrap()
}

fn cuts(answer: &Value) -> BTreeSet<&str> {
    candidates(answer).iter().filter_map(|candidate| candidate["cut"].as_str()).collect()
}

/// Checks an explanation against the answer to the same request without one.
fn assert_explains(answer: &Value, plain: &Value, text: &str) {
    assert_eq!((&answer["tools"], &answer["tokens"]), (&plain["tools"], &plain["tokens"]), "{text}");
    let explain = &answer["explain"];
    let parts = explain["parts"].as_array().unwrap();
    let gate = &explain["gate"];
    assert_eq!(gate["needs_tool"], plain["needs_tool"], "{text}: {gate}");
    let signals = gate["signals"].as_array().unwrap();
    let is_weighed = ["head", "turn_head", "examples", "words"].contains(&gate["by"].as_str().unwrap());
    assert_eq!(!signals.is_empty(), is_weighed, "{text}: {gate}");
    if is_weighed {
        let sum: f64 = signals.iter().map(|signal| number(&signal["value"]) * number(&signal["weight"])).sum();
        assert!((sum - number(&gate["margin"])).abs() < 1e-3, "{text}: {sum} in {gate}");
    }
    if ["head", "turn_head"].contains(&gate["by"].as_str().unwrap()) {
        assert_eq!(number(&gate["margin"]) >= 0.0, gate["needs_tool"] == true, "{text}: {gate}");
    }
    for (rank, candidate) in (1..).zip(candidates(answer)) {
        assert_eq!(candidate["rank"], rank, "{text}");
        assert_eq!(candidate["cosines"].as_array().unwrap().len(), parts.len(), "{text}: {candidate}");
        let sent = plain["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == candidate["name"]);
        assert_eq!(candidate["sent"], sent.is_some(), "{text}: {candidate}");
        match sent {
            Some(sent) => {
                assert_eq!(candidate["cut"], Value::Null, "{text}: {candidate}");
                assert_eq!(sent["score"], candidate["score"], "{text}: {candidate}");
            }
            None => assert!(candidate["cut"].is_string(), "{text}: {candidate}"),
        }
    }
    let fused: Vec<f64> = candidates(answer).iter().map(|candidate| number(&candidate["fused"])).collect();
    assert!(fused.is_sorted_by(|one, other| one >= other), "{text}: {fused:?}");
}

/// Each of many messages gets the same selection with an explanation as without one, and the figures of the explanation fit to it.
#[tokio::test(flavor = "multi_thread")]
async fn explanations_have_the_figures_of_the_selections() {
    let service = service().await;
    let verbs = ["show", "find", "send", "delete", "what is", "write a poem about", "explain", "thanks for"];
    let things = ["the time in Tokyo", "an email to Anna", "notes.txt", "the folder with photos", "love", "my inbox and the clock in Lima"];
    let ends = ["", ", then read report.pdf", ". And how late is it in Paris?", " bitte", " 🙂", ". It is urgent! Reply to Berta"];
    let mut kinds = BTreeSet::new();
    for (at, verb) in verbs.iter().enumerate() {
        for thing in things {
            for end in ends {
                let text = format!("{verb} {thing}{end}");
                let mut body = request(&text);
                // Every fourth message follows a turn with a question.
                if at % 4 == 3 {
                    let earlier = [
                        json!({"role": "user", "content": "send an email"}),
                        json!({"role": "assistant", "content": "To whom should I send it?"}),
                    ];
                    earlier.into_iter().rev().for_each(|turn| body["messages"].as_array_mut().unwrap().insert(0, turn));
                }
                let plain = plain(&service, &body).await;
                assert!(plain.get("explain").is_none());
                let answer = explained(&service, &body).await;
                assert_explains(&answer, &plain, &text);
                kinds.insert(format!("{} {}", answer["explain"]["gate"]["by"], answer["needs_tool"]));
            }
        }
    }
    assert!(kinds.len() >= 2, "{kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_cut_has_its_reason() {
    let twins = json!({"time": stdio(&["list=time"]), "clock": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])});
    let service = start_on(twins, &[]).await;
    let tried = |text: &str, settings: Value| {
        let mut body = request(text);
        body["settings"] = settings;
        body
    };
    let answer = explained(&service, &request("thanks!")).await;
    assert_eq!((&answer["explain"]["gate"]["by"], cuts(&answer)), (&json!("courtesy"), BTreeSet::from(["gate"])), "{answer}");
    let many = "send an email to Anna. Read notes.txt. What time is it in Tokyo?";
    for (text, settings, reason) in [
        (many, json!({"limit": 1}), "limit"),
        (many, json!({"per_server": 1}), "per_server"),
        (many, json!({"token_budget": 1}), "budget"),
        (many, json!({}), "duplicate"),
        ("what time is it in Tokyo?", json!({}), "fall_off"),
    ] {
        let answer = explained(&service, &tried(text, settings)).await;
        assert!(cuts(&answer).contains(reason), "{reason}: {:?}", cuts(&answer));
    }
    let answer = explained(&service, &tried("thanks!", json!({"gate": false}))).await;
    assert_eq!(answer["explain"]["gate"]["by"], "off");
    assert!(!cuts(&answer).contains("gate") && candidates(&answer).iter().any(|candidate| candidate["sent"] == true), "{answer}");
    let folded = explained(&service, &tried(many, json!({"fold_duplicates": false}))).await;
    assert!(!cuts(&folded).contains("duplicate"), "{folded}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_that_stays_whole_is_explained_too() {
    let service = service().await;
    let mut body = request("what time is it in Tokyo");
    body["settings"] = json!({"narrow_above_tokens": 100_000});
    let answer = explained(&service, &body).await;
    assert!(candidates(&answer).iter().all(|candidate| candidate["sent"] == true && candidate["cut"].is_null()), "{answer}");
    assert!(answer["explain"]["kept"].as_array().unwrap().iter().any(|kept| kept["reason"].as_str().unwrap().contains("small")));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_administrators_get_explanations() {
    let service = service().await;
    let post = with_key(&service, Method::POST, "/v1/filter?explain=true", KEY).json(&request("what time is it"));
    let response = post.send().await.unwrap();
    let status = response.status();
    let answer: Value = response.json().await.unwrap();
    assert_eq!((status, &answer["code"]), (StatusCode::FORBIDDEN, &json!("admin_needed")), "{answer}");
    let post = with_key(&service, Method::POST, "/v1/filter?explain=yes", ADMIN).json(&request("what time is it"));
    assert_eq!(post.send().await.unwrap().status(), StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_is_made_as_for_another_caller() {
    let service = service().await;
    let rules = json!({"rules": [{"effect": "block", "servers": ["mail"], "groups": ["interns"]}]});
    let (status, answer) = administer(&service, Method::PUT, "/v1/admin/policy", &rules).await;
    assert!(status.is_success(), "{answer}");
    let of_mail = |answer: &Value| candidates(answer).iter().filter(|candidate| candidate["server"] == "mail").count();
    let mut body = request("send an email to Anna");
    assert!(of_mail(&explained(&service, &body).await) > 0);
    for (groups, sees) in [(json!([]), true), (json!(["interns"]), false)] {
        body["as"] = json!({"principal": "user:7", "email": "seven@example.org", "groups": groups});
        let answer = explained(&service, &body).await;
        assert_eq!(of_mail(&answer) > 0, sees, "{answer}");
        assert_eq!(answer.to_string().contains("mail__send_email"), sees, "a blocked tool is as absent: {answer}");
    }
    body["as"] = json!({"principal": "key:nobody"});
    let (status, answer) = administer(&service, Method::POST, "/v1/filter?explain=true", &body).await;
    assert!(status.is_client_error() && answer["detail"].as_str().unwrap().contains("key:nobody"), "{answer}");
}

/// The model of `as` decides, and otherwise that of the request.
#[tokio::test(flavor = "multi_thread")]
async fn the_model_of_the_other_caller_decides() {
    let service = service().await;
    let rules = json!({"rules": [{"effect": "block", "servers": ["mail"], "models": ["tiny"]}]});
    let (status, answer) = administer(&service, Method::PUT, "/v1/admin/policy", &rules).await;
    assert!(status.is_success(), "{answer}");
    let mut body = request("send an email to Anna");
    for (model, of_caller, sees) in [("tiny", "large", true), ("large", "tiny", false)] {
        body["model"] = json!(model);
        body["as"] = json!({"principal": "service-key", "model": of_caller});
        let answer = explained(&service, &body).await;
        assert_eq!(answer.to_string().contains("mail__send_email"), sees, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_leaves_no_trace() {
    let service = start_on(servers(), &[("TOOLSIEVE_LIMITS__SELECTIONS_PER_MINUTE", "3"), ("TOOLSIEVE_ACCESS__TRUST_USERS", "true")]).await;
    let user = json!({"id": "7", "email": "seven@example.org"});
    let mut body = request("send an email to Anna");
    body["chat_id"] = json!("chat");
    let mut asked = body.clone();
    asked["as"] = json!({"principal": "user:7", "email": "seven@example.org"});
    let names = ["find_tools", "mail__send_email", "time__get_current_time"];
    let offer = hash(&names);
    asked["tools"] = json!(names);
    asked["offer"] = json!(offer);
    for _ in 0..3 {
        let answer = explained(&service, &asked).await;
        assert!(answer.get("offer").is_none(), "{answer}");
    }
    // The chat has no tools yet, the user's quota is untouched, and the offer is unknown.
    let mut time = request("what time is it in Tokyo");
    time["chat_id"] = json!("chat");
    time["user"] = user;
    let (status, first) = service.post("/v1/filter", &time).await;
    assert_eq!(status, StatusCode::OK, "{first}");
    assert!(!first.to_string().contains("offered earlier"), "{first}");
    time["offer"] = json!(offer);
    let (status, answer) = service.post("/v1/filter", &time).await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    let usage = eventually("the only selection", async || {
        let (_, usage) = administer(&service, Method::GET, "/v1/admin/usage", &json!({})).await;
        when(usage, |usage| usage["totals"]["selections"].as_u64() > Some(0))
    })
    .await;
    assert_eq!(usage["totals"]["selections"], 1, "{usage}");
}

fn hash(names: &[&str]) -> String {
    let digest = Sha256::digest(names.join("\n"));
    digest.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_setting_or_a_wrong_value_is_an_error() {
    let service = service().await;
    for (settings, parameter) in [
        (json!({"limit": 0}), "settings.limit"),
        (json!({"dense_weight": 2.0}), "settings.dense_weight"),
        (json!({"rerank": "often"}), "settings.rerank"),
    ] {
        let mut body = request("what time is it");
        body["settings"] = settings;
        let (status, answer) = administer(&service, Method::POST, "/v1/filter?explain=true", &body).await;
        assert_eq!((status, &answer["parameter"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!(parameter)), "{answer}");
    }
    let mut body = request("what time is it");
    body["settings"] = json!({"limits": 3});
    let (status, answer) = administer(&service, Method::POST, "/v1/filter?explain=true", &body).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
}

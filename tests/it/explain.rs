//! `POST /v1/filter?explain=true`: the figures that decided, for administrators only.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Running, stdio};

async fn service() -> Running {
    Running::on(json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])})).await
}

fn request(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

async fn explained(service: &Running, body: &Value) -> Value {
    let (status, answer) = service.post("/v1/filter?explain=true", body).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_has_the_figures_of_the_selection() {
    let service = service().await;
    for text in ["what time is it in Tokyo", "send an email to Anna. Then read the file notes.txt", "Wie viel Uhr ist es in Tokio?", "thanks!"] {
        let (_, plain) = service.post("/v1/filter", &request(text)).await;
        assert!(plain.get("explain").is_none());
        let answer = explained(&service, &request(text)).await;
        assert_eq!(answer["tools"], plain["tools"], "{text}");
        let explain = &answer["explain"];
        assert_eq!(explain["parts"][0], text);
        let gate = &explain["gate"];
        assert_eq!(gate["needs_tool"], answer["needs_tool"], "{text}");
        let signals = gate["signals"].as_array().unwrap();
        if !signals.is_empty() {
            let sum: f64 = signals.iter().map(|signal| number(&signal["value"]) * number(&signal["weight"])).sum();
            assert!((sum - number(&gate["margin"])).abs() < 0.01, "{gate}");
        }
        let candidates = explain["candidates"].as_array().unwrap();
        for (rank, candidate) in (1..).zip(candidates) {
            assert_eq!(candidate["rank"], rank);
            let sent = plain["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == candidate["name"]);
            assert_eq!(candidate["sent"], sent.is_some(), "{candidate}");
            assert_eq!(candidate["cosines"].as_array().unwrap().len(), explain["parts"].as_array().unwrap().len());
            match sent {
                Some(sent) => {
                    assert_eq!(candidate["cut"], Value::Null);
                    assert_eq!(sent["score"], candidate["score"], "{candidate}");
                }
                None => assert!(candidate["cut"].is_string(), "{candidate}"),
            }
        }
        let scores: Vec<f64> = candidates.iter().map(|candidate| number(&candidate["fused"])).collect();
        assert!(scores.is_sorted_by(|one, other| one >= other), "{scores:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_cut_has_its_reason() {
    let service = service().await;
    let cuts = |answer: &Value| -> Vec<String> {
        let candidates = answer["explain"]["candidates"].as_array().unwrap().iter();
        candidates.filter_map(|candidate| candidate["cut"].as_str().map(str::to_owned)).collect()
    };
    let tried = |text: &str, settings: Value| {
        let mut body = request(text);
        body["settings"] = settings;
        body
    };
    let answer = explained(&service, &request("thanks!")).await;
    assert!(cuts(&answer).iter().all(|cut| cut == "gate"));
    let many = "send an email to Anna. Read notes.txt. What time is it in Tokyo?";
    for (settings, reason) in [
        (json!({"limit": 1}), "limit"),
        (json!({"per_server": 1}), "per_server"),
        (json!({"token_budget": 1}), "budget"),
    ] {
        let answer = explained(&service, &tried(many, settings)).await;
        assert!(cuts(&answer).iter().any(|cut| cut == reason), "{reason}: {:?}", cuts(&answer));
    }
    let answer = explained(&service, &tried("thanks!", json!({"gate": false}))).await;
    assert_eq!(answer["explain"]["gate"]["by"], "off");
    assert!(!cuts(&answer).iter().any(|cut| cut == "gate"));
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
        let (status, answer) = service.post("/v1/filter?explain=true", &body).await;
        assert_eq!((status, &answer["parameter"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!(parameter)), "{answer}");
    }
    let mut body = request("what time is it");
    body["settings"] = json!({"limits": 3});
    let (status, answer) = service.post("/v1/filter?explain=true", &body).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
}

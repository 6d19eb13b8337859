//! `POST /v1/filter` with the hash of the names on offer in their place.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::keys::{KEY, create, start_on, with_key};
use crate::harness::{Running, stdio};

const OFFERED: [&str; 5] = ["time__get_current_time", "mail__send_email", "files__write_file", "find_tools", "their_function"];

fn servers() -> Value {
    json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])})
}

fn hash(names: &[&str]) -> String {
    let digest = Sha256::digest(names.join("\n"));
    digest.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn question(more: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "send an email to Anna"}], "limit": 1});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn asked(service: &Running, more: Value) -> (StatusCode, Value) {
    service.post("/v1/filter", &question(&more)).await
}

fn names(answer: &Value) -> Vec<&str> {
    answer["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// The names of 2,000 tools went along with every model call.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_were_sent_once_need_not_be_sent_again() {
    let service = Running::on(servers()).await;
    let offer = hash(&OFFERED);
    let (_, without) = asked(&service, json!({"tools": OFFERED})).await;
    assert!(without.get("offer").is_none(), "who sends no hash is told of none: {without}");

    let (status, problem) = asked(&service, json!({"offer": offer})).await;
    assert_eq!((status, problem["code"].as_str()), (StatusCode::CONFLICT, Some("offer_unknown")));
    assert!(problem["detail"].as_str().unwrap().contains("tools"), "it says what to do: {problem}");

    let (_, both) = asked(&service, json!({"offer": offer, "tools": OFFERED})).await;
    let (status, alone) = asked(&service, json!({"offer": offer})).await;
    assert_eq!(status, StatusCode::OK, "{alone}");
    assert_eq!(names(&alone), ["find_tools", "mail__send_email", "their_function"]);
    for answer in [&both, &alone] {
        assert_eq!(names(answer), names(&without));
        assert_eq!(answer["tokens"], without["tokens"]);
        assert_eq!(answer["offer"], json!(offer));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_go_along_with_an_offer() {
    let service = Running::on(servers()).await;
    let definitions = json!([
        {"name": "post_letter", "description": "Send an email or a letter to a person"},
        {"name": "water_plants", "description": "Switch on the garden irrigation"},
    ]);
    let mut tools: Vec<Value> = OFFERED.iter().map(|name| json!(name)).collect();
    tools.extend(definitions.as_array().unwrap().clone());
    let offer = hash(&OFFERED);
    let judged = |more: Value| {
        let mut more = more;
        more["narrow_foreign"] = json!(true);
        more["limit"] = json!(2);
        more
    };
    let (_, both) = asked(&service, judged(json!({"offer": offer, "tools": tools}))).await;
    let (_, again) = asked(&service, judged(json!({"offer": offer, "tools": definitions}))).await;
    assert_eq!(names(&again), names(&both), "the hash stands for the names alone");
    assert!(names(&again).contains(&"post_letter") && !names(&again).contains(&"water_plants"), "{again}");
    let (_, alone) = asked(&service, judged(json!({"offer": offer}))).await;
    assert!(!names(&alone).contains(&"post_letter"), "{alone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_hash_is_refused_and_nothing_is_remembered() {
    let service = Running::on(servers()).await;
    let mut reversed = OFFERED;
    reversed.reverse();
    let wrong = hash(&reversed);
    for offer in [wrong.as_str(), "sha256:", "md5:abc", ""] {
        let (status, problem) = asked(&service, json!({"offer": offer, "tools": OFFERED})).await;
        assert_eq!((status, problem["code"].as_str()), (StatusCode::UNPROCESSABLE_ENTITY, Some("invalid_request")), "{offer}");
    }
    assert_eq!(asked(&service, json!({"offer": wrong})).await.0, StatusCode::CONFLICT);
}

/// What one caller offers says which functions there are for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_offer_belongs_to_its_key_and_not_to_its_user() {
    let service = start_on(servers(), &[]).await;
    let (_, key) = create(&service, json!({"name": "webui", "trusted": true})).await;
    let status = async |key: &str, more: Value| {
        let sent = with_key(&service, Method::POST, "/v1/filter", key).json(&question(&more)).send().await;
        sent.unwrap().status()
    };
    let offer = hash(&OFFERED);
    let anna = json!({"id": "anna", "role": "user"});
    assert_eq!(status(&key, json!({"offer": offer, "tools": OFFERED, "user": anna})).await, StatusCode::OK);
    assert_eq!(status(&key, json!({"offer": offer, "user": {"id": "berta", "role": "user"}})).await, StatusCode::OK);
    assert_eq!(status(KEY, json!({"offer": offer})).await, StatusCode::CONFLICT);
}

//! Messages and searches in any script, in mixed directions, and with text that no person types: always an answer.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Running, stdio};

const SCRIPTS: &str = include_str!("../cases/encoder/scripts.txt");
/// As long as a pasted book.
const LONG: usize = 200_000;

fn texts() -> Vec<String> {
    let repeated = |part: &str| part.repeat(LONG / part.len());
    let mut texts: Vec<String> = SCRIPTS.lines().map(str::to_owned).collect();
    texts.push(SCRIPTS.lines().collect());
    texts.push("שלח את הקובץ report.pdf إلى أحمد and \u{202e}lmth.xedni\u{202c} 给 Anna".to_owned());
    texts.extend(
        ["a", "ก", "語", "한", "e\u{301}", "\u{301}", "\u{200d}\u{fe0f}", "👩‍👩‍👧‍👦", "\u{fdfa}", "send mail ", "\u{0}", "\u{e0041}"]
            .map(repeated),
    );
    texts.push(format!("a{}", "\u{301}\u{327}\u{20dd}".repeat(LONG / 8)));
    texts
}

#[tokio::test(flavor = "multi_thread")]
async fn every_text_is_answered() {
    let service = Running::on(json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"])})).await;
    for text in texts() {
        let started = Instant::now();
        let shown: String = text.chars().take(20).collect();
        for (path, body) in [
            ("/v1/filter", json!({"messages": [{"role": "user", "content": text}]})),
            ("/v1/tools/search", json!({"queries": [text.chars().take(2_000).collect::<String>()]})),
        ] {
            let (status, answer) = service.post(path, &body).await;
            assert_eq!(status, StatusCode::OK, "{path} {shown:?}: {answer}");
        }
        // A hang is an error, too. The limit is far above what a busy machine needs.
        assert!(started.elapsed() < Duration::from_secs(20), "{shown:?}: {:?}", started.elapsed());
    }
}

/// Open WebUI stores messages as JSON with escapes, so half a surrogate pair can get there.
#[tokio::test(flavor = "multi_thread")]
async fn half_a_surrogate_pair_is_answered() {
    let service = Running::on(json!({"time": stdio(&["list=time"])})).await;
    for text in [r"\ud83d what time is it in Tokyo", r"what time is it \udc00\udc00", r"\ud83d\ud83d\ude00 time in Tokyo?"] {
        for (path, body) in [
            ("/v1/filter", format!(r#"{{"messages": [{{"role": "user", "content": "{text}"}}]}}"#)),
            ("/v1/tools/search", format!(r#"{{"queries": ["{text}"]}}"#)),
        ] {
            let request = service.request(Method::POST, path).header("content-type", "application/json");
            let answer = request.body(body).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK, "{path} {text}");
            let answer: Value = answer.json().await.unwrap();
            let found = answer["tools"].as_array().unwrap().iter().any(|tool| tool["tool"] == "get_current_time");
            assert!(found, "{path} {text}: {answer}");
        }
    }
}

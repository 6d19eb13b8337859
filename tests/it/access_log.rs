//! The access log, of the real binary.

use reqwest::StatusCode;
use serde_json::json;

use crate::harness::process::Service;
use crate::harness::stdio;

#[tokio::test(flavor = "multi_thread")]
async fn the_id_in_a_refusal_is_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), &json!({"test": stdio(&[])}), |_| {});
    let answer = reqwest::Client::new().post(format!("{}/v1/nothing-secret", service.url)).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    let id = answer.headers()["x-request-id"].to_str().unwrap().to_owned();
    let log = service.until_logged(&id);
    let line = log.lines().find(|line| line.contains(&id)).unwrap();
    assert!(line.contains("status=404") && line.contains("method=POST") && line.contains("took_ms="), "{line}");
    assert!(!log.contains("nothing-secret"), "paths are callers' words: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_refusals_is_no_flood_of_lines() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), &json!({"test": stdio(&[])}), |_| {});
    let client = reqwest::Client::new();
    for _ in 0..600 {
        let answer = client.post(format!("{}/v1/nothing", service.url)).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    }
    let lines = service.log().lines().filter(|line| line.contains("status=404")).count();
    assert!((100..400).contains(&lines), "{lines} lines of 600 refusals");
}

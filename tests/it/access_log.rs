//! The access log, of the real binary.

use reqwest::StatusCode;
use serde_json::{Value, json};

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

/// The service with a key and these settings.
fn with(environment: &[(&str, &str)], folder: &std::path::Path) -> Service {
    Service::start(folder, &json!({"one": stdio(&[])}), |command| {
        command.env("TOOLSIEVE_API_KEY", "the-service-key").envs(environment.iter().copied());
    })
}

/// Sends a request with secrets in its query string and its body, and returns its id.
async fn asked(service: &Service, path: &str) -> String {
    let request = reqwest::Client::new().post(format!("{}{path}?token=query-secret", service.url)).bearer_auth("the-service-key");
    let request = request.header("x-forwarded-for", "198.51.100.1, 203.0.113.7").json(&json!({"queries": ["body-secret"]}));
    request.send().await.unwrap().headers()["x-request-id"].to_str().unwrap().to_owned()
}

fn line(service: &Service, id: &str) -> String {
    service.until_logged(&format!("{id}\"")).lines().find(|line| line.contains(id)).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_has_a_line_with_who_it_was_and_nothing_that_it_said() {
    let folder = tempfile::tempdir().unwrap();
    let service = with(&[("TOOLSIEVE_LOGGING__ACCESS", "all"), ("TOOLSIEVE_HTTP__TRUSTED_PROXIES", "127.0.0.1")], folder.path());
    let good = line(&service, &asked(&service, "/v1/tools/search").await);
    for part in ["method=POST", "status=200", "route=\"/v1/tools/search\"", "client=203.0.113.7", "principal=\"service-key\"", "took_ms="] {
        assert!(good.contains(part), "{part}: {good}");
    }
    let unknown = line(&service, &asked(&service, "/v1/nothing-secret").await);
    for part in ["status=404", "code=\"not_found\"", "client=203.0.113.7", "principal=\"service-key\""] {
        assert!(unknown.contains(part), "{part}: {unknown}");
    }
    let refused = reqwest::Client::new().post(format!("{}/v1/filter", service.url)).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let refused = line(&service, refused.headers()["x-request-id"].to_str().unwrap());
    assert!(refused.contains("code=\"unauthorized\"") && !refused.contains("principal="), "{refused}");
    let log = service.log();
    assert!(!log.contains("-secret"), "paths, query strings and bodies are callers' words: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_caller_gives_up_is_logged_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let service = with(&[], folder.path());
    let post = |path: &str| reqwest::Client::new().post(format!("{}{path}", service.url)).bearer_auth("the-service-key").body("{}");
    let call = tokio::spawn(post("/one/sleep").send());
    assert_eq!(post("/one/wait_sleeping").send().await.unwrap().status(), StatusCode::OK);
    call.abort();
    let log = service.until_logged("status=499");
    let line = log.lines().find(|line| line.contains("status=499")).unwrap();
    for part in ["method=POST", "route=\"/{server}/{tool:.+}\"", "code=\"cancelled\"", "client=127.0.0.1", "principal=\"service-key\""] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let metrics = reqwest::Client::new().get(format!("{}/metrics", service.url)).bearer_auth("the-service-key").send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let counted = "toolsieve_http_requests_total{route=\"/{server}/{tool:.+}\",method=\"POST\",status=\"4xx\"} 1";
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_objects_in_json_and_headers_of_unknown_proxies_are_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let settings =
        [("TOOLSIEVE_LOGGING__ACCESS", "all"), ("TOOLSIEVE_LOGGING__FORMAT", "json"), ("TOOLSIEVE_HTTP__TRUSTED_PROXIES", "10.0.0.0/8")];
    let service = with(&settings, folder.path());
    let id = asked(&service, "/v1/nothing-secret").await;
    let line: Value = serde_json::from_str(&line(&service, &id)).unwrap();
    assert_eq!(
        (&line["request_id"], &line["client"], &line["principal"], &line["code"], &line["status"], &line["method"]),
        (&json!(id), &json!("127.0.0.1"), &json!("service-key"), &json!("not_found"), &json!(404), &json!("POST")),
        "{line}"
    );
    assert!(line["took_ms"].is_number() && line["message"] == "request", "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_can_be_off() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = with(&[("TOOLSIEVE_LOGGING__ACCESS", "off")], folder.path());
    let id = asked(&service, "/v1/nothing-secret").await;
    // The log is complete once the process has ended.
    service.stop();
    let log = service.until_logged("stopping");
    assert!(!log.contains(&id) && !log.contains("status=404"), "{log}");
}

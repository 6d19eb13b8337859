//! Keys of callers, and what the admin's key does with them.

use std::process::Command;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::harness::process::built::TOOLSIEVE;
use crate::harness::{Running, Start, stdio};

pub(crate) const KEY: &str = "the-service-key";
pub(crate) const ADMIN: &str = "the-admin-key";
/// A key with which the service encrypts secrets.
pub(crate) const SECRETS_KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

/// Two servers, a service key and an admin key, with these settings beside.
pub(crate) async fn start(environment: &[(&'static str, &'static str)]) -> Running {
    start_on(json!({"one": stdio(&[]), "time": stdio(&["list=time"])}), environment).await
}

/// The same on other servers.
pub(crate) async fn start_on(servers: Value, environment: &[(&'static str, &'static str)]) -> Running {
    let environment = [&[("TOOLSIEVE_ADMIN_KEY", ADMIN)], environment].concat();
    let running = Start { servers, key: Some(KEY), environment, ..Start::default() }.start().await;
    running.settled().await;
    running
}

pub(crate) fn with_key(service: &Running, method: Method, path: &str, key: &str) -> RequestBuilder {
    service.client.request(method, format!("{}{path}", service.url)).bearer_auth(key)
}

pub(crate) async fn administer(service: &Running, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
    let response = with_key(service, method, path, ADMIN).json(body).send().await.unwrap();
    (response.status(), response.json().await.unwrap())
}

/// Creates a key and returns its id and itself.
pub(crate) async fn create(service: &Running, body: Value) -> (String, String) {
    let (status, answer) = administer(service, Method::POST, "/v1/admin/keys", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    (answer["id"].as_str().unwrap().to_owned(), answer["key"].as_str().unwrap().to_owned())
}

/// Runs the command line against the service: exit code, standard output, standard error.
pub(crate) fn command(service: &Running, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(TOOLSIEVE);
    command.env_clear().args(words).args(["--url", &service.url]).env("TOOLSIEVE_ADMIN_KEY", ADMIN);
    let output = tokio::task::block_in_place(|| command.output().unwrap());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim_end().to_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

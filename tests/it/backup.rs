//! A copy of the database, made while the service runs, is enough to start anew with what people gave it.

use std::fs;
use std::path::Path;
use std::process::Output;

use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, KEY};
use crate::harness::process::Service;
use crate::harness::process::built::toolsieve;
use crate::harness::stdio;
use crate::harness::wait::{eventually, when};

fn back_up(folder: &Path, file: &Path) -> Output {
    toolsieve().arg("backup").arg(file).arg("--data-dir").arg(folder).output().unwrap()
}

fn start(folder: &Path) -> Service {
    Service::start(folder, &json!({"one": stdio(&[])}), |command| {
        command.env("TOOLSIEVE_API_KEY", KEY).env("TOOLSIEVE_ADMIN_KEY", ADMIN);
    })
}

async fn administer(service: &Service, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
    let request = Client::new().request(method, format!("{}{path}", service.url)).bearer_auth(ADMIN).json(body);
    let response = request.send().await.unwrap();
    (response.status(), response.json().await.unwrap_or_default())
}

/// The status of a call, once its server has listed its tools.
async fn called(service: &Service, key: &str, tool: &str) -> StatusCode {
    eventually("the server has listed its tools", async || {
        let request = Client::new().get(format!("{}/readyz", service.url)).bearer_auth(ADMIN);
        let state: Value = request.send().await.unwrap().json().await.unwrap();
        when(state, |state| state["servers"][0]["phase"] == "connected" && state["tools"] != 0)
    })
    .await;
    let request = Client::new().post(format!("{}/one/{tool}", service.url)).bearer_auth(key).json(&json!({}));
    request.send().await.unwrap().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_backed_up_under_way_is_there_in_a_new_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = start(folder.path());
    let (status, key) = administer(&service, Method::POST, "/v1/admin/keys", &json!({"name": "ci"})).await;
    assert_eq!(status, StatusCode::CREATED, "{key}");
    let key = key["key"].as_str().unwrap();
    let rules = json!({"rules": [{"effect": "block", "tools": ["process"]}]});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/policy", &rules).await.0, StatusCode::OK);
    let toolset = json!({"tools": ["echo"], "description": "says it again"});
    assert_eq!(administer(&service, Method::PUT, "/v1/admin/toolsets/words", &toolset).await.0, StatusCode::CREATED);
    assert_eq!((called(&service, key, "echo").await, called(&service, key, "process").await), (StatusCode::OK, StatusCode::NOT_FOUND));

    let copy = folder.path().join("copy.db");
    let output = back_up(&folder.path().join("data"), &copy);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    // A former copy is never overwritten, and a folder without a database is a mistake.
    assert_eq!(back_up(&folder.path().join("data"), &copy).status.code(), Some(2));
    assert_eq!(back_up(&folder.path().join("nothing"), &folder.path().join("other.db")).status.code(), Some(2));
    assert!(!folder.path().join("other.db").exists());
    // What came after the copy is not in it.
    assert_eq!(administer(&service, Method::POST, "/v1/admin/keys", &json!({"name": "later"})).await.0, StatusCode::CREATED);
    assert_eq!(service.stop().code(), Some(0));

    let restored = tempfile::tempdir().unwrap();
    fs::create_dir(restored.path().join("data")).unwrap();
    fs::copy(&copy, restored.path().join("data/toolsieve.db")).unwrap();
    let service = start(restored.path());
    assert_eq!((called(&service, key, "echo").await, called(&service, key, "process").await), (StatusCode::OK, StatusCode::NOT_FOUND));
    let (_, keys) = administer(&service, Method::GET, "/v1/admin/keys", &json!(null)).await;
    assert_eq!(keys["keys"].as_array().unwrap().iter().map(|key| &key["name"]).collect::<Vec<_>>(), ["ci"]);
    let (_, toolset) = administer(&service, Method::GET, "/v1/admin/toolsets/words", &json!(null)).await;
    assert_eq!(toolset["members"], json!(["one__echo"]));
    let installation = |folder: &Path| -> Value { serde_json::from_slice(&fs::read(folder.join("data/installation")).unwrap()).unwrap() };
    assert_eq!(installation(folder.path())["id"], installation(restored.path())["id"]);
}

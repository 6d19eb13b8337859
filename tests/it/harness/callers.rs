//! A service that learns, with two servers of the same tools, and its callers.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::keys::{ADMIN, KEY, with_key};
use super::{Running, Start, stdio};

pub(crate) async fn start(environment: &[(&'static str, &'static str)], folder: Option<tempfile::TempDir>) -> Running {
    let servers = json!({"left": stdio(&["list=small"]), "right": stdio(&["list=small"]), "mail": stdio(&["list=mail"])});
    let running = start_on(servers, environment, folder).await;
    // A server may be connected before its tools are in the catalog, and there before they are in the index.
    running
        .until(|body| {
            let listed: u64 = body["servers"].as_array().unwrap().iter().filter_map(|server| server["tools"].as_u64()).sum();
            body["tools"] == listed
        })
        .await;
    running.settled().await;
    running
}

pub(crate) async fn start_on(servers: Value, environment: &[(&'static str, &'static str)], folder: Option<tempfile::TempDir>) -> Running {
    let always = [
        ("TOOLSIEVE_LEARNING__MODE", "always"),
        ("TOOLSIEVE_ADMIN_KEY", ADMIN),
        ("TOOLSIEVE_SELECTION__GATE", "false"),
        ("TOOLSIEVE_ACCESS__TRUST_USERS", "true"),
    ];
    let environment = always.into_iter().chain(environment.iter().copied()).collect();
    let running = Start { servers, key: Some(KEY), environment, folder, ..Start::default() }.start().await;
    running.settled().await;
    running
}

/// A caller: a key, and a user with groups if the key may name one.
#[derive(Clone, Copy)]
pub(crate) struct Who<'a> {
    pub(crate) key: &'a str,
    pub(crate) user: &'a str,
    pub(crate) groups: &'a str,
}

pub(crate) fn user(user: &str) -> Who<'_> {
    Who { key: KEY, user, groups: "" }
}

impl Who<'_> {
    pub(crate) fn request(self, service: &Running, path: &str) -> RequestBuilder {
        let mut request = with_key(service, Method::POST, path, self.key);
        for (name, value) in [("X-OpenWebUI-User-Id", self.user), ("X-OpenWebUI-User-Groups", self.groups)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        request
    }
}

pub(crate) async fn select(service: &Running, who: Who<'_>, chat: Option<&str>, message: &str) -> Value {
    let body = json!({"messages": [{"role": "user", "content": message}], "chat_id": chat});
    let response = who.request(service, "/v1/filter").json(&body).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.json().await.unwrap()
}

pub(crate) async fn found(service: &Running, who: Who<'_>, message: &str) -> Value {
    let response = who.request(service, "/v1/tools/search").json(&json!({"queries": [message], "limit": 5})).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.json::<Value>().await.unwrap()["tools"].clone()
}

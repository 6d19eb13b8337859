//! What is compared of answers and documents.

use std::collections::BTreeSet;

use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, StatusCode};
use serde_json::Value;

/// Status, headers and body without what names the very request.
pub(crate) async fn shape(request: RequestBuilder) -> (StatusCode, HeaderMap, Value) {
    let response = request.send().await.unwrap();
    let (status, mut headers) = (response.status(), response.headers().clone());
    // The names in the last one stand in any order.
    for name in ["date", "x-request-id", "x-toolsieve-replica", "x-toolsieve-state", "access-control-expose-headers"] {
        headers.remove(name);
    }
    let mut body: Value = response.json().await.unwrap();
    let is_named = body["request_id"].take().as_str().is_some_and(|id| id.len() == 36);
    assert_eq!(is_named, !status.is_success(), "an error, and nothing else, names the request: {body}");
    (status, headers, body)
}

/// Published names in a document, without the meta-tools.
pub(crate) fn published(document: &Value) -> BTreeSet<String> {
    operations(document).into_iter().filter(|name| name.contains("__")).collect()
}

pub(crate) fn operations(document: &Value) -> BTreeSet<String> {
    let paths = document["paths"].as_object().unwrap_or_else(|| panic!("{document}"));
    paths.values().map(|item| item["post"]["operationId"].as_str().unwrap().to_owned()).collect()
}

/// Names to compare with.
pub(crate) fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

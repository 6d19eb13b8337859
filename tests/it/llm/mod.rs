//! Language models that choose tools, at the wire: a real server that speaks their protocol, well and badly.

mod costs;
mod enrichment;
mod model;
mod rerank;
mod smart_select;

use std::sync::Arc;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use self::model::Model;
use crate::harness::{Running, Start, stdio};

fn servers() -> Value {
    json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"])})
}

/// The service on servers whose tools are told apart by their words.
async fn service(environment: Vec<(&'static str, &'static str)>) -> Running {
    on(servers(), environment).await
}

async fn on(servers: Value, environment: Vec<(&'static str, &'static str)>) -> Running {
    let service = Start { servers, environment, ..Start::default() }.start().await;
    service.settled().await;
    service
}

fn model(answer: impl Fn(&model::Seen) -> model::Reply + Send + Sync + 'static) -> Arc<Model> {
    Arc::new(Model::start(answer))
}

fn names(answer: &Value) -> Vec<&str> {
    answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

fn warnings(answer: &Value) -> Vec<&str> {
    answer["warnings"].as_array().unwrap().iter().map(|warning| warning.as_str().unwrap()).collect()
}

/// Posts with headers; the answer must be a good one.
async fn ask(service: &Running, path: &str, headers: &[(&str, &str)], body: &Value) -> Value {
    let request =
        headers.iter().fold(service.request(Method::POST, path).json(body), |request, (name, value)| request.header(*name, *value));
    let response = request.send().await.unwrap();
    let status = response.status();
    let answer: Value = response.json().await.unwrap();
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

//! Clients of the older era, over HTTP.

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::request;
use crate::harness::{LONG, Running};

pub(crate) const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");
pub(crate) const SESSION: &str = "mcp-session-id";

/// One client of the older era, without any SDK.
pub(crate) struct Client<'a> {
    service: &'a Running,
    path: &'static str,
    key: Option<String>,
    pub(crate) session: Option<String>,
}

impl<'a> Client<'a> {
    pub(crate) fn new(service: &'a Running, path: &'static str, key: Option<&str>) -> Self {
        Self { service, path, key: key.map(str::to_owned), session: None }
    }

    /// In this session, whoever it belongs to.
    pub(crate) fn in_session(self, session: Option<String>) -> Self {
        Self { session, ..self }
    }

    /// Says hello, and takes the session that it gets.
    pub(crate) async fn greeted(self) -> Self {
        self.greeted_with(json!({})).await
    }

    /// The same with what it can do.
    pub(crate) async fn greeted_with(mut self, capabilities: Value) -> Self {
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}});
        let response = self.send(Method::POST, Some(&request(0, "initialize", &hello))).await;
        assert_eq!(response.status(), StatusCode::OK);
        self.session = response.headers().get(SESSION).map(|id| id.to_str().unwrap().to_owned());
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["result"]["capabilities"]["tools"]["listChanged"], json!(self.session.is_some().then_some(true)), "{answer}");
        self
    }

    pub(crate) fn build(&self, method: Method) -> reqwest::RequestBuilder {
        let request = self.service.client.request(method, format!("{}{}", self.service.url, self.path)).header(ACCEPT.0, ACCEPT.1);
        let request = match self.key.as_deref().or(self.service.key.as_deref()) {
            Some(key) => request.bearer_auth(key),
            None => request,
        };
        match &self.session {
            Some(session) => request.header(SESSION, session),
            None => request,
        }
    }

    pub(crate) async fn send(&self, method: Method, message: Option<&Value>) -> Response {
        let request = self.build(method);
        let request = match message {
            Some(message) => request.json(message),
            None => request,
        };
        request.send().await.unwrap()
    }

    pub(crate) async fn ask(&self, method: &str, params: Value) -> (StatusCode, Value) {
        let response = self.send(Method::POST, Some(&request(1, method, &params))).await;
        (response.status(), response.json().await.unwrap())
    }

    pub(crate) async fn tools(&self) -> Vec<String> {
        let (status, answer) = self.ask("tools/list", json!({})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) async fn listen(&self) -> Stream {
        let response = self.send(Method::GET, None).await;
        assert_eq!((response.status(), &response.headers()["content-type"]), (StatusCode::OK, &"text/event-stream".parse().unwrap()));
        Stream::new(response)
    }
}

/// A stream of events.
pub(crate) struct Stream {
    response: Response,
    text: String,
}

impl Stream {
    pub(crate) fn new(response: Response) -> Self {
        Self { response, text: String::new() }
    }

    /// The next message, or `None` when the stream has ended. Fails after a time, though comments keep coming.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        timeout(LONG, self.wait()).await.unwrap_or_else(|_| panic!("no message came within {LONG:?}"))
    }

    async fn wait(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let data = event.lines().filter_map(|line| line.strip_prefix("data: ")).collect::<String>();
                let rest = rest.len();
                self.text.drain(..self.text.len() - rest);
                if !data.is_empty() {
                    return Some(serde_json::from_str(&data).unwrap());
                }
                continue;
            }
            let chunk = self.response.chunk().await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

//! A server that speaks the chat-completions protocol and says what a test wants, good or bad.

use std::sync::{Arc, Mutex};

use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::web::{self, Bytes, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use serde_json::{Map, Value, json};

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) path: String,
    pub(super) authorization: Option<String>,
    pub(super) body: Value,
}

/// What is answered.
pub(super) enum Reply {
    /// A completion with this content.
    Says(String),
    /// A completion with this content, which reports its tokens so.
    Counts(String, Value),
    Status(u16, String),
    /// A body that is no completion.
    Raw(String),
    /// Nothing, ever.
    Hang,
}

type Answer = Box<dyn Fn(&Seen) -> Reply + Send + Sync>;

struct Shared {
    seen: Mutex<Vec<Seen>>,
    answer: Mutex<Answer>,
}

/// The server. Ends with this value.
pub(super) struct Model {
    pub(super) url: String,
    shared: Data<Shared>,
    handle: ServerHandle,
}

impl Seen {
    /// The content of the message of a role.
    pub(super) fn text_of(&self, role: &str) -> &str {
        let messages = self.body["messages"].as_array().unwrap();
        messages.iter().find(|message| message["role"] == role).unwrap()["content"].as_str().unwrap()
    }

    /// The names in the catalogue.
    pub(super) fn catalogue(&self) -> Vec<String> {
        self.entries().into_iter().map(|(name, _)| name).collect()
    }

    /// The catalogue. Every line is a number, a name, and a description or an object with one, as JSON.
    pub(super) fn entries(&self) -> Vec<(String, Value)> {
        let entry = |line: &str| {
            let pair: Map<String, Value> = serde_json::from_str(&format!("{{{}}}", line.split_once(". ").unwrap().1)).unwrap();
            assert!(pair.len() == 1 && pair.values().all(|value| value.is_string() || value["description"].is_string()), "{line}");
            pair.into_iter().next().unwrap()
        };
        self.text_of("user").split_once("Catalogue:\n").unwrap().1.lines().map(entry).collect()
    }
}

/// A completion that chooses these tools.
pub(super) fn chooses(names: &[&str]) -> Reply {
    Reply::Says(json!({"tools": names}).to_string())
}

impl Model {
    pub(super) fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let shared = Data::new(Shared { seen: Mutex::default(), answer: Mutex::new(Box::new(answer)) });
        let state = shared.clone();
        let server = HttpServer::new(move || App::new().app_data(state.clone()).default_service(web::to(respond)))
            .workers(1)
            .disable_signals()
            .shutdown_timeout(0)
            .bind(("127.0.0.1", 0))
            .unwrap();
        let url = format!("http://{}", server.addrs()[0]);
        let server = server.run();
        let handle = server.handle();
        tokio::spawn(server);
        Self { url, shared, handle }
    }

    /// From now on it answers so.
    pub(super) fn answers(&self, answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) {
        *self.shared.answer.lock().unwrap() = Box::new(answer);
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    pub(super) fn last(&self) -> Seen {
        self.seen().pop().unwrap()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // Told at once; its answer would only say when it is done.
        drop(self.handle.stop(false));
    }
}

async fn respond(request: HttpRequest, body: Bytes, shared: Data<Shared>) -> HttpResponse {
    let authorization = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let seen = Seen { path: request.path().to_owned(), authorization, body };
    shared.seen.lock().unwrap().push(seen.clone());
    let reply = (shared.answer.lock().unwrap())(&seen);
    match reply {
        Reply::Says(content) => HttpResponse::Ok().json(completion(&seen, &content)),
        Reply::Counts(content, usage) => {
            let mut completion = completion(&seen, &content);
            completion["usage"] = usage;
            HttpResponse::Ok().json(completion)
        }
        Reply::Status(status, body) => HttpResponse::build(StatusCode::from_u16(status).unwrap())
            .insert_header(("retry-after", "60"))
            .insert_header(("location", "/elsewhere"))
            .content_type("application/json")
            .body(body),
        Reply::Raw(body) => HttpResponse::Ok().content_type("application/json").body(body),
        Reply::Hang => std::future::pending().await,
    }
}

fn completion(seen: &Seen, content: &str) -> Value {
    json!({
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": seen.body["model"],
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}],
    })
}

/// Settings under which the service uses this model.
pub(super) fn configured(model: &Arc<Model>) -> Vec<(&'static str, &'static str)> {
    let text = |text: String| -> &'static str { text.leak() };
    vec![
        ("TOOLSIEVE_LLM__BASE_URL", text(format!("{}/own/v1/", model.url))),
        ("TOOLSIEVE_LLM__API_KEY", "configured-key"),
        ("TOOLSIEVE_LLM__MODEL", "small"),
        // Long enough for a loaded machine; a test of the time itself sets another.
        ("TOOLSIEVE_LLM__TIMEOUT_MS", "60000"),
        ("TOOLSIEVE_LLM__SMART_SELECT_TIMEOUT_MS", "60000"),
    ]
    .into_iter()
    .chain(providers(model))
    .collect()
}

/// Settings under which users' own keys go to this model.
pub(super) fn providers(model: &Arc<Model>) -> Vec<(&'static str, &'static str)> {
    let url = |provider: &str| -> &'static str { format!("{}/{provider}", model.url).leak() };
    vec![
        ("TOOLSIEVE_LLM__GEMINI_URL", url("gemini")),
        ("TOOLSIEVE_LLM__OPENAI_URL", url("openai")),
        ("TOOLSIEVE_LLM__ANTHROPIC_URL", url("anthropic")),
    ]
}

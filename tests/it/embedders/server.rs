//! A server that speaks the embeddings protocol and says what a test wants, good or bad.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::TcpListener;
use std::sync::Mutex;

use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::web::{self, Bytes, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use serde_json::{Value, json};
use tokio::sync::watch;

/// Length of the vectors where none is asked for.
pub(super) const DIMENSION: usize = 64;

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) path: String,
    pub(super) authorization: Option<String>,
    pub(super) body: Value,
}

/// What is answered.
pub(super) enum Reply {
    /// Vectors of the texts.
    Vectors,
    /// The same, the last one first, with their numbers.
    Reversed,
    Status(u16),
    /// With a time after which to come again, in seconds.
    Later(u16, &'static str),
    Raw(String),
    /// Nothing, ever.
    Hang,
    /// Vectors of the texts, once this says so.
    Held(watch::Receiver<bool>),
}

type Answer = Box<dyn Fn(&Seen) -> Reply + Send + Sync>;

struct Shared {
    seen: Mutex<Vec<Seen>>,
    answer: Mutex<Answer>,
}

/// The server. Ends with this value.
pub(super) struct Endpoint {
    pub(super) url: String,
    shared: Data<Shared>,
    handle: ServerHandle,
}

impl Seen {
    pub(super) fn texts(&self) -> Vec<&str> {
        self.body["input"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
    }

    /// Whether it only asks whether anybody answers.
    pub(super) fn is_probe(&self) -> bool {
        self.texts() == ["time"]
    }
}

impl Endpoint {
    pub(super) fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind(("127.0.0.1", 0)).unwrap(), answer)
    }

    pub(super) fn on(listener: TcpListener, answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let shared = Data::new(Shared { seen: Mutex::default(), answer: Mutex::new(Box::new(answer)) });
        let state = shared.clone();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let server = HttpServer::new(move || {
            App::new().app_data(state.clone()).app_data(web::PayloadConfig::new(64 << 20)).default_service(web::to(respond))
        });
        let server = server.workers(1).disable_signals().shutdown_timeout(0).listen(listener).unwrap().run();
        let handle = server.handle();
        tokio::spawn(server);
        Self { url, shared, handle }
    }

    /// From now on it answers so.
    pub(super) fn answers(&self, answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) {
        *self.shared.answer.lock().unwrap() = Box::new(answer);
    }

    /// All requests but those that only ask whether it answers.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().iter().filter(|seen| !seen.is_probe()).cloned().collect()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Told at once; its answer would only say when it is done.
        drop(self.handle.stop(false));
    }
}

/// Texts with words in common are near to each other.
pub(super) fn vector(text: &str, dimension: usize) -> Vec<f32> {
    let mut vector = vec![0.01; dimension];
    for word in text.to_lowercase().split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let mut hasher = DefaultHasher::new();
        word.hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % dimension as u64).unwrap();
        vector[place] += 1.0;
    }
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    vector.iter().map(|value| value / length).collect()
}

/// An answer with these vectors, in their order.
pub(super) fn answer(vectors: &[Vec<f32>]) -> Value {
    let item = |(index, vector): (usize, &Vec<f32>)| json!({"object": "embedding", "index": index, "embedding": vector});
    let data: Vec<Value> = vectors.iter().enumerate().map(item).collect();
    json!({"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}})
}

async fn respond(request: HttpRequest, body: Bytes, shared: Data<Shared>) -> HttpResponse {
    let authorization = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let body: Value = serde_json::from_slice(&body).unwrap();
    let seen = Seen { path: request.path().to_owned(), authorization, body };
    shared.seen.lock().unwrap().push(seen.clone());
    let reply = (shared.answer.lock().unwrap())(&seen);
    let wanted = seen.body["dimensions"].as_u64().or(seen.body["output_dimension"].as_u64());
    let dimension = wanted.map_or(DIMENSION, |wanted| usize::try_from(wanted).unwrap());
    let mut whole = answer(&seen.texts().iter().map(|text| vector(text, dimension)).collect::<Vec<_>>());
    let status = |status: u16| HttpResponse::build(StatusCode::from_u16(status).unwrap());
    // As providers do it: what was sent, and the key.
    let error = json!({"error": {"message": format!("{:?} {:?}", seen.authorization, seen.body)}});
    match reply {
        Reply::Vectors => HttpResponse::Ok().json(whole),
        Reply::Reversed => {
            whole["data"].as_array_mut().unwrap().reverse();
            HttpResponse::Ok().json(whole)
        }
        Reply::Status(code) => status(code).json(error),
        Reply::Later(code, after) => status(code).insert_header(("retry-after", after)).json(error),
        Reply::Raw(body) => HttpResponse::Ok().content_type("application/json").body(body),
        Reply::Hang => std::future::pending().await,
        Reply::Held(mut may_go) => {
            may_go.wait_for(|may_go| *may_go).await.unwrap();
            HttpResponse::Ok().json(whole)
        }
    }
}

//! An MCP server over streamable HTTP. See `behaviour.rs`; besides: `port=N`, `json` answers in one piece instead of
//! a stream of events, `no-get` has no stream for news, `bad-session=400` answers as servers of the TypeScript SDK
//! do, `status=N` refuses all requests, `call-status=N` only calls (with `retry-after=N` also with this header), `quote-refusal`
//! quotes the secrets it was sent, `redirect=URL` redirects all requests, `headers` has tools that return the headers of the request, how
//! many sessions there are, and every `Authorization` that came so far; with `repeats` too, a tool that takes an argument that a header
//! repeats returns the headers as well. The port it listens on is its first line of output.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test server may panic")]
#![allow(clippy::pedantic, unreachable_pub, dead_code, reason = "shared with the other test server")]

mod behaviour;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use actix_web::http::StatusCode;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use behaviour::{Behaviour, Client, Options, Wire};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

struct Stream(mpsc::UnboundedSender<String>);

impl Wire for Stream {
    fn send(&self, text: &str) {
        let _ = self.0.send(text.to_owned());
    }
}

#[derive(Default)]
struct Sessions(Mutex<HashSet<String>>);

/// Every `Authorization` that came so far, behind the method of its request.
#[derive(Default)]
struct Authorizations(Mutex<Vec<String>>);

impl Authorizations {
    fn note(&self, method: &str, request: &HttpRequest) {
        let values = request.headers().get_all("authorization").map(|value| format!("{method}: {}", value.to_str().unwrap()));
        self.0.lock().unwrap().extend(values);
    }
}

fn session(request: &HttpRequest) -> Option<String> {
    request.headers().get("mcp-session-id").map(|value| value.to_str().unwrap().to_owned())
}

/// Who may speak: the answer to who may not.
fn refused(request: &HttpRequest, options: &Options, sessions: &Sessions) -> Option<HttpResponse> {
    if let Some(status) = options.value("status") {
        return Some(HttpResponse::build(StatusCode::from_u16(status.parse().unwrap()).unwrap()).body("no secret"));
    }
    if let Some(url) = options.value("redirect") {
        return Some(HttpResponse::TemporaryRedirect().append_header(("location", url)).finish());
    }
    if let Some(key) = options.value("key")
        && request.headers().get("x-key").is_none_or(|value| value != key)
    {
        return Some(HttpResponse::Unauthorized().append_header(("www-authenticate", "Bearer")).finish());
    }
    let known = session(request).is_none_or(|id| sessions.0.lock().unwrap().contains(&id));
    if known {
        return None;
    }
    let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"}});
    if options.value("bad-session") == Some("400") {
        return Some(HttpResponse::BadRequest().json(error));
    }
    Some(HttpResponse::NotFound().body("Session not found"))
}

/// What this transport alone knows.
fn observed(tool: &str, request: &HttpRequest, sessions: &Sessions, authorizations: &Authorizations) -> Option<Value> {
    let text = |(name, value): (&actix_web::http::header::HeaderName, &actix_web::http::header::HeaderValue)| {
        (name.to_string(), json!(value.to_str().unwrap()))
    };
    match tool {
        "request_headers" | "repeated" => Some(Value::Object(request.headers().iter().map(text).collect())),
        "sessions" => Some(json!({"sessions": sessions.0.lock().unwrap().len()})),
        "authorizations" => Some(json!({"seen": *authorizations.0.lock().unwrap()})),
        _ => None,
    }
}

async fn post(
    request: HttpRequest,
    body: web::Bytes,
    behaviour: web::Data<Arc<Behaviour>>,
    sessions: web::Data<Sessions>,
    authorizations: web::Data<Authorizations>,
) -> HttpResponse {
    let options = &behaviour.options;
    if let Some(response) = refused(&request, options, &sessions) {
        return response;
    }
    let text = String::from_utf8(body.to_vec()).unwrap();
    // Of numbers that no tree can hold only `receive` takes notice.
    let message: Value = serde_json::from_str(&text.replace("1e999", "0")).unwrap();
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    authorizations.note(&method, &request);
    if let Some(status) = options.value("call-status").filter(|_| method == "tools/call") {
        let mut refused = HttpResponse::build(StatusCode::from_u16(status.parse().unwrap()).unwrap());
        if let Some(seconds) = options.value("retry-after") {
            refused.insert_header(("retry-after", seconds.to_owned()));
        }
        return refused.body("no secret");
    }
    let tool = message["params"]["name"].as_str().filter(|_| options.has("headers") && method == "tools/call");
    if let Some(observed) = tool.and_then(|tool| observed(tool, &request, &sessions, &authorizations)) {
        let result = json!({"content": [], "structuredContent": observed});
        return HttpResponse::Ok().json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
    }
    if options.has("quote-refusal") {
        let quoted = request.headers().get("authorization").map(|value| value.to_str().unwrap());
        let text = format!("no {}, no {},", request.query_string(), quoted.unwrap_or_default());
        return HttpResponse::BadRequest().json(json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": text}}));
    }
    let is_request = message.get("id").is_some() && !method.is_empty();
    if options.has("modern") && is_request {
        let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let matches = header("mcp-method").as_deref() == Some(&method)
            && header("mcp-protocol-version").as_deref() == Some("2026-07-28")
            && (method != "tools/call" || header("mcp-name").as_deref() == message["params"]["name"].as_str());
        if !matches && method != "initialize" {
            let error = json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32020, "message": "header mismatch"}});
            return HttpResponse::BadRequest().json(error);
        }
    } else if !options.has("modern") && method != "initialize" && session(&request).is_none() {
        return HttpResponse::BadRequest().body("Missing session ID");
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    behaviour.receive(&text, Arc::new(Stream(sender)));
    if !is_request {
        return HttpResponse::Accepted().finish();
    }
    let mut response = HttpResponse::Ok();
    if method == "initialize" {
        let id = format!("session-{}-{}", std::process::id(), sessions.0.lock().unwrap().len());
        sessions.0.lock().unwrap().insert(id.clone());
        response.append_header(("mcp-session-id", id));
    }
    if options.has("json") {
        let mut receiver = receiver;
        // Of what a call sends, only what looks like its answer fits in here.
        while let Some(text) = receiver.recv().await {
            let is_batch = text.starts_with("[{");
            if is_batch || text.starts_with('{') && !text.contains("\"method\"") && !text.contains("python") && !text.contains("\"note\"") {
                return response.content_type("application/json").body(text);
            }
        }
        // Nobody will send any more, yet a call that sleeps is not answered either.
        return std::future::pending().await;
    }
    response.content_type("text/event-stream").streaming(events(receiver, options.has("modern") && method == "subscriptions/listen"))
}

fn events(receiver: mpsc::UnboundedReceiver<String>, stays: bool) -> impl futures::Stream<Item = Result<web::Bytes, actix_web::Error>> {
    futures::stream::unfold((receiver, false), move |(mut receiver, done)| async move {
        if done {
            return None;
        }
        let Some(text) = receiver.recv().await else {
            // Nobody will send any more, yet a call that sleeps is not answered either.
            return std::future::pending().await;
        };
        let done = !stays && text.starts_with(['{', '[']) && (text.contains("\"result\"") || text.contains("\"error\""));
        Some((Ok(web::Bytes::from(format!("data: {text}\n\n"))), (receiver, done)))
    })
    .boxed_local()
}

async fn get(request: HttpRequest, behaviour: web::Data<Arc<Behaviour>>, sessions: web::Data<Sessions>) -> HttpResponse {
    if let Some(response) = refused(&request, &behaviour.options, &sessions) {
        return response;
    }
    if behaviour.options.has("no-get") || behaviour.options.has("modern") {
        return HttpResponse::MethodNotAllowed().finish();
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    let client: Client = Arc::new(Stream(sender));
    behaviour.listeners.lock().unwrap().push(client);
    HttpResponse::Ok().content_type("text/event-stream").streaming(events(receiver, true))
}

async fn delete(request: HttpRequest, sessions: web::Data<Sessions>) -> HttpResponse {
    if let Some(id) = session(&request) {
        sessions.0.lock().unwrap().remove(&id);
    }
    HttpResponse::Ok().finish()
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let options = Options::from_command_line();
    let port: u16 = options.value("port").map_or(0, |port| port.parse().unwrap());
    let behaviour = web::Data::new(Behaviour::new(options));
    let sessions = web::Data::new(Sessions::default());
    let authorizations = web::Data::new(Authorizations::default());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(behaviour.clone())
            .app_data(sessions.clone())
            .app_data(authorizations.clone())
            .app_data(web::PayloadConfig::new(64 << 20))
            .route("/mcp", web::post().to(post))
            .route("/mcp", web::get().to(get))
            .route("/mcp", web::delete().to(delete))
    })
    .workers(1)
    .tcp_nodelay(true)
    .disable_signals()
    .bind(("127.0.0.1", port))?;
    println!("{}", server.addrs()[0].port());
    server.run().await
}

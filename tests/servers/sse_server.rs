//! An MCP server over HTTP with a stream of events, as of protocol 2024-11-05. See `behaviour.rs`; besides: `port=N`, `key=K` wants it in
//! the header `x-key`, `endpoint=ADDRESS` names that for messages, `silent` names none, `late-answers` answers posts only after what they
//! asked for was done, `list-status=N` says no to lists once a call sleeps, and a call of `cut` ends the stream in the middle of an event.
//! A post to the stream's own address is refused. The port it listens on is its first line of output.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test server may panic")]
#![allow(clippy::pedantic, unreachable_pub, dead_code, reason = "shared with the other test server")]

mod behaviour;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use actix_web::http::StatusCode;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use behaviour::{Behaviour, Client, Options, Wire};
use futures::StreamExt as _;
use serde_json::Value;
use tokio::sync::mpsc;

enum Item {
    Message(String),
    Cut,
}

#[derive(Clone)]
struct Stream(mpsc::UnboundedSender<Item>);

impl Wire for Stream {
    fn send(&self, text: &str) {
        let _ = self.0.send(Item::Message(text.to_owned()));
    }
}

#[derive(Default)]
struct Sessions(Mutex<HashMap<String, Stream>>);

fn refused(request: &HttpRequest, options: &Options) -> Option<HttpResponse> {
    let key = options.value("key")?;
    let sent = request.headers().get("x-key");
    sent.is_none_or(|value| value != key).then(|| HttpResponse::Unauthorized().finish())
}

async fn get(request: HttpRequest, behaviour: web::Data<Arc<Behaviour>>, sessions: web::Data<Sessions>) -> HttpResponse {
    let options = &behaviour.options;
    if let Some(response) = refused(&request, options) {
        return response;
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    let stream = Stream(sender);
    let client: Client = Arc::new(stream.clone());
    behaviour.listeners.lock().unwrap().push(client);
    let id = format!("{}-{}", std::process::id(), sessions.0.lock().unwrap().len());
    sessions.0.lock().unwrap().insert(id.clone(), stream);
    let endpoint = options.value("endpoint").unwrap_or("/messages");
    let first = match options.has("silent") {
        true => ": nothing to say\r\n\r\n".to_owned(),
        false => format!(": hello\r\n\r\nevent: endpoint\r\ndata: {endpoint}?session={id}\r\n\r\n"),
    };
    let first = futures::stream::once(async move { Ok::<_, actix_web::Error>(web::Bytes::from(first)) });
    HttpResponse::Ok().content_type("text/event-stream; charset=utf-8").streaming(first.chain(events(receiver)).boxed_local())
}

fn events(receiver: mpsc::UnboundedReceiver<Item>) -> impl futures::Stream<Item = Result<web::Bytes, actix_web::Error>> {
    futures::stream::unfold((receiver, false), |(mut receiver, done)| async move {
        if done {
            // Breaks the connection off: the end of the stream never comes.
            return Some((Err(actix_web::error::ErrorInternalServerError("cut")), (receiver, done)));
        }
        match receiver.recv().await {
            Some(Item::Message(text)) => {
                // What stands for a stray print over standard streams is an event of another kind here.
                let lines: String = text.lines().map(|line| format!("data: {line}\r\n")).collect();
                Some((Ok(web::Bytes::from(format!("event: message\r\n{lines}\r\n"))), (receiver, false)))
            }
            Some(Item::Cut) => {
                let half = "event: message\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":";
                Some((Ok(web::Bytes::from(half)), (receiver, true)))
            }
            None => None,
        }
    })
}

async fn post(
    request: HttpRequest,
    query: web::Query<HashMap<String, String>>,
    body: web::Bytes,
    behaviour: web::Data<Arc<Behaviour>>,
    sessions: web::Data<Sessions>,
) -> HttpResponse {
    if let Some(response) = refused(&request, &behaviour.options) {
        return response;
    }
    let stream = query.get("session").and_then(|id| sessions.0.lock().unwrap().get(id).cloned());
    let Some(stream) = stream.filter(|stream| !stream.0.is_closed()) else {
        return HttpResponse::NotFound().body("no such session");
    };
    let text = String::from_utf8(body.to_vec()).unwrap();
    // Of numbers that no tree can hold only `receive` takes notice.
    let message: Value = serde_json::from_str(&text.replace("1e999", "0")).unwrap();
    if message["method"] == "tools/call" && message["params"]["name"] == "cut" {
        let _ = stream.0.send(Item::Cut);
        return HttpResponse::Accepted().finish();
    }
    if let Some(status) = behaviour.options.value("list-status")
        && message["method"] == "tools/list"
        && behaviour.refuses_list()
    {
        return HttpResponse::build(StatusCode::from_u16(status.parse().unwrap()).unwrap()).finish();
    }
    let is_call = message["method"] == "tools/call";
    behaviour.receive(&text, Arc::new(stream.clone()));
    if is_call && behaviour.options.has("late-answers") {
        // Until the stream ends, which is longer than any call.
        stream.0.closed().await;
    }
    HttpResponse::Accepted().body("Accepted")
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let options = Options::from_command_line();
    let port: u16 = options.value("port").map_or(0, |port| port.parse().unwrap());
    let behaviour = web::Data::new(Behaviour::new(options));
    let sessions = web::Data::new(Sessions::default());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(behaviour.clone())
            .app_data(sessions.clone())
            .app_data(web::PayloadConfig::new(64 << 20))
            .service(web::resource("/mcp").route(web::get().to(get)))
            .service(web::resource("/messages").route(web::post().to(post)))
    })
    .workers(1)
    .tcp_nodelay(true)
    .disable_signals()
    .bind(("127.0.0.1", port))?;
    println!("{}", server.addrs()[0].port());
    server.run().await
}

//! Forwards a server's questions and log messages to the client whose call is running, on the stream of this call.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::service::mcp::mcp_sessions::McpSession;
use crate::service::ports::{Refusal, ServerMessage, ServerQuestion};

const QUEUE: usize = 16;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_REQUEST: i64 = -32600;

/// Forwards messages until the token signals the end of the call. Messages that have arrived by then are still sent.
pub(super) fn hand_on(
    session: &Arc<McpSession>,
    stream: &mpsc::Sender<Arc<str>>,
    ended: CancellationToken,
) -> (mpsc::Sender<ServerMessage>, JoinHandle<()>) {
    let (sender, mut messages) = mpsc::channel(QUEUE);
    let (session, stream) = (Arc::clone(session), stream.clone());
    let handing = tokio::spawn(async move {
        loop {
            let next = tokio::select! {
                biased;
                next = messages.recv() => next,
                () = ended.cancelled() => None,
            };
            let Some(next) = next else { return };
            match next {
                ServerMessage::Question(question) => {
                    tokio::spawn(ask(Arc::clone(&session), stream.clone(), question));
                }
                ServerMessage::Note(params) if session.wants_note(&params) => {
                    let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
                    if stream.send(note.to_string().into()).await.is_err() {
                        return;
                    }
                }
                ServerMessage::Note(_) => {}
            }
        }
    });
    (sender, handing)
}

async fn ask(session: Arc<McpSession>, stream: mpsc::Sender<Arc<str>>, question: ServerQuestion) {
    let ServerQuestion { method, mut params, mut answer } = question;
    let answered = async {
        if !session.answers(&method, &params) {
            return Err(refusal(METHOD_NOT_FOUND, "the client that called can't answer this"));
        }
        // The metadata belongs to the connection to the server.
        if let Some(params) = params.as_object_mut() {
            params.remove("_meta");
        }
        let (id, answered) = session.ask();
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        if stream.send(request.to_string().into()).await.is_err() {
            return Err(gone());
        }
        tokio::select! {
            answered = answered => answered.map_err(|_| gone()).and_then(read),
            () = stream.closed() => Err(gone()),
        }
    };
    let answered = tokio::select! {
        answered = answered => answered,
        () = answer.closed() => return,
    };
    let _ = answer.send(answered);
}

/// Extracts the result from a client's answer.
fn read(mut message: Value) -> Result<Value, Refusal> {
    if let Some(error) = message.get("error").filter(|error| !error.is_null()) {
        let code = error.get("code").and_then(Value::as_i64).unwrap_or(INVALID_REQUEST);
        let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
        return Err(refusal(code, message));
    }
    Ok(message.get_mut("result").map(Value::take).unwrap_or_default())
}

fn refusal(code: i64, message: &str) -> Refusal {
    Refusal { code, message: message.to_owned() }
}

fn gone() -> Refusal {
    refusal(INVALID_REQUEST, "the client that called is not there any more")
}

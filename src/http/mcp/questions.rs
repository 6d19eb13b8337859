//! Forwards a server's questions and log messages to the client whose call is running, on the stream of this call.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::service::mcp::mcp_sessions::McpSession;
use crate::service::mcp::waiting_calls::{QUESTIONS, TOO_MANY_QUESTIONS};
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
    let room = Arc::new(Semaphore::new(QUESTIONS));
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
                    if let Some((question, place)) = placed(&room, question) {
                        tokio::spawn(ask(Arc::clone(&session), stream.clone(), question, place));
                    }
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

/// Gives the question one of the call's places, or refuses it if there is none.
fn placed(room: &Arc<Semaphore>, question: ServerQuestion) -> Option<(ServerQuestion, OwnedSemaphorePermit)> {
    if let Ok(place) = Arc::clone(room).try_acquire_owned() {
        return Some((question, place));
    }
    let _ = question.answer.send(Err(refusal(INVALID_REQUEST, TOO_MANY_QUESTIONS)));
    None
}

/// Asks the client. The question has its place until it is answered or the server no longer waits.
async fn ask(session: Arc<McpSession>, stream: mpsc::Sender<Arc<str>>, question: ServerQuestion, _place: OwnedSemaphorePermit) {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;
    use tokio::sync::{Semaphore, oneshot};

    use super::placed;
    use crate::service::mcp::waiting_calls::QUESTIONS;
    use crate::service::ports::ServerQuestion;

    /// Regression: a server could ask without end during a call, and each question took memory until the call ended.
    #[tokio::test]
    async fn so_many_questions_wait_and_no_more() {
        let room = Arc::new(Semaphore::new(QUESTIONS));
        let ask = || {
            let (answer, answered) = oneshot::channel();
            let question = ServerQuestion { method: "elicitation/create".to_owned(), params: Value::Null, answer };
            (placed(&room, question), answered)
        };
        let mut waiting: Vec<_> = (0..QUESTIONS).map(|_| ask()).collect();
        assert!(waiting.iter().all(|(placed, _)| placed.is_some()));
        let (refused, answered) = ask();
        assert!(refused.is_none());
        assert!(answered.await.unwrap().unwrap_err().message.contains("too many questions"));
        waiting.pop();
        assert!(ask().0.is_some(), "the place of an answered question is free again");
    }
}

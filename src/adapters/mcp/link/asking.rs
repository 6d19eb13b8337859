//! Extends the deadline of a call while its caller answers a server request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use crate::service::ports::{ServerMessage, ServerQuestion};

/// Length of the queue for messages from a server.
const QUEUED_MESSAGES: usize = 16;
/// Maximum time that server requests may add to a call's deadline.
const ASKING: Duration = Duration::from_mins(10);
/// After the deadline, a call may continue for at most this long after the caller's answer.
const ASKED_AGAIN: Duration = Duration::from_secs(5);

/// Returns a sender that forwards a server's messages to `messages`, and the number of its unanswered requests.
pub(in crate::adapters::mcp) fn waiting_for_answers(
    messages: mpsc::Sender<ServerMessage>,
) -> (mpsc::Sender<ServerMessage>, Arc<AtomicUsize>) {
    let (sender, mut receiver) = mpsc::channel(QUEUED_MESSAGES);
    let waiting = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&waiting);
    tokio::spawn(async move {
        while let Some(next) = receiver.recv().await {
            let next = match next {
                ServerMessage::Question(question) => ServerMessage::Question(counted_question(question, Arc::clone(&counted))),
                note @ ServerMessage::Note(_) => note,
            };
            if messages.send(next).await.is_err() {
                return;
            }
        }
    });
    (sender, waiting)
}

fn counted_question(question: ServerQuestion, waiting: Arc<AtomicUsize>) -> ServerQuestion {
    let ServerQuestion { method, params, answer } = question;
    let (inner, answered) = oneshot::channel();
    waiting.fetch_add(1, Ordering::AcqRel);
    tokio::spawn(async move {
        let outcome = answered.await;
        waiting.fetch_sub(1, Ordering::AcqRel);
        if let Ok(outcome) = outcome {
            let _ = answer.send(outcome);
        }
    });
    ServerQuestion { method, params, answer: inner }
}

/// Enforces the deadline, except while a server request is unanswered: people are slower than tools.
pub(in crate::adapters::mcp) async fn in_time<T>(
    mut call: Pin<&mut impl Future<Output = T>>,
    deadline: Instant,
    waiting: Option<&AtomicUsize>,
) -> Result<T, Elapsed> {
    let mut until = deadline;
    loop {
        match timeout_at(until, call.as_mut()).await {
            Ok(done) => return Ok(done),
            Err(_) if waiting.is_some_and(|waiting| waiting.load(Ordering::Acquire) > 0) && until < deadline + ASKING => {
                until = Instant::now() + ASKED_AGAIN;
            }
            Err(elapsed) => return Err(elapsed),
        }
    }
}

//! The ticket of a request: where its response is stored, and whether it was sent.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::adapters::mcp::text::foreign;
use crate::domain::access::principal::PrincipalId;
use crate::service::ports::{Progress, ServerMessage, TraceContext};

/// Maximum size of an error's `data`, in bytes. Larger data is dropped.
pub(super) const DATA: usize = 4_000;

/// The response to a request with a ticket.
#[derive(Debug)]
pub(in crate::adapters::mcp) enum Answer {
    /// The `result` member, byte for byte, and the size of the whole message.
    Result {
        result: Box<RawValue>,
        bytes: usize,
    },
    Error {
        code: i64,
        message: String,
        data: Option<Box<Value>>,
    },
    TooLarge {
        limit: usize,
    },
    /// The response is not JSON, or not JSON-RPC.
    Malformed,
}

impl Answer {
    /// Parses the `error` member of a response. The server may send any text of any length.
    pub(in crate::adapters::mcp) fn error(error: &Value) -> Self {
        Self::Error {
            code: error.get("code").and_then(Value::as_i64).unwrap_or(-32603),
            message: foreign(error.get("message").and_then(Value::as_str).unwrap_or("no message")),
            data: error.get("data").filter(|data| data.to_string().len() <= DATA).cloned().map(Box::new),
        }
    }
}

/// The kind of a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::adapters::mcp) enum Purpose {
    List,
    Call,
    /// Any other request.
    Ask,
}

/// Where server messages during a request are sent.
#[derive(Clone, Debug, Default)]
pub(in crate::adapters::mcp) struct Listeners {
    pub(in crate::adapters::mcp) progress: Option<mpsc::Sender<Progress>>,
    pub(in crate::adapters::mcp) messages: Option<mpsc::Sender<ServerMessage>>,
    /// The client's capabilities, if it answers server requests by repeating its own request.
    pub(in crate::adapters::mcp) capabilities: Option<Value>,
    /// The caller of the request, if there is one.
    pub(in crate::adapters::mcp) owner: Option<PrincipalId>,
    /// The trace to which the request belongs.
    pub(in crate::adapters::mcp) trace: Option<TraceContext>,
}

/// Receives the raw response to a request. It is attached to the request's extensions, which are never sent.
#[derive(Clone, Debug)]
pub(in crate::adapters::mcp) struct Ticket(pub(super) Arc<TicketState>);

/// A request that waits for its response.
#[derive(Debug)]
pub(super) struct TicketState {
    pub(super) purpose: Purpose,
    /// Maximum size of the response, in bytes.
    pub(super) limit: usize,
    pub(super) listeners: Listeners,
    pub(super) answer: Mutex<Option<Answer>>,
    /// The encoded request until it is written or withdrawn. A server that stops reading would otherwise fill the memory with requests
    /// whose callers are gone.
    line: Mutex<Option<Vec<u8>>>,
    sending: AtomicU8,
    /// Cancelled when the caller has gone.
    gone: CancellationToken,
    /// Whether the server rejected the HTTP request itself.
    is_rejected: AtomicBool,
    /// The number of server requests that the caller has not answered yet.
    pub(super) asked: AtomicUsize,
}

/// The states of [`TicketState::sending`].
const QUEUED: u8 = 0;
const SENDING: u8 = 1;
const SENT: u8 = 2;
const WITHDRAWN: u8 = 3;
/// The server rejected the request because it doesn't know the session. rmcp starts another session and repeats the request.
const REFUSED: u8 = 4;
/// Sent again, in another session.
const REPEATED: u8 = 5;
/// Maximum wait for a pending write when the connection ends.
const SETTLING: Duration = Duration::from_millis(500);

impl Ticket {
    pub(in crate::adapters::mcp) fn new(purpose: Purpose, limit: usize, listeners: Listeners) -> Self {
        Self(Arc::new(TicketState {
            purpose,
            limit,
            listeners,
            answer: Mutex::new(None),
            line: Mutex::new(None),
            sending: AtomicU8::new(QUEUED),
            gone: CancellationToken::new(),
            is_rejected: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
        }))
    }

    /// Keeps the encoded request until it is written.
    pub(in crate::adapters::mcp) fn keep(&self, line: Vec<u8>) {
        *lock(&self.0.line) = Some(line);
        // It may have been withdrawn meanwhile.
        if self.0.sending.load(Ordering::Acquire) == WITHDRAWN {
            lock(&self.0.line).take();
        }
    }

    /// Call this right before writing the request. If it returns `None`, do not write.
    pub(in crate::adapters::mcp) fn start_sending(&self) -> Option<Vec<u8>> {
        self.0.sending.compare_exchange(QUEUED, SENDING, Ordering::AcqRel, Ordering::Acquire).ok()?;
        lock(&self.0.line).take()
    }

    /// Call this once the write has ended. `something`: at least one byte was written.
    pub(in crate::adapters::mcp) fn sent(&self, something: bool) {
        self.0.sending.store(if something { SENT } else { QUEUED }, Ordering::Release);
    }

    /// Call this right before posting the request. If it returns `false`, do not post.
    pub(in crate::adapters::mcp) fn post(&self) -> bool {
        let next = |state| match state {
            WITHDRAWN => None,
            REFUSED | REPEATED => Some(REPEATED),
            _ => Some(SENT),
        };
        self.0.sending.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }

    /// Call this if the server rejects the posted request because of its session. Returns `false` if it was already repeated in another
    /// session.
    pub(in crate::adapters::mcp) fn refuse(&self) -> bool {
        self.0.sending.compare_exchange(SENT, REFUSED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Call this if the server rejects the posted request as a bad one (HTTP 400).
    pub(in crate::adapters::mcp) fn reject(&self) {
        self.0.is_rejected.store(true, Ordering::Release);
    }

    pub(in crate::adapters::mcp) fn is_rejected(&self) -> bool {
        self.0.is_rejected.load(Ordering::Acquire)
    }

    /// Prevents the request from being sent. Returns `false` if it may have been sent already.
    pub(in crate::adapters::mcp) async fn withdraw(&self) -> bool {
        let deadline = Instant::now() + SETTLING;
        loop {
            match self.withdraw_now() {
                Ok(()) => return true,
                Err(SENDING) if Instant::now() < deadline => sleep(Duration::from_millis(1)).await,
                Err(_) => return false,
            }
        }
    }

    /// Prevents the request from being sent, unless a write has begun. Fails with the state.
    fn withdraw_now(&self) -> Result<(), u8> {
        let next = |state| matches!(state, QUEUED | REFUSED).then_some(WITHDRAWN);
        self.0.sending.fetch_update(Ordering::AcqRel, Ordering::Acquire, next)?;
        lock(&self.0.line).take();
        Ok(())
    }

    /// Abandons the request. Returns `false` if the server may have received it.
    pub(in crate::adapters::mcp) fn abandon(&self) -> bool {
        self.0.gone.cancel();
        self.withdraw_now().is_ok()
    }

    /// Waits until the request is abandoned.
    pub(in crate::adapters::mcp) fn gone(&self) -> WaitForCancellationFutureOwned {
        self.0.gone.clone().cancelled_owned()
    }

    pub(in crate::adapters::mcp) fn trace(&self) -> Option<&TraceContext> {
        self.0.listeners.trace.as_ref()
    }

    pub(in crate::adapters::mcp) fn take(&self) -> Option<Answer> {
        lock(&self.0.answer).take()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_is_repeated_in_one_other_session_at_most() {
        let ticket = || Ticket::new(Purpose::Call, 100, Listeners::default());
        let posted = ticket();
        assert!(posted.post() && !posted.abandon() && posted.refuse());
        assert!(posted.post() && !posted.refuse() && !posted.withdraw().await);
        let refused = ticket();
        assert!(refused.post() && refused.refuse() && refused.withdraw().await && !refused.post());
        let queued = ticket();
        assert!(queued.abandon() && !queued.post() && queued.start_sending().is_none());
    }

    /// Regression: the requests of callers who had gone filled the memory while a process read nothing.
    #[test]
    fn the_text_of_a_request_is_freed_when_it_is_withdrawn() {
        let kept = |ticket: &Ticket| lock(&ticket.0.line).is_some();
        let ticket = || Ticket::new(Purpose::Call, 100, Listeners::default());
        let (written, queued, gone) = (ticket(), ticket(), ticket());
        written.keep(b"line".to_vec());
        assert_eq!((written.start_sending().as_deref(), kept(&written)), (Some(&b"line"[..]), false));
        queued.keep(b"line".to_vec());
        assert!(kept(&queued) && queued.abandon() && !kept(&queued));
        assert!(gone.abandon());
        gone.keep(b"line".to_vec());
        assert!(!kept(&gone), "its caller went before it was queued");
    }
}

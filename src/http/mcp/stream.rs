//! Streams of events to a client (WHATWG HTML, "Server-sent events").

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::http::header;
use actix_web::web::Bytes;
use futures::stream::unfold;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::service::mcp_sessions::Running;

pub(super) const EVENT_STREAM: &str = "text/event-stream";
/// After so much silence a comment says that the stream is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A message of JSON-RPC as an event. JSON text that came over a stream has no line ends outside of strings, and inside they are
/// escaped; where somebody sent some all the same, each line is one of the event.
pub(super) fn event(message: &str) -> Bytes {
    let mut event = String::with_capacity(message.len() + 8);
    for line in message.lines() {
        event.push_str("data: ");
        event.push_str(line);
        event.push('\n');
    }
    event.push('\n');
    event.into()
}

/// A response that tells what comes, until the sender is gone.
pub(super) fn response(messages: mpsc::Receiver<Arc<str>>) -> HttpResponse {
    let events = unfold(messages, async |mut messages| {
        let event = match timeout(KEEP_ALIVE, messages.recv()).await {
            Ok(Some(message)) => event(&message),
            Ok(None) => return None,
            Err(_) => Bytes::from_static(b": alive\n\n"),
        };
        Some((Ok::<_, Infallible>(event), messages))
    });
    streaming().streaming(Box::pin(events))
}

/// The head of such a response.
pub(super) fn streaming() -> actix_web::HttpResponseBuilder {
    let mut builder = HttpResponse::Ok();
    builder.insert_header((header::CONTENT_TYPE, EVENT_STREAM)).insert_header((header::CACHE_CONTROL, "no-cache"));
    // Proxies that collect what they pass on would hold events back.
    builder.insert_header(("x-accel-buffering", "no"));
    builder
}

/// A body that holds a request as being at work, and ends where the client has cancelled it.
pub(super) struct Held {
    body: BoxBody,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    _running: Running,
}

impl Held {
    pub(super) fn new(body: BoxBody, running: Running) -> Self {
        Self { body, cancelled: Box::pin(running.cancelled.clone().cancelled_owned()), _running: running }
    }
}

impl MessageBody for Held {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        // A length that was promised is kept.
        if self.body.size() == BodySize::Stream && self.cancelled.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_next(context)
    }
}

#[cfg(test)]
mod tests {
    use super::event;

    #[test]
    fn a_message_is_one_event() {
        assert_eq!(event("{\"a\":1}"), "data: {\"a\":1}\n\n");
        assert_eq!(event("{\n\"a\":1}"), "data: {\ndata: \"a\":1}\n\n");
    }
}

//! Event streams to MCP clients.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::Bytes;
use futures::future::ready;
use futures::stream::unfold;
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{is_stream, to_response};
use crate::http::event_stream::{self, ALIVE, KEEP_ALIVE, streaming};
use crate::http::problem::{Code, Problem};
use crate::service::mcp::mcp_sessions::{Listening, Running};

/// Maximum number of events that are queued for a slow client.
const EVENTS: usize = 16;

/// Converts a JSON-RPC message to an event. JSON from a server normally contains no line breaks.
pub(super) fn event(message: &str) -> Bytes {
    event_stream::event(None, None, message)
}

/// A response that sends notifications until the session ends.
pub(super) fn response(listening: Listening) -> HttpResponse {
    let events = unfold(listening, async |mut listening| {
        let event = match timeout(KEEP_ALIVE, listening.next()).await {
            Ok(Some(news)) => event(&news.message()),
            Ok(None) => return None,
            Err(_) => Bytes::from_static(ALIVE),
        };
        Some((Ok::<_, Infallible>(event), listening))
    });
    streaming().streaming(Box::pin(events))
}

/// What happens first: a message from the server, or the response.
enum First<B> {
    Message(Arc<str>),
    Answered(http::Response<B>),
}

/// The response to a request, preceded by messages from the server. It ends when the client cancels the request.
pub(super) async fn merged<B>(
    handled: impl Future<Output = http::Response<B>> + 'static,
    mut messages: Option<mpsc::Receiver<Arc<str>>>,
    running: Running,
) -> Result<HttpResponse, Problem>
where
    B: http_body::Body<Data = Bytes> + Unpin + 'static,
    B::Error: std::error::Error,
{
    let mut handled = Box::pin(handled);
    let cancelled = running.cancelled.clone();
    let first = tokio::select! {
        biased;
        Some(message) = next(&mut messages) => First::Message(message),
        response = &mut handled => First::Answered(response),
        // Returning here drops the request, which cancels its work. The client expects no response.
        () = cancelled.cancelled() => return Ok(streaming().finish()),
    };
    match (first, messages) {
        (First::Answered(response), Some(messages)) if is_stream(&response) => Ok(pumped(None, ready(response), messages, running)),
        (First::Answered(response), _) => {
            let response = to_response(response).await?;
            // The request counts as running until the response has been sent.
            Ok(response.map_body(|_, body| Held::new(body, running)).map_into_boxed_body())
        }
        (First::Message(message), Some(messages)) => Ok(pumped(Some(message), handled, messages, running)),
        (First::Message(_), None) => Err(Problem::new(Code::Internal, "A message has no stream.")),
    }
}

async fn next(messages: &mut Option<mpsc::Receiver<Arc<str>>>) -> Option<Arc<str>> {
    messages.as_mut()?.recv().await
}

/// A stream with the messages, followed by the response. Its task ends when the client disconnects.
fn pumped<B>(
    first: Option<Arc<str>>,
    handled: impl Future<Output = http::Response<B>> + Unpin + 'static,
    messages: mpsc::Receiver<Arc<str>>,
    running: Running,
) -> HttpResponse
where
    B: http_body::Body<Data = Bytes> + Unpin + 'static,
{
    let (sender, receiver) = mpsc::channel(EVENTS);
    actix_web::rt::spawn(async move {
        let cancelled = running.cancelled.clone();
        tokio::select! {
            () = pump(first, handled, messages, &sender) => {}
            () = sender.closed() => {}
            () = cancelled.cancelled() => {}
        }
        drop(running);
    });
    let events = unfold(receiver, async |mut receiver| {
        let event = match timeout(KEEP_ALIVE, receiver.recv()).await {
            Ok(Some(event)) => event,
            Ok(None) => return None,
            Err(_) => Bytes::from_static(ALIVE),
        };
        Some((Ok::<_, Infallible>(event), receiver))
    });
    streaming().streaming(Box::pin(events))
}

async fn pump<B>(
    first: Option<Arc<str>>,
    mut handled: impl Future<Output = http::Response<B>> + Unpin,
    mut messages: mpsc::Receiver<Arc<str>>,
    sender: &mpsc::Sender<Bytes>,
) where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    if let Some(message) = first {
        let _ = sender.send(event(&message)).await;
    }
    let response = loop {
        tokio::select! {
            biased;
            Some(message) = messages.recv() => drop(sender.send(event(&message)).await),
            response = &mut handled => break response,
        }
    };
    let is_stream = is_stream(&response);
    let mut body = response.into_body();
    if !is_stream {
        if let Ok(whole) = body.collect().await {
            let _ = sender.send(event(&String::from_utf8_lossy(&whole.to_bytes()))).await;
        }
        return;
    }
    loop {
        let frame = tokio::select! {
            biased;
            Some(message) = messages.recv() => {
                let _ = sender.send(event(&message)).await;
                continue;
            }
            frame = body.frame() => frame,
        };
        // Each frame contains complete events, so messages may be sent between two frames.
        let Some(Ok(frame)) = frame else { return };
        if let Ok(data) = frame.into_data() {
            let _ = sender.send(data).await;
        }
    }
}

/// A response body during which the request counts as running. It ends when the client cancels the request.
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
        // A body with an announced length is sent completely.
        if self.body.size() == BodySize::Stream && self.cancelled.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_next(context)
    }
}

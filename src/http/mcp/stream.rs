//! Event streams to MCP clients.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::Bytes;
use futures::future::{pending, ready};
use futures::stream::unfold;
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{is_stream, to_response};
use crate::http::event_stream::{self, ALIVE, KEEP_ALIVE, streaming};
use crate::http::problem::Problem;
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

/// What happens first: a message from the server, the response, or neither for a while.
enum First<B> {
    Message(Arc<str>),
    Answered(http::Response<B>),
    Late,
}

/// The response to a request, preceded by messages from the server. It ends when the client cancels the request.
///
/// If the response takes longer than `patience`, it becomes a stream, because proxies close connections without traffic. Without
/// `patience`, the client gets no stream for this reason.
pub(super) async fn merged<B>(
    handled: impl Future<Output = http::Response<B>> + 'static,
    mut messages: Option<mpsc::Receiver<Arc<str>>>,
    running: Option<Running>,
    patience: Option<Duration>,
) -> Result<HttpResponse, Problem>
where
    B: http_body::Body<Data = Bytes> + Unpin + 'static,
    B::Error: std::error::Error,
{
    let mut handled = Box::pin(handled);
    let cancelled = running.as_ref().map(|running| running.cancelled.clone());
    let first = tokio::select! {
        biased;
        Some(message) = next(&mut messages) => First::Message(message),
        response = &mut handled => First::Answered(response),
        // Returning here drops the request, which cancels its work. The client expects no response.
        () = ended(cancelled) => return Ok(streaming().finish()),
        () = late(patience) => First::Late,
    };
    match (first, messages) {
        (First::Answered(response), Some(messages)) if is_stream(&response) => {
            Ok(pumped(None, ready(response), Some(messages), running, false))
        }
        (First::Answered(response), _) => {
            let response = to_response(response).await?;
            // The request counts as running until the response has been sent.
            Ok(match running {
                Some(running) => response.map_body(|_, body| Held::new(body, running)).map_into_boxed_body(),
                None => response,
            })
        }
        (First::Message(message), messages) => Ok(pumped(Some(message), handled, messages, running, false)),
        (First::Late, messages) => Ok(pumped(None, handled, messages, running, true)),
    }
}

/// Waits until the client cancels the request. Only requests in a session can be cancelled.
async fn ended(cancelled: Option<CancellationToken>) {
    match cancelled {
        Some(cancelled) => cancelled.cancelled_owned().await,
        None => pending().await,
    }
}

async fn late(patience: Option<Duration>) {
    match patience {
        Some(patience) => sleep(patience).await,
        None => pending().await,
    }
}

/// The next message, or `None` if there are no more.
async fn next(messages: &mut Option<mpsc::Receiver<Arc<str>>>) -> Option<Arc<str>> {
    messages.as_mut()?.recv().await
}

/// A stream with the messages, followed by the response. Its task ends when the client disconnects. A late stream begins with a comment,
/// so that it isn't idle for another interval.
fn pumped<B>(
    first: Option<Arc<str>>,
    handled: impl Future<Output = http::Response<B>> + Unpin + 'static,
    messages: Option<mpsc::Receiver<Arc<str>>>,
    running: Option<Running>,
    is_late: bool,
) -> HttpResponse
where
    B: http_body::Body<Data = Bytes> + Unpin + 'static,
{
    let (sender, receiver) = mpsc::channel(EVENTS);
    if is_late {
        let _ = sender.try_send(Bytes::from_static(ALIVE));
    }
    actix_web::rt::spawn(async move {
        let cancelled = running.as_ref().map(|running| running.cancelled.clone());
        tokio::select! {
            () = pump(first, handled, messages, &sender) => {}
            () = sender.closed() => {}
            () = ended(cancelled) => {}
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
    mut messages: Option<mpsc::Receiver<Arc<str>>>,
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
            Some(message) = next(&mut messages) => drop(sender.send(event(&message)).await),
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
            Some(message) = next(&mut messages) => {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use actix_web::HttpResponse;
    use actix_web::body::to_bytes;
    use actix_web::http::header::CONTENT_TYPE;
    use actix_web::web::Bytes;
    use http_body_util::Full;
    use tokio::sync::{mpsc, oneshot};
    use tokio::task::LocalSet;
    use tokio::time::sleep;

    use super::merged;

    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

    async fn answer(when: oneshot::Receiver<()>) -> http::Response<Full<Bytes>> {
        when.await.unwrap();
        let answer = http::Response::builder().header(http::header::CONTENT_TYPE, "application/json");
        answer.body(Full::new(Bytes::from_static(ANSWER.as_bytes()))).unwrap()
    }

    async fn read(response: HttpResponse) -> (String, String) {
        let kind = response.headers().get(CONTENT_TYPE).unwrap().to_str().unwrap().to_owned();
        let body = to_bytes(response.into_body()).await.unwrap();
        (kind, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Regression: a call of a minute sent nothing until its result, so that proxies closed the connection and the call was cancelled.
    #[tokio::test]
    async fn a_late_response_becomes_a_stream() {
        let test = async {
            for has_messages in [false, true] {
                let (end, ended) = oneshot::channel();
                let (sender, messages) = mpsc::channel(1);
                let messages = has_messages.then_some(messages);
                // The response can't come before the stream has begun.
                let response = merged(answer(ended), messages, None, Some(Duration::from_millis(1))).await.unwrap();
                if has_messages {
                    sender.send("{}".into()).await.unwrap();
                }
                end.send(()).unwrap();
                let message = if has_messages { "data: {}\n\n" } else { "" };
                let (kind, body) = read(response).await;
                assert_eq!((kind.as_str(), body), ("text/event-stream", format!(": alive\n\n{message}data: {ANSWER}\n\n")));
            }
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn a_fast_response_is_json_and_so_is_each_one_for_clients_without_streams() {
        for (patience, takes) in [(Some(Duration::from_mins(1)), Duration::ZERO), (None, Duration::from_millis(50))] {
            let (end, ended) = oneshot::channel();
            let ending = async {
                sleep(takes).await;
                end.send(()).unwrap();
            };
            let (response, ()) = tokio::join!(merged(answer(ended), None, None, patience), ending);
            assert_eq!(read(response.unwrap()).await, ("application/json".to_owned(), ANSWER.to_owned()));
        }
    }
}

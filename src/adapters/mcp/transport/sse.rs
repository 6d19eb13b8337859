//! The HTTP+SSE transport of protocol 2024-11-05, for servers that still need it.
//!
//! All messages of the server arrive on one open stream; ours are posted to the URL in its first event. When the stream ends, the
//! connection ends, and the supervisor reconnects. There is only the client side, because the transport is obsolete.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE};
use rmcp::RoleClient;
use rmcp::model::{JsonRpcMessage, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::io::StreamReader;
use url::Url;

use crate::adapters::mcp::exchange::{Exchange, Inbound, Ticket, batch, cancels_unsent, encode};
use crate::adapters::mcp::transport::events::{Event, Events};
use crate::adapters::mcp::transport::sending::{
    EVENT_STREAM, Failure, Forwarded, HttpFailure, JSON, Sender, check_encoding, content_type, forwarded, read,
};

/// Time limit for the response headers, and again for the first event. Servers with the newer transport may send neither.
const OPENING: Duration = Duration::from_secs(10);
const FIRST_EVENT: Duration = Duration::from_secs(3);
/// Maximum number of bytes read from the response to a post. Its content is ignored.
const POST_ANSWER_LIMIT: usize = 64 * 1024;
/// Time limit for the response to a post that is not a request. It has no content.
const NOTIFYING: Duration = Duration::from_secs(10);
/// Maximum number of concurrent posts that answer requests of the server. Each may need a connection of its own.
const CONCURRENT_ANSWERS: usize = 4;

/// The reason why an SSE connection failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::adapters::mcp) enum SseFailure {
    #[error(transparent)]
    Http(#[from] HttpFailure),
    #[error("no event stream")]
    NotEvents,
    #[error("no message endpoint within {} s", .0.as_secs_f32())]
    Silent(Duration),
    #[error("the event stream contains no message endpoint")]
    NoEndpoint,
    #[error("the event stream names a message endpoint at another origin")]
    ForeignEndpoint,
}

impl SseFailure {
    /// Whether the server may use the newer transport.
    pub(in crate::adapters::mcp) fn may_be_streamable(&self) -> bool {
        match self {
            Self::NotEvents | Self::Silent(_) | Self::NoEndpoint => true,
            Self::Http(HttpFailure::Status(status)) => {
                let says_something_else = [
                    StatusCode::UNAUTHORIZED,
                    StatusCode::FORBIDDEN,
                    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
                    StatusCode::REQUEST_TIMEOUT,
                    StatusCode::TOO_MANY_REQUESTS,
                ];
                *status == StatusCode::NOT_IMPLEMENTED || (status.is_client_error() && !says_something_else.contains(status))
            }
            Self::Http(_) | Self::ForeignEndpoint => false,
        }
    }
}

/// The server's address and time limits.
pub(in crate::adapters::mcp) struct Remote<'a> {
    pub(in crate::adapters::mcp) sender: Sender,
    pub(in crate::adapters::mcp) url: &'a Url,
    /// Time limit for connecting.
    pub(in crate::adapters::mcp) start_timeout: Duration,
    /// Time limit for the response to a post. The JSON-RPC response arrives on the stream.
    pub(in crate::adapters::mcp) call_timeout: Duration,
}

type Stream = StreamReader<BoxStream<'static, io::Result<Bytes>>, Bytes>;

pub(in crate::adapters::mcp) struct SseTransport {
    exchange: Arc<Exchange>,
    events: Option<Events<Stream>>,
    /// The messages of a batch that were not received yet.
    unpacked: VecDeque<Vec<u8>>,
    posts: Arc<Posts>,
}

/// Posts messages to the endpoint.
struct Posts {
    sender: Sender,
    endpoint: Url,
    timeout: Duration,
    exchange: Arc<Exchange>,
    answers: Semaphore,
}

impl SseTransport {
    /// Opens the stream and waits for the endpoint. `limit` is the maximum size of an event, in bytes.
    pub(in crate::adapters::mcp) async fn open(remote: Remote<'_>, exchange: Arc<Exchange>, limit: usize) -> Result<Self, SseFailure> {
        // Reserve half of the time for the other transport.
        let opening = OPENING.min(remote.start_timeout / 2);
        timeout(opening, Self::connect(remote, exchange, limit)).await.unwrap_or(Err(SseFailure::Silent(opening)))
    }

    async fn connect(remote: Remote<'_>, exchange: Arc<Exchange>, limit: usize) -> Result<Self, SseFailure> {
        let Remote { sender, url, call_timeout, .. } = remote;
        let request = sender.client.get(url.clone()).header(ACCEPT, EVENT_STREAM);
        let response = sender.send(request, None).await?;
        if !response.status().is_success() {
            return Err(HttpFailure::Status(response.status()).into());
        }
        if !content_type(&response).is_some_and(|kind| kind.starts_with(EVENT_STREAM)) {
            return Err(SseFailure::NotEvents);
        }
        check_encoding(&response)?;
        let base = response.url().clone();
        let bytes = response.bytes_stream().map_err(io::Error::other).boxed();
        let mut events = Events::new(StreamReader::new(bytes), limit);
        let first = timeout(FIRST_EVENT, events.next()).await.map_err(|_| SseFailure::Silent(FIRST_EVENT))?;
        let endpoint = match first {
            Some(Event::Whole { kind, data }) if kind == "endpoint" => endpoint(&base, &String::from_utf8_lossy(&data))?,
            _ => return Err(SseFailure::NoEndpoint),
        };
        let answers = Semaphore::new(CONCURRENT_ANSWERS);
        let posts = Posts { sender, endpoint, timeout: call_timeout, exchange: Arc::clone(&exchange), answers };
        Ok(Self { exchange, events: Some(events), unpacked: VecDeque::new(), posts: Arc::new(posts) })
    }
}

/// Parses the endpoint's URL. Rejects other origins, which would receive the credentials configured for this one.
fn endpoint(base: &Url, text: &str) -> Result<Url, SseFailure> {
    let mut endpoint = base.join(text.trim()).map_err(|_| SseFailure::NoEndpoint)?;
    if endpoint.origin() != base.origin() {
        return Err(SseFailure::ForeignEndpoint);
    }
    // Neither call can fail for a URL with a host.
    let _ = endpoint.set_username(base.username());
    let _ = endpoint.set_password(base.password());
    Ok(endpoint)
}

impl Posts {
    async fn post(&self, body: Vec<u8>, forwarded: Option<Forwarded>, limit: Duration) -> Result<(), Failure> {
        let request = self.sender.client.post(self.endpoint.clone()).header(CONTENT_TYPE, JSON).timeout(limit).body(body);
        let response = self.sender.send(request, forwarded).await.map_err(StreamableHttpError::Client)?;
        let status = response.status();
        if status.is_success() {
            // Read to its end, so that the HTTP connection can be reused.
            let _ = read(response, POST_ANSWER_LIMIT).await;
            return Ok(());
        }
        // These say something about the message or its sender, and nothing about the stream.
        if !matches!(status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS) {
            self.exchange.suspect.notify_one();
        }
        match status {
            StatusCode::NOT_FOUND | StatusCode::GONE => Err(StreamableHttpError::SessionExpired),
            status => Err(StreamableHttpError::Client(HttpFailure::Status(status))),
        }
    }
}

impl Transport<RoleClient> for SseTransport {
    type Error = Failure;

    fn send(&mut self, mut item: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let forwarded = forwarded(&item);
        let ticket = self.exchange.outbound(&mut item);
        let is_wanted = ticket.as_ref().is_none_or(Ticket::post) && !cancels_unsent(&item);
        let posts = Arc::clone(&self.posts);
        let answering = self.exchange.answering(&item);
        let limit = if matches!(item, JsonRpcMessage::Request(_)) { posts.timeout } else { posts.timeout.min(NOTIFYING) };
        let body = encode(&item);
        async move {
            // The semaphore is never closed.
            let _turn = if answering.is_some() { posts.answers.acquire().await.ok() } else { None };
            if !is_wanted {
                return Ok(());
            }
            let sending = posts.post(body?, forwarded, limit);
            let Some(ticket) = ticket else { return sending.await };
            tokio::select! {
                sent = sending => sent,
                // A server that takes no posts would otherwise keep the connection and the text of the request for long.
                () = ticket.gone() => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let inbound = if let Some(message) = self.unpacked.pop_front() {
                self.exchange.inbound(&message)
            } else {
                match self.events.as_mut()?.next().await? {
                    Event::TooLarge { head, tail } => self.exchange.fail_oversized(&head, &tail),
                    Event::Whole { kind, data } if kind == "message" => match batch(&data) {
                        Some(messages) => {
                            self.unpacked.extend(messages);
                            continue;
                        }
                        None => self.exchange.inbound(&data),
                    },
                    Event::Whole { .. } => continue,
                }
            };
            match inbound {
                Inbound::Answered { id } => return Some(RxJsonRpcMessage::<RoleClient>::response(ServerResult::empty(()), id)),
                Inbound::Forward(message) => {
                    if let Ok(message) = serde_json::from_value(message) {
                        return Some(message);
                    }
                }
                Inbound::Consumed | Inbound::Dropped | Inbound::Junk => {}
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.events = None;
        self.unpacked.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_origin_of_the_stream_only() {
        let base: Url = "https://user:secret@tools.example.org/a/sse?key=k".parse().unwrap();
        let at = |text: &str| endpoint(&base, text).map(String::from).map_err(|failure| failure.to_string());
        assert_eq!(at("/messages?session=1").as_deref(), Ok("https://user:secret@tools.example.org/messages?session=1"));
        assert_eq!(at("messages\n").as_deref(), Ok("https://user:secret@tools.example.org/a/messages"));
        assert_eq!(at("https://tools.example.org:443/m").as_deref(), Ok("https://user:secret@tools.example.org/m"));
        for foreign in ["http://tools.example.org/m", "//evil.example.org/m", "https://tools.example.org:8443/m", "data:,x"] {
            assert!(at(foreign).is_err_and(|reason| reason.contains("another origin")), "{foreign}");
        }
        assert!(at("https://").is_err());
    }

    #[test]
    fn another_transport_is_tried_only_where_the_answer_hints_at_it() {
        let status = |status: u16| SseFailure::Http(HttpFailure::Status(StatusCode::from_u16(status).unwrap())).may_be_streamable();
        assert!([400, 404, 405, 406, 415, 501].into_iter().all(status));
        assert!(![302, 401, 403, 429, 500, 502, 503].into_iter().any(status));
        assert!(SseFailure::NotEvents.may_be_streamable() && !SseFailure::ForeignEndpoint.may_be_streamable());
    }
}

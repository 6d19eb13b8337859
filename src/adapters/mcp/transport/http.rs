//! Sends the HTTP requests of rmcp's streamable HTTP transport, over reqwest.
//!
//! rmcp manages sessions, protocol versions and streams; this module sends its requests and reads the responses. It differs from
//! rmcp's own client in three ways. Responses pass through [`Exchange`] undecoded and have a size limit. A lost stream ends its
//! calls at once instead of resuming forever. Errors contain no URL, header or body.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::ready;
use futures::stream::{self, BoxStream, StreamExt};
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use reqwest::{RequestBuilder, Response};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, Implementation, JsonRpcMessage, ProtocolVersion, RequestId, ServerCapabilities,
    ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::streamable_http_client::{SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse};
use serde_json::{Value, json};
use sse_stream::{Sse, SseStream};
use tokio::time::{Instant, sleep_until, timeout};

use crate::adapters::mcp::exchange::{
    Answer, Exchange, Inbound, Ticket, batch, cancels_unsent, encode, is_error, is_error_without_id, responds_to,
};
use crate::adapters::mcp::transport::client::ConnectionFailure;
use crate::adapters::mcp::transport::reopening::Reopening;
use crate::adapters::mcp::transport::sending::{
    EVENT_STREAM, Failure, Forwarded, HttpFailure, JSON, LAST_EVENT, SESSION, Sender, check_encoding, content_type, forwarded, header,
    read, retry_after,
};

/// Maximum size of an error body, in bytes. It is read only for a JSON-RPC error.
const FAILURE_LIMIT: usize = 64 * 1024;
/// Time limit for the response to a post that answers a request of the server. The response has no content.
const ANSWERING: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(in crate::adapters::mcp) struct HttpClient(Arc<Inner>);

struct Inner {
    sender: Sender,
    exchange: Arc<Exchange>,
    limit: usize,
    initialized: AtomicBool,
    /// The server's description of itself in the first handshake.
    introduction: Mutex<Option<Introduction>>,
    news: Mutex<NewsStream>,
}

/// What a connection keeps of the result of `initialize`.
#[derive(Clone, PartialEq)]
struct Introduction {
    protocol: ProtocolVersion,
    capabilities: ServerCapabilities,
    program: Implementation,
    instructions: Option<String>,
}

impl Inner {
    /// Notes the response to `initialize`. In a later session, another one means that this connection knows an outdated server.
    fn introduced(&self, message: &ServerJsonRpcMessage) {
        let JsonRpcMessage::Response(response) = message else { return };
        let ServerResult::InitializeResult(result) = &response.result else { return };
        let introduction = Introduction {
            protocol: result.protocol_version.clone(),
            capabilities: result.capabilities.clone(),
            program: result.server_info.clone(),
            instructions: result.instructions.clone(),
        };
        let mut first = self.introduction.lock();
        if *first.get_or_insert_with(|| introduction.clone()) != introduction {
            self.exchange.outdated.notify_one();
        }
    }

    /// The response to `initialize`, noted as soon as it is read.
    fn with_introduction(self: &Arc<Self>, response: StreamableHttpPostResponse) -> StreamableHttpPostResponse {
        match response {
            StreamableHttpPostResponse::Json(message, session) => {
                self.introduced(&message);
                StreamableHttpPostResponse::Json(message, session)
            }
            StreamableHttpPostResponse::Sse(events, session) => {
                let inner = Arc::clone(self);
                let note = move |event: &Result<Sse, SseError>| {
                    let data = event.as_ref().ok().and_then(|event| event.data.as_deref());
                    if let Some(message) = data.and_then(|data| serde_json::from_str(data).ok()) {
                        inner.introduced(&message);
                    }
                };
                StreamableHttpPostResponse::Sse(events.inspect(note).boxed(), session)
            }
            other => other,
        }
    }
}

/// The stream for notifications that belong to no request.
#[derive(Default)]
struct NewsStream {
    reopening: Reopening,
    /// The last event's id, with which rmcp resumes it. Streams of requests are resumed with others.
    last_event_id: Option<String>,
    /// Whether the last attempt to open it failed, so that notifications may have been missed.
    is_missing: bool,
}

/// The response for which an event stream was opened.
struct ExpectedResponse {
    request: Option<RequestId>,
    /// Whether the response has arrived.
    answered: bool,
}

/// A message that was posted, for the interpretation of its response.
struct Posted {
    /// The id, if it is a request.
    request: Option<RequestId>,
    is_discover: bool,
    is_call: bool,
    has_session: bool,
    ticket: Option<Ticket>,
}

impl HttpClient {
    pub(in crate::adapters::mcp) fn new(sender: Sender, exchange: Arc<Exchange>, limit: usize) -> Self {
        let (initialized, introduction, news) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { sender, exchange, limit, initialized, introduction, news }))
    }

    async fn post(
        &self,
        uri: &str,
        mut message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let Inner { sender: Sender { client, .. }, exchange, initialized, .. } = &*self.0;
        let forwarded = forwarded(&message);
        let ticket = exchange.outbound(&mut message);
        if cancels_unsent(&message) || ticket.as_ref().is_some_and(|ticket| !ticket.post()) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let posted = match &message {
            JsonRpcMessage::Request(request) => {
                let is_initialize = matches!(request.request, ClientRequest::InitializeRequest(_));
                if is_initialize && initialized.swap(true, Ordering::Relaxed) {
                    // The session is new: the server was restarted and may have other tools.
                    exchange.forget_requests();
                    exchange.changed.notify_one();
                    exchange.news.renewed();
                }
                let is_discover = matches!(request.request, ClientRequest::DiscoverRequest(_));
                let is_call = matches!(request.request, ClientRequest::CallToolRequest(_));
                Posted { request: Some(request.id.clone()), is_discover, is_call, has_session: session.is_some(), ticket }
            }
            _ => Posted { request: None, is_discover: false, is_call: false, has_session: session.is_some(), ticket },
        };
        let answering = exchange.answering(&message);
        let body = encode(&message)?;
        let builder = client.post(uri).header(ACCEPT, "application/json, text/event-stream").header(CONTENT_TYPE, JSON);
        let sending = self.send(builder, session, headers, forwarded, Some(body));
        let response = if answering.is_some() {
            timeout(ANSWERING, sending).await.unwrap_or_else(|_| {
                let late = format!("no response within {} s", ANSWERING.as_secs());
                Err(StreamableHttpError::Client(ConnectionFailure::Broken(late).into()))
            })?
        } else {
            sending.await?
        };
        let status = response.status();
        if !status.is_success() {
            return self.refused(response, posted).await;
        }
        let is_stream = content_type(&response).is_some_and(|kind| kind.starts_with(EVENT_STREAM));
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) || (answering.is_some() && !is_stream) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        check_encoding(&response).map_err(StreamableHttpError::Client)?;
        let session = header(&response, SESSION);
        match (content_type(&response), posted.request) {
            (Some(kind), request) if kind.starts_with(EVENT_STREAM) => {
                Ok(StreamableHttpPostResponse::Sse(self.events(response, request), session))
            }
            (_, None) => Ok(StreamableHttpPostResponse::Accepted),
            (Some(kind), Some(request)) if kind.starts_with(JSON) => self.answer(response, request, session).await,
            (_, Some(_)) => Err(StreamableHttpError::UnexpectedContentType(None)),
        }
    }

    async fn send(
        &self,
        mut builder: RequestBuilder,
        session: Option<Arc<str>>,
        headers: HashMap<HeaderName, HeaderValue>,
        forwarded: Option<Forwarded>,
        body: Option<Vec<u8>>,
    ) -> Result<Response, Failure> {
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        if let Some(session) = session {
            builder = builder.header(SESSION, &*session);
        }
        if let Some(body) = body {
            builder = builder.body(body);
        }
        self.0.sender.send(builder, forwarded).await.map_err(StreamableHttpError::Client)
    }

    /// Reads a response that is not a stream.
    async fn answer(&self, response: Response, request: RequestId, session: Option<String>) -> Result<StreamableHttpPostResponse, Failure> {
        let exchange = &self.0.exchange;
        let one = |message| Ok(StreamableHttpPostResponse::Json(message, session.clone()));
        let Some(body) = read(response, self.0.limit).await? else {
            return if exchange.fail_too_large(&request) {
                one(nothing(request))
            } else {
                Err(StreamableHttpError::ResponseBodyTooLarge { max_size: self.0.limit })
            };
        };
        if let Some(messages) = batch(&body) {
            let mut asked = ExpectedResponse { request: Some(request.clone()), answered: false };
            let event = |message: Vec<u8>| Sse::default().data(String::from_utf8_lossy(&message).into_owned());
            let mut events: Vec<_> = messages.into_iter().map(|message| filter(exchange, &mut asked, event(message))).collect();
            events.extend(exchange.fail(&request, Answer::Malformed).then(|| finished_event(&request)));
            return Ok(StreamableHttpPostResponse::Sse(stream::iter(events).map(Ok).boxed(), session));
        }
        let inbound = exchange.inbound(&body);
        if let Inbound::Forward(message) = &inbound {
            exchange.discard(message);
        }
        match inbound {
            Inbound::Answered { id } if id == request => one(nothing(id)),
            // A response to another request, which has a response of its own.
            Inbound::Answered { id } => {
                exchange.fail(&request, Answer::Malformed);
                let events = [finished_event(&id), finished_event(&request)];
                Ok(StreamableHttpPostResponse::Sse(stream::iter(events).map(Ok).boxed(), session))
            }
            Inbound::Forward(message) if responds_to(&message, &request) => one(serde_json::from_value(message)?),
            Inbound::Forward(message) if is_error(&message) => {
                if exchange.fail(&request, Answer::error(&message["error"])) {
                    return one(nothing(request));
                }
                let error = serde_json::from_value(message["error"].clone())?;
                one(ServerJsonRpcMessage::error(error, Some(request)))
            }
            _ if exchange.fail(&request, Answer::Malformed) => one(nothing(request)),
            Inbound::Forward(_) | Inbound::Dropped => {
                Err(StreamableHttpError::UnexpectedServerResponse("the response is to another request".into()))
            }
            Inbound::Consumed | Inbound::Junk => Err(StreamableHttpError::UnexpectedServerResponse("the response is not JSON-RPC".into())),
        }
    }

    /// Handles a response with an error status.
    async fn refused(&self, response: Response, posted: Posted) -> Result<StreamableHttpPostResponse, Failure> {
        let Posted { request, is_discover, is_call, has_session, ticket } = posted;
        let (status, exchange) = (response.status(), &self.0.exchange);
        let may_repeat = ticket.is_some() && matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let wait = header(&response, RETRY_AFTER.as_str()).filter(|_| may_repeat).and_then(|text| retry_after(&text, Timestamp::now()));
        let failure = wait.map_or(HttpFailure::Status(status), |time| HttpFailure::Busy(status, time));
        let failure = Err(StreamableHttpError::Client(failure));
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS) {
            return failure;
        }
        let body = read(response, FAILURE_LIMIT).await.ok().flatten().unwrap_or_default();
        // For an unknown session, servers of the TypeScript SDK respond with 400 and this text instead of 404.
        let names_session = status == StatusCode::BAD_REQUEST && body.windows(10).any(|words| words == b"session ID");
        let mut message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let is_response = request.as_ref().is_some_and(|request| responds_to(&message, request));
        if has_session && (status == StatusCode::NOT_FOUND || names_session) {
            // The error of a tool can have this status too. It has the id of the call, which errors about the session usually lack.
            // Repeating other requests does no harm.
            if !(is_call && is_response) && ticket.as_ref().is_none_or(Ticket::refuse) {
                return Err(StreamableHttpError::SessionExpired);
            }
            exchange.suspect.notify_one();
        }
        if status == StatusCode::BAD_REQUEST {
            ticket.iter().for_each(Ticket::reject);
        }
        let Some(request) = request else { return failure };
        if is_response && let Inbound::Answered { id } = exchange.inbound(&body) {
            return Ok(StreamableHttpPostResponse::Json(nothing(id), None));
        }
        // Any other error may be that of a proxy.
        if wait.is_some() {
            return failure;
        }
        if let Some(error) = message.get_mut("error").map(Value::take).filter(Value::is_object) {
            if exchange.fail(&request, Answer::error(&error)) {
                return Ok(StreamableHttpPostResponse::Json(nothing(request), None));
            }
            // Such a response often lacks the id of the request.
            if let Ok(error) = serde_json::from_value(error) {
                let message = ServerJsonRpcMessage::error(error, Some(request));
                return Ok(StreamableHttpPostResponse::Json(message, None));
            }
        } else if is_discover && !matches!(status.as_u16(), 502..=504) {
            // A server of an older version does not support this request.
            let error = ErrorData::invalid_request(format!("HTTP {status}"), None);
            let message = ServerJsonRpcMessage::error(error, Some(request));
            return Ok(StreamableHttpPostResponse::Json(message, None));
        }
        failure
    }

    /// The messages of an event stream that rmcp must see.
    fn events(&self, response: Response, request: Option<RequestId>) -> BoxStream<'static, Result<Sse, SseError>> {
        let (exchange, limit) = (Arc::clone(&self.0.exchange), self.0.limit);
        let asked = ExpectedResponse { request, answered: false };
        SseStream::from_bytes_stream(bounded(response.bytes_stream().boxed(), limit))
            .scan(asked, move |asked, event| {
                let event = match event {
                    Ok(event) => return ready(Some(unpacked(&exchange, asked, event))),
                    Err(SseError::Body(error)) if is_too_large(&*error) => {
                        let id = asked.request.take().filter(|id| exchange.fail_too_large(id));
                        id.map(|id| Ok(finished_event(&id))).unwrap_or(Err(SseError::Body(error)))
                    }
                    Err(error) => {
                        if !asked.answered {
                            exchange.suspect.notify_one();
                        }
                        Err(error)
                    }
                };
                ready(Some(vec![event]))
            })
            .flat_map(stream::iter)
            .boxed()
    }

    /// When to open the stream for notifications, if this is what a GET request with this id opens. A server may end it at once, and
    /// then rmcp would open it again without a pause.
    fn opens_news(&self, last_event_id: Option<&str>) -> Option<Instant> {
        let mut news = self.0.news.lock();
        let is_news = last_event_id.is_none() || last_event_id == news.last_event_id.as_deref();
        is_news.then(|| news.reopening.next(Instant::now()))
    }

    /// The stream for notifications. Remembers the ids of its events.
    fn news(&self, response: Response) -> BoxStream<'static, Result<Sse, SseError>> {
        let inner = Arc::clone(&self.0);
        if std::mem::take(&mut inner.news.lock().is_missing) {
            inner.exchange.changed.notify_one();
            inner.exchange.news.renewed();
        }
        let note = move |event: &Result<Sse, SseError>| {
            if let Ok(Sse { id: Some(id), .. }) = event {
                inner.news.lock().last_event_id = Some(id.clone());
            }
        };
        self.events(response, None).inspect(note).boxed()
    }

    /// An empty stream for notifications. rmcp opens another one after its end.
    fn no_news(&self) -> BoxStream<'static, Result<Sse, SseError>> {
        if !std::mem::replace(&mut self.0.news.lock().is_missing, true) {
            self.0.exchange.suspect.notify_one();
        }
        stream::empty().boxed()
    }
}

/// Whether a server, or a proxy before it, may open the stream for notifications later.
fn may_open_later(sent: &Result<Response, Failure>) -> bool {
    match sent {
        Ok(response) => {
            let status = response.status();
            matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
                || (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED)
        }
        Err(StreamableHttpError::Client(HttpFailure::Connection(_))) => true,
        Err(_) => false,
    }
}

/// Unpacks an event with a batch, and filters its messages.
fn unpacked(exchange: &Exchange, asked: &mut ExpectedResponse, mut event: Sse) -> Vec<Result<Sse, SseError>> {
    let Some(messages) = event.data.as_ref().and_then(|data| batch(data.as_bytes())) else {
        return vec![Ok(filter(exchange, asked, event))];
    };
    let (mut id, kind) = (event.id.take(), event.event.take());
    let events = messages.into_iter().map(|message| {
        let mut event = Sse::default().data(String::from_utf8_lossy(&message).into_owned());
        (event.id, event.event) = (id.take(), kind.clone());
        Ok(filter(exchange, asked, event))
    });
    events.collect()
}

fn filter(exchange: &Exchange, asked: &mut ExpectedResponse, mut event: Sse) -> Sse {
    if !matches!(event.event.as_deref(), None | Some("" | "message")) {
        return event;
    }
    let Some(data) = event.data.take().filter(|data| !data.trim().is_empty()) else { return event };
    event.data = match exchange.inbound_on(data.as_bytes(), asked.request.as_ref()) {
        Inbound::Forward(message) => match asked.request.as_ref().filter(|_| is_error_without_id(&message)) {
            // It belongs to the request of this stream.
            Some(request) if exchange.fail(request, Answer::error(&message["error"])) => {
                asked.answered = true;
                Some(finished_text(request))
            }
            _ => Some(message.to_string()),
        },
        Inbound::Answered { id } => {
            asked.answered = true;
            Some(finished_text(&id))
        }
        Inbound::Consumed | Inbound::Dropped | Inbound::Junk => None,
    };
    event
}

/// An empty result, which completes a request in rmcp.
fn nothing(id: RequestId) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::response(ServerResult::empty(()), id)
}

fn finished_text(id: &RequestId) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "result": {} }).to_string()
}

/// The placeholder of a response, as an event.
fn finished_event(id: &RequestId) -> Sse {
    Sse::default().data(finished_text(id))
}

#[derive(Debug, thiserror::Error)]
#[error("an event is too large")]
struct EventTooLarge;

fn is_too_large(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    inner.and_then(|inner| inner.downcast_ref::<EventTooLarge>()).is_some()
}

/// Ends an event stream before the parser buffers an event that exceeds the limit.
fn bounded(
    chunks: BoxStream<'static, reqwest::Result<Bytes>>,
    limit: usize,
) -> impl futures::Stream<Item = Result<Bytes, io::Error>> + Send {
    chunks.scan((0_usize, 0_usize, false), move |(event, line, failed), chunk| {
        if *failed {
            return ready(None);
        }
        let chunk = chunk.map_err(|error| io::Error::other(HttpFailure::from(error))).and_then(|chunk| {
            let mut parts = chunk.split(|byte| *byte == b'\n').peekable();
            while let Some(part) = parts.next() {
                *line += part.len();
                if *event + *line > limit {
                    return Err(io::Error::other(EventTooLarge));
                }
                if parts.peek().is_some() {
                    // An empty line, or a carriage return, ends the event.
                    *event = if *line <= 1 { 0 } else { *event + *line };
                    *line = 0;
                }
            }
            Ok(chunk)
        });
        *failed = chunk.is_err();
        ready(Some(chunk))
    })
}

impl StreamableHttpClient for HttpClient {
    type Error = HttpFailure;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let begins = matches!(&message, JsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::InitializeRequest(_)));
        let response = self.post(&uri, message, session_id, custom_headers).await?;
        Ok(if begins { self.0.with_introduction(response) } else { response })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        let builder = self.0.sender.client.delete(&*uri);
        // The server may not support ending sessions. Ignore a failure, because nothing can be done about it.
        self.send(builder, Some(session_id), custom_headers, None, None).await.map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let opens_news = self.opens_news(last_event_id.as_deref());
        if let Some(at) = opens_news {
            sleep_until(at).await;
        }
        let mut builder = self.0.sender.client.get(&*uri).header(ACCEPT, EVENT_STREAM);
        if let Some(last_event_id) = last_event_id {
            builder = builder.header(LAST_EVENT, last_event_id);
        }
        let is_events = |response: &Response| {
            response.status().is_success() && content_type(response).is_some_and(|kind| kind.starts_with(EVENT_STREAM))
        };
        match self.send(builder, session_id, custom_headers, None, None).await {
            Ok(response) if is_events(&response) && opens_news.is_some() => Ok(self.news(response)),
            Ok(response) if is_events(&response) => Ok(self.events(response, None)),
            Ok(response) if response.status() == StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            // No call waits on this stream.
            sent if opens_news.is_some() && may_open_later(&sent) => Ok(self.no_news()),
            // With any other error, rmcp would retry forever while calls on the stream wait. The supervisor checks the server
            // and reconnects if necessary.
            _ => {
                self.0.exchange.suspect.notify_one();
                Err(StreamableHttpError::ServerDoesNotSupportSse)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use http::HeaderMap;

    use super::*;

    #[test]
    fn only_the_stream_for_notifications_waits() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let sender = Sender { client: reqwest::Client::new(), headers: HeaderMap::new(), tokens: None, sign_in: None };
        let client = HttpClient::new(sender, Arc::default(), 1000);
        let first = client.opens_news(None).unwrap();
        assert_eq!(client.opens_news(Some("of-a-call")), None);
        client.0.news.lock().last_event_id = Some("of-the-stream".to_owned());
        assert_eq!(client.opens_news(Some("of-the-stream")), Some(first + Duration::from_secs(1)));
        assert_eq!(client.opens_news(None), Some(first + Duration::from_secs(3)));
    }

    /// Regression test: after one 503, a connection got no notifications any more.
    #[tokio::test]
    async fn a_stream_for_notifications_that_was_refused_for_now_is_opened_again() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let uri: Arc<str> = format!("http://{}/mcp", listener.local_addr().unwrap()).into();
        let statuses = ["405 No", "404 No", "501 No", "503 Later", "429 Later", "200 OK\r\ncontent-type: text/event-stream"];
        tokio::spawn(async move {
            for status in statuses {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4096]).await.unwrap();
                let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let sender = Sender {
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            headers: HeaderMap::new(),
            tokens: None,
            sign_in: None,
        };
        let client = HttpClient::new(sender, Arc::default(), 1000);
        let changed = &client.0.exchange.changed;
        for status in statuses {
            // Without the pause.
            client.0.news.lock().reopening = Reopening::default();
            let opened = client.get_stream(Arc::clone(&uri), None, None, None, HashMap::new()).await;
            let is_final = ["405", "404", "501"].iter().any(|code| status.starts_with(code));
            assert_eq!(matches!(opened, Err(StreamableHttpError::ServerDoesNotSupportSse)), is_final, "{status}");
            assert_eq!(opened.is_ok(), !is_final, "{status}");
            let is_open = status.starts_with("200");
            assert_eq!(changed.notified().now_or_never().is_some(), is_open, "{status}: what was missed is listed");
        }
    }

    #[test]
    fn only_another_introduction_makes_a_connection_outdated() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let sender = Sender { client: reqwest::Client::new(), headers: HeaderMap::new(), tokens: None, sign_in: None };
        let client = HttpClient::new(sender, Arc::default(), 1000);
        for (version, is_outdated) in [("1", false), ("1", false), ("2", true), ("1", false)] {
            let result = json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "a", "version": version},
            });
            client.0.introduced(&serde_json::from_value(json!({"jsonrpc": "2.0", "id": 1, "result": result})).unwrap());
            assert_eq!(client.0.exchange.outdated.notified().now_or_never().is_some(), is_outdated, "{version}");
        }
    }

    #[tokio::test]
    async fn a_content_type_has_any_case_and_an_encoded_answer_says_so() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let uri: Arc<str> = format!("http://{}/mcp", listener.local_addr().unwrap()).into();
        let kinds = ["Application/JSON; charset=utf-8", "Text/Event-Stream", "application/json\r\ncontent-encoding: gzip"];
        tokio::spawn(async move {
            for kind in kinds {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4096]).await.unwrap();
                let body = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let client = HttpClient::new(Sender { client, headers: HeaderMap::new(), tokens: None, sign_in: None }, Arc::default(), 1000);
        let post = async || {
            let ping = ClientRequest::PingRequest(rmcp::model::PingRequest::default());
            let message = ClientJsonRpcMessage::request(ping, RequestId::Number(1));
            client.post_message(Arc::clone(&uri), message, None, None, HashMap::new()).await
        };
        assert!(matches!(post().await, Ok(StreamableHttpPostResponse::Json(..))));
        assert!(matches!(post().await, Ok(StreamableHttpPostResponse::Sse(..))));
        let error = post().await.err().unwrap();
        assert!(matches!(error, StreamableHttpError::Client(HttpFailure::Encoded(encoding)) if encoding == "gzip"));
    }

    /// Regression: the caller didn't see the server's message about the call if the response named a time.
    #[tokio::test]
    async fn an_error_about_the_call_counts_more_than_the_time_of_a_503() {
        use rmcp::model::{CallToolRequest, CallToolRequestParams};
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        use crate::adapters::mcp::exchange::{Listeners, Purpose};

        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let uri: Arc<str> = format!("http://{}/mcp", listener.local_addr().unwrap()).into();
        let bodies = [r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no quota"}}"#, r#"{"error":{"code":503}}"#, ""];
        tokio::spawn(async move {
            for body in bodies {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4096]).await.unwrap();
                let length = body.len();
                let head = format!("HTTP/1.1 503 Later\r\nretry-after: 7\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            }
        });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let client = HttpClient::new(Sender { client, headers: HeaderMap::new(), tokens: None, sign_in: None }, Arc::default(), 1000);
        for body in bodies {
            let ticket = Ticket::new(Purpose::Call, 1000, Listeners::default());
            let mut call = CallToolRequest::new(CallToolRequestParams::new("t"));
            call.extensions.insert(ticket.clone());
            let message = ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(call), RequestId::Number(1));
            let sent = client.post_message(Arc::clone(&uri), message, None, None, HashMap::new()).await;
            if body.contains("quota") {
                assert!(sent.is_ok());
                assert!(matches!(ticket.take(), Some(Answer::Error { message, .. }) if message.contains("no quota")));
            } else {
                assert!(matches!(sent, Err(StreamableHttpError::Client(HttpFailure::Busy(_, time))) if time.as_secs() == 7), "{body}");
            }
        }
    }
}

//! Sends HTTP requests with the headers and credentials of one server, and reads the responses, for both HTTP transports.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use indexmap::IndexMap;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use parking_lot::Mutex;
use reqwest::{RequestBuilder, Response};
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, JsonRpcMessage};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use secrecy::{ExposeSecret, SecretString};

use crate::adapters::mcp::exchange::Ticket;
use crate::adapters::mcp::text::foreign;
use crate::adapters::mcp::transport::client::ConnectionFailure;
use crate::adapters::mcp::transport::oauth::{TokenError, Tokens};
use crate::domain::access::authorization::Challenge;
use crate::service::ports::{SignInToken, TraceContext};

/// Reads the dates of HTTP, which are dates of mail too.
static DATE: DateTimeParser = DateTimeParser::new();
pub(super) const SESSION: &str = "mcp-session-id";
pub(super) const LAST_EVENT: &str = "last-event-id";
pub(in crate::adapters::mcp) const EVENT_STREAM: &str = "text/event-stream";
pub(in crate::adapters::mcp) const JSON: &str = "application/json";
/// Maximum time after which a server may let callers repeat a call.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// The reason why an HTTP exchange failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::adapters::mcp) enum HttpFailure {
    #[error(transparent)]
    Connection(#[from] ConnectionFailure),
    #[error("HTTP {}{}", .0, redirection(*.0))]
    Status(StatusCode),
    /// The server has too many requests (429) or is down for a while (503), and accepts another one after this time.
    #[error("HTTP {0}")]
    Busy(StatusCode, Duration),
    #[error("the configured header `{0}` is not valid")]
    Header(String),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("HTTP {}: it requires a sign-in", .0.status)]
    Challenge(Box<Challenge>),
    #[error("the server's answer has the Content-Encoding `{0}`, although the request accepts none")]
    Encoded(String),
}

/// Explains why a redirection is an error.
pub(in crate::adapters::mcp) fn redirection(status: StatusCode) -> &'static str {
    if status.is_redirection() { ": only redirects to the same origin with status 307 or 308 are followed" } else { "" }
}

impl From<reqwest::Error> for HttpFailure {
    fn from(error: reqwest::Error) -> Self {
        Self::Connection(error.into())
    }
}

pub(in crate::adapters::mcp) type Failure = StreamableHttpError<HttpFailure>;

/// The caller's headers to forward with a request, and those that repeat its arguments, attached to its extensions.
#[derive(Clone, Debug, Default)]
pub(in crate::adapters::mcp) struct Forwarded(pub(in crate::adapters::mcp) HeaderMap);

/// The caller's headers to forward with this message, and those of its trace, which replace the caller's.
pub(in crate::adapters::mcp) fn forwarded(message: &ClientJsonRpcMessage) -> Option<Forwarded> {
    let JsonRpcMessage::Request(request) = message else { return None };
    let extensions = request.request.extensions();
    let forwarded = extensions.get::<Forwarded>().cloned();
    let Some(trace) = extensions.get::<Ticket>().and_then(Ticket::trace) else { return forwarded };
    let mut headers = forwarded.map(|Forwarded(headers)| headers).unwrap_or_default();
    headers.remove(TraceContext::STATE);
    for (name, value) in trace.headers() {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    Some(Forwarded(headers))
}

/// Sends HTTP requests with the configuration of one server.
#[derive(Clone)]
pub(in crate::adapters::mcp) struct Sender {
    pub(in crate::adapters::mcp) client: reqwest::Client,
    pub(in crate::adapters::mcp) headers: HeaderMap,
    pub(in crate::adapters::mcp) tokens: Option<Arc<Tokens>>,
    /// Set if the server is called with a sign-in (`auth`).
    pub(in crate::adapters::mcp) sign_in: Option<SignIn>,
}

/// The token of a sign-in. A connection keeps it, and calls replace it when it was refreshed.
#[derive(Clone, Default)]
pub(in crate::adapters::mcp) struct SignIn(Arc<Mutex<Option<SignInToken>>>);

impl SignIn {
    /// Takes a token of the same sign-in, unless it is an older one: a call may have read its token before another call refreshed it.
    /// Returns whether it did.
    pub(in crate::adapters::mcp) fn renew(&self, token: &SignInToken) -> bool {
        let mut present = self.0.lock();
        let is_newer = present.as_ref().is_none_or(|present| present.version < token.version);
        if is_newer {
            *present = Some(token.clone());
        }
        is_newer
    }

    fn token(&self) -> Option<SecretString> {
        self.0.lock().as_ref().map(|token| token.access.clone())
    }
}

/// Parses the configured headers and marks them as sensitive, so that logs omit them.
pub(in crate::adapters::mcp) fn configured(headers: &IndexMap<String, SecretString>) -> Result<HeaderMap, HttpFailure> {
    let mut configured = HeaderMap::new();
    for (name, value) in headers {
        let invalid = || HttpFailure::Header(name.clone());
        let header = HeaderName::try_from(name).map_err(|_| invalid())?;
        let mut value = HeaderValue::try_from(value.expose_secret()).map_err(|_| invalid())?;
        value.set_sensitive(true);
        let ours = [ACCEPT, CONTENT_TYPE, CONTENT_LENGTH, HOST, TRANSFER_ENCODING];
        if ours.contains(&header) || [SESSION, LAST_EVENT].contains(&header.as_str()) {
            return Err(invalid());
        }
        configured.append(header, value);
    }
    Ok(configured)
}

impl Sender {
    /// Sends a request. The caller's forwarded headers override the token, which overrides configured headers.
    pub(in crate::adapters::mcp) async fn send(
        &self,
        builder: RequestBuilder,
        forwarded: Option<Forwarded>,
    ) -> Result<Response, HttpFailure> {
        let mut forwarded = forwarded.map(|Forwarded(headers)| headers).unwrap_or_default();
        if let Some(sign_in) = &self.sign_in {
            // A caller's own credentials never reach a server that people sign in to.
            forwarded.remove(AUTHORIZATION);
            let token = sign_in.token().map(|token| bearer(&token)).unwrap_or_default();
            let response = builder.headers(self.headers.clone()).headers(forwarded).headers(token).send().await?;
            return match challenge(&response) {
                Some(challenge) => Err(HttpFailure::Challenge(Box::new(challenge))),
                None => Ok(response),
            };
        }
        // Forwarding the caller's credentials is a deliberate setting, so they win.
        let tokens = self.tokens.as_ref().filter(|_| !forwarded.contains_key(AUTHORIZATION));
        let builder = builder.headers(self.headers.clone()).headers(forwarded);
        let Some(tokens) = tokens else { return Ok(builder.send().await?) };
        let token = tokens.bearer().await?;
        let again = builder.try_clone();
        let response = builder.headers(bearer(&token)).send().await?;
        match again {
            Some(again) if response.status() == StatusCode::UNAUTHORIZED => {
                let token = tokens.instead_of(&token).await?;
                Ok(again.headers(bearer(&token)).send().await?)
            }
            _ => Ok(response),
        }
    }
}

/// The server's challenge, if it rejects the token or a permission is missing.
fn challenge(response: &Response) -> Option<Challenge> {
    let headers = response.headers().get_all(WWW_AUTHENTICATE);
    Challenge::read(response.status().as_u16(), headers.iter().filter_map(|value| value.to_str().ok()))
}

/// The authorisation header, which replaces a configured one.
fn bearer(token: &SecretString) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(mut value) = HeaderValue::try_from(format!("Bearer {}", token.expose_secret())) {
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    headers
}

/// The content type, in lower case.
pub(in crate::adapters::mcp) fn content_type(response: &Response) -> Option<String> {
    header(response, CONTENT_TYPE.as_str()).map(|kind| kind.to_ascii_lowercase())
}

/// Fails if the body is encoded although the request asked for none.
pub(in crate::adapters::mcp) fn check_encoding(response: &Response) -> Result<(), HttpFailure> {
    match header(response, CONTENT_ENCODING.as_str()) {
        Some(encoding) if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity") => {
            Err(HttpFailure::Encoded(foreign(&encoding)))
        }
        _ => Ok(()),
    }
}

pub(super) fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// The time from now in `Retry-After`: seconds or a date (RFC 9110, section 10.2.3).
pub(super) fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    let time = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        // A date in the past means now.
        Err(_) => Duration::try_from(DATE.parse_timestamp(text).ok()?.duration_since(now)).unwrap_or_default(),
    };
    Some(time.min(LONGEST_WAIT))
}

/// The body; `None` if it exceeds the limit.
pub(in crate::adapters::mcp) async fn read(mut response: Response, limit: usize) -> Result<Option<Vec<u8>>, Failure> {
    let broken = |error: reqwest::Error| StreamableHttpError::Client(HttpFailure::from(error));
    if response.content_length().is_some_and(|length| length > limit as u64) {
        return Ok(None);
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        if body.len() + chunk.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::access::principal::PrincipalId;

    #[test]
    fn a_wait_is_a_number_of_seconds_or_a_date() {
        let now: Timestamp = "1994-11-06T08:49:37Z".parse().unwrap();
        for (text, seconds) in [
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("Sat, 06 Nov 2094 08:49:37 GMT", Some(24 * 60 * 60)),
            ("99999999999", Some(24 * 60 * 60)),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after(text, now), seconds.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn a_connection_never_goes_back_to_an_older_token() {
        let token = |version: u64| SignInToken {
            access: format!("token-{version}").into(),
            sign_in: "one".into(),
            version,
            owner: PrincipalId::new("user:anna"),
        };
        let sign_in = SignIn::default();
        assert!(sign_in.token().is_none());
        for (version, is_taken, present) in [(1, true, "token-1"), (3, true, "token-3"), (2, false, "token-3"), (3, false, "token-3")] {
            assert_eq!(sign_in.renew(&token(version)), is_taken);
            assert_eq!(sign_in.token().unwrap().expose_secret(), present);
        }
    }
}

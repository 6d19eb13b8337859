//! Errors of requests over a link.

use std::borrow::Cow;
use std::time::Duration;

use ::http::StatusCode;
use rmcp::service::ServiceError;
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value;

use crate::adapters::mcp::text::foreign;
use crate::adapters::mcp::transport::client::ConnectionFailure;
use crate::adapters::mcp::transport::sending::{HttpFailure, redirection};
use crate::domain::access::authorization::Challenge;

/// The reason why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(in crate::adapters::mcp) enum LinkError {
    #[error("{reason}")]
    Closed {
        reason: Cow<'static, str>,
        /// Whether the server may have received the request.
        sent: bool,
    },
    /// The server responded with this HTTP status and without a JSON-RPC response.
    #[error("HTTP {}{}", .0, redirection(*.0))]
    Refused(StatusCode),
    /// The server has too many requests (429) or is down for a while (503), and accepts another one after this time.
    #[error("HTTP {0}")]
    Busy(StatusCode, Duration),
    /// The server rejected the token of a sign-in, or there was none.
    #[error("HTTP {}: it requires a sign-in", .0.status)]
    Challenged(Box<Challenge>),
    /// The response is invalid, for this reason.
    #[error("{0}")]
    Unusable(String),
    /// The server rejected the HTTP request itself (400) with this error, for example because of the protocol version.
    #[error("error {code}: {message}")]
    Rejected { code: i64, message: String, data: Option<Box<Value>> },
    #[error("error {code}: {message}")]
    Protocol { code: i64, message: String, data: Option<Box<Value>> },
    #[error("the answer is larger than {limit} bytes")]
    TooLarge { limit: usize },
}

impl LinkError {
    /// Whether a proxy responded, because the server behind it can't be reached or doesn't answer.
    pub(in crate::adapters::mcp) fn is_of_proxy(&self) -> bool {
        matches!(self, Self::Refused(status) | Self::Busy(status, _) if matches!(status.as_u16(), 502..=504))
    }
}

pub(in crate::adapters::mcp) fn link_error(error: ServiceError) -> LinkError {
    match error {
        ServiceError::McpError(error) => LinkError::Protocol { code: error.code.0.into(), message: foreign(&error.message), data: None },
        ServiceError::TransportSend(error) => transport_error(&error),
        _ => LinkError::Closed { reason: "the connection was closed".into(), sent: true },
    }
}

pub(in crate::adapters::mcp) fn transport_error(error: &DynamicTransportError) -> LinkError {
    let closed = |reason: String, sent| LinkError::Closed { reason: reason.into(), sent };
    match error.error.downcast_ref::<StreamableHttpError<HttpFailure>>() {
        Some(StreamableHttpError::Client(HttpFailure::Connection(failure @ ConnectionFailure::Connect(_)))) => {
            closed(failure.to_string(), false)
        }
        Some(StreamableHttpError::Client(HttpFailure::Connection(failure @ ConnectionFailure::Broken(_)))) => {
            closed(failure.to_string(), true)
        }
        Some(StreamableHttpError::Client(HttpFailure::Status(status))) => LinkError::Refused(*status),
        Some(StreamableHttpError::Client(HttpFailure::Busy(status, time))) => LinkError::Busy(*status, *time),
        Some(StreamableHttpError::Client(HttpFailure::Challenge(challenge))) => LinkError::Challenged(challenge.clone()),
        Some(StreamableHttpError::Client(failure)) => LinkError::Unusable(failure.to_string()),
        // The server rejected the request itself. A second rejection, in another session, is another error.
        Some(StreamableHttpError::SessionExpired) => closed("the server ended the session".to_owned(), false),
        Some(StreamableHttpError::UnexpectedContentType(_)) => {
            LinkError::Unusable("the server answered neither JSON nor an event stream".to_owned())
        }
        // Other texts may contain parts of the response.
        Some(StreamableHttpError::UnexpectedServerResponse(Cow::Borrowed(reason))) => closed((*reason).to_owned(), true),
        Some(StreamableHttpError::ResponseBodyTooLarge { max_size }) => {
            closed(format!("the response is larger than {max_size} bytes"), true)
        }
        Some(_) => closed("the connection failed".to_owned(), true),
        None => closed("the server does not read its standard input".to_owned(), false),
    }
}

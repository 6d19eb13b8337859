//! The HTTP client for requests to servers, and its errors.

use std::error::Error as _;
use std::time::Duration;

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::redirect;

use crate::adapters::proxies;

const MAX_REDIRECTS: usize = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Configures an HTTP client for MCP: no total timeout, because responses are streams, no encoded responses, and only redirects that keep
/// the origin, method and body.
pub fn client_builder() -> reqwest::ClientBuilder {
    let same_origin = redirect::Policy::custom(|attempt| {
        let keeps_body = matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        let first = attempt.previous().first().map(reqwest::Url::origin);
        if keeps_body && first == Some(attempt.url().origin()) && attempt.previous().len() <= MAX_REDIRECTS {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    proxies::client_builder()
        .default_headers(HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]))
        .user_agent(concat!("toolsieve/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(same_origin)
}

/// The reason why a request got no response.
#[derive(Debug, thiserror::Error)]
pub(in crate::adapters::mcp) enum ConnectionFailure {
    /// The connection failed, so nothing was sent.
    #[error("can't connect: {0}")]
    Connect(String),
    #[error("the connection failed: {0}")]
    Broken(String),
}

impl From<reqwest::Error> for ConnectionFailure {
    fn from(error: reqwest::Error) -> Self {
        // Use only the innermost cause, because the outer ones contain the URL.
        let mut cause = error.source();
        while let Some(inner) = cause.and_then(std::error::Error::source) {
            cause = Some(inner);
        }
        let cause = cause.map_or_else(|| "no details".to_owned(), ToString::to_string);
        if error.is_connect() { Self::Connect(cause) } else { Self::Broken(cause) }
    }
}

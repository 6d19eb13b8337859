//! Requests with the limits of sign-ins: no redirects, no private addresses unless they are allowed, a size and a time.

use std::time::Duration;

use reqwest::{RequestBuilder, Response};
use url::Url;

use super::unusable;
use crate::adapters::addresses::{allows_private, has_private_address, is_encrypted, restricted};
use crate::adapters::mcp::client_builder;
use crate::adapters::well_known::quoted;
use crate::service::ports::AuthorizationError;
use crate::settings::ConnectSettings;

/// Maximum size of a response, in bytes.
const ANSWER_LIMIT: usize = 64 * 1024;
/// Time limit for one request with its response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends the requests for one MCP server.
pub(super) struct Requests {
    client: reqwest::Client,
    allows_private: bool,
    /// The MCP server's host, which may be addressed without TLS.
    server: Url,
}

impl Requests {
    pub(super) async fn new(server: &ConnectSettings) -> Result<Self, AuthorizationError> {
        let allows_private = allows_private(server.private_addresses, &server.server_url).await;
        let builder = restricted(client_builder(), allows_private);
        let client = builder.build().map_err(|error| unusable(format!("no HTTP client: {error}")))?;
        Ok(Self { client, allows_private, server: server.server_url.clone() })
    }

    /// Rejects insecure and private URLs, because tokens and codes are as valuable as passwords.
    pub(super) fn check(&self, url: &Url) -> Result<(), AuthorizationError> {
        if !is_encrypted(url, &self.server) {
            return Err(unusable(format!("the address {} is not https", quoted(&url.origin().ascii_serialization()))));
        }
        if url.host().is_none() || !url.username().is_empty() || url.password().is_some() {
            return Err(unusable("an address of the authorization server has no host, or contains a user"));
        }
        // Host names are checked when they are resolved.
        if has_private_address(url) && !self.allows_private {
            let reason = "the authorization server's address is private; to allow that, set `private_addresses` in `auth`";
            return Err(unusable(reason));
        }
        Ok(())
    }

    /// Parses and checks a URL of a server's metadata.
    pub(super) fn url(&self, what: &str, text: &str) -> Result<Url, AuthorizationError> {
        let url = Url::parse(text).map_err(|_| unusable(format!("{what} is not an address: {}", quoted(text))))?;
        self.check(&url)?;
        Ok(url)
    }

    pub(super) fn get(&self, url: Url) -> Result<RequestBuilder, AuthorizationError> {
        self.check(&url)?;
        Ok(self.client.get(url).timeout(ANSWER_TIMEOUT))
    }

    pub(super) fn post(&self, url: Url) -> Result<RequestBuilder, AuthorizationError> {
        self.check(&url)?;
        Ok(self.client.post(url).timeout(ANSWER_TIMEOUT))
    }
}

/// Sends a request. Errors contain neither the URL nor anything that was sent.
pub(super) async fn send(request: RequestBuilder) -> Result<Response, AuthorizationError> {
    request.send().await.map_err(|error| unreachable(&error))
}

fn unreachable(error: &reqwest::Error) -> AuthorizationError {
    if error.is_timeout() {
        return AuthorizationError::Unreachable(format!("the authorization server did not answer within {} s", ANSWER_TIMEOUT.as_secs()));
    }
    // Use only the innermost cause, because the outer ones contain the URL.
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause.and_then(std::error::Error::source) {
        cause = Some(inner);
    }
    let cause = cause.map_or_else(|| "no details".to_owned(), ToString::to_string);
    AuthorizationError::Unreachable(format!("the authorization server can't be reached: {cause}"))
}

/// Reads a response of limited size.
pub(super) async fn body(mut response: Response) -> Result<Vec<u8>, AuthorizationError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > ANSWER_LIMIT {
            return Err(unusable(format!("the authorization server's answer is larger than {ANSWER_LIMIT} bytes")));
        }
    }
    Ok(body)
}

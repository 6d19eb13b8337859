//! The OAuth client, over HTTP.
//!
//! A crate for OAuth would replace only the two forms that `tokens` sends. It would neither discover servers nor keep the limits that
//! every request here has: no redirects, no private addresses unless they are allowed, 64 KiB and ten seconds.

mod request;
mod metadata;
mod tokens;

use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use serde_json::Value;
use tokio::time::timeout;
use url::Url;

use self::request::Requests;
use crate::domain::access::authorization::Challenge;
use crate::service::ports::{AuthorizationClient, AuthorizationError, AuthorizationServer, OAuthClient, TokenAnswer, TokenRequest};
use crate::settings::ConnectSettings;

/// Time limit for finding an authorization server, which takes several requests.
const DISCOVERY: Duration = Duration::from_secs(30);

/// Sends requests to authorization servers.
pub(crate) struct HttpAuthorizationClient;

#[async_trait]
impl AuthorizationClient for HttpAuthorizationClient {
    async fn discover(&self, server: &ConnectSettings, challenge: Option<&Challenge>) -> Result<AuthorizationServer, AuthorizationError> {
        let discovery = async {
            let requests = Requests::new(server).await?;
            metadata::discover(&requests, server, challenge).await
        };
        let late = || AuthorizationError::Unreachable(format!("no authorization server was found within {} s", DISCOVERY.as_secs()));
        timeout(DISCOVERY, discovery).await.unwrap_or_else(|_| Err(late()))
    }

    async fn register(
        &self,
        server: &ConnectSettings,
        at: &AuthorizationServer,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<OAuthClient, AuthorizationError> {
        tokens::register(&Requests::new(server).await?, at, redirect_uri, scopes).await
    }

    async fn token(
        &self,
        server: &ConnectSettings,
        token_endpoint: &Url,
        client: &OAuthClient,
        grant: TokenRequest<'_>,
    ) -> Result<TokenAnswer, AuthorizationError> {
        tokens::request(&Requests::new(server).await?, token_endpoint, client, grant).await
    }

    async fn revoke(
        &self,
        server: &ConnectSettings,
        revocation_endpoint: &Url,
        client: &OAuthClient,
        token: &SecretString,
        is_refresh: bool,
    ) -> Result<(), AuthorizationError> {
        tokens::revoke(&Requests::new(server).await?, revocation_endpoint, client, token, is_refresh).await
    }
}

fn unusable(reason: impl Into<String>) -> AuthorizationError {
    AuthorizationError::Unusable(reason.into())
}

/// A member with a text.
fn text<'a>(document: &'a Value, member: &str) -> Option<&'a str> {
    document.get(member).and_then(Value::as_str)
}

/// The texts of a member that is a list.
fn texts(document: &Value, member: &str) -> Vec<String> {
    let items = document.get(member).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

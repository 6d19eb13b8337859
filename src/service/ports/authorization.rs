//! The OAuth client: requests to authorization servers, for sign-ins to MCP servers.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use secrecy::SecretString;
use url::Url;

use crate::domain::access::authorization::Challenge;
use crate::settings::ConnectSettings;

/// Sends requests to authorization servers. Every request has limits on time and size, follows no redirect, and reaches no private
/// address that the server's settings don't allow.
#[async_trait]
pub trait AuthorizationClient: Send + Sync {
    /// Finds the authorization server of an MCP server and verifies both servers' metadata (RFC 9728, RFC 8414, `OpenID` Connect
    /// Discovery). Without a challenge, it sends an unauthenticated request to the MCP server to get one.
    async fn discover(&self, server: &ConnectSettings, challenge: Option<&Challenge>) -> Result<AuthorizationServer, AuthorizationError>;

    /// Registers the service as a client (RFC 7591).
    async fn register(
        &self,
        server: &ConnectSettings,
        at: &AuthorizationServer,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<OAuthClient, AuthorizationError>;

    /// Requests tokens.
    async fn token(
        &self,
        server: &ConnectSettings,
        token_endpoint: &Url,
        client: &OAuthClient,
        grant: TokenRequest<'_>,
    ) -> Result<TokenAnswer, AuthorizationError>;

    /// Revokes a token (RFC 7009).
    async fn revoke(
        &self,
        server: &ConnectSettings,
        revocation_endpoint: &Url,
        client: &OAuthClient,
        token: &SecretString,
        is_refresh: bool,
    ) -> Result<(), AuthorizationError>;
}

/// An authorization server, as its verified metadata describe it, and what the MCP server asks of it.
#[expect(clippy::struct_excessive_bools, reason = "each is a member of its own in the metadata")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationServer {
    /// The issuer identifier, unchanged.
    pub issuer: String,
    pub authorization_endpoint: Option<Url>,
    pub token_endpoint: Url,
    pub registration_endpoint: Option<Url>,
    pub revocation_endpoint: Option<Url>,
    /// Whether its responses name the issuer (RFC 9207).
    pub names_issuer: bool,
    /// Whether a client's id may be the address of a metadata document.
    pub takes_metadata_documents: bool,
    /// How clients may authenticate at the token endpoint. Empty: the standard's default.
    pub client_methods: Vec<String>,
    /// Whether it offers the scope `offline_access`, for refresh tokens.
    pub offers_offline: bool,
    /// Whether it supports proof keys by the method `S256` (RFC 7636).
    pub takes_proof_keys: bool,
    /// The resource indicator of the MCP server.
    pub resource: String,
    /// The scopes that the MCP server asks for.
    pub scopes: Vec<String>,
}

/// How a client authenticates at the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMethod {
    /// A public client, which only names itself.
    None,
    Basic,
    Post,
}

/// The service as a client of an authorization server.
#[derive(Clone, Debug)]
pub struct OAuthClient {
    pub id: String,
    pub secret: Option<SecretString>,
    pub method: ClientMethod,
    /// When the secret expires.
    pub expires_at: Option<SystemTime>,
}

/// A request for tokens (RFC 6749, RFC 8693).
#[derive(Clone, Copy, Debug)]
pub enum TokenRequest<'a> {
    Code {
        code: &'a SecretString,
        verifier: &'a SecretString,
        redirect_uri: &'a str,
        resource: &'a str,
    },
    Refresh {
        refresh: &'a SecretString,
        resource: &'a str,
    },
    Machine {
        scopes: &'a [String],
        resource: &'a str,
    },
    /// Exchanges the token of a user.
    Exchange {
        subject: &'a SecretString,
        subject_type: &'a str,
        audience: Option<&'a str>,
        scopes: &'a [String],
        resource: &'a str,
    },
}

/// Tokens, as the token endpoint returned them.
#[derive(Clone, Debug)]
pub struct TokenAnswer {
    pub access: SecretString,
    /// `None`: the former one stays valid.
    pub refresh: Option<SecretString>,
    pub expires_in: Option<Duration>,
    /// The granted scopes; `None` if they are those that were requested.
    pub scopes: Option<Vec<String>>,
}

/// The reason why a request to an authorization server failed. The texts contain no tokens, codes or secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorizationError {
    /// The servers' metadata or responses are invalid, or the settings don't allow them.
    #[error("{0}")]
    Unusable(String),
    /// The server can't be reached or failed, so another attempt may succeed.
    #[error("{0}")]
    Unreachable(String),
    /// The authorization server rejected the request, with this standard error code.
    #[error("the authorization server rejected the request: {0}")]
    Refused(&'static str),
}

impl AuthorizationError {
    /// Whether the user must sign in again.
    pub fn ends_sign_in(&self) -> bool {
        matches!(self, Self::Refused("invalid_grant" | "invalid_client" | "unauthorized_client" | "access_denied"))
    }

    /// Whether the authorization server no longer knows the client.
    pub fn loses_client(&self) -> bool {
        matches!(self, Self::Refused("invalid_client" | "unauthorized_client"))
    }
}

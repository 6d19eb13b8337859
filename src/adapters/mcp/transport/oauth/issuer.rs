//! Determines which authorisation server may receive an MCP server's refresh token, and verifies it.
//!
//! The MCP server names the authorisation server (RFC 9728). Its metadata must belong to this MCP server, and the metadata of the
//! authorisation server (RFC 8414) to the requested issuer. Private addresses are rejected unless the MCP server has one too.
//! Until a new sign-in, only the first issuer that renewed a token may renew it again.

use std::time::Duration;

use serde_json::Value;
use url::Url;

use super::{TokenError, body};
use crate::adapters::addresses::{allows_private, has_private_address, is_encrypted, restricted};
use crate::adapters::mcp::transport::client::client_builder;
use crate::adapters::well_known::{covers, is_same_issuer, quoted, well_known};
use crate::settings::OAuthSettings;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// An authorisation server, as described by its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::adapters::mcp) struct Issuer {
    /// The issuer identifier, unchanged.
    pub(in crate::adapters::mcp) name: String,
    pub(in crate::adapters::mcp) token_endpoint: Url,
}

/// Sends the requests that find an issuer and renew a token. Follows no redirects, and rejects private addresses unless they are
/// allowed.
pub(in crate::adapters::mcp) struct Finder<'a> {
    settings: &'a OAuthSettings,
    client: reqwest::Client,
    allows_private: bool,
}

fn not_renewed(reason: impl Into<String>) -> TokenError {
    TokenError::NotRenewed(reason.into())
}

impl<'a> Finder<'a> {
    pub(in crate::adapters::mcp) async fn new(settings: &'a OAuthSettings) -> Result<Self, TokenError> {
        let allows_private = allows_private(settings.private_addresses, &settings.server_url).await;
        let builder = restricted(client_builder(), allows_private);
        let client = builder.build().map_err(|error| not_renewed(format!("no HTTP client: {error}")))?;
        Ok(Self { settings, client, allows_private })
    }

    /// The HTTP client for sending a refresh token.
    pub(in crate::adapters::mcp) fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Finds the authorisation server: the configured one, otherwise the one that renewed the token before (`known`), otherwise
    /// the one that the MCP server names.
    pub(in crate::adapters::mcp) async fn issuer(&self, known: Option<&str>) -> Result<Issuer, TokenError> {
        let name = match self.settings.issuer.as_deref().or(known) {
            Some(name) => name.to_owned(),
            None => self.named_by_server().await?,
        };
        let url = Url::parse(&name).map_err(|error| not_renewed(format!("{} is not a valid issuer: {error}", quoted(&name))))?;
        self.check(&url)?;
        for address in well_known(&url, &["oauth-authorization-server", "openid-configuration"]) {
            let Some(metadata) = self.metadata(address).await else { continue };
            let own = metadata.get("issuer").and_then(Value::as_str).unwrap_or_default();
            if !is_same_issuer(own, &name) {
                let (name, own) = (quoted(&name), quoted(own));
                return Err(not_renewed(format!("the metadata of the authorisation server {name} names another issuer: {own}")));
            }
            if let Some(endpoint) = metadata.get("token_endpoint").and_then(Value::as_str) {
                let endpoint =
                    Url::parse(endpoint).map_err(|error| not_renewed(format!("its token endpoint is not a valid URL: {error}")))?;
                self.check(&endpoint)?;
                return Ok(Issuer { name, token_endpoint: endpoint });
            }
        }
        // Without metadata, try the usual path.
        let token_endpoint = url.join("/token").map_err(|error| not_renewed(error.to_string()))?;
        Ok(Issuer { name, token_endpoint })
    }

    async fn named_by_server(&self) -> Result<String, TokenError> {
        let server = &self.settings.server_url;
        for address in well_known(server, &["oauth-protected-resource"]) {
            let Some(metadata) = self.metadata(address).await else { continue };
            let resource = metadata.get("resource").and_then(Value::as_str).unwrap_or_default();
            if !covers(resource, server) {
                return Err(not_renewed(format!("the server's metadata describes another resource: {}", quoted(resource))));
            }
            if let Some(issuer) = metadata.pointer("/authorization_servers/0").and_then(Value::as_str) {
                return Ok(issuer.to_owned());
            }
        }
        let mut origin = server.clone();
        origin.set_path("/");
        origin.set_query(None);
        Ok(origin.into())
    }

    /// Rejects insecure and private URLs, because a refresh token is as valuable as a password.
    fn check(&self, url: &Url) -> Result<(), TokenError> {
        if !is_encrypted(url, &self.settings.server_url) {
            return Err(not_renewed("the authorisation server's address is not https"));
        }
        // Host names are checked when they are resolved.
        if has_private_address(url) && !self.allows_private {
            return Err(not_renewed("the authorisation server's address is private; to allow that, set `private_addresses` in `oauth`"));
        }
        Ok(())
    }

    async fn metadata(&self, address: Url) -> Option<Value> {
        let response = self.client.get(address).timeout(ANSWER_TIMEOUT).send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        serde_json::from_slice(&body(response).await?).ok()
    }
}

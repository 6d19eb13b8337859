//! Finds the authorization server of an MCP server, and verifies what both say of themselves.

use reqwest::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use serde_json::Value;
use url::Url;

use super::request::{Requests, body, send};
use super::{text, texts, unusable};
use crate::adapters::well_known::{at, covers, is_same_issuer, quoted, well_known};
use crate::domain::access::authorization::{self, Challenge};
use crate::service::ports::{AuthorizationError, AuthorizationServer};
use crate::settings::ConnectSettings;

/// A request that changes nothing, to get the server's challenge.
const PROBE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// What an MCP server says of itself (RFC 9728).
struct Resource {
    /// The resource indicator; `None` without metadata.
    indicator: Option<String>,
    issuer: Option<String>,
    scopes: Vec<String>,
}

pub(super) async fn discover(
    requests: &Requests,
    server: &ConnectSettings,
    challenge: Option<&Challenge>,
) -> Result<AuthorizationServer, AuthorizationError> {
    let probed;
    let challenge = if let Some(challenge) = challenge.filter(|challenge| challenge.resource_metadata.is_some()) {
        Some(challenge)
    } else {
        probed = probe(requests, server).await;
        probed.as_ref().or(challenge)
    };
    let resource = resource(requests, server, challenge).await?;
    let issuer = match (&server.issuer, &resource.issuer) {
        (Some(issuer), _) | (None, Some(issuer)) => issuer.clone(),
        (None, None) => origin(&server.server_url),
    };
    let metadata = issuer_metadata(requests, &issuer).await?;
    let endpoint = |name: &str| text(&metadata, name).map(|text| requests.url(&format!("`{name}`"), text)).transpose();
    let required = |url: Option<Url>, name: &str| {
        url.ok_or_else(|| unusable(format!("the metadata of the authorization server {} lack `{name}`", quoted(&issuer))))
    };
    let flag = |name: &str| metadata.get(name).and_then(Value::as_bool) == Some(true);
    let of_challenge = challenge.map(|challenge| challenge.scopes.clone()).filter(|scopes| !scopes.is_empty());
    Ok(AuthorizationServer {
        // The issuer's own spelling, which its responses repeat.
        issuer: text(&metadata, "issuer").unwrap_or(&issuer).to_owned(),
        authorization_endpoint: endpoint("authorization_endpoint")?,
        token_endpoint: required(endpoint("token_endpoint")?, "token_endpoint")?,
        registration_endpoint: endpoint("registration_endpoint")?,
        revocation_endpoint: endpoint("revocation_endpoint")?,
        names_issuer: flag("authorization_response_iss_parameter_supported"),
        takes_metadata_documents: flag("client_id_metadata_document_supported"),
        client_methods: texts(&metadata, "token_endpoint_auth_methods_supported"),
        offers_offline: texts(&metadata, "scopes_supported").iter().any(|scope| scope == "offline_access"),
        takes_proof_keys: texts(&metadata, "code_challenge_methods_supported").iter().any(|method| method == "S256"),
        resource: server.resource.clone().or(resource.indicator).unwrap_or_else(|| server.server_url.as_str().to_owned()),
        scopes: of_challenge.unwrap_or(resource.scopes),
    })
}

/// Asks the server without a token. `None` if it can't be reached or doesn't ask for one.
async fn probe(requests: &Requests, server: &ConnectSettings) -> Option<Challenge> {
    let request = requests.post(server.server_url.clone()).ok()?;
    let request = request.header(ACCEPT, "application/json, text/event-stream").header(CONTENT_TYPE, "application/json").body(PROBE);
    let response = send(request).await.ok()?;
    let headers = response.headers().get_all(WWW_AUTHENTICATE);
    Challenge::read(response.status().as_u16(), headers.iter().filter_map(|value| value.to_str().ok()))
}

async fn resource(requests: &Requests, server: &ConnectSettings, challenge: Option<&Challenge>) -> Result<Resource, AuthorizationError> {
    let named = challenge.and_then(|challenge| challenge.resource_metadata.as_deref());
    let named = named.map(|named| requests.url("`resource_metadata`", named)).transpose()?;
    let usual = well_known(&server.server_url, &["oauth-protected-resource"]);
    for address in named.into_iter().chain(usual) {
        let Some(metadata) = document(requests, address).await? else { continue };
        let resource = text(&metadata, "resource").unwrap_or_default();
        if !covers(resource, &server.server_url) {
            return Err(unusable(format!("the server's metadata describe another resource: {}", quoted(resource))));
        }
        return Ok(Resource {
            indicator: Some(resource.to_owned()),
            issuer: texts(&metadata, "authorization_servers").into_iter().next(),
            scopes: authorization::scopes(&texts(&metadata, "scopes_supported").join(" ")),
        });
    }
    Ok(Resource { indicator: None, issuer: None, scopes: Vec::new() })
}

async fn issuer_metadata(requests: &Requests, issuer: &str) -> Result<Value, AuthorizationError> {
    // It is stored and shown, and PostgreSQL stores no NUL.
    if !issuer.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(unusable(format!("the issuer is not an address: {}", quoted(issuer))));
    }
    let url = requests.url("the issuer", issuer)?;
    for address in issuer_addresses(&url) {
        let Some(metadata) = document(requests, address).await? else { continue };
        let own = text(&metadata, "issuer").unwrap_or_default();
        if !is_same_issuer(own, issuer) {
            let message = format!("the metadata of the authorization server {} name another issuer: {}", quoted(issuer), quoted(own));
            return Err(unusable(message));
        }
        return Ok(metadata);
    }
    Err(unusable(format!("the authorization server {} publishes no metadata", quoted(issuer))))
}

/// A JSON document; `None` if there is none at this address. A server that can't be reached, or whose answer is too large, is an error,
/// so that another document doesn't take its place.
async fn document(requests: &Requests, address: Url) -> Result<Option<Value>, AuthorizationError> {
    let response = send(requests.get(address)?.header(ACCEPT, "application/json")).await?;
    let status = response.status();
    if status.is_server_error() {
        return Err(AuthorizationError::Unreachable(format!("an authorization server's metadata can't be read: HTTP {status}")));
    }
    if !status.is_success() {
        return Ok(None);
    }
    // Servers answer unknown addresses with pages.
    Ok(serde_json::from_slice(&body(response).await?).ok().filter(Value::is_object))
}

/// Possible addresses of an issuer's metadata, in the order of the MCP specification ("Authorization Server Metadata Discovery").
fn issuer_addresses(issuer: &Url) -> Vec<Url> {
    const OAUTH: &str = "/.well-known/oauth-authorization-server";
    const OPENID: &str = "/.well-known/openid-configuration";
    let path = issuer.path().trim_end_matches('/');
    let paths = [format!("{OAUTH}{path}"), format!("{OPENID}{path}"), format!("{path}{OPENID}")];
    let paths = if path.is_empty() { &paths[..2] } else { &paths[..] };
    paths.iter().filter_map(|path| at(issuer, path)).collect()
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::issuer_addresses;

    #[test]
    fn metadata_are_looked_for_where_they_may_stand() {
        let paths = |urls: Vec<Url>| -> Vec<String> { urls.iter().map(|url| url.as_str().replace("https://a.example", "")).collect() };
        let url = |text: &str| Url::parse(text).unwrap();
        let issuer = |text: &str| paths(issuer_addresses(&url(text)));
        assert_eq!(issuer("https://a.example/"), ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]);
        assert_eq!(
            issuer("https://a.example/t/1/"),
            [
                "/.well-known/oauth-authorization-server/t/1",
                "/.well-known/openid-configuration/t/1",
                "/t/1/.well-known/openid-configuration"
            ]
        );
    }
}

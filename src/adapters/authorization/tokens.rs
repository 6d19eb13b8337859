//! Registers the service as a client, and requests and revokes tokens.

use std::time::{Duration, UNIX_EPOCH};

use http::StatusCode;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{RequestBuilder, Response};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use url::{Url, form_urlencoded};

use super::request::{Requests, body, send};
use super::{text, unusable};
use crate::domain::access::authorization;
use crate::service::ports::{AuthorizationError, AuthorizationServer, ClientMethod, OAuthClient, TokenAnswer, TokenRequest};

/// The grant and the type of the token that an exchange requests (RFC 8693).
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const FORM: &str = "application/x-www-form-urlencoded";
/// Maximum length of a token or of a client's secret, in bytes.
const TOKEN_LIMIT: usize = 16 * 1024;
/// Minimum lifetime of a token that is believed. A token that lasted less would be of no use.
const SHORTEST: Duration = Duration::from_secs(1);
/// Maximum lifetime of a token that is believed.
const LONGEST: Duration = Duration::from_hours(24 * 3650);
/// The error codes of the standards (RFC 6749, RFC 7009, RFC 7591, RFC 8707). Other texts of a server are not repeated, because they
/// could quote a token.
const ERRORS: [&str; 12] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "access_denied",
    "invalid_target",
    "unsupported_token_type",
    "invalid_redirect_uri",
    "invalid_client_metadata",
    "temporarily_unavailable",
];

pub(super) async fn register(
    requests: &Requests,
    at: &AuthorizationServer,
    redirect_uri: &str,
    scopes: &[String],
) -> Result<OAuthClient, AuthorizationError> {
    let endpoint = at.registration_endpoint.clone().ok_or_else(|| {
        unusable(
            "its authorization server doesn't register clients: register one there by hand, and set `client_id` (and `client_secret`) in \
             `auth`",
        )
    })?;
    let mut wanted = json!({
        "client_name": "Toolsieve",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": secret_method(&at.client_methods).unwrap_or("none"),
        "application_type": "web",
    });
    if !scopes.is_empty() {
        wanted["scope"] = Value::from(scopes.join(" "));
    }
    let request = requests.post(endpoint)?.header(ACCEPT, "application/json").header(CONTENT_TYPE, "application/json");
    let answer = answer(send(request.body(wanted.to_string())).await?).await?;
    let id = text(&answer, "client_id").filter(|id| !id.is_empty() && id.len() <= TOKEN_LIMIT);
    let id = id.ok_or_else(|| unusable("the authorization server registered no client"))?.to_owned();
    let secret = text(&answer, "client_secret").filter(|secret| !secret.is_empty() && secret.len() <= TOKEN_LIMIT).map(SecretString::from);
    let method = match (text(&answer, "token_endpoint_auth_method"), &secret) {
        (_, None) | (Some("none"), _) => ClientMethod::None,
        (Some("client_secret_post"), _) => ClientMethod::Post,
        _ => ClientMethod::Basic,
    };
    // RFC 7591: 0 means never.
    let expires = answer.get("client_secret_expires_at").and_then(Value::as_u64).filter(|seconds| *seconds > 0);
    let expires_at = expires.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    Ok(OAuthClient { id, secret, method, expires_at })
}

/// The method to ask for, if the server doesn't support public clients: the first one that it names. The MCP SDK for Python names both,
/// and its servers reject the second one, `client_secret_basic`, without a `client_id` in the form.
fn secret_method(methods: &[String]) -> Option<&'static str> {
    if methods.iter().any(|method| method == "none") {
        return None;
    }
    methods.iter().find_map(|method| ["client_secret_basic", "client_secret_post"].into_iter().find(|known| method == known))
}

pub(super) async fn request(
    requests: &Requests,
    endpoint: &Url,
    client: &OAuthClient,
    grant: TokenRequest<'_>,
) -> Result<TokenAnswer, AuthorizationError> {
    let request = authenticated(requests.post(endpoint.clone())?, form(grant), client);
    read(&answer(send(request).await?).await?)
}

fn form(grant: TokenRequest<'_>) -> Vec<(&'static str, String)> {
    let resource = |resource: &str| ("resource", resource.to_owned());
    let scope = |scopes: &[String]| (!scopes.is_empty()).then(|| ("scope", scopes.join(" ")));
    match grant {
        TokenRequest::Code { code, verifier, redirect_uri, resource: of } => vec![
            ("grant_type", "authorization_code".to_owned()),
            ("code", code.expose_secret().to_owned()),
            ("code_verifier", verifier.expose_secret().to_owned()),
            ("redirect_uri", redirect_uri.to_owned()),
            resource(of),
        ],
        TokenRequest::Refresh { refresh, resource: of } => {
            vec![("grant_type", "refresh_token".to_owned()), ("refresh_token", refresh.expose_secret().to_owned()), resource(of)]
        }
        TokenRequest::Machine { scopes, resource: of } => {
            [("grant_type", "client_credentials".to_owned()), resource(of)].into_iter().chain(scope(scopes)).collect()
        }
        TokenRequest::Exchange { subject, subject_type, audience, scopes, resource: of } => {
            let audience = audience.map(|audience| ("audience", audience.to_owned()));
            let fields = [
                ("grant_type", TOKEN_EXCHANGE.to_owned()),
                ("subject_token", subject.expose_secret().to_owned()),
                ("subject_token_type", subject_type.to_owned()),
                ("requested_token_type", ACCESS_TOKEN.to_owned()),
                resource(of),
            ];
            fields.into_iter().chain(audience).chain(scope(scopes)).collect()
        }
    }
}

/// Adds the form and the client's authentication (RFC 6749, section 2.3.1).
fn authenticated(request: RequestBuilder, fields: Vec<(&'static str, String)>, client: &OAuthClient) -> RequestBuilder {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(fields);
    let request = request.header(ACCEPT, "application/json").header(CONTENT_TYPE, FORM);
    let request = match (client.method, &client.secret) {
        (ClientMethod::Basic, Some(secret)) => request.basic_auth(encoded(&client.id), Some(encoded(secret.expose_secret()))),
        (ClientMethod::Post, Some(secret)) => {
            form.append_pair("client_id", &client.id).append_pair("client_secret", secret.expose_secret());
            request
        }
        _ => {
            form.append_pair("client_id", &client.id);
            request
        }
    };
    request.body(form.finish())
}

/// Reads the response of a token endpoint (RFC 6749, section 5.1).
fn read(answer: &Value) -> Result<TokenAnswer, AuthorizationError> {
    let is_token = |token: &&str| !token.is_empty() && token.len() <= TOKEN_LIMIT && token.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
    let token = |name| text(answer, name).filter(is_token).map(SecretString::from);
    let access = token("access_token").ok_or_else(|| unusable("the authorization server's answer contains no token"))?;
    if !text(answer, "token_type").is_none_or(|kind| kind.eq_ignore_ascii_case("bearer")) {
        return Err(unusable("the authorization server's token is not a bearer token"));
    }
    // Some servers write the number as a text, and some write 0 for a token that doesn't expire.
    let expires_in = answer.get("expires_in").and_then(|value| value.as_f64().or_else(|| value.as_str()?.parse().ok()));
    let expires_in = expires_in.filter(|seconds| *seconds >= SHORTEST.as_secs_f64());
    let expires_in = expires_in.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST));
    let scopes = text(answer, "scope").filter(|scope| !scope.is_empty()).map(authorization::scopes);
    Ok(TokenAnswer { access, refresh: token("refresh_token"), expires_in, scopes })
}

pub(super) async fn revoke(
    requests: &Requests,
    endpoint: &Url,
    client: &OAuthClient,
    token: &SecretString,
    is_refresh: bool,
) -> Result<(), AuthorizationError> {
    let hint = if is_refresh { "refresh_token" } else { "access_token" };
    let fields = vec![("token", token.expose_secret().to_owned()), ("token_type_hint", hint.to_owned())];
    let response = send(authenticated(requests.post(endpoint.clone())?, fields, client)).await?;
    if response.status().is_success() { Ok(()) } else { answer(response).await.map(drop) }
}

/// The JSON of a successful response, or the error of another one.
async fn answer(response: Response) -> Result<Value, AuthorizationError> {
    let status = response.status();
    if status.is_redirection() {
        return Err(unusable(format!("the authorization server redirects the request (HTTP {status}), which is not followed")));
    }
    let parsed: Option<Value> = serde_json::from_slice(&body(response).await?).ok();
    let code = parsed.as_ref().and_then(|answer| text(answer, "error"));
    let known = code.and_then(|code| ERRORS.into_iter().find(|known| *known == code));
    // GitHub answers errors with 200.
    if status.is_success() && code.is_none() {
        return parsed.ok_or_else(|| unusable("the authorization server's answer is not JSON"));
    }
    match known {
        Some("temporarily_unavailable") => {
            Err(AuthorizationError::Unreachable("the authorization server is temporarily unavailable".to_owned()))
        }
        Some(code) => Err(AuthorizationError::Refused(code)),
        // GitHub's own codes.
        None if matches!(code, Some("bad_refresh_token" | "bad_verification_code")) => Err(AuthorizationError::Refused("invalid_grant")),
        None if matches!(code, Some("incorrect_client_credentials")) => Err(AuthorizationError::Refused("invalid_client")),
        // Without an error code, it need not come from the authorization server, but from a proxy before it.
        None if status == StatusCode::UNAUTHORIZED => {
            Err(AuthorizationError::Unreachable(format!("the authorization server rejected the request without a reason: HTTP {status}")))
        }
        None if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            Err(AuthorizationError::Unreachable(format!("the authorization server failed: HTTP {status}")))
        }
        None => Err(unusable(format!("the authorization server rejected the request: HTTP {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use secrecy::ExposeSecret;
    use serde_json::{Value, json};

    use super::{LONGEST, TokenRequest, answer, form, read, secret_method};
    use crate::service::ports::AuthorizationError;

    /// A proxy before the authorization server may answer in its place.
    #[tokio::test]
    async fn a_401_rejects_the_client_only_if_it_says_so() {
        let answer = async |body: &'static str| {
            let response = http::Response::builder().status(401).body(body).unwrap();
            answer(response.into()).await.unwrap_err()
        };
        for (body, is_rejected) in
            [(r#"{"error":"invalid_client"}"#, true), ("<html>Unauthorized</html>", false), ("{}", false), ("", false)]
        {
            let error = answer(body).await;
            assert_eq!(matches!(error, AuthorizationError::Refused("invalid_client")), is_rejected, "{body}: {error}");
            assert_eq!(matches!(error, AuthorizationError::Unreachable(_)), !is_rejected, "{body}: {error}");
        }
    }

    #[test]
    fn a_client_authenticates_as_the_server_prefers() {
        let chosen = |methods: &[&str]| secret_method(&methods.iter().map(|method| (*method).to_owned()).collect::<Vec<_>>());
        assert_eq!(chosen(&[]), None);
        assert_eq!(chosen(&["client_secret_basic", "none"]), None);
        assert_eq!(chosen(&["private_key_jwt", "client_secret_post", "client_secret_basic"]), Some("client_secret_post"));
        assert_eq!(chosen(&["client_secret_basic", "client_secret_post"]), Some("client_secret_basic"));
    }

    #[test]
    fn an_exchange_asks_for_an_access_token_for_the_server() {
        let (subject, scopes) = ("user.token".into(), ["read".to_owned(), "write".to_owned()]);
        let jwt = "urn:ietf:params:oauth:token-type:jwt";
        let sent = |audience, scopes| {
            form(TokenRequest::Exchange { subject: &subject, subject_type: jwt, audience, scopes, resource: "https://mcp.example" })
        };
        let expected = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("subject_token", "user.token"),
            ("subject_token_type", jwt),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("resource", "https://mcp.example"),
            ("audience", "mcp"),
            ("scope", "read write"),
        ];
        assert_eq!(sent(Some("mcp"), &scopes), expected.map(|(name, value)| (name, value.to_owned())));
        assert_eq!(sent(None, &[]), expected[..5].iter().map(|(name, value)| (*name, (*value).to_owned())).collect::<Vec<_>>());
    }

    #[test]
    fn only_a_bearer_token_that_fits_a_header_is_taken() {
        let whole =
            read(&json!({"access_token": "a.b-c", "token_type": "bearer", "expires_in": "3600", "refresh_token": "r", "scope": "x y"}));
        let whole = whole.unwrap();
        assert_eq!((whole.access.expose_secret(), whole.expires_in), ("a.b-c", Some(Duration::from_hours(1))));
        assert_eq!((whole.refresh.unwrap().expose_secret(), whole.scopes), ("r", Some(vec!["x".to_owned(), "y".to_owned()])));
        for (answer, words) in [
            (json!({}), "contains no token"),
            (json!({"access_token": ""}), "contains no token"),
            (json!({"access_token": "a b"}), "contains no token"),
            (json!({"access_token": "a\r\nX: 1"}), "contains no token"),
            (json!({"access_token": "a".repeat(20_000)}), "contains no token"),
            (json!({"access_token": "a", "token_type": "mac"}), "not a bearer token"),
        ] {
            assert!(read(&answer).unwrap_err().to_string().contains(words), "{words}");
        }
        for odd in [json!(-1), json!(0), json!("0"), json!(0.5), json!(null), json!("soon"), json!([1])] {
            let answer: Value = json!({"access_token": "a", "expires_in": odd});
            assert_eq!(read(&answer).unwrap().expires_in, None);
        }
        for (lasts, read_as) in [(json!(1), Duration::from_secs(1)), (json!(1e300), LONGEST), (json!(u64::MAX), LONGEST)] {
            assert_eq!(read(&json!({"access_token": "a", "expires_in": lasts})).unwrap().expires_in, Some(read_as));
        }
    }
}

//! Exchanges the token that came with a user's request for a token with which a server is called (RFC 8693).
//!
//! New tokens stay in memory, with the hash of the user's token. The user's own token is sent to the configured authorization server
//! only, and nothing keeps it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use moka::sync::Cache;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, timeout};

use super::copies::{AFTER_FAILURE, Turns};
use super::refresh::REQUEST;
use super::{ConfiguredServer, ConnectionError, Connections};
use crate::domain::access::authorization::Challenge;
use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::access::subject_token::SubjectToken;
use crate::domain::catalog::tool::ServerName;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{AuthorizationError, AuthorizationServer, Credentials, OAuthClient, SignInToken, TokenAnswer, TokenRequest};
use crate::settings::TokenExchange;

/// Maximum number of exchanged tokens in memory.
const TOKENS: u64 = 10_000;
/// Maximum length of a user's token, in bytes. Requests with longer headers are rejected anyway.
const SUBJECT_LIMIT: usize = 64 << 10;
/// How long a token is used if the authorization server doesn't say how long it is valid.
const UNKNOWN: Duration = Duration::from_mins(5);
/// A token is exchanged anew this time before it expires, or in the last quarter of its validity.
const MARGIN: Duration = Duration::from_mins(1);
/// How long the metadata of an authorization server are used.
const DISCOVERED: Duration = Duration::from_mins(10);
/// How long an attempt to list a server's tools with a user's token is not repeated.
const LISTING: Duration = Duration::from_secs(10);

/// The user's token by its hash, so that memory does not hold it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ExchangeKey {
    owner: PrincipalId,
    server: ServerName,
    subject: Fingerprint,
}

/// The result of an exchange.
struct Exchanged {
    result: Result<SignInToken, Refused>,
    until: SystemTime,
    /// The settings by which it was exchanged: others may name another authorization server.
    by: Arc<ConfiguredServer>,
}

/// The reason why a token was not exchanged.
#[derive(Clone, Debug)]
enum Refused {
    /// The authorization server or the MCP server rejects the user's token.
    Token(String),
    /// An administrator must correct something.
    Settings(String),
    /// A later attempt may succeed.
    Unavailable(String),
}

impl Refused {
    fn for_server(self, server: &ServerName) -> ConnectionError {
        let server = server.clone();
        match self {
            Self::Token(reason) => ConnectionError::TokenRejected { server, reason },
            Self::Settings(reason) => ConnectionError::NotIssued { server, reason },
            Self::Unavailable(reason) => ConnectionError::Unavailable { server, reason },
        }
    }
}

impl From<AuthorizationError> for Refused {
    fn from(error: AuthorizationError) -> Self {
        let AuthorizationError::Refused(code) = error else {
            let reason = error.to_string();
            return if matches!(error, AuthorizationError::Unreachable(_)) { Self::Unavailable(reason) } else { Self::Settings(reason) };
        };
        let remedy = match code {
            "invalid_grant" | "invalid_request" | "access_denied" => {
                return Self::Token(format!(
                    "the authorization server rejects it ({code}): sign in again in the application that sent it, or ask an administrator \
                     whether you may use this server"
                ));
            }
            "invalid_target" => "check `resource` and `audience`",
            "invalid_scope" => "check `scopes`",
            "invalid_client" | "unauthorized_client" => "check `client_id` and `client_secret`, and whether the client may exchange tokens",
            "unsupported_grant_type" => "allow token exchange (RFC 8693) there",
            _ => "check its log",
        };
        Self::Settings(format!("the authorization server rejects the exchange of tokens ({code}): an administrator must {remedy}"))
    }
}

/// The tokens that were exchanged.
pub(in crate::service::access) struct Exchanges {
    known: Cache<ExchangeKey, Arc<Exchanged>>,
    turns: Turns<ExchangeKey>,
    /// Number of exchanges, which is the version of the next token.
    count: AtomicU64,
    /// When somebody's token was last used to list the tools of a server.
    listings: Mutex<HashMap<ServerName, Instant>>,
}

impl Default for Exchanges {
    fn default() -> Self {
        let known = Cache::builder().max_capacity(TOKENS).support_invalidation_closures().build();
        Self { known, turns: Turns::default(), count: AtomicU64::new(0), listings: Mutex::default() }
    }
}

impl Exchanges {
    pub(super) fn clear(&self) {
        self.known.invalidate_all();
        self.listings.lock().clear();
    }

    pub(super) fn forget(&self, owner: &PrincipalId) {
        let owner = owner.clone();
        // Fails only without the support for closures.
        let _ = self.known.invalidate_entries_if(move |key, _| key.owner == owner);
    }

    /// A result that counts now, other than a token up to the version `rejected`.
    fn get(&self, key: &ExchangeKey, by: &Arc<ConfiguredServer>, rejected: Option<u64>) -> Option<Result<SignInToken, Refused>> {
        let known = self.known.get(key).filter(|known| Arc::ptr_eq(&known.by, by) && SystemTime::now() < known.until)?;
        let is_rejected = known.result.as_ref().is_ok_and(|token| rejected.is_some_and(|rejected| token.version <= rejected));
        (!is_rejected).then(|| known.result.clone())
    }

    fn keep(&self, key: ExchangeKey, by: &Arc<ConfiguredServer>, result: Result<SignInToken, Refused>, until: SystemTime) {
        self.known.insert(key, Arc::new(Exchanged { result, until, by: Arc::clone(by) }));
    }
}

/// The authorization server of an MCP server, as last found, or why it was not.
#[derive(Default)]
pub(super) struct Discovered(tokio::sync::Mutex<Option<(Result<AuthorizationServer, AuthorizationError>, Instant)>>);

impl Connections {
    /// Whether a server is called with exchanged tokens of its users.
    pub(crate) fn exchanges(&self, server: &ServerName) -> bool {
        self.configured(server).is_some_and(|configured| configured.settings.exchange.is_some())
    }

    /// The token for the user's token in these headers, other than a token up to the version `rejected`. Exchanges it if necessary.
    pub(super) async fn exchanged(
        &self,
        configured: &Arc<ConfiguredServer>,
        exchange: &TokenExchange,
        caller: &Principal,
        headers: &HeaderMap,
        rejected: Option<u64>,
    ) -> Result<SignInToken, ConnectionError> {
        let server = &configured.name;
        let (subject, key) = brought(configured, exchange, caller, headers)?;
        let refused = |refused: Refused| refused.for_server(server);
        if let Some(known) = self.exchanges.get(&key, configured, rejected) {
            return known.map_err(refused);
        }
        let turn = self.exchanges.turns.of(&key);
        let _turn = turn.lock().await;
        // Another call may have exchanged it meanwhile.
        if let Some(known) = self.exchanges.get(&key, configured, rejected) {
            return known.map_err(refused);
        }
        let said = SubjectToken::read(subject.expose_secret());
        let now = SystemTime::now();
        match self.exchange(configured, exchange, &subject).await {
            Ok(answer) => {
                let token = SignInToken {
                    access: answer.access,
                    // Calls with these tokens may share a connection.
                    sign_in: said.identity.to_string().into(),
                    version: self.exchanges.count.fetch_add(1, Ordering::Relaxed),
                    owner: caller.id.clone(),
                };
                let lasts = answer.expires_in.unwrap_or(UNKNOWN);
                let until = now.checked_add(lasts.saturating_sub(MARGIN.min(lasts / 4))).unwrap_or(now);
                let until = said.expires_at.map_or(until, |expires_at| until.min(expires_at));
                self.exchanges.keep(key, configured, Ok(token.clone()), until);
                self.clear_fault(server);
                Ok(token)
            }
            Err(error) => {
                let error = Refused::from(error);
                match &error {
                    Refused::Token(reason) => tracing::info!(%server, reason, "a user's token could not be exchanged"),
                    Refused::Settings(reason) | Refused::Unavailable(reason) => self.note_fault(server, reason),
                }
                self.exchanges.keep(key, configured, Err(error.clone()), SystemTime::now() + AFTER_FAILURE);
                Err(refused(error))
            }
        }
    }

    async fn exchange(
        &self,
        configured: &ConfiguredServer,
        exchange: &TokenExchange,
        subject: &SecretString,
    ) -> Result<TokenAnswer, AuthorizationError> {
        let (at, client) = self.exchanges_at(configured).await?;
        let settings = &configured.settings;
        let request = TokenRequest::Exchange {
            subject,
            subject_type: &exchange.subject_token_type,
            audience: exchange.audience.as_deref(),
            scopes: if settings.scopes.is_empty() { &at.scopes } else { &settings.scopes },
            resource: &at.resource,
        };
        let late = || AuthorizationError::Unreachable(format!("the authorization server did not answer within {} s", REQUEST.as_secs()));
        let answer = self.client.token(settings, &at.token_endpoint, &client, request);
        let answer = timeout(REQUEST, answer).await.unwrap_or_else(|_| Err(late()));
        if matches!(answer, Err(AuthorizationError::Unusable(_) | AuthorizationError::Unreachable(_))) {
            // Its metadata may have changed.
            *configured.discovered.0.lock().await = None;
        }
        answer
    }

    /// The authorization server, found once for all calls, and the configured client there.
    async fn exchanges_at(&self, configured: &ConfiguredServer) -> Result<(AuthorizationServer, OAuthClient), AuthorizationError> {
        let mut discovered = configured.discovered.0.lock().await;
        let known = discovered.as_ref().filter(|(found, at)| at.elapsed() < if found.is_ok() { DISCOVERED } else { AFTER_FAILURE });
        let found = if let Some((found, _)) = known {
            found.clone()
        } else {
            let found = self.client.discover(&configured.settings, None).await;
            *discovered = Some((found.clone(), Instant::now()));
            found
        };
        let at = found?;
        let client = Self::fixed_client(&configured.settings, &at);
        let client = client.ok_or_else(|| AuthorizationError::Unusable("`auth` has no `client_id` and `client_secret`".to_owned()))?;
        Ok((at, client))
    }

    /// A token instead of an exchanged one that the server has rejected. With `is_last`, that one was as new as possible.
    pub(super) async fn exchanged_again(
        &self,
        configured: &Arc<ConfiguredServer>,
        exchange: &TokenExchange,
        caller: &Principal,
        headers: &HeaderMap,
        rejected: (&SignInToken, &Challenge, bool),
    ) -> Result<SignInToken, ConnectionError> {
        let (token, challenge, is_last) = rejected;
        let refused = if challenge.lacks_scope {
            let scopes = challenge.scopes.join(" ");
            Refused::Token(format!(
                "the call needs more permissions than its exchanged token has: {scopes}. An administrator must add them to `scopes` in \
                 `auth`, or grant them to you"
            ))
        } else if is_last {
            let reason = "the MCP server rejects the token that the authorization server issued for it: an administrator must check \
                          `resource`, `audience` and `scopes` in `auth`";
            let (_, key) = brought(configured, exchange, caller, headers)?;
            let refused = Refused::Settings(reason.to_owned());
            self.note_fault(&configured.name, reason);
            self.exchanges.keep(key, configured, Err(refused.clone()), SystemTime::now() + AFTER_FAILURE);
            refused
        } else {
            return self.exchanged(configured, exchange, caller, headers, Some(token.version)).await;
        };
        Err(refused.for_server(&configured.name))
    }

    /// Lists the tools of servers that nobody has listed yet, with the user's token in the headers of a request, in the background.
    /// `header` finds the value of a header.
    pub(crate) fn list_by_exchange<'a>(self: &Arc<Self>, caller: &Principal, header: impl Fn(&str) -> Option<&'a str>) {
        let configured = self.configured.load();
        for server in configured.values().filter(|server| server.settings.exchange.is_some() && server.needs_only_token) {
            let Some(exchange) = &server.settings.exchange else { continue };
            if self.current.snapshot().server(server.name.as_str()).is_some() {
                continue;
            }
            let Some(value) = header(&exchange.header).and_then(|value| http::HeaderValue::from_str(value).ok()) else { continue };
            if !self.current.shows_server(caller, &server.name) || !self.exchanges.may_list(&server.name) {
                continue;
            }
            let Ok(name) = http::HeaderName::from_bytes(exchange.header.as_bytes()) else { continue };
            let headers = HeaderMap::from_iter([(name, value)]);
            let (connections, server, exchange, caller) = (Arc::clone(self), Arc::clone(server), exchange.clone(), caller.clone());
            tokio::spawn(async move {
                // If the exchange fails, it has been logged.
                if let Ok(token) = connections.exchanged(&server, &exchange, &caller, &headers, None).await {
                    connections.servers.introduce(&server.name, &caller.id, Arc::new(Credentials::of_sign_in(token)));
                }
            });
        }
    }
}

impl Exchanges {
    /// Whether to list a server's tools now. Notes that it is done.
    fn may_list(&self, server: &ServerName) -> bool {
        let mut listings = self.listings.lock();
        let is_due = listings.get(server).is_none_or(|last| last.elapsed() >= LISTING);
        if is_due {
            listings.insert(server.clone(), Instant::now());
        }
        is_due
    }
}

/// The user's token in these headers, and the key of its exchange.
fn brought(
    configured: &ConfiguredServer,
    exchange: &TokenExchange,
    caller: &Principal,
    headers: &HeaderMap,
) -> Result<(SecretString, ExchangeKey), ConnectionError> {
    let server = configured.name.clone();
    let subject = subject(headers, &exchange.header);
    let subject = subject.ok_or_else(|| ConnectionError::NoUserToken { server: server.clone(), header: exchange.header.clone() })?;
    let key = ExchangeKey { owner: caller.id.clone(), server, subject: Fingerprint::of_text(subject.expose_secret()) };
    Ok((subject, key))
}

/// The token in a header. `None` unless there is exactly one.
fn subject(headers: &HeaderMap, name: &str) -> Option<SecretString> {
    let mut values = headers.get_all(name).iter();
    let text = values.next()?.to_str().ok()?.trim();
    if values.next().is_some() {
        return None;
    }
    let token = match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim_start(),
        _ => text,
    };
    // The scheme alone is what remains of a header without a token.
    let is_there = !token.is_empty() && !token.eq_ignore_ascii_case("bearer");
    let is_token = is_there && token.len() <= SUBJECT_LIMIT && token.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
    is_token.then(|| SecretString::from(token))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use secrecy::ExposeSecret;

    use super::{Refused, subject};
    use crate::service::ports::AuthorizationError;

    #[test]
    fn a_token_comes_alone_or_as_a_bearer_token() {
        let headers = |values: &[&'static str]| -> HeaderMap {
            let pair = |value| (HeaderName::from_static("x-user-token"), HeaderValue::from_static(value));
            let mut headers = HeaderMap::new();
            for (name, value) in values.iter().map(|value| pair(*value)) {
                headers.append(name, value);
            }
            headers
        };
        let read = |values: &[&'static str]| subject(&headers(values), "x-user-token").map(|token| token.expose_secret().to_owned());
        for token in ["a.b-c_d", "Bearer a.b-c_d", "bearer  a.b-c_d", " a.b-c_d "] {
            assert_eq!(read(&[token]).as_deref(), Some("a.b-c_d"), "{token}");
        }
        for odd in [&[][..], &[""][..], &["Bearer "][..], &["a b"][..], &["Basic a"][..], &["a", "b"][..]] {
            assert_eq!(read(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn only_a_rejected_token_is_the_users_matter() {
        let refused = |code| Refused::from(AuthorizationError::Refused(code));
        for code in ["invalid_grant", "invalid_request", "access_denied"] {
            assert!(matches!(refused(code), Refused::Token(reason) if reason.contains(code)), "{code}");
        }
        for (code, words) in [("invalid_target", "audience"), ("invalid_client", "client_secret"), ("unsupported_grant_type", "8693")] {
            assert!(matches!(refused(code), Refused::Settings(reason) if reason.contains(words)), "{code}");
        }
        assert!(matches!(Refused::from(AuthorizationError::Unusable(String::new())), Refused::Settings(_)));
        assert!(matches!(Refused::from(AuthorizationError::Unreachable(String::new())), Refused::Unavailable(_)));
    }
}

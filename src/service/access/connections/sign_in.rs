//! A sign-in at an authorization server: sends the person there, and exchanges the code with which they come back.
//!
//! A sign-in belongs to the page session in which it began. Its `state` is used once, and the proof key never leaves the service. So
//! neither a replayed answer, nor the code of another person, nor an answer of another authorization server is accepted (RFC 9700).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::grant::{Grant, Pending, open_client, seal_client};
use super::refresh::expiry;
use super::{ALL, CLIENT_METADATA, ConfiguredServer, ConnectionError, Connections};
use crate::domain::access::authorization::{hash_of, proof_key_challenge, random_text, union};
use crate::domain::access::principal::PrincipalId;
use crate::domain::access::secret::{SealError, SealedSecret};
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::{
    AuthorizationError, AuthorizationServer, ClientMethod, ConnectVisit, Credentials, OAuthClient, Parting, PendingSignIn, SignInToken,
    StoreError, StoredConnection, TokenRequest,
};
use crate::settings::{ConnectSettings, TokenFor};

/// How long a person may take to sign in.
const SIGNING_IN: Duration = Duration::from_mins(10);
/// The owner of client registrations, which belong to the service.
const SERVICE: &str = "service";
/// A scope for refresh tokens (`OpenID` Connect Core, section 11).
const OFFLINE: &str = "offline_access";

/// What an authorization server sends back with the person.
#[derive(Debug, Default)]
pub(crate) struct AuthorizationAnswer {
    pub state: String,
    pub code: Option<SecretString>,
    pub error: Option<String>,
    pub issuer: Option<String>,
}

/// The reason why a sign-in failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignInError {
    #[error("there is no such server to sign in to")]
    NotFound,
    /// The state is unknown, used, expired, or belongs to another session.
    #[error("this sign-in was not begun here, is already complete, or took longer than ten minutes: begin it again")]
    Unknown,
    #[error("the answer comes from another authorization server than the one where the sign-in began")]
    OtherIssuer,
    /// The authorization server returned this error.
    #[error("{}", refusal(.0))]
    Refused(&'static str),
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

impl From<StoreError> for SignInError {
    fn from(error: StoreError) -> Self {
        Self::Connection(error.into())
    }
}

impl From<SealError> for SignInError {
    fn from(error: SealError) -> Self {
        Self::Connection(error.into())
    }
}

fn refusal(code: &str) -> String {
    match code {
        "access_denied" => "the sign-in was cancelled or denied".to_owned(),
        code => format!("the authorization server answered with an error: {code}"),
    }
}

/// The error codes of an authorization response (RFC 6749, section 4.1.2.1; `OpenID` Connect Core, section 3.1.2.6). Other texts are not
/// repeated.
const ERRORS: [&str; 12] = [
    "access_denied",
    "invalid_request",
    "unauthorized_client",
    "unsupported_response_type",
    "invalid_scope",
    "server_error",
    "temporarily_unavailable",
    "invalid_target",
    "interaction_required",
    "login_required",
    "consent_required",
    "account_selection_required",
];

impl Connections {
    /// Begins a sign-in in a page session, and returns the address at which the person continues.
    pub(crate) async fn begin(&self, session: &ConnectVisit, server: &ServerName) -> Result<Url, SignInError> {
        let configured = self.signable(session, server)?;
        let settings = &configured.settings;
        let redirect_uri = self.redirect_uri(server)?;
        let keys = self.keys(server)?;
        let stored = self.store.connection(&session.owner, server).await?;
        let found = async {
            let at = self.client.discover(settings, None).await?;
            let endpoint = at.authorization_endpoint.clone();
            let unusable = |reason: &str| AuthorizationError::Unusable(reason.to_owned());
            let endpoint = endpoint.ok_or_else(|| unusable("the authorization server has no `authorization_endpoint`"))?;
            if !at.takes_proof_keys {
                return Err(unusable("the authorization server doesn't support proof keys (PKCE, S256), which MCP requires"));
            }
            Ok((at, endpoint))
        };
        let (at, mut address) = match found.await {
            Ok(found) => found,
            Err(error) => {
                self.note_fault(server, &error.to_string());
                return Err(SignInError::Failed(error.to_string()));
            }
        };
        let scopes = wanted_scopes(settings, &at, stored.as_ref());
        let client = match self.client_at(&configured, &at, &redirect_uri, &scopes).await? {
            Ok(client) => client,
            Err(error) => {
                self.note_fault(server, &error.to_string());
                return Err(SignInError::Failed(error.to_string()));
            }
        };
        let (state, verifier) = (random_text(&rand::random()), random_text(&rand::random()));
        {
            let mut query = address.query_pairs_mut();
            for (name, value) in &settings.parameters {
                query.append_pair(name, value);
            }
            query
                .append_pair("response_type", "code")
                .append_pair("client_id", &client.id)
                .append_pair("redirect_uri", &redirect_uri)
                .append_pair("state", state.expose_secret())
                .append_pair("code_challenge", &proof_key_challenge(&verifier))
                .append_pair("code_challenge_method", "S256")
                .append_pair("resource", &at.resource);
            if !scopes.is_empty() {
                query.append_pair("scope", &scopes.join(" "));
            }
        }
        let pending = Pending {
            issuer: at.issuer,
            names_issuer: at.names_issuer,
            token_endpoint: at.token_endpoint,
            revocation_endpoint: at.revocation_endpoint,
            client,
            resource: at.resource,
            scopes,
            verifier,
            redirect_uri,
        };
        let pending = PendingSignIn {
            state: hash_of(state.expose_secret()),
            session: session.id.clone(),
            sealed: pending.seal(keys, &session.owner, server)?,
            expires_at: SystemTime::now() + SIGNING_IN,
        };
        self.store.save_sign_in(&pending).await?;
        Ok(address)
    }

    /// Completes a sign-in in the page session in which it began. Returns the server.
    pub(crate) async fn complete(self: &Arc<Self>, session: &ConnectVisit, answer: AuthorizationAnswer) -> Result<ServerName, SignInError> {
        let begun = SystemTime::now();
        let taken = self.store.take_sign_in(&hash_of(&answer.state), &session.id, begun).await?;
        let taken = taken.ok_or(SignInError::Unknown)?;
        let (owner, server) = (taken.sealed.place.owner.clone(), taken.sealed.place.server.clone());
        let configured = self.signable(session, &server)?;
        if owner != session.owner {
            return Err(SignInError::Unknown);
        }
        let pending = Pending::open(self.keys(&server)?, &taken.sealed).map_err(|_| SignInError::Unknown)?;
        // Compared as text (RFC 9207, section 2.4).
        match &answer.issuer {
            Some(issuer) if *issuer != pending.issuer => return Err(SignInError::OtherIssuer),
            None if pending.names_issuer => return Err(SignInError::OtherIssuer),
            _ => {}
        }
        if let Some(error) = &answer.error {
            let code = ERRORS.into_iter().find(|known| known == error).unwrap_or("unknown error");
            return Err(SignInError::Refused(code));
        }
        let code = answer.code.as_ref().ok_or(SignInError::Refused("the answer contains no code"))?;
        let request =
            TokenRequest::Code { code, verifier: &pending.verifier, redirect_uri: &pending.redirect_uri, resource: &pending.resource };
        let tokens = match self.client.token(&configured.settings, &pending.token_endpoint, &pending.client, request).await {
            Ok(tokens) => tokens,
            Err(error) => {
                if error.loses_client() {
                    self.store.remove_oauth_client(&server, &pending.issuer).await?;
                }
                self.note_fault(&server, &error.to_string());
                return Err(SignInError::Failed(error.to_string()));
            }
        };
        let scopes = tokens.scopes.clone().unwrap_or(pending.scopes);
        let expires_at = expiry(&tokens);
        let grant = Grant {
            access: tokens.access,
            refresh: tokens.refresh,
            client: pending.client,
            token_endpoint: pending.token_endpoint,
            revocation_endpoint: pending.revocation_endpoint,
            resource: pending.resource,
            origin: configured.origin(),
        };
        // The next sign-in requests again what calls have lacked.
        let former = self.store.connection(&owner, &server).await?.filter(|former| former.issuer == pending.issuer);
        let wanted = former.map(|former| former.wanted).unwrap_or_default();
        let stored = self.new_connection(&grant, &owner, &server, pending.issuer, scopes, expires_at)?;
        let stored = StoredConnection { wanted, ..stored };
        // Whoever is deleted loses the sessions before the sign-ins, and perhaps while the authorization server was answering. The check
        // before the sign-in is stored keeps a former one, the check after it leaves no gap.
        if !self.is_open(session, begun).await? {
            self.revoke(&stored).await;
            return Err(SignInError::Unknown);
        }
        self.store.save_connection(&stored).await?;
        let is_open = self.is_open(session, begun).await;
        if !matches!(is_open, Ok(true)) {
            if self.store.remove_connection(&stored).await? {
                self.leave(&stored).await;
            }
            is_open?;
            return Err(SignInError::Unknown);
        }
        self.clear_fault(&server);
        self.drop_copies(&owner, &server);
        self.servers.disconnect(&owner, Some(&server), Parting::AfterCalls);
        if configured.needs_only_token {
            let token = SignInToken { access: grant.access, sign_in: stored.sign_in.into(), version: stored.version, owner: owner.clone() };
            self.servers.introduce(&server, &owner, Arc::new(Credentials::of_sign_in(token)));
        }
        tracing::info!(%server, shared = owner.as_str() == ALL, "a user has signed in");
        Ok(server)
    }

    /// A server to which the person of this session may sign in.
    fn signable(&self, session: &ConnectVisit, server: &ServerName) -> Result<Arc<ConfiguredServer>, SignInError> {
        let configured = self.configured(server).filter(|configured| {
            session.servers.contains(server)
                && configured.settings.token_for != TokenFor::Machine
                && Self::manages(&session.owner, configured)
        });
        configured.ok_or(SignInError::NotFound)
    }

    pub(super) fn new_connection(
        &self,
        grant: &Grant,
        owner: &PrincipalId,
        server: &ServerName,
        issuer: String,
        scopes: Vec<String>,
        expires_at: Option<SystemTime>,
    ) -> Result<StoredConnection, ConnectionError> {
        Ok(StoredConnection {
            sealed: grant.seal(self.keys(server)?, owner, server)?,
            sign_in: random_text(&rand::random()).expose_secret().to_owned(),
            version: 1,
            ended: None,
            issuer,
            scopes,
            wanted: Vec::new(),
            expires_at,
            connected_at: SystemTime::now(),
        })
    }

    /// The configured client, with the method that the authorization server names first.
    pub(super) fn fixed_client(settings: &ConnectSettings, at: &AuthorizationServer) -> Option<OAuthClient> {
        let id = settings.client_id.clone()?;
        let first = at.client_methods.iter().find(|method| matches!(method.as_str(), "client_secret_basic" | "client_secret_post"));
        let method = match &settings.client_secret {
            None => ClientMethod::None,
            Some(_) if first.is_some_and(|method| method == "client_secret_post") => ClientMethod::Post,
            Some(_) => ClientMethod::Basic,
        };
        Some(OAuthClient { id, secret: settings.client_secret.clone(), method, expires_at: None })
    }

    /// The service as a client of this authorization server: configured, described by its metadata document, registered before, or
    /// registered now (MCP specification, "Client Registration Approaches").
    async fn client_at(
        &self,
        configured: &ConfiguredServer,
        at: &AuthorizationServer,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<Result<OAuthClient, AuthorizationError>, SignInError> {
        let server = &configured.name;
        if let Some(client) = Self::fixed_client(&configured.settings, at) {
            return Ok(Ok(client));
        }
        let document = self.public_url.as_ref().filter(|url| url.starts_with("https://")).map(|url| format!("{url}{CLIENT_METADATA}"));
        if let Some(id) = document.filter(|_| at.takes_metadata_documents) {
            return Ok(Ok(OAuthClient { id, secret: None, method: ClientMethod::None, expires_at: None }));
        }
        let keys = self.keys(server)?;
        let known = self.store.oauth_client(server, &at.issuer).await?;
        let usable = |sealed: &SealedSecret| {
            let (client, registered_for, registered) = open_client(keys, sealed).ok()?;
            let is_valid = client.expires_at.is_none_or(|expires| expires > SystemTime::now() + SIGNING_IN);
            // Some servers grant a client only the scopes with which it was registered.
            let covers = scopes.iter().all(|scope| registered.contains(scope));
            (is_valid && covers && registered_for == redirect_uri).then_some(client)
        };
        if let Some(client) = known.as_ref().and_then(usable) {
            return Ok(Ok(client));
        }
        let client = match self.client.register(&configured.settings, at, redirect_uri, scopes).await {
            Ok(client) => client,
            Err(error) => return Ok(Err(error)),
        };
        let sealed = seal_client(&client, redirect_uri, scopes, keys, &PrincipalId::new(SERVICE), server)?;
        self.store.save_oauth_client(&at.issuer, &sealed).await?;
        Ok(Ok(client))
    }
}

/// The scopes to request: the configured ones or those that the server names, and those that calls lacked.
fn wanted_scopes(settings: &ConnectSettings, at: &AuthorizationServer, stored: Option<&StoredConnection>) -> Vec<String> {
    let scopes = if settings.scopes.is_empty() {
        let offline = at.offers_offline.then(|| OFFLINE.to_owned()).into_iter().collect::<Vec<_>>();
        union(&at.scopes, &offline)
    } else {
        settings.scopes.clone()
    };
    match stored.filter(|stored| stored.issuer == at.issuer) {
        Some(stored) => with_lacked(&scopes, &stored.scopes, &stored.wanted),
        None => scopes,
    }
}

/// These scopes, and those that calls lacked. As long as the latter are not granted, a sign-in adds to the former one, so it requests what
/// that had too. Later, it does not, so that an administrator can take scopes out of the settings.
fn with_lacked(scopes: &[String], granted: &[String], lacked: &[String]) -> Vec<String> {
    if lacked.iter().all(|scope| granted.contains(scope)) { union(scopes, lacked) } else { union(&union(scopes, granted), lacked) }
}

#[cfg(test)]
mod tests {
    use super::with_lacked;

    /// Regression test: once a scope that a call had lacked was granted, the next sign-in didn't request it.
    #[test]
    fn what_calls_lacked_is_requested_again() {
        let list = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        for (scopes, granted, lacked, requested) in [
            ("read", "", "", "read"),
            ("read", "read write", "", "read"),
            ("read", "read write", "admin", "read write admin"),
            ("read", "read admin", "admin", "read admin"),
            ("read", "read write admin", "admin", "read admin"),
            ("read", "read admin", "admin audit", "read admin audit"),
            ("", "admin", "admin", "admin"),
        ] {
            let found = with_lacked(&list(scopes), &list(granted), &list(lacked));
            assert_eq!(found, list(requested), "{scopes} / {granted} / {lacked}");
        }
    }
}

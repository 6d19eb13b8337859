//! What a sign-in consists of, and its encrypted form in the store.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::domain::access::principal::PrincipalId;
use crate::domain::access::secret::{NONCE_BYTES, SealError, SealedSecret, SecretKeys, SecretName, SecretPlace};
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::{ClientMethod, OAuthClient, SignInToken, StoredConnection, TokenAnswer};
use crate::settings::ConnectSettings;

/// The tokens of a sign-in, and what is needed to refresh and revoke them.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) access: SecretString,
    pub(super) refresh: Option<SecretString>,
    pub(super) client: OAuthClient,
    pub(super) token_endpoint: Url,
    pub(super) revocation_endpoint: Option<Url>,
    pub(super) resource: String,
    /// The origin of the MCP server. No other one may receive the tokens.
    pub(super) origin: String,
}

/// A sign-in that waits for the authorization server's answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) issuer: String,
    /// Whether the answer must name the issuer.
    pub(super) names_issuer: bool,
    pub(super) token_endpoint: Url,
    pub(super) revocation_endpoint: Option<Url>,
    pub(super) client: OAuthClient,
    pub(super) resource: String,
    pub(super) scopes: Vec<String>,
    pub(super) verifier: SecretString,
    pub(super) redirect_uri: String,
}

/// The kinds of encrypted texts. The kind is authenticated, so that one can't take another's place.
#[derive(Clone, Copy, Debug)]
pub(super) enum SealedKind {
    Grant,
    Pending,
    Client,
}

impl SealedKind {
    fn name(self) -> &'static str {
        match self {
            Self::Grant => "oauth.grant",
            Self::Pending => "oauth.pending",
            Self::Client => "oauth.client",
        }
    }
}

#[derive(Serialize, Deserialize)]
struct ClientText {
    id: String,
    secret: Option<String>,
    method: String,
    /// In seconds since 1970.
    expires_at: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct GrantText {
    access: String,
    refresh: Option<String>,
    client: ClientText,
    token_endpoint: String,
    revocation_endpoint: Option<String>,
    resource: String,
    origin: String,
}

#[derive(Serialize, Deserialize)]
struct PendingText {
    issuer: String,
    names_issuer: bool,
    token_endpoint: String,
    revocation_endpoint: Option<String>,
    client: ClientText,
    resource: String,
    scopes: Vec<String>,
    verifier: String,
    redirect_uri: String,
}

/// The reason why a sealed text can't be used.
#[derive(Debug, thiserror::Error)]
#[error("it can't be decrypted or read")]
pub(super) struct Unreadable;

impl Grant {
    /// The same sign-in with refreshed tokens. Servers may omit a refresh token that stays valid.
    pub(super) fn renewed(&self, answer: &TokenAnswer) -> Self {
        let refresh = answer.refresh.clone().or_else(|| self.refresh.clone());
        Self { access: answer.access.clone(), refresh, ..self.clone() }
    }

    /// Its access token, as calls send it.
    pub(super) fn token(&self, stored: &StoredConnection) -> SignInToken {
        SignInToken {
            access: self.access.clone(),
            sign_in: stored.sign_in.as_str().into(),
            version: stored.version,
            owner: stored.sealed.place.owner.clone(),
        }
    }

    /// Whether its client is the configured one, which signs in all users alike.
    pub(super) fn is_of_client(&self, settings: &ConnectSettings) -> bool {
        settings.client_id.as_ref() == Some(&self.client.id)
    }

    /// The same sign-in with the configured secret of its client, which may be another one than at the sign-in.
    pub(super) fn with_secret_of(self, settings: &ConnectSettings) -> Self {
        if !self.is_of_client(settings) {
            return self;
        }
        let method = match (&settings.client_secret, self.client.method) {
            (None, _) => ClientMethod::None,
            (Some(_), ClientMethod::None) => ClientMethod::Basic,
            (Some(_), method) => method,
        };
        let client = OAuthClient { secret: settings.client_secret.clone(), method, ..self.client };
        Self { client, ..self }
    }

    pub(super) fn seal(&self, keys: &SecretKeys, owner: &PrincipalId, server: &ServerName) -> Result<SealedSecret, SealError> {
        let text = GrantText {
            access: self.access.expose_secret().to_owned(),
            refresh: plain(self.refresh.as_ref()),
            client: client_text(&self.client),
            token_endpoint: self.token_endpoint.to_string(),
            revocation_endpoint: self.revocation_endpoint.as_ref().map(Url::to_string),
            resource: self.resource.clone(),
            origin: self.origin.clone(),
        };
        seal(SealedKind::Grant, &text, keys, owner, server)
    }

    pub(super) fn open(keys: &SecretKeys, sealed: &SealedSecret) -> Result<Self, Unreadable> {
        let text: GrantText = open(SealedKind::Grant, keys, sealed)?;
        Ok(Self {
            access: text.access.into(),
            refresh: text.refresh.map(SecretString::from),
            client: client(text.client),
            token_endpoint: url(&text.token_endpoint)?,
            revocation_endpoint: text.revocation_endpoint.as_deref().map(url).transpose()?,
            resource: text.resource,
            origin: text.origin,
        })
    }
}

impl Pending {
    pub(super) fn seal(&self, keys: &SecretKeys, owner: &PrincipalId, server: &ServerName) -> Result<SealedSecret, SealError> {
        let text = PendingText {
            issuer: self.issuer.clone(),
            names_issuer: self.names_issuer,
            token_endpoint: self.token_endpoint.to_string(),
            revocation_endpoint: self.revocation_endpoint.as_ref().map(Url::to_string),
            client: client_text(&self.client),
            resource: self.resource.clone(),
            scopes: self.scopes.clone(),
            verifier: self.verifier.expose_secret().to_owned(),
            redirect_uri: self.redirect_uri.clone(),
        };
        seal(SealedKind::Pending, &text, keys, owner, server)
    }

    pub(super) fn open(keys: &SecretKeys, sealed: &SealedSecret) -> Result<Self, Unreadable> {
        let text: PendingText = open(SealedKind::Pending, keys, sealed)?;
        Ok(Self {
            issuer: text.issuer,
            names_issuer: text.names_issuer,
            token_endpoint: url(&text.token_endpoint)?,
            revocation_endpoint: text.revocation_endpoint.as_deref().map(url).transpose()?,
            client: client(text.client),
            resource: text.resource,
            scopes: text.scopes,
            verifier: text.verifier.into(),
            redirect_uri: text.redirect_uri,
        })
    }
}

/// Encrypts a client registration, together with the redirect URI and the scopes for which it is valid.
pub(super) fn seal_client(
    registered: &OAuthClient,
    redirect_uri: &str,
    scopes: &[String],
    keys: &SecretKeys,
    owner: &PrincipalId,
    server: &ServerName,
) -> Result<SealedSecret, SealError> {
    seal(SealedKind::Client, &(client_text(registered), redirect_uri, scopes), keys, owner, server)
}

/// A client registration with its redirect URI and its scopes.
pub(super) fn open_client(keys: &SecretKeys, sealed: &SealedSecret) -> Result<(OAuthClient, String, Vec<String>), Unreadable> {
    let (text, redirect_uri, scopes): (ClientText, String, Vec<String>) = open(SealedKind::Client, keys, sealed)?;
    Ok((client(text), redirect_uri, scopes))
}

fn seal<T: Serialize>(
    kind: SealedKind,
    value: &T,
    keys: &SecretKeys,
    owner: &PrincipalId,
    server: &ServerName,
) -> Result<SealedSecret, SealError> {
    let name = SecretName::new(kind.name()).ok_or(SealError)?;
    let place = SecretPlace { owner: owner.clone(), server: server.clone(), name };
    let text = SecretString::from(serde_json::to_string(value).map_err(|_| SealError)?);
    keys.seal(place, &text, rand::random::<[u8; NONCE_BYTES]>(), SystemTime::now())
}

fn open<T: for<'a> Deserialize<'a>>(kind: SealedKind, keys: &SecretKeys, sealed: &SealedSecret) -> Result<T, Unreadable> {
    if sealed.place.name.as_str() != kind.name() {
        return Err(Unreadable);
    }
    let text = keys.open(sealed).map_err(|_| Unreadable)?;
    serde_json::from_str(text.expose_secret()).map_err(|_| Unreadable)
}

fn plain(secret: Option<&SecretString>) -> Option<String> {
    secret.map(|secret| secret.expose_secret().to_owned())
}

fn url(text: &str) -> Result<Url, Unreadable> {
    Url::parse(text).map_err(|_| Unreadable)
}

fn client_text(client: &OAuthClient) -> ClientText {
    let method = match client.method {
        ClientMethod::None => "none",
        ClientMethod::Basic => "client_secret_basic",
        ClientMethod::Post => "client_secret_post",
    };
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    ClientText {
        id: client.id.clone(),
        secret: plain(client.secret.as_ref()),
        method: method.to_owned(),
        expires_at: client.expires_at.map(seconds),
    }
}

fn client(text: ClientText) -> OAuthClient {
    let method = match text.method.as_str() {
        "client_secret_basic" => ClientMethod::Basic,
        "client_secret_post" => ClientMethod::Post,
        _ => ClientMethod::None,
    };
    let time = |seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    OAuthClient { id: text.id, secret: text.secret.map(SecretString::from), method, expires_at: text.expires_at.and_then(time) }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;
    use url::Url;

    use super::Grant;
    use crate::service::ports::{ClientMethod, OAuthClient};
    use crate::settings::{ConnectSettings, TokenFor};

    #[test]
    fn a_new_secret_of_the_configured_client_counts_for_former_sign_ins() {
        let url = Url::parse("https://issuer.example/token").unwrap();
        let sent = |id: &str, method, configured: Option<&str>| {
            let settings = ConnectSettings {
                token_for: TokenFor::User,
                server_url: url.clone(),
                client_id: Some("by-hand".to_owned()),
                client_secret: configured.map(Into::into),
                scopes: Vec::new(),
                parameters: indexmap::IndexMap::new(),
                issuer: None,
                resource: None,
                private_addresses: None,
                exchange: None,
            };
            let grant = Grant {
                access: "access".into(),
                refresh: None,
                client: OAuthClient { id: id.to_owned(), secret: Some("former".into()), method, expires_at: None },
                token_endpoint: url.clone(),
                revocation_endpoint: None,
                resource: String::new(),
                origin: String::new(),
            };
            let client = grant.with_secret_of(&settings).client;
            (client.secret.map(|secret| secret.expose_secret().to_owned()), client.method)
        };
        let secret = |text: &str| Some(text.to_owned());
        assert_eq!(sent("by-hand", ClientMethod::Post, Some("new")), (secret("new"), ClientMethod::Post));
        assert_eq!(sent("by-hand", ClientMethod::None, Some("new")), (secret("new"), ClientMethod::Basic));
        assert_eq!(sent("by-hand", ClientMethod::Post, None), (None, ClientMethod::None));
        assert_eq!(sent("registered", ClientMethod::Post, Some("new")), (secret("former"), ClientMethod::Post));
    }
}

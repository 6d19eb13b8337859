//! Gets tokens from authorization servers and stores them: refreshes, and the first token of a program.

use std::time::{Duration, SystemTime};

use tokio::time::{sleep, timeout};

use super::grant::Grant;
use super::{ConfiguredServer, ConnectionError, Connections, MACHINE};
use crate::domain::access::authorization;
use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::{AuthorizationError, OAuthClient, SignInToken, StoreError, StoredConnection, TokenAnswer, TokenRequest};

/// Time limit for one request for tokens.
pub(super) const REQUEST: Duration = Duration::from_secs(20);
/// Attempts to store refreshed tokens, and the time between them.
const ATTEMPTS: u32 = 3;
const BETWEEN: Duration = Duration::from_millis(300);

/// The reason why there is no token.
pub(super) enum NoToken {
    /// Nobody has signed in, or the sign-in ended for this reason.
    SignIn(Option<String>),
    Unavailable(String),
    Other(ConnectionError),
}

impl<E: Into<ConnectionError>> From<E> for NoToken {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

impl Connections {
    /// Refreshes the tokens of a sign-in whose refresh this process has claimed, and stores them.
    pub(super) async fn refresh(&self, configured: &ConfiguredServer, stored: StoredConnection, grant: Grant) -> Result<(), NoToken> {
        let place = stored.sealed.place.clone();
        let is_machine = place.owner.as_str() == MACHINE;
        let grant = grant.with_secret_of(&configured.settings);
        let resource = grant.resource.as_str();
        let scopes = if is_machine { scopes_of_machine(&configured.settings.scopes, &stored) } else { stored.scopes.clone() };
        let request = match &grant.refresh {
            Some(refresh) if !is_machine => TokenRequest::Refresh { refresh, resource },
            _ => TokenRequest::Machine { scopes: &scopes, resource },
        };
        let answer = self.request(configured, &grant.token_endpoint, &grant.client, request).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if !is_machine && needs_sign_in(&error, grant.is_of_client(&configured.settings)) => {
                tracing::info!(server = %place.server, %error, "a user's sign-in has ended");
                if error.loses_client() {
                    self.store.remove_oauth_client(&place.server, &stored.issuer).await?;
                }
                let reason = "the former sign-in was revoked or has expired".to_owned();
                self.end(&place.server, &grant.token(&stored), &reason).await?;
                return Err(NoToken::SignIn(Some(reason)));
            }
            Err(error) => {
                tracing::warn!(server = %place.server, %error, "a token could not be refreshed");
                // The authorization server may have moved, or know the client's present settings only. A program can begin anew by itself.
                let begun = if is_machine && !matches!(error, AuthorizationError::Unreachable(_)) {
                    self.begin_as_machine(configured, &place.owner).await.map(drop)
                } else {
                    Err(NoToken::Unavailable(error.to_string()))
                };
                if begun.is_err() {
                    self.store.release_refresh(&stored).await?;
                }
                return begun;
            }
        };
        let sealed = grant.renewed(&answer).seal(self.keys(&place.server)?, &place.owner, &place.server)?;
        let new = StoredConnection {
            sealed,
            version: stored.version + 1,
            scopes: answer.scopes.clone().unwrap_or(scopes),
            expires_at: expiry(&answer),
            ..stored.clone()
        };
        let key = (place.owner.clone(), place.server.clone());
        for attempt in 1..=ATTEMPTS {
            match self.store.change_connection(stored.version, &new).await {
                // If the sign-in was ended or replaced in the meantime, its tokens are not needed.
                Ok(_) => return Ok(()),
                Err(error) if attempt == ATTEMPTS => {
                    tracing::error!(%error, server = %place.server, "refreshed tokens could not be stored, and are kept in memory");
                    self.unsaved.keep(key.clone(), new.clone());
                }
                Err(_) => sleep(BETWEEN).await,
            }
        }
        Ok(())
    }

    async fn request(
        &self,
        configured: &ConfiguredServer,
        endpoint: &url::Url,
        client: &OAuthClient,
        request: TokenRequest<'_>,
    ) -> Result<TokenAnswer, AuthorizationError> {
        let late = || AuthorizationError::Unreachable(format!("the authorization server did not answer within {} s", REQUEST.as_secs()));
        timeout(REQUEST, self.client.token(&configured.settings, endpoint, client, request)).await.unwrap_or_else(|_| Err(late()))
    }

    /// Gets the first token with the service's own client credentials.
    pub(super) async fn begin_as_machine(&self, configured: &ConfiguredServer, owner: &PrincipalId) -> Result<StoredConnection, NoToken> {
        let server = &configured.name;
        let began = async {
            let at = self.client.discover(&configured.settings, None).await?;
            let client = Self::fixed_client(&configured.settings, &at)
                .ok_or_else(|| AuthorizationError::Unusable("`auth` has no client_id and client_secret".to_owned()))?;
            let scopes = if configured.settings.scopes.is_empty() { &at.scopes } else { &configured.settings.scopes };
            let request = TokenRequest::Machine { scopes, resource: &at.resource };
            let answer = self.request(configured, &at.token_endpoint, &client, request).await?;
            let scopes = answer.scopes.clone().unwrap_or_else(|| scopes.clone());
            Ok::<_, AuthorizationError>((at, client, answer, scopes))
        };
        let (at, client, answer, scopes) = match began.await {
            Ok(began) => began,
            Err(error) => {
                self.note_fault(server, &error.to_string());
                return Err(NoToken::Unavailable(error.to_string()));
            }
        };
        self.clear_fault(server);
        let expires_at = expiry(&answer);
        let grant = Grant {
            access: answer.access,
            refresh: None,
            client,
            token_endpoint: at.token_endpoint,
            revocation_endpoint: at.revocation_endpoint,
            resource: at.resource,
            origin: configured.origin(),
        };
        let stored = self.new_connection(&grant, owner, server, at.issuer, scopes, expires_at)?;
        self.store.save_connection(&stored).await?;
        Ok(stored)
    }

    /// Marks the sign-in with this token as ended, if that is still its last one.
    pub(super) async fn end(&self, server: &ServerName, last: &SignInToken, reason: &str) -> Result<(), StoreError> {
        let SignInToken { sign_in, version, owner, .. } = last;
        self.drop_copies(owner, server);
        let is_last = |stored: &StoredConnection| *stored.sign_in == **sign_in && stored.version == *version;
        let Some(stored) = self.store.connection(owner, server).await?.filter(is_last) else { return Ok(()) };
        let new = if owner.as_str() == MACHINE {
            // The next call requests another token.
            return self.store.remove_connection(&stored).await.map(drop);
        } else {
            StoredConnection { version: version + 1, ended: Some(reason.to_owned()), ..stored }
        };
        let changed = self.store.change_connection(*version, &new).await.map(drop);
        self.signed_in.forget(owner);
        changed
    }
}

/// The scopes of a program's next token: the configured ones, or else those of its last token, and those that calls lacked.
fn scopes_of_machine(configured: &[String], last: &StoredConnection) -> Vec<String> {
    authorization::union(if configured.is_empty() { &last.scopes } else { configured }, &last.wanted)
}

/// Whether another sign-in of the user helps after this error. It does not if the secret of a configured client is wrong.
fn needs_sign_in(error: &AuthorizationError, is_configured: bool) -> bool {
    error.ends_sign_in() && !(is_configured && matches!(error, AuthorizationError::Refused("invalid_client")))
}

/// When the tokens of an answer expire.
pub(super) fn expiry(answer: &TokenAnswer) -> Option<SystemTime> {
    answer.expires_in.and_then(|lasts| SystemTime::now().checked_add(lasts))
}

#[cfg(test)]
mod tests {
    use super::needs_sign_in;
    use crate::service::ports::AuthorizationError;

    #[test]
    fn a_wrong_secret_in_the_settings_ends_no_sign_in() {
        let needs = |code, is_configured| needs_sign_in(&AuthorizationError::Refused(code), is_configured);
        assert_eq!((needs("invalid_client", true), needs("invalid_client", false)), (false, true));
        assert_eq!((needs("invalid_grant", true), needs("invalid_grant", false)), (true, true));
    }
}

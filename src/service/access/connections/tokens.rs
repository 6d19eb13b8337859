//! The token for a call. Refreshes it before it expires, once for all calls that wait for it.
//!
//! A refresh is claimed in the store until a deadline. Whoever holds the claim sends the refresh token and stores the answer; everybody
//! else waits for the stored result. The former refresh token stays in the store until the new one replaces it. So after a crash
//! between the two, the next attempt uses the former one, which servers with a grace period still accept. If the server does not,
//! the user must sign in again: no client can prevent that.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::grant::Grant;
use super::{ConfiguredServer, ConnectionError, Connections, MACHINE};
use crate::domain::access::authorization::{self, Challenge};
use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::{AuthorizationError, OAuthClient, SignInToken, StoreError, StoredConnection, TokenAnswer, TokenRequest};

/// A token that expires within this time is refreshed before its use, if it lasts four times as long; otherwise in the last quarter.
const MARGIN: Duration = Duration::from_mins(1);
/// How long a copy in memory is used before the store is read again, because another replica may have ended the sign-in.
const COPY: Duration = Duration::from_secs(30);
/// How long a failed refresh is not repeated.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How long a claim lasts. Longer than the request to the authorization server and the write of its answer.
const CLAIM: Duration = Duration::from_secs(40);
const REQUEST: Duration = Duration::from_secs(20);
/// How long a call waits for somebody else's refresh, and how often it looks.
const WAITING: Duration = Duration::from_secs(45);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Attempts to store refreshed tokens, and the time between them.
const ATTEMPTS: u32 = 3;
const BETWEEN: Duration = Duration::from_millis(300);

/// A copy of a token in memory, or the reason why there is none at the moment.
#[derive(Clone, Debug)]
pub(in crate::service::access) struct CachedToken {
    /// The token, and from when on it is refreshed.
    result: Result<(SignInToken, Option<SystemTime>), String>,
    read_at: Instant,
}

impl CachedToken {
    pub(super) fn is_recent(&self, now: Instant) -> bool {
        let lasts = if self.result.is_ok() { COPY } else { AFTER_FAILURE };
        now.saturating_duration_since(self.read_at) < lasts
    }
}

type Key = (PrincipalId, ServerName);

/// Lets one call of this process at a time look for a sign-in's token, so that waiting calls don't poll the store.
#[derive(Default)]
pub(in crate::service::access) struct Turns(Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    fn of(&self, key: &Key) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(key.clone()).or_default())
    }
}

/// Refreshed tokens that could not be stored, such as on a full disk.
#[derive(Default)]
pub(in crate::service::access) struct Unsaved(Mutex<HashMap<Key, StoredConnection>>);

impl Unsaved {
    fn get(&self, key: &Key) -> Option<StoredConnection> {
        self.0.lock().get(key).cloned()
    }

    fn keep(&self, key: Key, connection: StoredConnection) {
        self.0.lock().insert(key, connection);
    }

    pub(super) fn remove(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

/// The reason why there is no token.
enum NoToken {
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
    /// The token with which a caller's call reaches a server; `None` if the server is called without a sign-in.
    pub(crate) async fn token(self: &Arc<Self>, caller: &Principal, server: &ServerName) -> Result<Option<SignInToken>, ConnectionError> {
        let Some(configured) = self.configured(server) else { return Ok(None) };
        let owner = Self::owner(&configured, caller).ok_or_else(|| ConnectionError::Nobody(server.clone()))?;
        // Boxed to keep the future of a call small.
        let found = match self.copy(&(owner.clone(), server.clone())) {
            Some(found) => found,
            None => Box::pin(self.find(&configured, &owner, None)).await,
        };
        match found {
            Ok(token) => Ok(Some(token)),
            Err(error) => Err(Box::pin(self.explained(error, caller, server)).await),
        }
    }

    /// The token of an owner; `None` if there is no valid one.
    pub(super) async fn token_of(self: &Arc<Self>, configured: &Arc<ConfiguredServer>, owner: &PrincipalId) -> Option<SignInToken> {
        match self.find(configured, owner, None).await {
            Ok(token) => Some(token),
            Err(NoToken::SignIn(_)) => None,
            Err(NoToken::Unavailable(reason)) => {
                tracing::warn!(server = %configured.name, reason, "the server's tools can't be listed with a token");
                None
            }
            Err(NoToken::Other(error)) => {
                tracing::warn!(server = %configured.name, %error, "the server's tools can't be listed with a token");
                None
            }
        }
    }

    /// A token instead of the one that the server has rejected. With `is_last`, that one was as new as possible, so the sign-in ends.
    pub(crate) async fn challenged(
        self: &Arc<Self>,
        caller: &Principal,
        server: &ServerName,
        rejected: &SignInToken,
        challenge: &Challenge,
        is_last: bool,
    ) -> Result<SignInToken, ConnectionError> {
        let configured = self.configured(server).ok_or_else(|| ConnectionError::Nobody(server.clone()))?;
        self.cached.lock().remove(&(rejected.owner.clone(), server.clone()));
        let found = if challenge.lacks_scope {
            self.want(rejected, server, &challenge.scopes).await?;
            let scopes = challenge.scopes.join(" ");
            Err(NoToken::SignIn(Some(format!("the call needs more permissions than were granted: {scopes}"))))
        } else if is_last {
            let reason = "the server rejects the token of the former sign-in".to_owned();
            self.end(&rejected.owner, server, rejected.version, &reason).await?;
            Err(NoToken::SignIn(Some(reason)))
        } else {
            self.find(&configured, &rejected.owner, Some(rejected.version)).await
        };
        match found {
            Ok(token) => Ok(token),
            Err(error) => Err(self.explained(error, caller, server).await),
        }
    }

    async fn explained(&self, error: NoToken, caller: &Principal, server: &ServerName) -> ConnectionError {
        match error {
            NoToken::Other(error) => error,
            NoToken::Unavailable(reason) => ConnectionError::Unavailable { server: server.clone(), reason },
            NoToken::SignIn(reason) => match self.link(caller, Some(server)).await {
                Ok(link) => ConnectionError::SignInNeeded { server: server.clone(), reason, link },
                Err(error) => error,
            },
        }
    }

    /// The copy in memory, if it is recent.
    fn copy(&self, key: &Key) -> Option<Result<SignInToken, NoToken>> {
        let cached = self.cached.lock().get(key).filter(|copy| copy.is_recent(Instant::now())).cloned()?;
        match cached.result {
            Ok((token, stale)) => stale.is_none_or(|stale| SystemTime::now() < stale).then_some(Ok(token)),
            Err(reason) => Some(Err(NoToken::Unavailable(reason))),
        }
    }

    /// Finds a valid token, with a newer version than `rejected` if that is set. Refreshes it if necessary.
    async fn find(
        self: &Arc<Self>,
        configured: &Arc<ConfiguredServer>,
        owner: &PrincipalId,
        rejected: Option<u64>,
    ) -> Result<SignInToken, NoToken> {
        let server = &configured.name;
        let key = (owner.clone(), server.clone());
        let keys = self.keys(server)?;
        let turn = self.turns.of(&key);
        let _turn = turn.lock().await;
        if rejected.is_none()
            && let Some(found) = self.copy(&key)
        {
            return found;
        }
        let until = Instant::now() + WAITING;
        loop {
            let stored = match self.saved(&key).await? {
                Some(stored) => stored,
                None if owner.as_str() == MACHINE => self.begin_as_machine(configured, owner).await?,
                None => return Err(NoToken::SignIn(None)),
            };
            if let Some(reason) = &stored.ended {
                return Err(NoToken::SignIn(Some(reason.clone())));
            }
            let Ok(grant) = Grant::open(keys, &stored.sealed) else {
                return Err(NoToken::SignIn(Some("the former sign-in can't be decrypted any more".to_owned())));
            };
            if grant.origin != configured.origin() {
                if owner.as_str() == MACHINE {
                    self.store.remove_connection(&stored).await?;
                    continue;
                }
                return Err(NoToken::SignIn(Some("the server has another address than at the former sign-in".to_owned())));
            }
            let (now, is_new) = (SystemTime::now(), rejected.is_none_or(|version| stored.version > version));
            if is_new && stale_at(&stored).is_none_or(|stale| now < stale) {
                return Ok(self.keep_copy(key, &stored, &grant));
            }
            let is_machine = owner.as_str() == MACHINE;
            let is_valid = is_new && stored.expires_at.is_none_or(|expires| expires > now);
            if grant.refresh.is_none() && !is_machine {
                if is_valid {
                    return Ok(token(&stored, &grant));
                }
                let reason = if is_new { "the former sign-in has expired" } else { "the server rejects the token of the former sign-in" };
                self.end(owner, server, stored.version, reason).await?;
                return Err(NoToken::SignIn(Some(reason.to_owned())));
            }
            if self.store.claim_refresh(&stored, now, now + CLAIM).await? {
                let (refreshing, server, old) = (Arc::clone(self), Arc::clone(configured), grant.clone());
                // In a task of its own, because a refresh must be stored even if its caller leaves.
                let refreshed = tokio::spawn(async move { refreshing.refresh(&server, stored, old).await }).await;
                match refreshed {
                    Ok(Ok(())) => {}
                    Ok(Err(NoToken::Unavailable(reason))) => {
                        if is_valid && let Some(stored) = self.store.connection(owner, &configured.name).await? {
                            return Ok(token(&stored, &grant));
                        }
                        let failed = CachedToken { result: Err(reason.clone()), read_at: Instant::now() };
                        self.cached.lock().insert(key, failed);
                        return Err(NoToken::Unavailable(reason));
                    }
                    Ok(Err(error)) => return Err(error),
                    Err(_) => return Err(NoToken::Unavailable("the refresh failed".to_owned())),
                }
            } else if Instant::now() >= until {
                return Err(NoToken::Unavailable("another refresh takes too long".to_owned()));
            } else {
                sleep(LOOK_AGAIN).await;
            }
        }
    }

    /// The stored sign-in. If refreshed tokens could not be stored, tries again, and otherwise uses them from memory.
    async fn saved(&self, key: &Key) -> Result<Option<StoredConnection>, StoreError> {
        if let Some(unsaved) = self.unsaved.get(key) {
            match self.store.change_connection(unsaved.version - 1, &unsaved).await {
                Ok(_) => self.unsaved.remove(key),
                Err(_) => return Ok(Some(unsaved)),
            }
        }
        self.store.connection(&key.0, &key.1).await
    }

    /// Refreshes the tokens of a sign-in whose refresh this process has claimed, and stores them.
    async fn refresh(&self, configured: &ConfiguredServer, stored: StoredConnection, grant: Grant) -> Result<(), NoToken> {
        let place = stored.sealed.place.clone();
        let resource = grant.resource.as_str();
        let request = match &grant.refresh {
            Some(refresh) if place.owner.as_str() != MACHINE => TokenRequest::Refresh { refresh, resource },
            _ => TokenRequest::Machine { scopes: &configured.settings.scopes, resource },
        };
        let answer = self.request(configured, &grant.token_endpoint, &grant.client, request).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if error.ends_sign_in() && place.owner.as_str() != MACHINE => {
                tracing::info!(server = %place.server, %error, "a user's sign-in has ended");
                if error.loses_client() {
                    self.store.remove_oauth_client(&place.server, &stored.issuer).await?;
                }
                let reason = "the former sign-in was revoked or has expired".to_owned();
                self.end(&place.owner, &place.server, stored.version, &reason).await?;
                return Err(NoToken::SignIn(Some(reason)));
            }
            Err(error) => {
                tracing::warn!(server = %place.server, %error, "a token could not be refreshed");
                self.store.release_refresh(&stored).await?;
                return Err(NoToken::Unavailable(error.to_string()));
            }
        };
        let sealed = grant.renewed(&answer).seal(self.keys(&place.server)?, &place.owner, &place.server)?;
        let new = StoredConnection {
            sealed,
            version: stored.version + 1,
            scopes: answer.scopes.clone().unwrap_or_else(|| stored.scopes.clone()),
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
    async fn begin_as_machine(&self, configured: &ConfiguredServer, owner: &PrincipalId) -> Result<StoredConnection, NoToken> {
        let server = &configured.name;
        let began = async {
            let at = self.client.discover(&configured.settings, None).await?;
            let client = Self::fixed_client(&configured.settings, &at)
                .ok_or_else(|| AuthorizationError::Unusable("`auth` has no client_id and client_secret".to_owned()))?;
            let scopes = if configured.settings.scopes.is_empty() { &at.scopes } else { &configured.settings.scopes };
            let request = TokenRequest::Machine { scopes, resource: &at.resource };
            let answer = self.request(configured, &at.token_endpoint, &client, request).await?;
            Ok::<_, AuthorizationError>((at, client, answer))
        };
        let (at, client, answer) = match began.await {
            Ok(began) => began,
            Err(error) => {
                self.note_fault(server, &error.to_string());
                return Err(NoToken::Unavailable(error.to_string()));
            }
        };
        self.clear_fault(server);
        let scopes = answer.scopes.clone().unwrap_or_else(|| at.scopes.clone());
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

    /// Marks the sign-in with this version as ended.
    async fn end(&self, owner: &PrincipalId, server: &ServerName, version: u64, reason: &str) -> Result<(), StoreError> {
        self.drop_copies(owner, server);
        let Some(stored) = self.store.connection(owner, server).await?.filter(|stored| stored.version == version) else { return Ok(()) };
        let new = if owner.as_str() == MACHINE {
            // The next call requests another token.
            return self.store.remove_connection(&stored).await.map(drop);
        } else {
            StoredConnection { version: version + 1, ended: Some(reason.to_owned()), ..stored }
        };
        let changed = self.store.change_connection(version, &new).await.map(drop);
        self.signed_in.forget(owner);
        changed
    }

    /// Remembers scopes that a call lacked, for the next sign-in.
    async fn want(&self, rejected: &SignInToken, server: &ServerName, scopes: &[String]) -> Result<(), StoreError> {
        let Some(stored) = self.store.connection(&rejected.owner, server).await? else { return Ok(()) };
        let wanted = authorization::union(&stored.wanted, scopes);
        if wanted == stored.wanted {
            return Ok(());
        }
        let new = StoredConnection { version: stored.version + 1, wanted, ..stored.clone() };
        self.store.change_connection(stored.version, &new).await.map(drop)
    }

    fn keep_copy(&self, key: Key, stored: &StoredConnection, grant: &Grant) -> SignInToken {
        let token = token(stored, grant);
        let copy = CachedToken { result: Ok((token.clone(), stale_at(stored))), read_at: Instant::now() };
        self.cached.lock().insert(key, copy);
        token
    }
}

/// From when on the access token is refreshed before its use; `None` if it doesn't expire.
fn stale_at(stored: &StoredConnection) -> Option<SystemTime> {
    let expires_at = stored.expires_at?;
    let lasts = expires_at.duration_since(stored.sealed.updated_at).unwrap_or_default();
    expires_at.checked_sub(MARGIN.min(lasts / 4))
}

fn token(stored: &StoredConnection, grant: &Grant) -> SignInToken {
    SignInToken {
        access: grant.access.clone(),
        sign_in: stored.sign_in.as_str().into(),
        version: stored.version,
        owner: stored.sealed.place.owner.clone(),
    }
}

/// When the tokens of an answer expire.
pub(super) fn expiry(answer: &TokenAnswer) -> Option<SystemTime> {
    answer.expires_in.and_then(|lasts| SystemTime::now().checked_add(lasts))
}

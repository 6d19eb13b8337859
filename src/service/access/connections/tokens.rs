//! The token for a call. Refreshes it before it expires, once for all calls that wait for it.
//!
//! A refresh is claimed in the store until a deadline. Whoever holds the claim sends the refresh token and stores the answer; everybody
//! else waits for the stored result. The former refresh token stays in the store until the new one replaces it. So after a crash
//! between the two, the next attempt uses the former one, which servers with a grace period still accept. If the server does not,
//! the user must sign in again: no client can prevent that. A new process on the same data folder does not wait for a killed one's claim.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use tokio::time::{Instant, sleep, timeout};

use super::copies::{AFTER_FAILURE, CachedToken, Key};
use super::grant::Grant;
use super::refresh::NoToken;
use super::{ConfiguredServer, ConnectionError, Connections, MACHINE};
use crate::domain::access::authorization::{self, Challenge};
use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::access::secret::SecretKeys;
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::{CallContext, SignInToken, StoreError, StoredConnection};

/// A token that expires within this time is refreshed before its use, if it lasts four times as long; otherwise in the last quarter.
const MARGIN: Duration = Duration::from_mins(1);
/// How long a claim lasts. Longer than the request to the authorization server and the write of its answer.
const CLAIM: Duration = Duration::from_secs(40);
/// How long a call waits for somebody else's refresh, and how often it looks.
const WAITING: Duration = Duration::from_secs(45);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Maximum length of the scopes that calls lacked, in bytes. Otherwise, a server that names other scopes for each call would fill the
/// store, and browsers could not open the address of the next sign-in.
const WANTED_LIMIT: usize = 4096;
/// A token that is valid for longer than this is used while another one is requested. Enough for the server to receive the call.
const SPARE: Duration = Duration::from_secs(10);

impl Connections {
    /// The token with which a caller's call reaches a server; `None` if the server is called without a sign-in.
    /// `headers` may contain the user's own token.
    pub(crate) async fn token(
        self: &Arc<Self>,
        caller: &Principal,
        headers: &HeaderMap,
        server: &ServerName,
    ) -> Result<Option<SignInToken>, ConnectionError> {
        let Some(configured) = self.configured(server) else { return Ok(None) };
        if let Some(exchange) = &configured.settings.exchange {
            return in_time(&configured, Box::pin(self.exchanged(&configured, exchange, caller, headers, None))).await.map(Some);
        }
        let owner = Self::owner(&configured, caller).ok_or_else(|| ConnectionError::Nobody(server.clone()))?;
        // Boxed to keep the future of a call small.
        let found = match self.copy(&(owner.clone(), server.clone())) {
            Some(found) => found,
            None => in_time(&configured, Box::pin(self.find(&configured, &owner, None))).await,
        };
        match found {
            Ok(token) => Ok(Some(token)),
            Err(error) => Err(Box::pin(self.explained(error, caller, server)).await),
        }
    }

    /// The token of an owner; `None` if there is no valid one.
    pub(super) async fn token_of(self: &Arc<Self>, configured: &Arc<ConfiguredServer>, owner: &PrincipalId) -> Option<SignInToken> {
        match in_time(configured, Box::pin(self.find(configured, owner, None))).await {
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

    /// A token instead of the one that the server has rejected. With `is_last`, that one was as new as possible, so the sign-in ends, and
    /// the result is an error.
    pub(crate) async fn challenged(
        self: &Arc<Self>,
        context: &CallContext,
        server: &ServerName,
        rejected: &SignInToken,
        challenge: &Challenge,
        is_last: bool,
    ) -> Result<SignInToken, ConnectionError> {
        let caller = &*context.principal;
        let configured = self.configured(server).ok_or_else(|| ConnectionError::Nobody(server.clone()))?;
        if let Some(exchange) = &configured.settings.exchange {
            let rejected = (rejected, challenge, is_last);
            let again = Box::pin(self.exchanged_again(&configured, exchange, caller, &context.headers, rejected));
            return in_time(&configured, again).await;
        }
        self.copies.remove(&(rejected.owner.clone(), server.clone()));
        let scopes = challenge.scopes.join(" ");
        let is_machine = rejected.owner.as_str() == MACHINE;
        if challenge.lacks_scope {
            self.want(rejected, server, &challenge.scopes).await?;
        }
        let found = if challenge.lacks_scope && !is_machine {
            Err(NoToken::SignIn(Some(format!("the call needs more permissions than were granted: {scopes}"))))
        } else if challenge.lacks_scope && is_last {
            let reason = format!(
                "the call needs more permissions than the authorization server grants: {scopes}. An administrator must allow them there for \
                 the `client_id` in `auth`"
            );
            Err(NoToken::Other(ConnectionError::NotIssued { server: server.clone(), reason }))
        } else if is_last {
            let reason = if is_machine {
                "the server rejects the token that the authorization server issued for it: an administrator must check `client_id`, \
                 `issuer`, `resource` and `scopes` in `auth`"
            } else {
                "the server rejects the token of the former sign-in"
            };
            self.end(server, rejected, reason).await?;
            let reason = reason.to_owned();
            Err(if is_machine {
                NoToken::Other(ConnectionError::NotIssued { server: server.clone(), reason })
            } else {
                NoToken::SignIn(Some(reason))
            })
        } else {
            in_time(&configured, Box::pin(self.find(&configured, &rejected.owner, Some(rejected)))).await
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
        match self.copies.recent(key)?.result {
            Ok((token, stale)) => stale.is_none_or(|stale| SystemTime::now() < stale).then_some(Ok(token)),
            Err(reason) => Some(Err(NoToken::Unavailable(reason))),
        }
    }

    /// Finds a valid token, and a newer one than `rejected` if that is set. Refreshes it if necessary.
    async fn find(
        self: &Arc<Self>,
        configured: &Arc<ConfiguredServer>,
        owner: &PrincipalId,
        rejected: Option<&SignInToken>,
    ) -> Result<SignInToken, NoToken> {
        let server = &configured.name;
        let key = (owner.clone(), server.clone());
        let keys = self.keys(server)?;
        let is_machine = owner.as_str() == MACHINE;
        let turn = self.turns.of(&key);
        let _turn = turn.lock().await;
        // What another call has found while this one waited. A token may be the rejected one.
        if let Some(found) = self.copy(&key).filter(|found| rejected.is_none() || found.is_err()) {
            return found;
        }
        let until = Instant::now() + WAITING;
        let mut has_refreshed = false;
        loop {
            let stored = match self.saved(&key).await? {
                Some(stored) if !is_machine || is_begun_by(configured, keys, &stored) => stored,
                None if !is_machine => return Err(NoToken::SignIn(None)),
                // Nobody has to sign in again, so changed settings count at once.
                _ => match self.begin_as_machine(configured, owner).await {
                    Ok(stored) => stored,
                    Err(NoToken::Unavailable(reason)) => return Err(self.keep_failure(key, reason)),
                    Err(error) => return Err(error),
                },
            };
            let grant = usable(&stored, keys, configured).map_err(|reason| NoToken::SignIn(Some(reason)))?;
            let token = grant.token(&stored);
            let (now, is_new) = (SystemTime::now(), rejected.is_none_or(|rejected| is_newer(&token, rejected)));
            let stale = stale_at(&stored);
            // The token that this call has just got is used, however soon it expires.
            if is_new && (has_refreshed || stale.is_none_or(|stale| now < stale)) {
                return Ok(self.keep_copy(key, token, stale));
            }
            let expires_at = stored.expires_at;
            let is_valid = is_new && expires_at.is_none_or(|expires| expires > now);
            let spare = expires_at.filter(|expires| is_new && *expires > now + SPARE);
            if grant.refresh.is_none() && !is_machine {
                if is_valid {
                    return Ok(token);
                }
                let reason = if is_new { "the former sign-in has expired" } else { "the server rejects the token of the former sign-in" };
                self.end(server, &token, reason).await?;
                return Err(NoToken::SignIn(Some(reason.to_owned())));
            }
            let refreshing = if self.store.claim_refresh(&stored, now, now + CLAIM).await? {
                let (refreshing, server, key) = (Arc::clone(self), Arc::clone(configured), key.clone());
                // In a task of its own, because a refresh must be stored even if its caller leaves.
                Some(tokio::spawn(async move {
                    let refreshed = refreshing.refresh(&server, stored, grant).await;
                    if refreshed.is_ok() {
                        refreshing.copies.remove(&key);
                    }
                    refreshed
                }))
            } else {
                None
            };
            // The refresh goes on, here or elsewhere. Later calls look for its token after a moment.
            if let Some(expires) = spare {
                return Ok(self.keep_copy(key, token, Some(expires.min(now + AFTER_FAILURE))));
            }
            if let Some(refreshing) = refreshing {
                match refreshing.await {
                    Ok(Ok(())) => has_refreshed = true,
                    Ok(Err(NoToken::Unavailable(reason))) => {
                        let is_same = |stored: StoredConnection| stored.ended.is_none() && *stored.sign_in == *token.sign_in;
                        if is_valid && self.store.connection(owner, &configured.name).await?.is_some_and(is_same) {
                            // Used for a moment before the next attempt, which the following calls would otherwise repeat one by one.
                            let again = SystemTime::now() + AFTER_FAILURE;
                            return Ok(self.keep_copy(key, token, expires_at.map(|expires| expires.min(again))));
                        }
                        return Err(self.keep_failure(key, reason));
                    }
                    Ok(Err(error)) => return Err(error),
                    Err(_) => return Err(NoToken::Unavailable("the refresh failed".to_owned())),
                }
            } else if Instant::now() >= until {
                return Err(self.keep_failure(key, "another refresh takes too long".to_owned()));
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

    /// Remembers scopes that a call lacked, for the next sign-in.
    async fn want(&self, rejected: &SignInToken, server: &ServerName, scopes: &[String]) -> Result<(), StoreError> {
        let Some(stored) = self.store.connection(&rejected.owner, server).await? else { return Ok(()) };
        let wanted = wanted(&stored.wanted, scopes);
        if wanted == stored.wanted {
            return Ok(());
        }
        self.store.want_scopes(&stored, &wanted).await
    }

    fn keep_copy(&self, key: Key, token: SignInToken, stale: Option<SystemTime>) -> SignInToken {
        let copy = CachedToken { result: Ok((token.clone(), stale)), read_at: Instant::now() };
        self.copies.keep(key, copy);
        token
    }

    /// Remembers a failure, so that the calls that wait for a token don't repeat it one after the other.
    fn keep_failure(&self, key: Key, reason: String) -> NoToken {
        let failed = CachedToken { result: Err(reason.clone()), read_at: Instant::now() };
        self.copies.keep(key, failed);
        NoToken::Unavailable(reason)
    }
}

/// The grant of a sign-in, or the reason why somebody must sign in again.
fn usable(stored: &StoredConnection, keys: &SecretKeys, configured: &ConfiguredServer) -> Result<Grant, String> {
    if let Some(reason) = &stored.ended {
        return Err(reason.clone());
    }
    let grant = Grant::open(keys, &stored.sealed).map_err(|_| "the former sign-in can't be decrypted any more".to_owned())?;
    if grant.origin == configured.origin() {
        Ok(grant)
    } else {
        Err("the server has another address than at the former sign-in".to_owned())
    }
}

/// Finds a token within the time limit of a call.
async fn in_time<T, E: From<ConnectionError>>(configured: &ConfiguredServer, finding: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let limit = configured.call_timeout;
    let late = || {
        let reason = format!("the authorization server did not issue one within {} s", limit.as_secs_f64());
        ConnectionError::Unavailable { server: configured.name.clone(), reason }
    };
    timeout(limit, finding).await.unwrap_or_else(|_| Err(late().into()))
}

/// Whether a program's token was requested with the present settings.
fn is_begun_by(configured: &ConfiguredServer, keys: &SecretKeys, stored: &StoredConnection) -> bool {
    let settings = &configured.settings;
    Grant::open(keys, &stored.sealed).is_ok_and(|grant| {
        let issuer = |issuer: &String| issuer.trim_end_matches('/') == stored.issuer.trim_end_matches('/');
        grant.origin == configured.origin()
            && grant.is_of_client(settings)
            && settings.issuer.as_ref().is_none_or(issuer)
            && settings.resource.as_ref().is_none_or(|resource| *resource == grant.resource)
    })
}

/// The scopes that calls lacked, with those of another call. If they are too many, only the latter count, or else only the former.
fn wanted(former: &[String], lacked: &[String]) -> Vec<String> {
    let fits = |scopes: &[String]| scopes.iter().map(|scope| scope.len() + 1).sum::<usize>() <= WANTED_LIMIT;
    let all = authorization::union(former, lacked);
    if fits(&all) {
        return all;
    }
    if fits(lacked) { lacked.to_vec() } else { former.to_vec() }
}

/// Whether a token can replace one that the server has rejected. Versions count only within a sign-in.
fn is_newer(token: &SignInToken, rejected: &SignInToken) -> bool {
    token.sign_in != rejected.sign_in || token.version > rejected.version
}

/// From when on the access token is refreshed before its use; `None` if it doesn't expire.
fn stale_at(stored: &StoredConnection) -> Option<SystemTime> {
    let expires_at = stored.expires_at?;
    let lasts = expires_at.duration_since(stored.sealed.updated_at).unwrap_or_default();
    expires_at.checked_sub(MARGIN.min(lasts / 4))
}

#[cfg(test)]
mod tests {
    use super::{WANTED_LIMIT, is_newer, wanted};
    use crate::domain::access::principal::PrincipalId;
    use crate::service::ports::SignInToken;

    /// Regression test: a server that named other scopes for each call made the sign-in larger with each of them.
    #[test]
    fn what_calls_lacked_is_remembered_up_to_a_limit() {
        let mut known = vec!["read".to_owned()];
        for number in 0..1_000 {
            let lacked: Vec<String> = (0..30).map(|part| format!("scope-of-call-{number}-{part}")).collect();
            known = wanted(&known, &lacked);
            assert!(known.iter().map(String::len).sum::<usize>() <= WANTED_LIMIT && lacked.iter().all(|scope| known.contains(scope)));
            assert!(number > 0 || known.contains(&"read".to_owned()));
        }
        assert_eq!(wanted(&known, &["x".repeat(WANTED_LIMIT)]), known);
    }

    #[test]
    fn the_first_token_of_a_later_sign_in_is_newer() {
        let token = |sign_in: &str, version| SignInToken {
            access: "access".into(),
            sign_in: sign_in.into(),
            version,
            owner: PrincipalId::new("user:anna"),
        };
        assert!(!is_newer(&token("one", 2), &token("one", 2)));
        assert!(is_newer(&token("one", 3), &token("one", 2)));
        assert!(is_newer(&token("two", 1), &token("one", 1)));
        assert!(is_newer(&token("two", 1), &token("one", 5)));
    }
}

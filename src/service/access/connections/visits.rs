//! Links to the page for sign-ins, and the sessions that they open.
//!
//! A link is for one person, works once, and expires after ten minutes. Its id is random, and its signature shows that this service
//! issued it. The session's cookie is random too; the store contains only its hash. Both end when the named key with which the link was
//! requested is revoked or rotated, or expires.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;
use uuid::Uuid;

use super::{ConnectionError, Connections, PAGE};
use crate::domain::access::api_key::Presented;
use crate::domain::access::authorization::{hash_of, random_text};
use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::catalog::hidden_text::strip;
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::{ConnectVisit, StoreError, VisitCaller, VisitKey};

/// How long a link is valid.
const LINK: Duration = Duration::from_mins(10);
/// How long a page session lasts.
pub(crate) const SESSION: Duration = Duration::from_hours(1);
/// How long the same link is issued again, so that a model's repeated calls don't fill the store.
const SAME_LINK: Duration = Duration::from_mins(1);

/// The links that were issued last, by owner, server and key.
#[derive(Default)]
pub(in crate::service::access) struct RecentLinks(Mutex<HashMap<LinkKey, RecentLink>>);

#[derive(Clone)]
struct RecentLink {
    id: String,
    url: String,
    issued: Instant,
}

/// The owner, the server that the link is about, and the named key of the caller.
type LinkKey = (PrincipalId, Option<ServerName>, Option<Presented>);

impl RecentLinks {
    pub(super) fn forget(&self, owner: &PrincipalId) {
        self.0.lock().retain(|(known, ..), _| known != owner);
    }
}

impl Connections {
    /// A link with which the caller manages its sign-ins; `None` if the caller may manage none. `server` is the one that the link is
    /// about.
    pub(crate) async fn link(&self, caller: &Principal, server: Option<&ServerName>) -> Result<Option<String>, ConnectionError> {
        let Some(owner) = Self::managed_by(caller) else { return Ok(None) };
        if let Some(server) = server
            && self.configured(server).is_none_or(|configured| !Self::manages(&owner, &configured))
        {
            return Ok(None);
        }
        let nowhere = || ConnectionError::NotSetUp(server.cloned().unwrap_or_else(|| ServerName::new("")));
        let (Some(signer), Some(url)) = (&self.signer, &self.public_url) else { return Err(nowhere()) };
        let key = (owner.clone(), server.cloned(), caller.key.clone());
        let now = Instant::now();
        let recent = {
            let mut recent = self.links.0.lock();
            recent.retain(|_, link| now.saturating_duration_since(link.issued) < SAME_LINK);
            recent.get(&key).cloned()
        };
        // Another replica may have opened it, and it works once.
        if let Some(recent) = recent
            && self.store.connect_link(&recent.id, SystemTime::now()).await?.is_some()
        {
            return Ok(Some(recent.url));
        }
        let id = Uuid::new_v4().simple().to_string();
        let signature = signer.sign(&signed(&id)).ok_or_else(nowhere)?;
        let visit = ConnectVisit {
            id: id.clone(),
            person: person(caller, &owner),
            servers: self.visible(caller, &owner),
            caller: self.caller(caller),
            owner,
            server: server.cloned(),
            expires_at: SystemTime::now() + LINK,
        };
        self.store.save_connect_link(&visit).await?;
        let url = format!("{url}{PAGE}?link={id}.{signature}");
        self.links.0.lock().insert(key, RecentLink { id, url: url.clone(), issued: now });
        Ok(Some(url))
    }

    /// The sign-ins that a caller manages: their owner, and the servers.
    pub(crate) fn managed(&self, caller: &Principal) -> Option<(PrincipalId, Vec<ServerName>)> {
        let owner = Self::managed_by(caller)?;
        let servers = self.visible(caller, &owner);
        Some((owner, servers))
    }

    /// The servers to which a caller may sign in.
    fn visible(&self, caller: &Principal, owner: &PrincipalId) -> Vec<ServerName> {
        let configured = self.configured.load_full();
        let manages = configured.values().filter(|server| Self::manages(owner, server)).map(|server| &server.name);
        let mut names: Vec<ServerName> =
            manages.filter(|name| caller.administers || self.current.shows_server(caller, name)).cloned().collect();
        names.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        names
    }

    /// What the page of a caller needs to know of it. The servers are those that the caller may see now.
    fn caller(&self, caller: &Principal) -> VisitCaller {
        let secret_servers = self.take_secrets.load().iter().filter(|name| self.current.shows_server(caller, name)).cloned().collect();
        let key = caller.key.as_ref().map(VisitKey::from);
        VisitCaller { email: caller.email.clone(), name: caller.name.clone(), groups: caller.groups.clone(), secret_servers, key }
    }

    /// The valid link of this text, without using it.
    pub(crate) async fn visit(&self, link: &str) -> Result<Option<ConnectVisit>, StoreError> {
        let Some(id) = self.link_id(link) else { return Ok(None) };
        Ok(self.store.connect_link(id, SystemTime::now()).await?.filter(|visit| self.has_key(visit)))
    }

    /// Uses a link. Returns the cookie of the new page session and the session; `None` if the link is invalid, used or expired.
    pub(crate) async fn enter(&self, link: &str) -> Result<Option<(SecretString, ConnectVisit)>, StoreError> {
        let Some(id) = self.link_id(link) else { return Ok(None) };
        // A replica that doesn't know the key yet must not use the link up.
        if self.store.connect_link(id, SystemTime::now()).await?.is_none_or(|visit| !self.has_key(&visit)) {
            return Ok(None);
        }
        let cookie = random_text(&rand::random());
        let (session, now) = (hash_of(cookie.expose_secret()), SystemTime::now());
        let opened = self.store.open_connect_session(id, &session, now + SESSION, now).await?;
        self.links.0.lock().retain(|_, known| known.id != id);
        Ok(opened
            .filter(|visit| self.has_key(visit))
            .map(|visit| (cookie, ConnectVisit { id: session, expires_at: now + SESSION, ..visit })))
    }

    /// The page session of a cookie.
    pub(crate) async fn session(&self, cookie: &str) -> Result<Option<ConnectVisit>, StoreError> {
        Ok(self.store.connect_session(&hash_of(cookie), SystemTime::now()).await?.filter(|visit| self.has_key(visit)))
    }

    /// Whether a page session has not ended since a time at which it was open. Its own expiry doesn't count.
    pub(super) async fn is_open(&self, session: &ConnectVisit, at: SystemTime) -> Result<bool, StoreError> {
        Ok(self.store.connect_session(&session.id, at).await?.is_some_and(|visit| self.has_key(&visit)))
    }

    /// Whether the named key with which the link was requested is still valid, with the same secret.
    fn has_key(&self, visit: &ConnectVisit) -> bool {
        visit.caller.key.as_ref().is_none_or(|key| key.presented().is_some_and(|key| self.api_keys.is_good(&key)))
    }

    /// The id in a link, if this service has signed it.
    fn link_id<'a>(&self, link: &'a str) -> Option<&'a str> {
        let (id, signature) = link.split_once('.')?;
        self.signer.as_ref().filter(|signer| signer.verifies(&signed(id), signature)).map(|_| id)
    }
}

/// The message that a link's signature covers.
fn signed(id: &str) -> String {
    format!("connect\n{id}")
}

/// How the page addresses the person, so that somebody who gets another person's link notices. Characters that people can't see could
/// hide the email address, or turn it around.
fn person(caller: &Principal, owner: &PrincipalId) -> String {
    if owner != &caller.id {
        return "an administrator, for all users".to_owned();
    }
    let person = match (&caller.name, &caller.email) {
        (Some(name), Some(email)) => format!("{name} ({email})"),
        (Some(name), None) => name.clone(),
        (None, Some(email)) => email.clone(),
        (None, None) => owner.as_str().split_once(':').map_or(owner.as_str(), |(_, id)| id).to_owned(),
    };
    strip(&person).map_or(person, |(shown, _)| shown)
}

#[cfg(test)]
mod tests {
    use super::person;
    use crate::domain::access::principal::Principal;

    #[test]
    fn a_name_hides_no_address() {
        let named = |name: &str| Principal { name: Some(name.to_owned()), email: Some("eve@a.example".to_owned()), ..Principal::anyone() };
        let shown = |name: &str| person(&named(name), &named(name).id);
        assert_eq!(shown("Jürgen"), "Jürgen (eve@a.example)");
        assert_eq!(shown("Anna\u{202e}\u{200b}"), "Anna (eve@a.example)");
    }
}

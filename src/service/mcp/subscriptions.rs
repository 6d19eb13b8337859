//! Subscriptions to servers' resources, and forwarding of servers' notifications to clients.
//!
//! All callers share the connection to a server, so a resource is subscribed to there once, from its first subscriber to its
//! last. A subscription permits nothing: the policy decides for each notification which clients get it.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ahash::RandomState;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::catalog::tool::ServerName;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::mcp::mcp_news::News;
use crate::service::mcp::mcp_sessions::{McpSession, McpSessions};
use crate::service::mcp::passthrough::{PassError, Passthrough, View};
use crate::service::ports::{Asked, AskedKind, CallContext, CallError, NewsKind, ServerNews, ToolServers};
use crate::service::supervision::Supervised;
use crate::settings::McpSettings;

/// Catalog changes within this time cause one notification.
const TOGETHER: Duration = Duration::from_millis(100);
/// Most prefixes of a URI that are tried as parents.
const WHOLES: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum SubscribeError {
    #[error(transparent)]
    Pass(#[from] PassError),
    /// Its connections belong to single callers, or use their data.
    #[error("the server has no connection that all callers share")]
    NotShared,
    #[error("there are {limit} subscriptions already, as many as {of} may have")]
    TooMany { limit: usize, of: &'static str },
    /// The session ended meanwhile.
    #[error("the session has ended")]
    Over,
}

/// A resource by its server's URI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    pub server: ServerName,
    pub uri: String,
}

/// A client's subscription. Ends when dropped.
pub struct Subscription {
    of: Weak<Subscriptions>,
    resource: Resource,
    owner: PrincipalId,
    number: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(subscriptions) = self.of.upgrade() {
            subscriptions.leave(&self.resource, &self.owner, self.number);
        }
    }
}

pub struct Subscriptions {
    current: Arc<CurrentCatalog>,
    servers: Arc<dyn ToolServers>,
    passthrough: Arc<Passthrough>,
    sessions: Arc<McpSessions>,
    settings: McpSettings,
    followed: Mutex<HashMap<Resource, Followed>>,
    /// Subscriptions of each caller.
    counts: Mutex<HashMap<PrincipalId, usize>>,
    numbers: AtomicU64,
    hasher: RandomState,
    stop: CancellationToken,
}

#[derive(Default)]
struct Followed {
    heard_by: HashMap<u64, Hearer>,
    /// Whether the server has our subscription. Locked while that changes.
    at_server: Arc<AsyncMutex<bool>>,
    /// How many tasks change it, or wait to.
    at_work: usize,
}

#[derive(Clone)]
struct Hearer {
    session: Weak<McpSession>,
    /// The client's URI.
    address: Arc<str>,
}

impl Subscriptions {
    /// Starts to forward servers' notifications, until `stop`.
    #[must_use]
    pub fn start(
        current: Arc<CurrentCatalog>,
        servers: Arc<dyn ToolServers>,
        passthrough: Arc<Passthrough>,
        sessions: Arc<McpSessions>,
        settings: McpSettings,
        stop: CancellationToken,
    ) -> (Arc<Self>, JoinHandle<()>) {
        let news = servers.news();
        let subscriptions = Arc::new(Self {
            current,
            servers,
            passthrough,
            sessions,
            settings,
            followed: Mutex::default(),
            counts: Mutex::default(),
            numbers: AtomicU64::new(0),
            hasher: RandomState::new(),
            stop: stop.clone(),
        });
        let follower = Arc::clone(&subscriptions);
        let following = tokio::spawn(async move {
            let (mut news, mut part) = (news, Supervised::new("news of servers"));
            stop.run_until_cancelled(async { while part.panicked(Arc::clone(&follower).follow(&mut news)).await {} }).await;
        });
        (subscriptions, following)
    }

    /// The most subscriptions of a client.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.settings.subscriptions
    }

    /// Subscribes the client to a resource under `address`, until it unsubscribes or its session ends. If the future is dropped,
    /// the request to the server still completes.
    pub async fn subscribe(
        self: &Arc<Self>,
        session: &Arc<McpSession>,
        resource: Resource,
        address: &str,
        view: &View,
    ) -> Result<(), SubscribeError> {
        let _permit = self.passthrough.enter(&resource.server, view)?;
        if session.follows(address) {
            return Ok(());
        }
        if !self.passthrough.is_shared(&resource.server, &view.caller.principal).await {
            return Err(SubscribeError::NotShared);
        }
        let of_session = SubscribeError::TooMany { limit: self.settings.subscriptions, of: "one client" };
        if session.followed() >= self.settings.subscriptions {
            return Err(of_session);
        }
        // Before the server knows, so that no notification is missed.
        let subscription = self.enter(session, &resource, address, &view.caller.principal.id)?;
        let follower = Arc::clone(self);
        let settled = tokio::spawn(async move { follower.settle(&resource).await }).await;
        settled.map_err(|_| SubscribeError::Over)?.map_err(PassError::Call)?;
        match session.follow(address.into(), subscription, self.settings.subscriptions) {
            Ok(()) => Ok(()),
            Err(_) if session.followed() >= self.settings.subscriptions => Err(of_session),
            Err(_) => Err(SubscribeError::Over),
        }
    }

    /// Ends a client's subscription.
    ///
    /// # Errors
    /// [`PassError::NotFound`] if the caller can't see the server. The subscription has ended anyway.
    pub fn unsubscribe(&self, session: &McpSession, server: &ServerName, address: &str, view: &View) -> Result<(), PassError> {
        session.unfollow(address);
        self.passthrough.enter(server, view).map(drop)
    }

    /// Notifies a client if its prompts and resources now come from other servers than at the last check. The first check
    /// notifies nothing, because it only records the initial state.
    pub fn tell_if_changed(&self, session: &McpSession) {
        session.tell_offered(self.offered(session));
    }

    fn enter(
        self: &Arc<Self>,
        session: &Arc<McpSession>,
        resource: &Resource,
        address: &str,
        owner: &PrincipalId,
    ) -> Result<Subscription, SubscribeError> {
        let limit = self.settings.subscriptions_per_caller;
        {
            let mut counts = self.counts.lock();
            let count = counts.entry(owner.clone()).or_default();
            if *count >= limit {
                return Err(SubscribeError::TooMany { limit, of: "one caller" });
            }
            *count += 1;
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let hearer = Hearer { session: Arc::downgrade(session), address: address.into() };
        self.followed.lock().entry(resource.clone()).or_default().heard_by.insert(number, hearer);
        Ok(Subscription { of: Arc::downgrade(self), resource: resource.clone(), owner: owner.clone(), number })
    }

    fn leave(self: &Arc<Self>, resource: &Resource, owner: &PrincipalId, number: u64) {
        {
            let mut counts = self.counts.lock();
            if let Some(count) = counts.get_mut(owner) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    counts.remove(owner);
                }
            }
        }
        let is_last = {
            let mut followed = self.followed.lock();
            let Some(found) = followed.get_mut(resource) else { return };
            found.heard_by.remove(&number);
            found.heard_by.is_empty()
        };
        // At shutdown the connections end anyway.
        if !is_last || self.stop.is_cancelled() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (follower, resource) = (Arc::clone(self), resource.clone());
            runtime.spawn(async move { follower.settle(&resource).await });
        }
    }

    /// Brings the server's subscription in line with the subscribers.
    async fn settle(&self, resource: &Resource) -> Result<(), CallError> {
        let turn = {
            let mut followed = self.followed.lock();
            let found = followed.entry(resource.clone()).or_default();
            found.at_work += 1;
            Arc::clone(&found.at_server)
        };
        let result = {
            let mut at_server = turn.lock().await;
            match (self.is_wanted(resource), *at_server) {
                (true, false) => self.ask(resource, AskedKind::Subscribe).await.inspect(|()| *at_server = true),
                (false, true) => {
                    *at_server = false;
                    if self.ask(resource, AskedKind::Unsubscribe).await.is_err() {
                        tracing::debug!(server = %resource.server, "a subscription could not be ended");
                    }
                    Ok(())
                }
                _ => Ok(()),
            }
        };
        let mut followed = self.followed.lock();
        if let Some(found) = followed.get_mut(resource) {
            found.at_work -= 1;
            let is_over = found.at_work == 0 && found.heard_by.is_empty() && found.at_server.try_lock().is_ok_and(|at_server| !*at_server);
            if is_over {
                followed.remove(resource);
            }
        }
        result
    }

    fn is_wanted(&self, resource: &Resource) -> bool {
        self.followed.lock().get(resource).is_some_and(|found| !found.heard_by.is_empty())
    }

    /// Sends a request over the shared connection, for no particular caller.
    async fn ask(&self, resource: &Resource, what: AskedKind) -> Result<(), CallError> {
        let asked = Asked { what, params: json!({ "uri": resource.uri }) };
        let context = CallContext::new(Arc::new(Principal::anyone()));
        self.servers.ask(&resource.server, asked, context).await.map(drop)
    }

    async fn follow(self: Arc<Self>, news: &mut mpsc::Receiver<ServerNews>) {
        let mut changes = self.current.changes();
        loop {
            tokio::select! {
                told = news.recv() => {
                    let Some(ServerNews { server, what }) = told else { return };
                    self.hear(&server, what).await;
                }
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    tokio::time::sleep(TOGETHER).await;
                    changes.mark_unchanged();
                    for session in self.sessions.all().iter().filter(|session| !session.is_idle()) {
                        self.tell_if_changed(session);
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }

    async fn hear(self: &Arc<Self>, server: &ServerName, what: NewsKind) {
        const PROMPTS: [AskedKind; 1] = [AskedKind::Prompts];
        const RESOURCES: [AskedKind; 2] = [AskedKind::Resources, AskedKind::ResourceTemplates];
        match what {
            NewsKind::Prompts => {
                self.passthrough.forget(server, &PROMPTS).await;
                self.tell_of(server, &News::Prompts);
            }
            NewsKind::Resources => {
                self.passthrough.forget(server, &RESOURCES).await;
                self.tell_of(server, &News::Resources);
            }
            NewsKind::Updated(uri) => self.updated(server, &uri),
            NewsKind::Renewed => {
                let offers = self.servers.offers(server);
                for (has, lists, news) in
                    [(offers.prompts, &PROMPTS[..], News::Prompts), (offers.resources, &RESOURCES[..], News::Resources)]
                {
                    self.passthrough.forget(server, lists).await;
                    if has {
                        self.tell_of(server, &news);
                    }
                }
                self.renew(server);
            }
        }
    }

    /// Notifies all clients that see this server.
    fn tell_of(&self, server: &ServerName, news: &News) {
        for session in self.sessions.all().iter().filter(|session| self.may_hear(session, server)) {
            session.tell(news.clone());
        }
    }

    fn may_hear(&self, session: &McpSession, server: &ServerName) -> bool {
        let address = session.address();
        self.passthrough.sees(&session.viewer(), &address.place, address.server.as_ref(), server)
    }

    /// A resource or a part of it has changed: notifies the subscribers of either, by their URIs.
    fn updated(&self, server: &ServerName, uri: &str) {
        let mut told: Vec<(Hearer, &str)> = Vec::new();
        {
            let followed = self.followed.lock();
            for whole in wholes(uri) {
                let resource = Resource { server: server.clone(), uri: whole.to_owned() };
                let hearers = followed.get(&resource).into_iter().flat_map(|found| found.heard_by.values());
                told.extend(hearers.map(|hearer| (hearer.clone(), &uri[whole.len()..])));
            }
        }
        for (Hearer { session, address }, part) in told {
            let Some(session) = session.upgrade().filter(|session| self.may_hear(session, server)) else { continue };
            let address = if part.is_empty() { address } else { format!("{address}{part}").into() };
            session.tell(News::Updated(address));
        }
    }

    /// Subscribes again over a new connection. Changes meanwhile are unknown, so everything may have changed.
    fn renew(self: &Arc<Self>, server: &ServerName) {
        let lost: Vec<Resource> = self.followed.lock().keys().filter(|resource| resource.server == *server).cloned().collect();
        for resource in lost {
            let follower = Arc::clone(self);
            tokio::spawn(async move {
                let Some(turn) = follower.followed.lock().get(&resource).map(|found| Arc::clone(&found.at_server)) else { return };
                *turn.lock().await = false;
                drop(turn);
                if let Err(error) = follower.settle(&resource).await {
                    // The URI is not logged either.
                    tracing::info!(server = %resource.server, error = error.without_words(), "a subscription could not be renewed");
                }
                follower.updated(&resource.server, &resource.uri);
            });
        }
    }

    /// Hashes of the servers whose prompts, and whose resources, a client sees.
    fn offered(&self, session: &McpSession) -> (u64, u64) {
        let address = session.address();
        let servers = self.passthrough.servers_for(&session.viewer(), &address.place, address.server.as_ref());
        let (mut prompts, mut resources) = (self.hasher.build_hasher(), self.hasher.build_hasher());
        for server in &servers {
            let offers = self.servers.offers(server);
            if offers.prompts {
                server.hash(&mut prompts);
            }
            if offers.resources {
                server.hash(&mut resources);
            }
        }
        (prompts.finish(), resources.finish())
    }
}

/// A URI and its parents (MCP specification 2025-11-25, "Subscriptions": a server may notify about a sub-resource of a subscribed
/// one).
fn wholes(uri: &str) -> impl Iterator<Item = &str> {
    let parts = uri.char_indices().filter(|(_, character)| matches!(character, '/' | '?' | '#'));
    let ends = parts.flat_map(|(at, _)| [at, at + 1]).filter(|end| *end > 0 && *end < uri.len());
    let mut last = 0;
    ends.filter(move |end| std::mem::replace(&mut last, *end) != *end).take(WHOLES).map(|end| &uri[..end]).chain([uri])
}

#[cfg(test)]
mod tests {
    use super::wholes;

    #[test]
    fn a_resource_is_part_of_what_its_address_begins_with() {
        let all: Vec<_> = wholes("a://b/c?d").collect();
        assert_eq!(all, ["a:", "a:/", "a://", "a://b", "a://b/", "a://b/c", "a://b/c?", "a://b/c?d"]);
        assert_eq!(wholes("x").collect::<Vec<_>>(), ["x"]);
        assert_eq!(wholes("a/").collect::<Vec<_>>(), ["a", "a/"]);
    }
}

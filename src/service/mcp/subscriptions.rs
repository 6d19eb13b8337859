//! Manages subscriptions to servers' resources, and forwards servers' notifications to clients.
//!
//! All callers share a connection to each server. So the service subscribes to a resource once, as long as it has any subscriber.
//! A subscription permits nothing: for each notification, the policy decides which clients receive it.

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
use crate::domain::publishing::address::Address;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::mcp::mcp_news::News;
use crate::service::mcp::mcp_sessions::{McpSession, McpSessions, Subscription};
use crate::service::mcp::passthrough::{PassError, Passthrough, PassthroughCaller};
use crate::service::ports::{CallContext, CallError, NewsKind, PassthroughKind, PassthroughRequest, ServerNews, ToolServers};
use crate::service::supervision::Supervised;
use crate::service::toolsets::loading::Loading;
use crate::settings::McpSettings;

/// Changes of the catalog within this time cause a single notification.
const TOGETHER: Duration = Duration::from_millis(100);
/// Maximum number of a URI's prefixes that are looked up as parent resources.
const WHOLES: usize = 64;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SubscribeError {
    #[error(transparent)]
    Pass(#[from] PassError),
    /// The server has no shared connection, because its connections use callers' data.
    #[error("the server has no connection that all callers share")]
    NotShared,
    #[error("there are {limit} subscriptions already, as many as {of} may have")]
    TooMany { limit: usize, of: &'static str },
    /// The session has ended in the meantime.
    #[error("the session has ended")]
    Over,
}

/// A resource, by its server and the URI that the server uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Resource {
    pub server: ServerName,
    pub uri: String,
}

pub(crate) struct Subscriptions {
    current: Arc<CurrentCatalog>,
    servers: Arc<dyn ToolServers>,
    passthrough: Arc<Passthrough>,
    sessions: Arc<McpSessions>,
    loading: Arc<Loading>,
    settings: McpSettings,
    followed: Mutex<HashMap<Resource, Followed>>,
    /// Number of subscriptions per caller.
    counts: Mutex<HashMap<PrincipalId, usize>>,
    numbers: AtomicU64,
    hasher: RandomState,
    stop: CancellationToken,
}

#[derive(Default)]
struct Followed {
    subscribers: HashMap<u64, Subscriber>,
    /// Whether the service is subscribed at the server. Locked during a change.
    at_server: Arc<AsyncMutex<bool>>,
    /// Number of tasks that change the subscription at the server, or wait to do so.
    at_work: usize,
}

#[derive(Clone)]
struct Subscriber {
    session: Weak<McpSession>,
    /// The URI by which the client knows the resource.
    client_uri: Arc<str>,
}

impl Subscriptions {
    /// Starts to forward notifications from servers, until `stop`.
    pub(crate) fn start(
        current: Arc<CurrentCatalog>,
        servers: Arc<dyn ToolServers>,
        passthrough: Arc<Passthrough>,
        sessions: Arc<McpSessions>,
        loading: Arc<Loading>,
        settings: McpSettings,
        stop: CancellationToken,
    ) -> (Arc<Self>, JoinHandle<()>) {
        let news = servers.news();
        let subscriptions = Arc::new(Self {
            current,
            servers,
            passthrough,
            sessions,
            loading,
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

    /// Maximum number of subscriptions per client.
    pub(crate) fn limit(&self) -> usize {
        self.settings.subscriptions
    }

    /// Subscribes a client to a resource, which it knows by `client_uri`. The subscription ends with the session. If the future
    /// is dropped, the request to the server still completes.
    pub(crate) async fn subscribe(
        self: &Arc<Self>,
        session: &Arc<McpSession>,
        resource: Resource,
        client_uri: &str,
        from: &PassthroughCaller,
    ) -> Result<(), SubscribeError> {
        let _permit = self.passthrough.enter(&resource.server, from).await?;
        if session.follows(client_uri) {
            return Ok(());
        }
        if !self.passthrough.is_shared(&resource.server, &from.caller.principal).await {
            return Err(SubscribeError::NotShared);
        }
        let of_session = SubscribeError::TooMany { limit: self.settings.subscriptions, of: "one client" };
        if session.followed() >= self.settings.subscriptions {
            return Err(of_session);
        }
        // Register first, so that no notification is missed.
        let subscription = self.enter(session, &resource, client_uri, &from.caller.principal.id)?;
        let follower = Arc::clone(self);
        let settled = tokio::spawn(async move { follower.settle(&resource).await }).await;
        settled.map_err(|_| SubscribeError::Over)?.map_err(PassError::Call)?;
        match session.follow(client_uri.into(), subscription, self.settings.subscriptions) {
            Ok(()) => Ok(()),
            Err(_) if session.followed() >= self.settings.subscriptions => Err(of_session),
            Err(_) => Err(SubscribeError::Over),
        }
    }

    /// Ends a client's subscription.
    ///
    /// # Errors
    /// [`PassError::NotFound`] if the caller can't see the server. Even then the subscription ends.
    pub(crate) async fn unsubscribe(&self, server: &ServerName, from: &PassthroughCaller) -> Result<(), PassError> {
        self.passthrough.enter(server, from).await.map(drop)
    }

    /// Notifies a client if its prompts or resources come from a different set of servers than at the last check. The first check
    /// only records the initial state.
    pub(crate) async fn notify_if_changed(&self, session: &McpSession) {
        if let Some(offered) = self.offered(session).await {
            session.notify_offered(offered);
        }
    }

    /// Like [`Self::notify_if_changed`], for the active clients of an address into whose session something was loaded.
    pub(crate) async fn notify_address(&self, address: &Address) {
        let is_concerned = |session: &&Arc<McpSession>| session.endpoint().address.has_path_of(address) && !session.is_idle();
        for session in self.sessions.all().iter().filter(is_concerned) {
            self.notify_if_changed(session).await;
        }
    }

    fn enter(
        self: &Arc<Self>,
        session: &Arc<McpSession>,
        resource: &Resource,
        client_uri: &str,
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
        let subscriber = Subscriber { session: Arc::downgrade(session), client_uri: client_uri.into() };
        self.followed.lock().entry(resource.clone()).or_default().subscribers.insert(number, subscriber);
        let (subscriptions, resource, owner) = (Arc::downgrade(self), resource.clone(), owner.clone());
        Ok(Subscription::ending_with(move || {
            if let Some(subscriptions) = subscriptions.upgrade() {
                subscriptions.leave(&resource, &owner, number);
            }
        }))
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
            found.subscribers.remove(&number);
            found.subscribers.is_empty()
        };
        // During shutdown, connections end anyway.
        if !is_last || self.stop.is_cancelled() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (follower, resource) = (Arc::clone(self), resource.clone());
            runtime.spawn(async move { follower.settle(&resource).await });
        }
    }

    /// Subscribes or unsubscribes at the server, depending on whether the resource has subscribers.
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
                (true, false) => self.ask(resource, PassthroughKind::Subscribe).await.inspect(|()| *at_server = true),
                (false, true) => {
                    *at_server = false;
                    if self.ask(resource, PassthroughKind::Unsubscribe).await.is_err() {
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
            let is_over =
                found.at_work == 0 && found.subscribers.is_empty() && found.at_server.try_lock().is_ok_and(|at_server| !*at_server);
            if is_over {
                followed.remove(resource);
            }
        }
        result
    }

    fn is_wanted(&self, resource: &Resource) -> bool {
        self.followed.lock().get(resource).is_some_and(|found| !found.subscribers.is_empty())
    }

    /// Sends a request over the shared connection, on behalf of no particular caller.
    async fn ask(&self, resource: &Resource, what: PassthroughKind) -> Result<(), CallError> {
        let request = PassthroughRequest { what, params: json!({ "uri": resource.uri }) };
        let context = CallContext::new(Arc::new(Principal::anyone()));
        self.servers.ask(&resource.server, request, context).await.map(drop)
    }

    async fn follow(self: Arc<Self>, news: &mut mpsc::Receiver<ServerNews>) {
        let mut changes = self.current.changes();
        loop {
            tokio::select! {
                received = news.recv() => {
                    let Some(ServerNews { server, what }) = received else { return };
                    self.handle(&server, what);
                }
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    tokio::time::sleep(TOGETHER).await;
                    changes.mark_unchanged();
                    for session in self.sessions.all().iter().filter(|session| !session.is_idle()) {
                        self.notify_if_changed(session).await;
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }

    fn handle(self: &Arc<Self>, server: &ServerName, what: NewsKind) {
        const PROMPTS: [PassthroughKind; 1] = [PassthroughKind::Prompts];
        const RESOURCES: [PassthroughKind; 2] = [PassthroughKind::Resources, PassthroughKind::ResourceTemplates];
        match what {
            NewsKind::Prompts => {
                self.passthrough.forget(server, &PROMPTS);
                self.notify_of(server, &News::Prompts);
            }
            NewsKind::Resources => {
                self.passthrough.forget(server, &RESOURCES);
                self.notify_of(server, &News::Resources);
            }
            NewsKind::Updated(uri) => self.updated(server, &uri),
            NewsKind::Renewed => {
                let offers = self.servers.offers(server);
                for (has, lists, news) in
                    [(offers.prompts, &PROMPTS[..], News::Prompts), (offers.resources, &RESOURCES[..], News::Resources)]
                {
                    self.passthrough.forget(server, lists);
                    if has {
                        self.notify_of(server, &news);
                    }
                }
                self.renew(server);
            }
        }
    }

    /// Notifies all clients that may see this server. At a session's address, their lists may lack it.
    fn notify_of(&self, server: &ServerName, news: &News) {
        for session in self.sessions.all().iter().filter(|session| self.sees(session, server)) {
            session.notify(news.clone());
        }
    }

    fn sees(&self, session: &McpSession, server: &ServerName) -> bool {
        let endpoint = session.endpoint();
        self.passthrough.sees(&session.viewer(), &endpoint.address, endpoint.server.as_ref(), server)
    }

    /// Notifies the subscribers of a changed resource and of its parents, by the URIs that they know.
    fn updated(&self, server: &ServerName, uri: &str) {
        let mut notified: Vec<(Subscriber, &str)> = Vec::new();
        {
            let followed = self.followed.lock();
            for whole in wholes(uri) {
                let resource = Resource { server: server.clone(), uri: whole.to_owned() };
                let subscribers = followed.get(&resource).into_iter().flat_map(|found| found.subscribers.values());
                notified.extend(subscribers.map(|subscriber| (subscriber.clone(), &uri[whole.len()..])));
            }
        }
        for (Subscriber { session, client_uri }, part) in notified {
            let Some(session) = session.upgrade().filter(|session| self.sees(session, server)) else { continue };
            let client_uri = if part.is_empty() { client_uri } else { format!("{client_uri}{part}").into() };
            session.notify(News::Updated(client_uri));
        }
    }

    /// Subscribes to all resources again over a new connection. Reports all of them as changed, because notifications may have
    /// been missed.
    fn renew(self: &Arc<Self>, server: &ServerName) {
        let lost: Vec<Resource> = self.followed.lock().keys().filter(|resource| resource.server == *server).cloned().collect();
        for resource in lost {
            let follower = Arc::clone(self);
            tokio::spawn(async move {
                let Some(turn) = follower.followed.lock().get(&resource).map(|found| Arc::clone(&found.at_server)) else { return };
                *turn.lock().await = false;
                drop(turn);
                if let Err(error) = follower.settle(&resource).await {
                    // Omit the URI, which may be confidential.
                    tracing::info!(server = %resource.server, error = error.without_words(), "a subscription could not be renewed");
                }
                follower.updated(&resource.server, &resource.uri);
            });
        }
    }

    /// Hashes of the sets of servers whose prompts and resources a client sees. `None` if nobody knows what is loaded at its address.
    async fn offered(&self, session: &McpSession) -> Option<(u64, u64)> {
        let endpoint = session.endpoint();
        let address = self.loading.known_address(&endpoint.address).await?;
        let servers = self.passthrough.servers_for(&session.viewer(), &address, endpoint.server.as_ref());
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
        Some((prompts.finish(), resources.finish()))
    }
}

/// A URI and its parents: a server may report a change of a sub-resource of a subscribed resource (MCP specification 2025-11-25,
/// "Subscriptions").
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
    fn a_resource_is_part_of_what_its_uri_begins_with() {
        let all: Vec<_> = wholes("a://b/c?d").collect();
        assert_eq!(all, ["a:", "a:/", "a://", "a://b", "a://b/", "a://b/c", "a://b/c?", "a://b/c?d"]);
        assert_eq!(wholes("x").collect::<Vec<_>>(), ["x"]);
        assert_eq!(wholes("a/").collect::<Vec<_>>(), ["a", "a/"]);
    }
}

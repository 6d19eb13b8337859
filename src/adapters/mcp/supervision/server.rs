//! The state of one configured server. Its supervisor writes it; calls read it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::adapters::mcp::link::connection::{About, Era};
use crate::adapters::mcp::link::link::{Link, Wire};
use crate::adapters::mcp::link::list::Tools;
use crate::adapters::mcp::text::{Secrets, plain};
use crate::adapters::mcp::transport::param_headers::{ANNOTATION, ParamHeaders};
use crate::domain::access::authorization::Challenge;
use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ServerName;
use crate::domain::catalog::user_lists::{ListOwner, ListedBy, UserList, name_of};
use crate::domain::text::json_text::JsonText;
use crate::service::ports::{NewsKind, Offers, ServerEvent, ServerListing, ServerNews, ServerPhase, ServerState};
use crate::settings::servers::ServerSettings;

/// Default Retry-After.
pub(in crate::adapters::mcp) const SHORT_RETRY: Duration = Duration::from_secs(1);
/// Retry-After during a server's first start.
pub(in crate::adapters::mcp) const START_RETRY: Duration = Duration::from_secs(5);
/// How long tools from before the server's start stay known although no user's list has contained them since. Until then, their users
/// have most likely connected again.
const RECALLED: Duration = Duration::from_hours(7 * 24);
/// Maximum length of a failure reason, in bytes.
pub(in crate::adapters::mcp) const REASON_LIMIT: usize = 2000;

#[derive(Debug)]
pub(in crate::adapters::mcp) struct Server {
    pub(in crate::adapters::mcp) name: ServerName,
    settings: ArcSwap<ServerSettings>,
    pub(in crate::adapters::mcp) secrets: Arc<Secrets>,
    status: watch::Sender<Status>,
    /// Whether the phase is [`ServerPhase::Retrying`]. Each message asks all servers, so this takes no lock.
    is_retrying: AtomicBool,
    approach: Mutex<(Era, Wire)>,
    user_lists: Mutex<UserLists>,
    /// The arguments of the known tools that HTTP headers repeat.
    pub(in crate::adapters::mcp) param_headers: ParamHeaders,
    since: Instant,
    outlet: Arc<Outlet>,
}

/// What users' connections have listed, if there is no shared one.
#[derive(Clone, Debug, Default)]
struct UserLists {
    /// The users of tools that no shared connection has listed.
    listed_by: ListedBy,
    /// The tools that were known before the server was started, until the first list.
    earlier: Vec<JsonText>,
    /// The names of those whose user is unknown.
    recalled: HashSet<String>,
    /// Whether the server has replaced another one, and nothing was listed since.
    is_of_new_server: bool,
}

/// The deadlines until which a call waits for a link. Neither is later than the call's own deadline.
#[derive(Clone, Copy, Debug)]
pub(in crate::adapters::mcp) struct Patience {
    /// The deadline during the first start.
    pub(in crate::adapters::mcp) started: Instant,
    /// The deadline after a lost connection.
    pub(in crate::adapters::mcp) back: Instant,
}

/// A link in use. Its connection stays open until this is dropped, within time limits.
pub(in crate::adapters::mcp) struct Held {
    pub(in crate::adapters::mcp) link: Arc<Link>,
    _call: Hold,
}

/// Keeps a connection open until dropped.
enum Hold {
    Shared { _call: TaskTrackerToken },
    Own { _use: Box<dyn Send + Sync> },
}

impl Held {
    /// A link over a connection that belongs to one caller.
    pub(in crate::adapters::mcp) fn own(link: Arc<Link>, usage: Box<dyn Send + Sync>) -> Self {
        Self { link, _call: Hold::Own { _use: usage } }
    }
}

/// The reason why no link is available. It can't be logged as it is, because a challenge may repeat the caller's token.
pub(in crate::adapters::mcp) enum NoLink {
    /// The server was reconfigured or removed.
    Retired,
    Unavailable {
        reason: String,
        retry_after: Duration,
    },
    /// Connecting with the caller's own credentials failed.
    NotLetIn {
        reason: String,
        /// The server's challenge, if it rejected the token of a sign-in.
        challenge: Option<Box<Challenge>>,
    },
    TooManyUsers {
        limit: usize,
        of: &'static str,
    },
}

#[derive(Debug)]
struct Status {
    phase: ServerPhase,
    listing: Option<Arc<ServerListing>>,
    error: Option<String>,
    protocol: Option<String>,
    link: Option<Arc<Link>>,
    /// The time of the next attempt; `None` during an attempt.
    next_attempt: Option<Instant>,
    /// Whether the server was removed or reconfigured. It then sends no more events.
    retired: bool,
}

impl Status {
    /// Returns the link unless it is closed or equals `failed`. Registers the use while the status is locked, so that no call
    /// starts unnoticed after the server is retired.
    fn usable(&self, failed: Option<&Arc<Link>>) -> Option<Held> {
        let link = self.link.as_ref().filter(|link| !link.is_closed() && failed.is_none_or(|failed| !Arc::ptr_eq(failed, link)))?;
        Some(Held { link: Arc::clone(link), _call: Hold::Shared { _call: link.calls.token() } })
    }

    fn unlink(&mut self) {
        self.link = None;
        self.next_attempt = None;
        if self.phase == ServerPhase::Connected {
            self.phase = ServerPhase::Retrying;
        }
    }
}

/// Where servers send their events, if there is a follower.
#[derive(Debug, Default)]
pub(in crate::adapters::mcp) struct Outlet {
    events: Mutex<Option<mpsc::UnboundedSender<ServerEvent>>>,
    news: Mutex<Option<mpsc::Sender<ServerNews>>>,
}

impl Outlet {
    /// Blocks events as long as the guard exists, so that none is lost between reading the servers and following them.
    pub(in crate::adapters::mcp) fn lock(&self) -> MutexGuard<'_, Option<mpsc::UnboundedSender<ServerEvent>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::adapters::mcp) fn send_news_to(&self, receiver: Option<mpsc::Sender<ServerNews>>) {
        *self.news.lock().unwrap_or_else(PoisonError::into_inner) = receiver;
    }

    fn news(&self) -> Option<mpsc::Sender<ServerNews>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Server {
    pub(in crate::adapters::mcp) fn new(settings: ServerSettings, outlet: Arc<Outlet>) -> Self {
        let status = Status {
            phase: ServerPhase::Starting,
            listing: None,
            error: None,
            protocol: None,
            link: None,
            next_attempt: None,
            retired: false,
        };
        let secrets = Arc::new(Secrets::of(&settings.with(&settings.per_user.list_with)));
        let approach = Mutex::new((Era::usual(&settings.transport), Wire::of(&settings.transport)));
        let name = settings.name.clone();
        Self {
            name,
            settings: ArcSwap::from_pointee(settings),
            secrets,
            status: watch::Sender::new(status),
            is_retrying: AtomicBool::new(false),
            approach,
            user_lists: Mutex::default(),
            param_headers: ParamHeaders::default(),
            since: Instant::now(),
            outlet,
        }
    }

    pub(in crate::adapters::mcp) fn settings(&self) -> Arc<ServerSettings> {
        self.settings.load_full()
    }

    /// Applies those new settings that an existing connection can adopt.
    pub(in crate::adapters::mcp) fn adjust(&self, settings: ServerSettings) {
        self.settings.store(Arc::new(settings));
    }

    pub(in crate::adapters::mcp) fn state(&self) -> ServerState {
        let status = self.status.borrow();
        ServerState {
            server: self.name.clone(),
            phase: status.phase,
            tools: status.listing.as_ref().map_or(0, |listing| listing.tools.len()),
            left_out: status.listing.as_ref().map_or(0, |listing| listing.skipped.len()),
            error: status.error.clone(),
            protocol: status.protocol.clone(),
            user_connections: None,
        }
    }

    pub(in crate::adapters::mcp) fn is_down(&self) -> bool {
        self.is_retrying.load(Ordering::Acquire) && self.settings().per_user.is_empty()
    }

    /// Events that describe the current state to a new follower.
    pub(in crate::adapters::mcp) fn present(&self) -> Vec<ServerEvent> {
        let status = self.status.borrow();
        let listed = status.listing.as_ref().map(|listing| ServerEvent::Listed(ServerListing::clone(listing)));
        let failed = status.error.clone().map(|reason| self.failure(reason, status.phase == ServerPhase::Connected));
        listed.into_iter().chain(failed).collect()
    }

    /// Records a new connection with its first list of tools.
    pub(in crate::adapters::mcp) fn connected(&self, link: &Arc<Link>, about: About, tools: Tools) {
        let mut lists = self.user_lists();
        *lists = UserLists::default();
        let listing = Arc::new(self.listing(about, tools));
        self.change(Some(ServerEvent::Listed(ServerListing::clone(&listing))), |status| {
            status.phase = ServerPhase::Connected;
            status.protocol = Some(link.protocol.clone());
            status.link = Some(Arc::clone(link));
            status.listing = Some(listing);
            status.error = None;
        });
    }

    /// The handshake and transport to try first: those that last worked.
    pub(in crate::adapters::mcp) fn approach(&self) -> (Era, Wire) {
        *self.approach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::adapters::mcp) fn approach_by(&self, era: Era, wire: Wire) {
        *self.approach.lock().unwrap_or_else(PoisonError::into_inner) = (era, wire);
    }

    /// Forgets which handshake and transport worked, because another server seems to respond.
    pub(in crate::adapters::mcp) fn approach_anew(&self) {
        let settings = self.settings();
        self.approach_by(Era::usual(&settings.transport), Wire::of(&settings.transport));
    }

    /// Whether the tools have been listed, by whichever connection.
    pub(in crate::adapters::mcp) fn has_listing(&self) -> bool {
        self.status.borrow().listing.is_some()
    }

    /// Whether there is a shared connection, on which the tools are listed.
    pub(in crate::adapters::mcp) fn is_linked(&self) -> bool {
        self.status.borrow().link.is_some()
    }

    /// The server's capabilities other than tools. A server with per-user values and without a shared connection is assumed to
    /// have all of them except subscriptions.
    pub(in crate::adapters::mcp) fn offers(&self) -> Offers {
        let everything = Offers { prompts: true, resources: true, completions: true, subscriptions: false };
        let settings = self.settings();
        let nothing = || if settings.per_user.is_empty() { Offers::default() } else { everything };
        let offers = self.status.borrow().link.as_ref().map_or_else(nothing, |link| link.offers);
        // Only a shared connection supports subscriptions.
        let is_shared = settings.per_user.is_empty() && settings.remote.forwarding.is_none();
        Offers { subscriptions: offers.subscriptions && is_shared, ..offers }
    }

    /// Forwards a server notification; applies back-pressure to slow consumers.
    pub(in crate::adapters::mcp) async fn send_news(&self, what: NewsKind) {
        if let Some(news) = self.outlet.news().filter(|_| !self.is_retired()) {
            let _ = news.send(ServerNews { server: self.name.clone(), what }).await;
        }
    }

    pub(in crate::adapters::mcp) fn is_retired(&self) -> bool {
        self.status.borrow().retired
    }

    /// Records a list from a user's connection if there is no shared one. Even one that changes nothing here is sent on: another service on
    /// the same store may have stored something else.
    pub(in crate::adapters::mcp) fn introduced(&self, owner: &PrincipalId, about: About, mut tools: Tools) {
        let mut lists = self.user_lists();
        if self.is_linked() {
            return;
        }
        let present = self.status.borrow().listing.clone();
        let earlier = if present.is_none() { lists.recall() } else { Vec::new() };
        let known = present.as_ref().map_or(&earlier[..], |present| &present.tools);
        let (merged, list) = lists.merged(known, tools.tools, owner, self.since.elapsed() < RECALLED);
        tools.tools = merged;
        let listing = Arc::new(self.listing(about, tools));
        let event = ServerEvent::ListedForUser { listing: ServerListing::clone(&listing), list };
        self.change(Some(event), |status| status.listing = Some(listing));
    }

    /// Notes that the server has replaced another one under the same name, whose tools are over.
    pub(in crate::adapters::mcp) fn is_new(&self) {
        self.user_lists().is_of_new_server = true;
    }

    /// Keeps these tools until users' connections have listed their own. Nothing is published by this.
    pub(in crate::adapters::mcp) fn remember(&self, tools: Vec<JsonText>) {
        let mut lists = self.user_lists();
        if !self.has_listing() {
            self.learn_headers(&tools);
        }
        lists.earlier = tools;
    }

    /// Keeps what the same server's former instance knew, in the same way.
    pub(in crate::adapters::mcp) fn remember_from(&self, former: &Self) {
        let mut lists = former.user_lists().clone();
        if let Some(listing) = &former.status.borrow().listing {
            lists.earlier.clone_from(&listing.tools);
        }
        self.learn_headers(&lists.earlier);
        *self.user_lists() = lists;
    }

    fn user_lists(&self) -> MutexGuard<'_, UserLists> {
        self.user_lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn_headers(&self, tools: &[JsonText]) {
        let annotated: Vec<_> = tools.iter().filter(|tool| tool.as_str().contains(ANNOTATION)).map(JsonText::value).collect();
        self.param_headers.learn(&annotated);
    }

    fn listing(&self, about: About, tools: Tools) -> ServerListing {
        let Tools { tools, skipped } = tools;
        self.learn_headers(&tools);
        let About { title, program, version, instructions } = about;
        ServerListing { server: self.name.clone(), title, program, version, instructions, tools, skipped }
    }

    /// Records a new list from the same connection. Returns whether it differs.
    pub(in crate::adapters::mcp) fn listed(&self, tools: Tools) -> bool {
        let present = self.status.borrow().listing.clone();
        let had_error = self.status.borrow().error.is_some();
        let Some(present) = present else { return false };
        let differs = present.tools != tools.tools || present.skipped != tools.skipped;
        if differs || had_error {
            self.learn_headers(&tools.tools);
            let listing = ServerListing { tools: tools.tools, skipped: tools.skipped, ..ServerListing::clone(&present) };
            self.change(Some(ServerEvent::Listed(listing.clone())), |status| {
                status.listing = Some(Arc::new(listing));
                status.error = None;
            });
        }
        differs
    }

    /// Records that a repeated listing failed on a working connection.
    pub(in crate::adapters::mcp) fn list_failed(&self, reason: &str) {
        let reason = self.shown(reason);
        tracing::debug!(server = %self.name, reason, "could not list the tools again");
        self.change(self.news(&reason, true), |status| status.error = Some(reason));
    }

    /// Records a failed attempt or a lost connection.
    pub(in crate::adapters::mcp) fn failed(&self, reason: &str, next_attempt: Instant) {
        let reason = self.shown(reason);
        tracing::debug!(server = %self.name, reason, "not connected");
        self.change(self.news(&reason, false), |status| {
            status.phase = ServerPhase::Retrying;
            status.link = None;
            status.error = Some(reason);
            status.next_attempt = Some(next_attempt);
        });
    }

    /// Masks secrets in a reason.
    fn shown(&self, reason: &str) -> String {
        self.secrets.mask(&plain(reason), REASON_LIMIT)
    }

    /// An event for the failure; `None` if the reason was reported before.
    fn news(&self, reason: &str, is_connected: bool) -> Option<ServerEvent> {
        let is_news = self.status.borrow().error.as_deref() != Some(reason);
        is_news.then(|| self.failure(reason.to_owned(), is_connected))
    }

    /// Stops new calls from using the link.
    pub(in crate::adapters::mcp) fn unlink(&self) {
        self.change(None, Status::unlink);
    }

    /// Stops new calls from using the link if none uses it now. Returns whether none uses it and none can.
    pub(in crate::adapters::mcp) fn unlink_if_idle(&self, link: &Link) -> bool {
        // Calls register while they read the status, so none starts between the check and the change.
        let mut is_unlinked = false;
        self.change(None, |status| {
            is_unlinked = link.calls.is_empty();
            if is_unlinked {
                status.unlink();
            }
        });
        // A retired server starts no calls, and its status doesn't change any more.
        is_unlinked || (self.is_retired() && link.calls.is_empty())
    }

    /// Marks the server as removed or reconfigured.
    pub(in crate::adapters::mcp) fn retire(&self, is_removed: bool) {
        let removed = is_removed.then(|| ServerEvent::Removed { server: self.name.clone() });
        self.change(removed, |status| {
            status.link = None;
            status.retired = true;
        });
    }

    pub(in crate::adapters::mcp) fn attempts(&self) {
        self.change(None, |status| status.next_attempt = None);
    }

    fn failure(&self, reason: String, is_connected: bool) -> ServerEvent {
        ServerEvent::Failed { server: self.name.clone(), reason, is_connected }
    }

    fn change(&self, event: Option<ServerEvent>, change: impl FnOnce(&mut Status)) {
        let outlet = self.outlet.lock();
        if self.status.borrow().retired {
            return;
        }
        self.status.send_modify(|status| {
            change(status);
            self.is_retrying.store(status.phase == ServerPhase::Retrying, Ordering::Release);
        });
        if let (Some(sender), Some(event)) = (&*outlet, event) {
            let _ = sender.send(event);
        }
    }

    /// Returns the link. If it equals `failed`, first waits for another one until `patience.back`.
    ///
    /// Waits for a server's first start until `patience.started`. If the server is down, fails at once, unless it may be back
    /// before `patience.back`: a child process restarts within milliseconds.
    pub(in crate::adapters::mcp) async fn link(&self, failed: Option<&Arc<Link>>, patience: Patience) -> Result<Held, NoLink> {
        if let Some(held) = self.status.borrow().usable(failed) {
            return Ok(held);
        }
        // Boxed, because hardly any call waits.
        Box::pin(self.wait_for_link(failed, patience)).await
    }

    async fn wait_for_link(&self, failed: Option<&Arc<Link>>, patience: Patience) -> Result<Held, NoLink> {
        let mut status = self.status.subscribe();
        loop {
            let until = {
                let status = status.borrow_and_update();
                if status.retired {
                    return Err(NoLink::Retired);
                }
                if let Some(held) = status.usable(failed) {
                    return Ok(held);
                }
                let now = Instant::now();
                let until = match (status.phase, status.next_attempt) {
                    (ServerPhase::Starting, _) => patience.started,
                    (_, Some(next)) if next >= patience.back => now,
                    _ => patience.back,
                };
                if until <= now {
                    // The link has survived, so its failure was a short one.
                    if let Some(held) = status.usable(None) {
                        return Ok(held);
                    }
                    // This is no timeout, even after the deadline: the server never received the call.
                    if status.phase == ServerPhase::Starting {
                        return Err(NoLink::Unavailable { reason: "it is still starting".to_owned(), retry_after: START_RETRY });
                    }
                    let reason = status.error.clone().unwrap_or_else(|| "the connection was lost".to_owned());
                    let retry_after = status.next_attempt.map_or(SHORT_RETRY, |next| next.saturating_duration_since(now));
                    return Err(NoLink::Unavailable { reason, retry_after });
                }
                until
            };
            // Check again after a timeout or a change. The sender lives as long as `self`.
            let _ = timeout_at(until, status.changed()).await;
        }
    }
}

impl UserLists {
    /// The tools from before the start. From now on, those whose user is unknown are recalled ones.
    fn recall(&mut self) -> Vec<JsonText> {
        let earlier = std::mem::take(&mut self.earlier);
        self.recalled = earlier.iter().map(name_of).filter(|name| !self.listed_by.knows(name)).collect();
        earlier
    }

    /// Adds a user's list to the known tools. A recalled tool goes once `keeps_recalled` is false. Returns all tools, and the list as other
    /// services need it.
    fn merged(&mut self, known: &[JsonText], tools: Vec<JsonText>, owner: &PrincipalId, keeps_recalled: bool) -> (Vec<JsonText>, UserList) {
        let owner = ListOwner::of(owner.as_str());
        let is_over = |name: &str| !keeps_recalled && self.recalled.contains(name);
        let listed: HashSet<String> = tools.iter().map(name_of).collect();
        let expired = known.iter().map(name_of).filter(|name| is_over(name) && !listed.contains(name)).collect();
        let merged = self.listed_by.merge(known, &tools, owner, |_, name| is_over(name));
        let present: HashSet<String> = merged.iter().map(name_of).collect();
        self.recalled.retain(|name| present.contains(name) && !listed.contains(name));
        let is_of_new_server = std::mem::take(&mut self.is_of_new_server);
        (merged, UserList { owner, tools, expired, is_of_new_server })
    }
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;
    use serde_json::json;

    use super::*;
    use crate::settings::servers::TransportSettings;

    fn tool(name: &str, version: u32) -> JsonText {
        JsonText::of(&json!({"name": name, "description": format!("version {version}")}))
    }

    #[test]
    fn the_list_of_one_user_does_not_remove_the_tools_of_another() {
        let (anna, bob) = (PrincipalId::new("user:anna"), PrincipalId::new("user:bob"));
        let mut lists = UserLists::default();
        let known = [tool("shared_connection", 1)];
        let known = lists.merged(&known, vec![tool("read", 1), tool("write", 1)], &anna, false).0;
        assert_eq!(known, [tool("shared_connection", 1), tool("read", 1), tool("write", 1)]);
        let known = lists.merged(&known, vec![tool("read", 2)], &bob, false).0;
        assert_eq!(known, [tool("shared_connection", 1), tool("read", 2), tool("write", 1)]);
        // Bob's list contained `read` last.
        let known = lists.merged(&known, vec![tool("delete", 1)], &anna, false).0;
        assert_eq!(known, [tool("shared_connection", 1), tool("read", 2), tool("delete", 1)]);
        let known = lists.merged(&known, vec![], &bob, false).0;
        assert_eq!(known, [tool("shared_connection", 1), tool("delete", 1)]);
        assert!(lists.listed_by.knows("delete") && !lists.listed_by.knows("read"));
    }

    #[test]
    fn the_headers_of_remembered_and_listed_tools_are_known() {
        let server = || {
            let transport = TransportSettings::StreamableHttp { url: "http://test.invalid".parse().unwrap(), headers: IndexMap::new() };
            Server::new(ServerSettings::of_test(transport), Arc::default())
        };
        let tool = |name: &str| {
            let deep = json!({"properties": {"region": {"type": "string", ANNOTATION: "Region"}}});
            JsonText::of(&json!({"name": name, "inputSchema": {"properties": {"deep": deep}}}))
        };
        let first = server();
        first.remember(vec![tool("earlier"), JsonText::of(&json!({"name": "plain", "inputSchema": {}}))]);
        assert!(first.param_headers.has("earlier") && !first.param_headers.has("plain"));
        let second = server();
        second.remember_from(&first);
        assert!(second.param_headers.has("earlier"));
        second.introduced(&PrincipalId::new("user:anna"), About::default(), Tools { tools: vec![tool("new")], skipped: Vec::new() });
        assert!(second.param_headers.has("new"));
    }

    /// Regression test: after a restart, the tools of all other users were gone until these connected.
    #[test]
    fn the_first_list_after_a_restart_does_not_remove_the_tools_of_other_users() {
        let (anna, bob) = (PrincipalId::new("user:anna"), PrincipalId::new("user:bob"));
        let mut lists = UserLists { earlier: vec![tool("read", 1), tool("write", 1), tool("gone", 1)], ..UserLists::default() };
        let earlier = lists.recall();
        let known = lists.merged(&earlier, vec![tool("read", 2)], &anna, true).0;
        assert_eq!(known, [tool("read", 2), tool("write", 1), tool("gone", 1)]);
        let known = lists.merged(&known, vec![tool("write", 1)], &bob, true).0;
        assert_eq!(known, [tool("read", 2), tool("write", 1), tool("gone", 1)]);
        // What nobody has listed for long is gone. What somebody has listed goes as always.
        let known = lists.merged(&known, vec![tool("read", 2)], &anna, false).0;
        assert_eq!(known, [tool("read", 2), tool("write", 1)]);
        let known = lists.merged(&known, vec![], &bob, false).0;
        assert_eq!(known, [tool("read", 2)]);
        assert!(lists.recalled.is_empty());
        // Another start of the same server still knows whose tools they are.
        let mut lists = UserLists { earlier: known, ..lists };
        let earlier = lists.recall();
        assert!(lists.merged(&earlier, vec![], &anna, true).0.is_empty());
    }
}

//! Connections that belong to single callers, for servers with per-user headers or per-user environment variables.
//!
//! The caller's first call creates the connection. It ends after an idle time, when its credentials are outdated, or when another
//! caller needs its slot. Other credentials need another connection, so callers never share one.

mod keeper;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::AUTHORIZATION;
use indexmap::IndexMap;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::adapters::mcp::link::attempt::Surroundings;
use crate::adapters::mcp::link::link::Link;
use crate::adapters::mcp::supervision::server::{Held, NoLink, SHORT_RETRY, START_RETRY, Server};
use crate::adapters::mcp::text::Secrets;
use crate::adapters::mcp::timing::Timing;
use crate::adapters::mcp::transport::sending::SignIn;
use crate::domain::access::authorization::Challenge;
use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ServerName;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{Credentials, Parting};
use crate::settings::UserConnectionSettings;
use crate::settings::servers::ServerSettings;

/// How long a change of credentials is remembered. Longer than any call may use the credentials that it has read.
const MEMORY: Duration = Duration::from_hours(1);

pub(in crate::adapters::mcp) struct UserConnections {
    limits: UserConnectionSettings,
    surroundings: Surroundings,
    timing: Timing,
    pool: Mutex<Pool>,
    /// One permit per allowed connection, held until the connection is fully closed.
    places: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Default)]
struct Pool {
    entries: IndexMap<Key, Arc<Entry>>,
    /// When a caller's connections to one server, or to all (`None`), were closed because of changed credentials.
    parted: HashMap<(PrincipalId, Option<ServerName>), Instant>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    server: ServerName,
    owner: PrincipalId,
    credentials: Fingerprint,
}

/// A connection, from its first request on. New calls may use it as long as it is in the pool.
struct Entry {
    key: Key,
    server: Arc<Server>,
    /// The server's settings with the caller's credentials filled in.
    settings: ServerSettings,
    secrets: ArcSwap<Secrets>,
    /// The token of the owner's sign-in, if the server is called with one.
    sign_in: Option<SignIn>,
    state: watch::Sender<State>,
    /// The number of calls that use the connection or wait for it. Increased only while the pool is locked.
    uses: watch::Sender<usize>,
    used_at: Mutex<Instant>,
    /// Ends the connection once no call uses it.
    part: CancellationToken,
    /// Ends the connection at once.
    cut: CancellationToken,
}

enum State {
    Connecting,
    Ready(Arc<Link>),
    /// The connection ended for this reason, which contains no secrets, and with this challenge of the server.
    Over(String, Option<Box<Challenge>>),
}

/// Counts one call's use of a connection until it is dropped.
pub(in crate::adapters::mcp) struct Use(Arc<Entry>);

impl Use {
    fn of(entry: &Arc<Entry>) -> Self {
        entry.uses.send_modify(|uses| *uses += 1);
        Self(Arc::clone(entry))
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        *self.0.used_at.lock() = Instant::now();
        self.0.uses.send_modify(|uses| *uses -= 1);
    }
}

impl fmt::Debug for Use {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Use")
    }
}

impl Entry {
    /// Uses the token of these credentials from now on, which may be newer.
    fn renew(&self, credentials: &Credentials) {
        let (Some(sign_in), Some(token)) = (&self.sign_in, credentials.token()) else { return };
        if sign_in.renew(token) {
            let header = (AUTHORIZATION.as_str().to_owned(), token.access.clone());
            self.secrets.store(Arc::new(Secrets::of(&self.settings.with([(&header.0, &header.1)]))));
        }
    }

    fn is_idle(&self) -> bool {
        *self.uses.borrow() == 0
    }

    /// Whether a new call may use the connection. False if the call's previous attempt failed on it.
    fn is_usable(&self, failed: Option<&Arc<Link>>) -> bool {
        match &*self.state.borrow() {
            State::Connecting => true,
            State::Ready(link) => !link.is_closed() && failed.is_none_or(|failed| !Arc::ptr_eq(failed, link)),
            State::Over(..) => false,
        }
    }
}

impl UserConnections {
    pub(in crate::adapters::mcp) fn new(
        surroundings: Surroundings,
        limits: UserConnectionSettings,
        timing: Timing,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self { places: Arc::new(Semaphore::new(limits.total)), limits, surroundings, timing, pool: Mutex::default(), tasks, stop })
    }

    /// Returns the caller's link. Connects if necessary.
    pub(in crate::adapters::mcp) async fn link(
        self: &Arc<Self>,
        server: &Arc<Server>,
        owner: &PrincipalId,
        credentials: &Credentials,
        failed: Option<&Arc<Link>>,
        until: Instant,
    ) -> Result<Held, NoLink> {
        let usage = self.enter(server, owner, credentials, failed)?;
        let mut state = usage.0.state.subscribe();
        loop {
            let ready = match &*state.borrow_and_update() {
                State::Connecting => None,
                State::Ready(link) => Some(Arc::clone(link)),
                State::Over(reason, challenge) => {
                    return Err(NoLink::NotLetIn { reason: reason.clone(), challenge: challenge.clone() });
                }
            };
            if let Some(link) = ready {
                return Ok(Held::own(link, Box::new(usage)));
            }
            // The connection attempt continues in the background, so a retry may find it complete.
            if timeout_at(until, state.changed()).await.is_err() {
                return Err(NoLink::Unavailable { reason: "it is still starting".to_owned(), retry_after: START_RETRY });
            }
        }
    }

    fn enter(
        self: &Arc<Self>,
        server: &Arc<Server>,
        owner: &PrincipalId,
        credentials: &Credentials,
        failed: Option<&Arc<Link>>,
    ) -> Result<Use, NoLink> {
        let unavailable = |reason: &str| NoLink::Unavailable { reason: reason.to_owned(), retry_after: SHORT_RETRY };
        let mut pool = self.pool.lock();
        if self.stop.is_cancelled() {
            return Err(unavailable("the service is stopping"));
        }
        // Check while the pool is locked: retiring a server locks the pool afterwards.
        if server.is_retired() {
            return Err(NoLink::Retired);
        }
        let settings = server.settings();
        let templates = &settings.per_user.templates;
        let has_token = credentials.token().is_some() == settings.per_user.signs_in;
        let fits = has_token
            && credentials.values().len() == templates.len()
            && credentials.values().keys().all(|name| templates.contains_key(name));
        if !fits || pool.has_parted_since(owner, &server.name, credentials.read_at) {
            return Err(unavailable("your credentials for it have just changed"));
        }
        let key = Key { server: server.name.clone(), owner: owner.clone(), credentials: credentials.fingerprint() };
        if let Some(entry) = pool.entries.get(&key) {
            if entry.is_usable(failed) {
                entry.renew(credentials);
                return Ok(Use::of(entry));
            }
            entry.part.cancel();
            pool.entries.swap_remove(&key);
        }
        self.make_room(&mut pool, &server.name)?;
        let settings = settings.with(credentials.values());
        let entry = Arc::new(Entry {
            secrets: ArcSwap::from_pointee(Secrets::of(&settings)),
            sign_in: credentials.token().map(|_| SignIn::default()),
            key: key.clone(),
            server: Arc::clone(server),
            settings,
            state: watch::Sender::new(State::Connecting),
            uses: watch::Sender::new(0),
            used_at: Mutex::new(Instant::now()),
            part: CancellationToken::new(),
            cut: self.stop.child_token(),
        });
        entry.renew(credentials);
        let usage = Use::of(&entry);
        pool.entries.insert(key, Arc::clone(&entry));
        self.tasks.spawn(Arc::clone(self).keep(entry));
        Ok(usage)
    }

    /// If a limit is reached, closes idle connections, least recently used first.
    fn make_room(&self, pool: &mut Pool, server: &ServerName) -> Result<(), NoLink> {
        let UserConnectionSettings { per_server, total, .. } = self.limits;
        if pool.entries.keys().filter(|key| key.server == *server).count() >= per_server && !pool.give_up(|key| key.server == *server) {
            return Err(NoLink::TooManyUsers { limit: per_server, of: "to one server" });
        }
        if pool.entries.len() >= total && !pool.give_up(|_| true) {
            return Err(NoLink::TooManyUsers { limit: total, of: "to all servers" });
        }
        Ok(())
    }

    /// Closes a caller's connections to one server or to all. Calls with outdated credentials are rejected from then on.
    pub(in crate::adapters::mcp) fn disconnect(&self, owner: &PrincipalId, server: Option<&ServerName>, parting: Parting) {
        let now = Instant::now();
        let mut pool = self.pool.lock();
        pool.parted.retain(|_, at| now.saturating_duration_since(*at) < MEMORY);
        pool.parted.insert((owner.clone(), server.cloned()), now);
        pool.entries.retain(|key, entry| {
            let goes = key.owner == *owner && server.is_none_or(|server| key.server == *server);
            if goes {
                match parting {
                    Parting::AfterCalls => entry.part.cancel(),
                    Parting::AtOnce => entry.cut.cancel(),
                }
            }
            !goes
        });
    }

    /// Closes all connections to a removed or reconfigured server after their calls.
    pub(in crate::adapters::mcp) fn retire(&self, server: &Arc<Server>) {
        self.pool.lock().entries.retain(|_, entry| {
            let goes = Arc::ptr_eq(&entry.server, server);
            if goes {
                entry.part.cancel();
            }
            !goes
        });
    }

    pub(in crate::adapters::mcp) fn count(&self, server: &Arc<Server>) -> usize {
        self.pool.lock().entries.values().filter(|entry| Arc::ptr_eq(&entry.server, server)).count()
    }

    /// Removes the connection from the pool, so that no new call uses it.
    fn forget(&self, entry: &Arc<Entry>) {
        self.pool.lock().forget(entry);
    }

    /// Removes the connection from the pool if it is idle. Returns whether it did.
    fn forget_if_idle(&self, entry: &Arc<Entry>) -> bool {
        self.forget_if(entry, |entry| entry.is_idle() && entry.used_at.lock().elapsed() >= self.limits.idle)
    }

    /// Removes the connection from the pool if no call uses it. Returns whether it did.
    fn forget_if_unused(&self, entry: &Arc<Entry>) -> bool {
        self.forget_if(entry, Entry::is_idle)
    }

    fn forget_if(&self, entry: &Arc<Entry>, is_over: impl FnOnce(&Entry) -> bool) -> bool {
        let mut pool = self.pool.lock();
        let is_over = is_over(entry);
        if is_over {
            pool.forget(entry);
        }
        is_over
    }
}

impl Pool {
    fn forget(&mut self, entry: &Arc<Entry>) {
        // Another connection may have replaced it.
        if self.entries.get(&entry.key).is_some_and(|present| Arc::ptr_eq(present, entry)) {
            self.entries.swap_remove(&entry.key);
        }
    }

    fn has_parted_since(&self, owner: &PrincipalId, server: &ServerName, time: Instant) -> bool {
        let parted = [None, Some(server.clone())].map(|server| self.parted.get(&(owner.clone(), server)));
        parted.into_iter().flatten().any(|at| *at >= time)
    }

    /// Closes the least recently used idle connection. Returns `false` if all are in use.
    fn give_up(&mut self, is_meant: impl Fn(&Key) -> bool) -> bool {
        let idle = self.entries.values().filter(|entry| is_meant(&entry.key) && entry.is_idle());
        let Some(entry) = idle.min_by_key(|entry| *entry.used_at.lock()).cloned() else { return false };
        self.forget(&entry);
        entry.part.cancel();
        true
    }
}

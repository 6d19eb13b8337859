//! Connections in the names of single callers, for servers that are given something of each: the headers of one, or a
//! process with variables of its own.
//!
//! Made at a caller's first call and ended when nobody has used it for a while, when what it was made with is no longer
//! right, and when another caller needs its place. Whoever calls with other credentials gets another connection, so none is
//! ever shared by two.

mod keeper;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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
use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ServerName;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{Credentials, Parting};
use crate::settings::UserConnectionSettings;
use crate::settings::servers::ServerSettings;

/// How long it is known that credentials have changed: longer than any call holds those that it has read.
const MEMORY: Duration = Duration::from_hours(1);

pub(in crate::adapters::mcp) struct UserConnections {
    limits: UserConnectionSettings,
    surroundings: Surroundings,
    timing: Timing,
    pool: Mutex<Pool>,
    /// One for each connection that there may be, from before it is made until it is gone.
    places: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Default)]
struct Pool {
    entries: IndexMap<Key, Arc<Entry>>,
    /// When a caller's connections, to one server or to all, were ended because of other credentials.
    parted: HashMap<(PrincipalId, Option<ServerName>), Instant>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    server: ServerName,
    owner: PrincipalId,
    credentials: Fingerprint,
}

/// A connection, from when it is wanted. While it is in the pool, calls may begin to use it.
struct Entry {
    key: Key,
    server: Arc<Server>,
    /// With the credentials.
    settings: ServerSettings,
    secrets: Arc<Secrets>,
    state: watch::Sender<State>,
    /// Calls that use it or wait for it. Grows only while the pool is locked.
    uses: watch::Sender<usize>,
    used_at: Mutex<Instant>,
    /// To end when no call uses it any more.
    part: CancellationToken,
    /// To end at once.
    cut: CancellationToken,
}

enum State {
    Connecting,
    Ready(Arc<Link>),
    /// Why there is none any more, without secrets.
    Over(String),
}

/// A call's part in a connection.
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
    fn is_idle(&self) -> bool {
        *self.uses.borrow() == 0
    }

    /// Whether a call may begin on it, which is none that has just failed there.
    fn is_usable(&self, failed: Option<&Arc<Link>>) -> bool {
        match &*self.state.borrow() {
            State::Connecting => true,
            State::Ready(link) => !link.is_closed() && failed.is_none_or(|failed| !Arc::ptr_eq(failed, link)),
            State::Over(_) => false,
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

    /// The caller's link to call over, made now where there is none.
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
                State::Over(reason) => return Err(NoLink::NotLetIn { reason: reason.clone() }),
            };
            if let Some(link) = ready {
                return Ok(Held::own(link, Box::new(usage)));
            }
            // The connecting goes on: who comes back may find it done.
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
        // Looked at while the pool is locked: who retires a server looks into the pool afterwards.
        if server.is_retired() {
            return Err(NoLink::Retired);
        }
        let settings = server.settings();
        let templates = &settings.per_user.templates;
        let fits = credentials.values().len() == templates.len() && credentials.values().keys().all(|name| templates.contains_key(name));
        if !fits || pool.has_parted_since(owner, &server.name, credentials.read_at) {
            return Err(unavailable("what it is given of you was changed in this moment"));
        }
        let key = Key { server: server.name.clone(), owner: owner.clone(), credentials: credentials.fingerprint() };
        if let Some(entry) = pool.entries.get(&key) {
            if entry.is_usable(failed) {
                return Ok(Use::of(entry));
            }
            entry.part.cancel();
            pool.entries.swap_remove(&key);
        }
        self.make_room(&mut pool, &server.name)?;
        let settings = settings.with(credentials.values());
        let entry = Arc::new(Entry {
            secrets: Arc::new(Secrets::of(&settings)),
            key: key.clone(),
            server: Arc::clone(server),
            settings,
            state: watch::Sender::new(State::Connecting),
            uses: watch::Sender::new(0),
            used_at: Mutex::new(Instant::now()),
            part: CancellationToken::new(),
            cut: self.stop.child_token(),
        });
        let usage = Use::of(&entry);
        pool.entries.insert(key, Arc::clone(&entry));
        self.tasks.spawn(Arc::clone(self).keep(entry));
        Ok(usage)
    }

    /// Takes away what nobody uses, the longest unused first, where a limit is reached.
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

    /// Ends a caller's connections, to one server or to all. Credentials that were read before are not taken any more.
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

    /// Ends all connections to a server that is not configured any more, or otherwise, after their calls.
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

    /// No call begins on it any more.
    fn forget(&self, entry: &Arc<Entry>) {
        self.pool.lock().forget(entry);
    }

    /// The same, if nobody uses it.
    fn forget_if_idle(&self, entry: &Arc<Entry>) -> bool {
        let mut pool = self.pool.lock();
        let is_idle = entry.is_idle() && entry.used_at.lock().elapsed() >= self.limits.idle;
        if is_idle {
            pool.forget(entry);
        }
        is_idle
    }
}

impl Pool {
    fn forget(&mut self, entry: &Arc<Entry>) {
        // Another one may have taken its place.
        if self.entries.get(&entry.key).is_some_and(|present| Arc::ptr_eq(present, entry)) {
            self.entries.swap_remove(&entry.key);
        }
    }

    fn has_parted_since(&self, owner: &PrincipalId, server: &ServerName, time: Instant) -> bool {
        let parted = [None, Some(server.clone())].map(|server| self.parted.get(&(owner.clone(), server)));
        parted.into_iter().flatten().any(|at| *at >= time)
    }

    /// Ends the one that was not used for the longest time; `false` where all are in use.
    fn give_up(&mut self, is_meant: impl Fn(&Key) -> bool) -> bool {
        let idle = self.entries.values().filter(|entry| is_meant(&entry.key) && entry.is_idle());
        let Some(entry) = idle.min_by_key(|entry| *entry.used_at.lock()).cloned() else { return false };
        self.forget(&entry);
        entry.part.cancel();
        true
    }
}

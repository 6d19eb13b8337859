//! The open connections, their timeouts, and the order in which connections close when there are too many.
//!
//! The server itself limits only the time for the first request's headers. A peer can also occupy a connection by other
//! means, such as a slow second request or an unread response. This module closes such connections. It considers
//! whether a request is running, when the last byte was sent or received, and whether the peer has authenticated. A
//! peer is a stranger until a request on its connection has been admitted.

mod connection;
mod io;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::sleep_until;

use self::connection::Standing;
pub(crate) use self::connection::{Connection, KNOWN as KEEP_ALIVE, Sent};
pub(crate) use self::io::Io;
use crate::service::records::metrics::Meters;

/// Minimum time between log lines about connections that were closed to stay within the limits.
const QUIET: Duration = Duration::from_mins(1);

/// Limits on the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// Maximum number of connections. Beyond this limit, connections close at once, unauthenticated ones first.
    pub most: usize,
    /// Maximum number of connections that have not authenticated in time.
    pub strangers: usize,
}

pub(crate) struct Connections {
    limits: ConnectionLimits,
    meters: Arc<Meters>,
    table: Mutex<Table>,
}

/// The connections by their numbers, which increase with time.
#[derive(Default)]
struct Table {
    next: u64,
    strangers: BTreeMap<u64, Arc<Connection>>,
    known: BTreeMap<u64, Arc<Connection>>,
    logged_at: Option<Instant>,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits, meters: Arc<Meters>) -> Arc<Self> {
        Arc::new(Self { limits, meters, table: Mutex::default() })
    }

    /// How many connections there have been.
    pub(crate) fn opened(&self) -> u64 {
        self.table.lock().next
    }

    /// Serves a new connection until it is finished or must be closed.
    pub(crate) async fn attend<F: Future<Output = ()>>(self: &Arc<Self>, work: impl FnOnce(Arc<Connection>) -> F) {
        let open = Open::new(self);
        let connection = &open.connection;
        let mut work = pin!(work(Arc::clone(connection)));
        // Before it closes any connection, it answers a peer that has already sent a request.
        if futures::poll!(work.as_mut()).is_ready() {
            return;
        }
        self.make_room();
        let mut timer = pin!(sleep_until(connection.next_look().into()));
        loop {
            tokio::select! {
                () = work.as_mut() => return,
                () = connection.ended() => return,
                () = timer.as_mut() => {
                    if connection.is_over() {
                        return;
                    }
                    timer.as_mut().reset(connection.next_look().into());
                }
            }
        }
    }

    /// Open connections of strangers and of known callers.
    #[cfg(test)]
    fn count(&self) -> (usize, usize) {
        let table = self.table.lock();
        (table.strangers.len(), table.known.len())
    }

    fn know(&self, number: u64) {
        let mut table = self.table.lock();
        if let Some(connection) = table.strangers.remove(&number) {
            table.known.insert(number, connection);
        }
    }

    /// Closes connections over the limits: first idle unauthenticated ones, then idle authenticated ones, then other
    /// unauthenticated ones.
    fn make_room(&self) {
        let (mut ended, total, should_log) = {
            let mut table = self.table.lock();
            let mut ended = Vec::new();
            while table.strangers.len() > self.limits.strangers {
                let Some(number) = first(&table.strangers, Standing::is_late) else { break };
                ended.extend(table.strangers.remove(&number));
            }
            while table.strangers.len() + table.known.len() > self.limits.most {
                let victim = first(&table.strangers, Standing::is_idle).or_else(|| first(&table.known, Standing::is_idle));
                let Some(number) = victim.or_else(|| first(&table.strangers, |_| true)) else { break };
                ended.extend(table.strangers.remove(&number).or_else(|| table.known.remove(&number)));
            }
            let should_log = !ended.is_empty() && table.logged_at.is_none_or(|logged_at| logged_at.elapsed() > QUIET);
            if should_log {
                table.logged_at = Some(Instant::now());
            }
            (ended, table.strangers.len() + table.known.len(), should_log)
        };
        self.meters.connections_ended(ended.len());
        if should_log {
            tracing::warn!(open = total, most = self.limits.most, "too many connections: closing idle ones");
        }
        ended.drain(..).for_each(|connection| connection.end());
    }
}

/// The oldest connection that satisfies the condition.
fn first(connections: &BTreeMap<u64, Arc<Connection>>, fits: impl Fn(&Standing) -> bool) -> Option<u64> {
    connections.iter().find(|(_, connection)| fits(&connection.standing())).map(|(number, _)| *number)
}

/// A connection's entry in the table. Dropping it removes the entry.
struct Open {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
}

impl Open {
    fn new(connections: &Arc<Connections>) -> Self {
        let mut table = connections.table.lock();
        let number = table.next;
        table.next += 1;
        let connection = Arc::new(Connection::new(number, Arc::downgrade(connections)));
        table.strangers.insert(number, Arc::clone(&connection));
        Self { connections: Arc::clone(connections), connection }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let number = self.connection.number();
        let mut table = self.connections.table.lock();
        if table.strangers.remove(&number).is_none() {
            table.known.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Connection, ConnectionLimits, Connections};
    use crate::service::records::metrics::Meters;

    fn connections(most: usize, strangers: usize) -> Arc<Connections> {
        Connections::new(ConnectionLimits { most, strangers }, Arc::new(Meters::default()))
    }

    /// A connection on which nothing more happens after the given actions.
    fn silent(all: &Arc<Connections>, begin: impl FnOnce(&Arc<Connection>) + Send + 'static) -> tokio::task::JoinHandle<()> {
        let all = Arc::clone(all);
        tokio::spawn(async move {
            all.attend(|connection| {
                begin(&connection);
                std::future::pending()
            })
            .await;
        })
    }

    /// Lets all ready tasks run.
    async fn settled() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn over_the_limit_the_oldest_strangers_go_and_a_known_caller_stays() {
        let all = connections(2, 100);
        let known = silent(&all, |connection| connection.know());
        settled().await;
        let strangers: Vec<_> = (0..5).map(|_| silent(&all, |_| {})).collect();
        settled().await;
        assert_eq!(all.count(), (1, 1));
        assert!(!known.is_finished() && !strangers[4].is_finished(), "the newest stays");
    }

    #[tokio::test]
    async fn without_strangers_an_idle_known_caller_makes_room_and_one_that_is_answered_never() {
        let all = connections(1, 100);
        let busy = silent(&all, |connection| {
            connection.know();
            std::mem::forget(connection.answer());
        });
        settled().await;
        let idle = silent(&all, |connection| connection.know());
        settled().await;
        assert_eq!(all.count(), (0, 1));
        assert!(idle.is_finished() && !busy.is_finished());
    }

    #[tokio::test]
    async fn strangers_over_their_limit_have_time_to_say_who_they_are() {
        let all = connections(100, 3);
        let strangers: Vec<_> = (0..10).map(|_| silent(&all, |_| {})).collect();
        settled().await;
        assert_eq!(all.count().0, 10, "all of them are new");
        drop(strangers);
    }
}

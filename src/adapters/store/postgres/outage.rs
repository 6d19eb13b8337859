//! Notices that the server doesn't respond, and that it responds again. Notices also that the server lacks connections or space, and that
//! another installation has taken over the schema.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::postgres::PgPool;
use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;

use super::errors::explained;

/// How often to try again during an outage.
const RETRY: Duration = Duration::from_millis(250);
/// How long a connection may take that is only to show why the pool has none.
const ASKED: Duration = Duration::from_secs(2);
/// How long it is known what the server lacked. Meanwhile, small writes and operations that find a free connection still succeed.
const LACKING: Duration = Duration::from_secs(10);

/// Whether the server responds.
#[derive(Debug)]
pub(super) struct Outage {
    pool: PgPool,
    state: Arc<Mutex<State>>,
    /// Why the schema is not this service's any more.
    other: Mutex<Option<String>>,
    /// What the server lacked for an operation, and when.
    lack: Mutex<Option<(Instant, String)>>,
    /// When the server was last asked why it accepts no connection, and its reason. Held while it is asked, so that not all callers ask.
    asking: tokio::sync::Mutex<Option<(Instant, Option<String>)>>,
}

#[derive(Debug)]
struct State {
    /// The reason of the current outage.
    reason: Option<String>,
    /// When the server last responded.
    responded: Instant,
}

impl State {
    fn note_response(&mut self) {
        *self = Self { reason: None, responded: Instant::now() };
    }
}

impl Outage {
    pub(super) fn of(pool: PgPool) -> Self {
        Self {
            pool,
            state: Arc::new(Mutex::new(State { reason: None, responded: Instant::now() })),
            other: Mutex::default(),
            lack: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// Fails during an outage, and while the schema belongs to another installation: nothing of it may be read, and nothing written to it.
    pub(super) fn check(&self) -> Result<(), sqlx::Error> {
        self.check_server()?;
        self.other.lock().clone().map_or(Ok(()), |reason| Err(away(reason)))
    }

    /// Fails during an outage.
    pub(super) fn check_server(&self) -> Result<(), sqlx::Error> {
        self.state.lock().reason.clone().map_or(Ok(()), |reason| Err(away(reason)))
    }

    /// Notes whether the schema belongs to this installation, or why it doesn't. Logs a change once.
    pub(super) fn note_owner(&self, other: Option<String>) {
        let mut noted = self.other.lock();
        match (&*noted, &other) {
            (None, Some(reason)) => {
                tracing::error!(reason, "this service keeps the keys and rules that it has in memory, and stores nothing");
            }
            (Some(_), None) => tracing::info!("the schema belongs to this installation again"),
            _ => {}
        }
        *noted = other;
    }

    /// Notes a response. Only a new connection ends an outage, because this response may be late.
    pub(super) fn note_response(&self) {
        let mut state = self.state.lock();
        if state.reason.is_none() {
            state.note_response();
        }
    }

    /// Notes that an operation failed because the server lacked something.
    pub(super) fn note_lack(&self, error: &sqlx::Error) {
        *self.lack.lock() = Some((Instant::now(), explained(error)));
    }

    /// What the server lacked at `now`.
    pub(super) fn lack(&self, now: Instant) -> Option<String> {
        let lack = self.lack.lock();
        lack.as_ref().filter(|(noted, _)| now.saturating_duration_since(*noted) < LACKING).map(|(_, reason)| reason.clone())
    }

    /// Why the pool had no connection in time for an operation that had `begun`, as the server says. The pool itself tries again and again,
    /// and doesn't report the reason. Other operations may have found a connection meanwhile.
    pub(super) async fn reason(&self, error: sqlx::Error, begun: Instant) -> sqlx::Error {
        if !matches!(error, sqlx::Error::PoolTimedOut) {
            return error;
        }
        let mut last = self.asking.lock().await;
        if let Err(known) = self.check_server() {
            return known;
        }
        if let Some((_, reason)) = last.as_ref().filter(|(at, _)| *at > begun) {
            return reason.clone().map_or(error, away);
        }
        let at = Instant::now();
        let reason = asked(&self.pool).await;
        *last = Some((at, reason.as_ref().map(explained)));
        reason.unwrap_or(error)
    }

    /// Begins an outage, unless the server responded to another operation after this one had `begun`: then only the connection is
    /// lost. An outage ends as soon as the server accepts a connection, which a task of its own tries.
    pub(super) fn begin(&self, error: &sqlx::Error, begun: Instant) {
        let mut state = self.state.lock();
        if state.reason.is_some() || state.responded > begun || self.pool.is_closed() {
            return;
        }
        let reason = explained(error);
        state.reason = Some(reason.clone());
        drop(state);
        tracing::warn!(error = reason, "the database server does not respond");
        let (pool, state) = (self.pool.clone(), Arc::clone(&self.state));
        tokio::spawn(async move {
            // A connection from the pool is tested before it is handed out.
            while let Err(error) = pool.acquire().await {
                if pool.is_closed() {
                    return;
                }
                let is_timeout = matches!(error, sqlx::Error::PoolTimedOut);
                let error = if is_timeout { asked(&pool).await.unwrap_or(error) } else { error };
                state.lock().reason = Some(explained(&error));
                tokio::time::sleep(RETRY).await;
            }
            state.lock().note_response();
            tracing::info!("the database server responds again");
        });
    }
}

/// The server's answer to a connection of its own; `None` if it accepts the connection, so that only the pool is to blame.
async fn asked(pool: &PgPool) -> Option<sqlx::Error> {
    let options = pool.connect_options();
    // On the heap: it is rare, and would make the future of every operation large.
    match timeout(ASKED, Box::pin(PgConnection::connect_with(&options))).await {
        Ok(Ok(connection)) => {
            drop(connection);
            None
        }
        Ok(Err(error)) => Some(error),
        Err(_) => None,
    }
}

/// The error of an operation that is not tried.
fn away(reason: String) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::NotConnected, reason))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

    use super::{LACKING, Outage};

    #[tokio::test]
    async fn failures_that_began_before_the_last_response_begin_no_outage() {
        // Nothing listens there.
        let away = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(1);
        let outage = Outage::of(PgPoolOptions::new().connect_lazy_with(away));
        let error = sqlx::Error::PoolTimedOut;
        let before = Instant::now();
        outage.note_response();
        outage.begin(&error, before);
        outage.check().unwrap();

        outage.begin(&error, Instant::now());
        outage.check().unwrap_err();
        outage.note_response();
        outage.check().unwrap_err();
    }

    #[tokio::test]
    async fn what_the_server_lacked_is_known_for_a_while() {
        let outage = Outage::of(PgPoolOptions::new().connect_lazy_with(PgConnectOptions::new_without_pgpass()));
        assert_eq!(outage.lack(Instant::now()), None);
        outage.note_lack(&sqlx::Error::PoolTimedOut);
        outage.note_response();
        let now = Instant::now();
        assert_eq!(outage.lack(now), Some(sqlx::Error::PoolTimedOut.to_string()));
        assert_eq!(outage.lack(now + LACKING), None);
    }

    #[tokio::test]
    async fn nothing_is_read_from_the_schema_of_another_installation() {
        let outage = Outage::of(PgPoolOptions::new().connect_lazy_with(PgConnectOptions::new_without_pgpass()));
        outage.note_owner(Some("it belongs to another installation".to_owned()));
        outage.note_response();
        assert!(outage.check().unwrap_err().to_string().contains("another installation"));
        outage.check_server().unwrap();
        outage.note_owner(None);
        outage.check().unwrap();
    }
}

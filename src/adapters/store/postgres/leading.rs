//! Chooses the service that leads: the one whose connection holds an advisory lock.
//!
//! The server ends the connection of a service that it does not hear from, and with it the lock. Before that, the service itself no
//! longer counts as the leader.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::PostgresStore;
use crate::service::ports::LeaderStore;

/// How often to try to get the lock, and how often the leader shows that it lives.
const BEAT: Duration = Duration::from_secs(1);
/// How long the server may take to respond. After it, the leader steps down.
const PATIENCE: Duration = Duration::from_secs(2);
/// After this time without a sign of life, the server ends the connection. Longer than [`BEAT`] and [`PATIENCE`] together.
const SILENCE: Duration = Duration::from_secs(5);

/// Takes part in the choice, from the first question on.
#[derive(Debug)]
pub(super) struct Election {
    pool: PgPool,
    schema: String,
    leads: OnceLock<watch::Sender<bool>>,
}

impl Election {
    /// `pool` describes the connection. It opens none itself.
    pub(super) fn over(pool: PgPool, schema: String) -> Self {
        Self { pool, schema, leads: OnceLock::new() }
    }

    fn leads(&self) -> watch::Receiver<bool> {
        let leads = self.leads.get_or_init(|| {
            let (pool, schema, leads) = (self.pool.clone(), self.schema.clone(), watch::Sender::new(false));
            tokio::spawn(take_part(pool, schema, leads.clone()));
            leads
        });
        leads.subscribe()
    }
}

async fn take_part(pool: PgPool, schema: String, leads: watch::Sender<bool>) {
    loop {
        let ended = Box::pin(pool.close_event().do_until(term(&pool, &schema, &leads))).await;
        let led = leads.send_replace(false);
        match ended {
            Ok(Err(error)) if led => tracing::warn!(%error, "this service does not lead any more: it can't reach the database"),
            Ok(Err(error)) => tracing::debug!(%error, "this service takes no part in the choice of the leader"),
            Ok(Ok(())) => {}
            Err(_) => return,
        }
        sleep(BEAT).await;
    }
}

/// Waits for the lock, and leads until an error.
async fn term(pool: &PgPool, schema: &str, leads: &watch::Sender<bool>) -> Result<(), sqlx::Error> {
    let options = pool.connect_options();
    let mut connection = in_time(PgConnection::connect_with(&options)).await?;
    let (silence, patience) = (SILENCE.as_millis(), PATIENCE.as_millis());
    let limits = format!("SET idle_session_timeout = {silence}; SET statement_timeout = {patience}");
    in_time(connection.execute(AssertSqlSafe(limits))).await?;
    loop {
        let lock = sqlx::query_scalar("SELECT pg_try_advisory_lock(hashtextextended('toolsieve.leader.' || $1, 0))").bind(schema);
        if in_time(lock.fetch_one(&mut connection)).await? {
            break;
        }
        sleep(BEAT).await;
    }
    tracing::info!("this service leads: it does what must happen once");
    leads.send_replace(true);
    loop {
        sleep(BEAT).await;
        in_time(sqlx::query("SELECT 1").execute(&mut connection)).await?;
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    let silent = || sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "no response"));
    timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(silent()))
}

impl PostgresStore {
    /// Whether a service leads. One of those that run always does, except for a second after the former leader has ended.
    pub(in crate::adapters::store) async fn has_leader(&self) -> Result<bool, sqlx::Error> {
        // The lock ends with the statement.
        let lock = sqlx::query_scalar("SELECT NOT pg_try_advisory_xact_lock(hashtextextended('toolsieve.leader.' || $1, 0))");
        lock.bind(&self.place.schema).fetch_one(&self.pool).await
    }
}

impl LeaderStore for PostgresStore {
    fn leads(&self) -> watch::Receiver<bool> {
        self.election.leads()
    }
}

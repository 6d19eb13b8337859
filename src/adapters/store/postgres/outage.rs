//! Notices that the server doesn't respond, and that it responds again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::postgres::PgPool;

/// How often to try again during an outage.
const RETRY: Duration = Duration::from_millis(250);

/// Whether the server responds.
#[derive(Debug)]
pub(super) struct Outage {
    pool: PgPool,
    /// The reason of the current outage.
    reason: Arc<Mutex<Option<String>>>,
}

impl Outage {
    pub(super) fn of(pool: PgPool) -> Self {
        Self { pool, reason: Arc::default() }
    }

    /// Fails during an outage.
    pub(super) fn check(&self) -> Result<(), sqlx::Error> {
        match &*self.reason.lock() {
            None => Ok(()),
            Some(reason) => Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::NotConnected, reason.clone()))),
        }
    }

    /// Begins an outage. It ends as soon as the server accepts a connection, which a task of its own tries.
    pub(super) fn begin(&self, error: &sqlx::Error) {
        let mut reason = self.reason.lock();
        if reason.is_some() || self.pool.is_closed() {
            return;
        }
        *reason = Some(error.to_string());
        drop(reason);
        tracing::warn!(%error, "the database server does not respond");
        let (pool, reason) = (self.pool.clone(), Arc::clone(&self.reason));
        tokio::spawn(async move {
            // A connection from the pool is tested before it is handed out.
            while let Err(error) = pool.acquire().await {
                if pool.is_closed() {
                    return;
                }
                *reason.lock() = Some(error.to_string());
                tokio::time::sleep(RETRY).await;
            }
            *reason.lock() = None;
            tracing::info!("the database server responds again");
        });
    }
}

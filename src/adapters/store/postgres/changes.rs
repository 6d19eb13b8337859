//! Notifications of changes by other services: `NOTIFY`, which the triggers of the tables send with each commit.
//!
//! The numbers of changes are read together with the id of the installation. If somebody drops the schema while the service runs, another
//! installation may create a new one, without this installation's keys and rules. Its state must not replace the one in memory.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::{PgListener, PgPool, PgRow};
use tokio::sync::watch;
use tokio::time::timeout;
use uuid::Uuid;

use super::PostgresStore;
use crate::adapters::store::encoding::odd;
use crate::service::ports::{ChangeStore, StateChange, StatePart, StateVersions, StoreError};

/// How long to wait until the next attempt to listen.
const RETRY: Duration = Duration::from_secs(1);
/// How often to check a connection on which nothing arrives, and how long to wait for the response. The connection to a server that was
/// replaced may stay open without ever receiving anything.
const CHECK: Duration = Duration::from_secs(2);
/// How long to wait for the numbers of changes. The poll must notice a silent connection earlier than other operations do.
const PATIENCE: Duration = Duration::from_secs(5);
/// The name of the row with the number of the last change of any part.
const ALL: &str = "all";
/// The channel, as the function `note_change` of the schema computes it.
const CHANNEL: &str = "SELECT 'toolsieve_' || left(current_schema(), 50)";

/// Listens, from the first request for a receiver on.
#[derive(Debug)]
pub(super) struct Changes {
    pool: PgPool,
    heard: OnceLock<watch::Sender<()>>,
}

impl Changes {
    /// `pool` describes the connection for listening. It opens none itself.
    pub(super) fn over(pool: PgPool) -> Self {
        Self { pool, heard: OnceLock::new() }
    }

    fn receiver(&self) -> watch::Receiver<()> {
        let heard = self.heard.get_or_init(|| {
            let (pool, heard) = (self.pool.clone(), watch::Sender::new(()));
            tokio::spawn(listen_always(pool, heard.clone()));
            heard
        });
        heard.subscribe()
    }

    pub(super) async fn close(&self) {
        // This ends the listener.
        self.pool.close().await;
    }
}

async fn listen_always(pool: PgPool, heard: watch::Sender<()>) {
    let mut fails = false;
    loop {
        // Each attempt has a pool of its own: a silent connection of a former one would never give its place back.
        let own = pool.options().clone().connect_lazy_with((*pool.connect_options()).clone());
        let Ok(Err(error)) = pool.close_event().do_until(listen(&own, &heard, &mut fails)).await else { return };
        if !fails {
            tracing::warn!(%error, "notifications of changes can't be received: changes by other services apply up to 2 s later");
        }
        fails = true;
        tokio::time::sleep(RETRY).await;
    }
}

/// Listens until an error.
async fn listen(pool: &PgPool, heard: &watch::Sender<()>, fails: &mut bool) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    let channel: String = sqlx::query_scalar(CHANNEL).fetch_one(&mut listener).await?;
    listener.listen(&channel).await?;
    if std::mem::take(fails) {
        tracing::info!("notifications of changes are received again");
    }
    // There may have been changes before.
    heard.send_replace(());
    loop {
        if let Ok(received) = timeout(CHECK, listener.try_recv()).await {
            // Without a notification, the connection was lost and is open again.
            received?;
            heard.send_replace(());
        } else {
            let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "the connection is silent");
            timeout(CHECK, sqlx::query("SELECT 1").execute(&mut listener)).await.map_err(silent)??;
        }
    }
}

#[async_trait]
impl ChangeStore for PostgresStore {
    fn changes(&self) -> Option<watch::Receiver<()>> {
        Some(self.changes.receiver())
    }

    async fn state_versions(&self) -> Result<StateVersions, StoreError> {
        let query =
            sqlx::query("SELECT part, version, token::text AS token, (SELECT id FROM installation) AS installation FROM state_version");
        let rows = async { timeout(PATIENCE, query.fetch_all(self.readers())).await.unwrap_or(Err(sqlx::Error::PoolTimedOut)) };
        let versions = async {
            let (versions, installation) = read(&self.responding(rows).await?)?;
            self.check_owner(installation)?;
            Ok(versions)
        };
        versions.await.map_err(self.failed("read the numbers of changes"))
    }
}

impl PostgresStore {
    /// Fails if the schema has another id than the first one that was read. Then other operations fail too, until it has the id again.
    fn check_owner(&self, installation: Option<String>) -> Result<(), sqlx::Error> {
        let is_same = match (self.installation.get(), &installation) {
            (Some(known), found) => found.as_ref() == Some(known),
            (None, _) => true,
        };
        if let Some(id) = installation
            && is_same
        {
            let _ = self.installation.set(id);
        }
        let schema = &self.place.schema;
        let other = || {
            format!(
                "the schema {schema:?} was created anew, and belongs to another installation: restore the database of this installation, \
                 or stop this service and choose its database in store.url and store.schema"
            )
        };
        self.outage.note_owner((!is_same).then(other));
        self.outage.check()
    }
}

/// The numbers of the last changes, and the id of the installation.
fn read(rows: &[PgRow]) -> Result<(StateVersions, Option<String>), sqlx::Error> {
    let (mut versions, mut installation) = (StateVersions::default(), None);
    for row in rows {
        installation = row.try_get("installation")?;
        let number: i64 = row.try_get("version")?;
        let number = u64::try_from(number).map_err(|_| odd("a negative number of a change"))?;
        match row.try_get("part")? {
            ALL => versions.latest = number,
            // A later version of the service may know further parts.
            name => {
                let token = Uuid::try_parse(row.try_get("token")?).map_err(|_| odd("a token of a change that is no UUID"))?;
                versions.parts.extend(StatePart::of_name(name).map(|part| (part, StateChange { number, token })));
            }
        }
    }
    Ok((versions, installation))
}

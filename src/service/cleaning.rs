//! Deletes expired data, then shrinks the store.
//!
//! Expired data are keys that ended long ago, definitions of tools that no server lists any more, deleted tool overrides, and
//! sessions. The writers of chats, events, usage and the audit log delete those themselves.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::service::access::connections::Connections;
use crate::service::access::keys::Keys;
use crate::service::access::switches::Switches;
use crate::service::catalog::definitions::Definitions;
use crate::service::catalog::tool_facts::ToolOverrides;
use crate::service::leading::Leading;
use crate::service::learning::learn::Learning;
use crate::service::ports::{CLOCK_SKEW, Forgotten, Store, StoreError};

const HOUR: Duration = Duration::from_hours(1);
/// How long the ids of stored batches are kept. A spool that has waited for longer may be stored twice.
const BATCHES_KEPT: Duration = Duration::from_hours(90 * 24);

/// How long expired data is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// How long revoked and expired keys are kept.
    pub keys: Duration,
    /// How long unlisted definitions and deleted overrides are kept.
    pub definitions: Duration,
}

pub(crate) struct Cleaning {
    /// Only the leading service cleans the store.
    pub leading: Leading,
    pub store: Arc<dyn Store>,
    pub keys: Arc<Keys>,
    pub connections: Arc<Connections>,
    pub overrides: Arc<ToolOverrides>,
    pub definitions: Arc<Definitions>,
    pub learning: Learning,
    pub switches: Arc<Switches>,
    pub kept: Kept,
}

impl Cleaning {
    /// Cleans every hour until `stop`. The first time is not at startup, because it is unknown which tools exist until the
    /// servers have listed them.
    pub(crate) async fn follow(&self, stop: CancellationToken) {
        let mut hours = interval_at(Instant::now() + HOUR, HOUR);
        hours.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(hours.tick()).await.is_some() {
            if self.leading.leads() {
                self.clean().await;
            }
        }
    }

    /// Deletes all expired data, then shrinks the store.
    pub(crate) async fn clean(&self) {
        let before = |age: Duration| SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        done("API keys", self.forget_keys(before(self.kept.keys)).await);
        done("definitions of tools", self.definitions.forget_unseen_before(before(self.kept.definitions)).await);
        done("withdrawn tool overrides", self.overrides.forget_taken_back_before(before(self.kept.definitions)).await);
        // Reads check the time too. This service's clock may be ahead of others', so what has just expired here may be in use there.
        done("sessions", self.store.forget_sessions_before(before(CLOCK_SKEW)).await);
        done("links and page sessions", self.store.forget_connect_visits_before(before(CLOCK_SKEW)).await);
        done("ids of stored batches", self.store.forget_batches_before(before(BATCHES_KEPT)).await);
        if let Err(error) = self.store.shrink().await {
            tracing::warn!(%error, "the store did not return unused space");
        }
    }

    /// Deletes keys that ended before `time`, and revokes the tokens of their sign-ins.
    async fn forget_keys(&self, time: SystemTime) -> Result<u64, StoreError> {
        let mut sign_ins = Vec::new();
        let ended = self.keys.ended_before(time);
        for (_, owner) in &ended {
            sign_ins.extend(self.connections.of(owner).await?);
        }
        let keys = self.keys.forget_ended_before(time).await?;
        self.connections.part(sign_ins).await;
        for (key, _) in ended {
            self.learning.forget(&Forgotten::Key(key)).await?;
        }
        if keys > 0 {
            self.switches.refresh().await?;
        }
        Ok(keys)
    }
}

fn done(what: &'static str, outcome: Result<u64, StoreError>) {
    match outcome {
        Ok(0) => {}
        Ok(rows) => tracing::info!(rows, what, "expired data was removed"),
        Err(error) => tracing::warn!(%error, what, "expired data was not removed"),
    }
}

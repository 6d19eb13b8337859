//! A chat's set in memory, and how it follows the store.
//!
//! Reading never blocks a message for long: the read goes on in the background, and the set counts as unknown until then. Only a limited
//! number of reads run at once, so that a locked or slow table of sets leaves connections of the store for everything else.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::domain::catalog::tool::ToolId;
use crate::domain::selection::chat::{ChatKey, ChatSet};
use crate::service::ports::{ChatStore, StoredChat};

/// How long a message waits for a store that was slow a moment ago.
const SLOW_PATIENCE: Duration = Duration::from_millis(2);
/// How long a store counts as slow.
const SLOW: Duration = Duration::from_secs(5);
/// A set that was written longer ago is written again with the next message, because the store deletes sets by the time of their last
/// write.
const OUTDATED: Duration = Duration::from_hours(1);
/// After this time, a read counts as failed.
const LOST: Duration = Duration::from_secs(30);

pub(super) type Entry = Arc<Mutex<Held>>;

#[derive(Default)]
pub(super) struct Held {
    pub(super) set: ChatSet,
    /// The version in the store on which this set is based; 0 if there is none.
    pub(super) version: u64,
    /// The set of this version. Only with it can a merge tell what was added here from what was removed elsewhere.
    base: ChatSet,
    /// When the store wrote this version.
    written_at: Option<SystemTime>,
    /// Whether the set contains what the store had. Otherwise it is only what this process has offered.
    pub(super) is_known: bool,
    /// Whether the set has unwritten changes.
    pub(super) is_changed: bool,
    /// Tools unloaded since the last write. Merging with another replica's version must not restore them, not even if it has called them.
    pub(super) removed: HashSet<ToolId>,
    /// Whether the owner was deleted. The set is then never written again.
    pub(super) is_gone: bool,
    /// The number of versions that were taken over from the store, or written. A read that began before the last one is outdated.
    generation: u64,
    /// Closed when the read under way ends.
    reading: Option<watch::Receiver<()>>,
}

impl Held {
    /// Takes over what the store has, if nothing newer was taken over or written since the read began.
    fn take_over(&mut self, stored: StoredChat, generation: u64) {
        if self.generation != generation {
            return;
        }
        if self.is_changed {
            self.merge(stored);
        } else {
            self.set = stored.set.clone();
            self.removed.clear();
            self.take_version(stored);
        }
    }

    /// Merges with what the store has.
    pub(super) fn merge(&mut self, stored: StoredChat) {
        self.set.merge_into(stored.set.clone(), &self.base);
        self.set.remove(&self.removed);
        self.take_version(stored);
    }

    /// Notes that the store has this set. A change made in the meantime is already queued.
    pub(super) fn is_written(&mut self, set: ChatSet, version: u64) {
        // A read may have found this version already, or one that another replica has based on it.
        if version > self.version {
            self.take_version(StoredChat { set, version, written_at: Some(SystemTime::now()) });
        }
        self.is_changed = self.set != self.base;
        if !self.is_changed {
            self.removed.clear();
        }
    }

    /// Whether the store should write the set again although it hasn't changed.
    pub(super) fn is_outdated(&self, now: SystemTime) -> bool {
        self.written_at.is_some_and(|written| now.duration_since(written).is_ok_and(|age| age >= OUTDATED))
    }

    /// Notes the version on which the set is based from now on.
    fn take_version(&mut self, stored: StoredChat) {
        StoredChat { set: self.base, version: self.version, written_at: self.written_at } = stored;
        self.is_known = true;
        self.generation += 1;
    }
}

/// How fast the store is at the moment.
#[derive(Debug)]
pub(super) struct Speed {
    /// How long a message waits.
    patience: Duration,
    slow_until: Mutex<Option<Instant>>,
    /// One permit per read that may run now.
    places: Arc<Semaphore>,
}

impl Speed {
    pub(super) fn of(patience: Duration, reads: usize) -> Self {
        Self { patience, slow_until: Mutex::default(), places: Arc::new(Semaphore::new(reads)) }
    }

    /// How long a message waits now.
    pub(super) fn patience(&self) -> Duration {
        let is_slow = self.slow_until.lock().is_some_and(|until| Instant::now() < until);
        if is_slow { self.patience.min(SLOW_PATIENCE) } else { self.patience }
    }

    fn note(&self, took: Duration) {
        *self.slow_until.lock() = (took >= self.patience).then(|| Instant::now() + SLOW);
    }
}

/// Reads a set from the store, and merges it with unwritten changes. Waits for at most `patience`. Returns whether the set is known.
pub(super) async fn refresh(entry: &Entry, key: &ChatKey, store: &Arc<dyn ChatStore>, (speed, patience): (&Arc<Speed>, Duration)) -> bool {
    let mut reading = {
        let mut held = entry.lock();
        // The sender of a read that has ended is gone.
        if let Some(reading) = held.reading.as_ref().filter(|reading| reading.has_changed().is_ok()) {
            reading.clone()
        } else {
            let (ended, reading) = watch::channel(());
            held.reading = Some(reading.clone());
            let (entry, generation) = (Arc::clone(entry), held.generation);
            tokio::spawn(read(entry, key.clone(), Arc::clone(store), (Arc::clone(speed), patience, generation), ended));
            reading
        }
    };
    // An error means that the read has ended.
    if timeout(patience, reading.changed()).await.is_err() {
        tracing::debug!(?patience, "a chat's tools could not be read in time");
        speed.note(patience.max(speed.patience));
    }
    entry.lock().is_known
}

async fn read(
    entry: Entry,
    key: ChatKey,
    store: Arc<dyn ChatStore>,
    (speed, patience, generation): (Arc<Speed>, Duration, u64),
    ended: watch::Sender<()>,
) {
    // Whoever waits for a place waits for other reads. A message doesn't wait for longer than for its own.
    let Ok(Ok(_place)) = timeout(patience, Arc::clone(&speed.places).acquire_owned()).await else {
        if patience >= speed.patience {
            speed.note(patience);
        }
        tracing::debug!(?patience, "a chat's tools could not be read: too many reads are waiting for the store");
        return;
    };
    let begun = Instant::now();
    match timeout(LOST, store.chat(&key)).await {
        Ok(Ok(stored)) => {
            speed.note(begun.elapsed());
            entry.lock().take_over(stored.unwrap_or_default(), generation);
        }
        Ok(Err(error)) => tracing::warn!(%error, "a chat's tools could not be read"),
        Err(_) => tracing::warn!(limit = ?LOST, "a chat's tools could not be read"),
    }
    drop(ended);
}

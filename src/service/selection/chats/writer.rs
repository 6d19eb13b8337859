//! Writes the chats' sets behind: many in one statement, and again if the store did not take them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rand::seq::SliceRandom as _;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Owners;
use super::held::Entry;
use crate::domain::selection::chat::ChatKey;
use crate::service::ports::{ChatStore, StoreError, StoredChat};
use crate::service::supervision::Supervised;

pub(super) const QUEUE: usize = 4_096;
/// How long changes are collected before a write.
const GATHER: Duration = Duration::from_millis(100);
/// Number of attempts to merge a set with concurrent writes, before it is queued for a retry.
const ATTEMPTS: usize = 5;
/// Pause before the first retry of sets that the store rejected. It doubles after each failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// Number of failures in a row after which the remaining sets are not tried until the next retry.
const FAILURES: usize = 3;
/// Maximum number of sets that wait for a retry.
const WAITING: usize = 10_000;
/// Maximum number of sets per statement.
const TOGETHER: usize = 200;

/// The task that writes changed sets and retries those that the store rejected.
pub(super) struct Writer {
    store: Arc<dyn ChatStore>,
    owners: Owners,
    /// Held while sets are written.
    writing: Arc<Mutex<()>>,
    waiting: HashMap<ChatKey, Entry>,
    /// The pause between retries and its end. `None` if no chat's set is waiting for a retry.
    pause: Duration,
    retry: Option<Instant>,
    /// Whether the store takes no sets at all, so that all changes wait for the retry.
    is_failing: bool,
}

impl Writer {
    pub(super) fn new(store: Arc<dyn ChatStore>, owners: Owners, writing: Arc<Mutex<()>>) -> Self {
        Self { store, owners, writing, waiting: HashMap::new(), pause: FIRST_PAUSE, retry: None, is_failing: false }
    }

    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<(ChatKey, Entry)>, stop: CancellationToken) {
        let mut part = Supervised::new("chats' sets");
        while part.panicked(self.write(&mut queue, &stop)).await {}
    }

    async fn write(&mut self, queue: &mut mpsc::Receiver<(ChatKey, Entry)>, stop: &CancellationToken) {
        let mut changed = Vec::new();
        let mut is_closed = false;
        loop {
            tokio::select! {
                biased;
                // First, because the queue may never be empty.
                () = until(self.retry) => {
                    self.retry().await;
                    continue;
                }
                count = queue.recv_many(&mut changed, QUEUE) => if count == 0 {
                    return self.retry().await;
                },
                () = stop.cancelled(), if !is_closed => {
                    queue.close();
                    is_closed = true;
                    continue;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(GATHER) => {}
                () = stop.cancelled() => {}
            }
            while let Ok(more) = queue.try_recv() {
                changed.push(more);
            }
            // Write a chat that changed several times only once, in its latest state.
            let changed: HashMap<ChatKey, Entry> = changed.drain(..).collect();
            if self.is_failing {
                self.wait(changed);
            } else {
                // Only the chats that have failed wait.
                let (failed, others) = changed.into_iter().partition(|(key, _)| self.waiting.contains_key(key));
                self.wait(failed);
                self.save(others).await;
            }
        }
    }

    async fn retry(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        self.retry = None;
        let was_failing = self.is_failing;
        let is_away = self.save(waiting).await;
        // What fails again says nothing about other chats.
        self.is_failing &= was_failing || is_away;
    }

    /// Returns whether the store is away.
    async fn save(&mut self, changed: HashMap<ChatKey, Entry>) -> bool {
        let _writing = Arc::clone(&self.writing).lock_owned().await;
        let mut failed = HashMap::new();
        let mut changed: Vec<(ChatKey, Entry)> = changed
            .into_iter()
            // A change that was written at once is not written again.
            .filter(|(key, entry)| self.owners.keep(&key.principal) && entry.lock().is_changed)
            .collect();
        // In one order in all services, so that their statements don't wait for each other in a circle.
        changed.sort_unstable_by(|(one, _), (other, _)| (one.principal.as_str(), &one.chat).cmp(&(other.principal.as_str(), &other.chat)));
        let (mut is_away, mut in_a_row, was_failing) = (false, 0, self.is_failing);
        for together in changed.chunks(TOGETHER) {
            let mut rest = together.to_vec();
            if !is_away {
                match save_together(self.store.as_ref(), together).await {
                    Ok(others) => rest = others,
                    Err(StoreError::Away { .. }) => is_away = true,
                    // One of them may be the reason. The next attempts begin with others.
                    Err(StoreError::Failed { .. }) => rest.shuffle(&mut rand::rng()),
                }
            }
            for (key, entry) in rest {
                // A single bad set must not block the others, and a failing store must not get thousands of attempts.
                if is_away || in_a_row >= FAILURES || !save(self.store.as_ref(), &key, &entry).await {
                    in_a_row += 1;
                    failed.insert(key, entry);
                } else {
                    in_a_row = 0;
                }
            }
        }
        self.is_failing = is_away || in_a_row >= FAILURES;
        if failed.is_empty() {
            if self.waiting.is_empty() {
                self.pause = FIRST_PAUSE;
            }
            return false;
        }
        // Sets that wait already keep their time. That of a store that is away begins anew.
        if is_away || self.retry.is_none() {
            if is_away && !was_failing {
                self.pause = FIRST_PAUSE;
            }
            tracing::warn!(chats = failed.len(), pause = ?self.pause, "the tools of some chats were not stored; the write is retried");
            self.retry = Some(Instant::now() + self.pause);
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        self.wait(failed);
        is_away
    }

    /// Queues sets for a retry. Drops those beyond the limit, whose stored versions then apply again.
    fn wait(&mut self, changed: HashMap<ChatKey, Entry>) {
        let mut lost = 0;
        for (key, entry) in changed {
            if self.waiting.len() < WAITING || self.waiting.contains_key(&key) {
                self.waiting.insert(key, entry);
            } else {
                entry.lock().is_changed = false;
                lost += 1;
            }
        }
        if lost > 0 {
            tracing::warn!(chats = lost, "the tools of some chats were lost: the store keeps failing, and the retry queue is full");
        }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Writes sets in one statement. Returns those that another service has written too.
async fn save_together(store: &dyn ChatStore, chats: &[(ChatKey, Entry)]) -> Result<Vec<(ChatKey, Entry)>, StoreError> {
    let present = chats.iter().filter(|(_, entry)| !entry.lock().is_gone);
    let sent: Vec<(&Entry, (ChatKey, StoredChat))> = present
        .map(|(key, entry)| {
            let held = entry.lock();
            (entry, (key.clone(), StoredChat { set: held.set.clone(), version: held.version, written_at: None }))
        })
        .collect();
    let (entries, sent): (Vec<&Entry>, Vec<(ChatKey, StoredChat)>) = sent.into_iter().unzip();
    let versions = store.save_chats(&sent).await?;
    let mut others = Vec::new();
    for ((entry, (key, sent)), version) in entries.into_iter().zip(sent).zip(versions) {
        match version {
            Some(version) => entry.lock().is_written(sent.set, version),
            None => others.push((key, Arc::clone(entry))),
        }
    }
    Ok(others)
}

/// Writes a set, merged with concurrent writes of other replicas. Returns whether it is stored.
pub(super) async fn save(store: &dyn ChatStore, key: &ChatKey, entry: &Entry) -> bool {
    let failed = |error| {
        tracing::warn!(error = %error, "a chat's tools were not stored");
        false
    };
    for _ in 0..ATTEMPTS {
        let (set, version) = {
            let held = entry.lock();
            if held.is_gone {
                return true;
            }
            (held.set.clone(), held.version)
        };
        match store.save_chat(key, &set, version).await {
            Ok(Some(version)) => {
                let mut held = entry.lock();
                held.is_written(set, version);
                return true;
            }
            Ok(None) => match store.chat(key).await {
                Ok(stored) => entry.lock().merge(stored.unwrap_or_default()),
                Err(error) => return failed(error),
            },
            Err(error) => return failed(error),
        }
    }
    false
}

//! The chats' sets of tools, written behind to the store. Each message reads the store, because other replicas may serve the same
//! chat. Concurrent changes are merged. Memory contains only unwritten changes.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ToolId;
use crate::domain::selection::chat::{ChatKey, ChatSet, Wanted};
use crate::service::ports::{ChatStore, StoredChat};
use crate::service::supervision::Supervised;

/// Maximum number of chats in memory.
const HELD: u64 = 10_000;
const IDLE: Duration = Duration::from_hours(2);
const QUEUE: usize = 4_096;
/// How long a message waits for the store. Longer than two round trips to a slow one, and shorter than clients wait for an answer.
const PATIENCE: Duration = Duration::from_millis(1_200);
/// How long changes are collected before a write.
const GATHER: Duration = Duration::from_millis(100);

/// Number of attempts to merge a set with concurrent writes, before it is queued for a retry.
const ATTEMPTS: usize = 5;
/// Pause before the first retry of sets that the store rejected. It doubles after each failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// Number of failures after which the remaining sets are not tried until the next retry.
const FAILURES: usize = 3;
/// Maximum number of sets that wait for a retry.
const WAITING: usize = 10_000;

type Entry = Arc<Mutex<Held>>;

#[derive(Default)]
struct Held {
    set: ChatSet,
    /// The version in the store on which this set is based; 0 if there is none.
    version: u64,
    is_known: bool,
    /// Whether the set has unwritten changes.
    is_changed: bool,
    /// Tools removed since the last write. Merging with another replica's version must not restore them.
    removed: HashSet<ToolId>,
    /// Whether the owner was deleted. The set is then never written again.
    is_gone: bool,
}

/// The outcome of an update.
#[derive(Clone, Debug, Default)]
pub struct Updated {
    /// The chat's tools in the order in which they were first offered.
    pub set: ChatSet,
    /// Tools that were removed because the set exceeded its budget.
    pub dropped: Vec<ToolId>,
    pub warning: Option<String>,
}

#[derive(Clone)]
pub struct Chats {
    store: Arc<dyn ChatStore>,
    held: Cache<ChatKey, Entry>,
    changed: mpsc::Sender<(ChatKey, Entry)>,
}

impl Chats {
    /// Starts the writer. After `stop`, it writes the queued sets and ends.
    pub fn start(store: Arc<dyn ChatStore>, stop: CancellationToken) -> (Self, tokio::task::JoinHandle<()>) {
        let (changed, queue) = mpsc::channel(QUEUE);
        let writer = Writer { store: Arc::clone(&store), waiting: HashMap::new(), pause: FIRST_PAUSE, retry: None };
        let task = tokio::spawn(writer.run(queue, stop));
        let held = Cache::builder().max_capacity(HELD).time_to_idle(IDLE).build();
        (Self { store, held, changed }, task)
    }

    /// Adds offered tools and marks called ones. `budget` is the maximum number of tools in the set.
    pub async fn update(&self, key: &ChatKey, offered: &[ToolId], called: &[ToolId], budget: usize) -> Updated {
        self.take(key, &Wanted { offered, all_of: offered, ..Wanted::default() }, called, budget).await
    }

    /// Like [`Self::update`], but adds nothing if the set already contains what the message needs. Every change of the
    /// definitions invalidates the provider's prompt cache.
    pub async fn take(&self, key: &ChatKey, wanted: &Wanted<'_>, called: &[ToolId], budget: usize) -> Updated {
        let offered = wanted.offered;
        let entry = self.held.entry_by_ref(key).or_default().await.into_value();
        let mut held = entry.lock().await;
        if !held.refresh(key, self.store.as_ref()).await {
            // Keep this empty set out of memory, so that it can't overwrite the stored set.
            let mut set = ChatSet::default();
            let dropped = set.update(offered, called, budget);
            let warning = Some("the chat's earlier tools are not known: the store does not answer".to_owned());
            return Updated { set, dropped, warning };
        }
        let mut warning = None;
        let before = held.set.clone();
        let offered: &[ToolId] = &needed(&held.set, wanted);
        let dropped = held.set.update(offered, called, budget);
        held.removed.retain(|tool| !offered.contains(tool) && !called.contains(tool));
        let set = held.set.clone();
        held.is_changed |= set != before;
        let is_changed = held.is_changed;
        drop(held);
        // If the queue is full, the set is queued again with the next message.
        if is_changed && self.changed.try_send((key.clone(), entry)).is_err() {
            warning = Some("the chat's tools are kept in memory only: the store is too slow".to_owned());
        }
        Updated { set, dropped, warning }
    }

    /// What [`Self::take`] would return. Changes nothing.
    pub(crate) async fn preview(&self, key: &ChatKey, wanted: &Wanted<'_>, called: &[ToolId], budget: usize) -> Updated {
        let mut set = self.read(key).await.unwrap_or_default();
        let offered = needed(&set, wanted);
        let dropped = set.update(&offered, called, budget);
        Updated { set, dropped, warning: None }
    }

    /// The current set; `None` if the store fails and memory has no copy.
    pub async fn read(&self, key: &ChatKey) -> Option<ChatSet> {
        let entry = self.held.entry_by_ref(key).or_default().await.into_value();
        let mut held = entry.lock().await;
        held.refresh(key, self.store.as_ref()).await.then(|| held.set.clone())
    }

    /// Removes these tools from a set. Returns the remaining set and whether it contained any of them; `None` if the set can't be
    /// read.
    pub async fn remove(&self, key: &ChatKey, tools: &HashSet<ToolId>) -> Option<(ChatSet, bool)> {
        let entry = self.held.entry_by_ref(key).or_default().await.into_value();
        let mut held = entry.lock().await;
        if !held.refresh(key, self.store.as_ref()).await {
            return None;
        }
        let before = held.set.tools().len();
        held.set.remove(tools);
        let set = held.set.clone();
        let was_there = set.tools().len() < before;
        if was_there {
            held.is_changed = true;
            held.removed.extend(tools.iter().cloned());
            drop(held);
            if self.changed.try_send((key.clone(), entry)).is_err() {
                tracing::warn!("a chat's tools are kept in memory only: the store is too slow");
            }
        }
        Some((set, was_there))
    }

    /// Drops an owner's sets from memory after they were deleted from the store, and prevents later writes.
    pub async fn forget(&self, owner: &PrincipalId) {
        let theirs: Vec<(Arc<ChatKey>, Entry)> = self.held.iter().filter(|(key, _)| key.principal == *owner).collect();
        for (key, entry) in theirs {
            entry.lock().await.is_gone = true;
            self.held.invalidate(&*key).await;
        }
    }
}

/// The offered tools to add to a set: if it already contains what the message needs, only those that are in it.
fn needed<'a>(set: &ChatSet, wanted: &Wanted<'a>) -> Cow<'a, [ToolId]> {
    if set.serves(wanted) {
        Cow::Owned(wanted.offered.iter().filter(|tool| set.contains(tool)).cloned().collect())
    } else {
        Cow::Borrowed(wanted.offered)
    }
}

impl Held {
    /// Loads the stored set unless memory has unwritten changes. Returns whether the set is known.
    async fn refresh(&mut self, key: &ChatKey, store: &dyn ChatStore) -> bool {
        if self.is_changed {
            return true;
        }
        match timeout(PATIENCE, store.chat(key)).await {
            Ok(Ok(stored)) => {
                let StoredChat { set, version } = stored.unwrap_or_default();
                *self = Self { set, version, is_known: true, is_changed: false, removed: HashSet::new(), is_gone: self.is_gone };
            }
            Ok(Err(error)) => tracing::warn!(error = %error, "a chat's tools could not be read"),
            // The store may not know yet that its server is away: nothing arrives, not even an error.
            Err(_) => tracing::warn!(patience = ?PATIENCE, "a chat's tools could not be read in time"),
        }
        self.is_known
    }
}

/// The task that writes changed sets and retries those that the store rejected.
struct Writer {
    store: Arc<dyn ChatStore>,
    waiting: HashMap<ChatKey, Entry>,
    /// The pause between retries and its end. `None` if no chat's set is waiting for a retry.
    pause: Duration,
    retry: Option<Instant>,
}

impl Writer {
    async fn run(mut self, mut queue: mpsc::Receiver<(ChatKey, Entry)>, stop: CancellationToken) {
        let mut part = Supervised::new("chats' sets");
        while part.panicked(self.write(&mut queue, &stop)).await {}
    }

    async fn write(&mut self, queue: &mut mpsc::Receiver<(ChatKey, Entry)>, stop: &CancellationToken) {
        let mut changed = Vec::new();
        loop {
            let is_stopping = stop.is_cancelled();
            tokio::select! {
                biased;
                count = queue.recv_many(&mut changed, QUEUE) => if count == 0 {
                    return self.retry().await;
                },
                () = until(self.retry) => {
                    self.retry().await;
                    continue;
                }
                () = stop.cancelled(), if !is_stopping => {
                    queue.close();
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
            if self.retry.is_some() {
                self.wait(changed).await;
            } else {
                self.save(changed).await;
            }
        }
    }

    async fn retry(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        self.retry = None;
        self.save(waiting).await;
    }

    async fn save(&mut self, changed: HashMap<ChatKey, Entry>) {
        let mut failed = HashMap::new();
        for (key, entry) in changed {
            // A single bad set must not block the others, and a failing store must not get thousands of attempts.
            if failed.len() >= FAILURES || !save(self.store.as_ref(), &key, &entry).await {
                failed.insert(key, entry);
            }
        }
        if failed.is_empty() {
            self.pause = FIRST_PAUSE;
            return;
        }
        tracing::warn!(chats = failed.len(), pause = ?self.pause, "the tools of some chats were not stored; the write is retried");
        self.retry = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.wait(failed).await;
    }

    /// Queues sets for a retry. Drops those beyond the limit, whose stored versions then apply again.
    async fn wait(&mut self, changed: HashMap<ChatKey, Entry>) {
        let mut lost = 0;
        for (key, entry) in changed {
            if self.waiting.len() < WAITING || self.waiting.contains_key(&key) {
                self.waiting.insert(key, entry);
            } else {
                entry.lock().await.is_changed = false;
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

/// Writes a set, merged with concurrent writes of other replicas. Returns whether it is stored.
async fn save(store: &dyn ChatStore, key: &ChatKey, entry: &Entry) -> bool {
    let failed = |error| {
        tracing::warn!(error = %error, "a chat's tools were not stored");
        false
    };
    for _ in 0..ATTEMPTS {
        let (set, version) = {
            let held = entry.lock().await;
            if held.is_gone {
                return true;
            }
            (held.set.clone(), held.version)
        };
        match store.save_chat(key, &set, version).await {
            Ok(Some(version)) => {
                let mut held = entry.lock().await;
                held.version = version;
                // A change made in the meantime is already queued.
                held.is_changed = held.set != set;
                if !held.is_changed {
                    held.removed.clear();
                }
                return true;
            }
            Ok(None) => match store.chat(key).await {
                Ok(stored) => {
                    let StoredChat { set, version } = stored.unwrap_or_default();
                    let mut held = entry.lock().await;
                    held.set.merge_into(set);
                    let removed = std::mem::take(&mut held.removed);
                    held.set.remove(&removed);
                    held.removed = removed;
                    held.version = version;
                }
                Err(error) => return failed(error),
            },
            Err(error) => return failed(error),
        }
    }
    false
}

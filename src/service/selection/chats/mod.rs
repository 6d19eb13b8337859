//! The chats' sets of tools, written behind to the store. Each message reads the store, because other replicas may serve the same
//! chat, but waits only for a short time. Concurrent changes are merged. Memory contains unwritten changes, and what was read last.

mod held;
mod writer;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use moka::future::Cache;
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::held::{Entry, Speed, refresh};
use self::writer::{QUEUE, Writer};
use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ToolId;
use crate::domain::selection::chat::{ChatKey, ChatSet, Wanted};
use crate::service::ports::ChatStore;

/// Maximum number of chats in memory.
const HELD: u64 = 10_000;
const IDLE: Duration = Duration::from_hours(2);
/// How long a change by a caller waits for the store.
const PATIENCE: Duration = Duration::from_millis(1_200);

/// The outcome of an update.
#[derive(Clone, Debug, Default)]
pub struct Updated {
    /// The chat's tools in the order in which they were first offered.
    pub set: ChatSet,
    /// Tools that were removed because the set exceeded its budget.
    pub dropped: Vec<ToolId>,
    pub warning: Option<String>,
}

/// Tells whether an owner's data may no longer be stored.
type IsOver = Arc<dyn Fn(&PrincipalId) -> bool + Send + Sync>;

/// The owners whose sets are stored: all until [`Chats::without`] says something else.
#[derive(Clone, Default)]
struct Owners(Arc<OnceLock<IsOver>>);

impl Owners {
    fn keep(&self, owner: &PrincipalId) -> bool {
        self.0.get().is_none_or(|is_over| !is_over(owner))
    }
}

#[derive(Clone)]
pub struct Chats {
    store: Arc<dyn ChatStore>,
    owners: Owners,
    held: Cache<ChatKey, Entry>,
    changed: mpsc::Sender<(ChatKey, Entry)>,
    /// Held by the writer while it writes.
    writing: Arc<Mutex<()>>,
    speed: Arc<Speed>,
}

impl Chats {
    /// Starts the writer. After `stop`, it writes the queued sets and ends.
    pub fn start(store: Arc<dyn ChatStore>, stop: CancellationToken) -> (Self, tokio::task::JoinHandle<()>) {
        let (changed, queue) = mpsc::channel(QUEUE);
        let (owners, writing) = (Owners::default(), Arc::new(Mutex::new(())));
        let writer = Writer::new(Arc::clone(&store), owners.clone(), Arc::clone(&writing));
        let task = tokio::spawn(writer.run(queue, stop));
        let held = Cache::builder().max_capacity(HELD).time_to_idle(IDLE).build();
        (Self { store, owners, held, changed, writing, speed: Arc::new(Speed::of(PATIENCE, Semaphore::MAX_PERMITS)) }, task)
    }

    /// Stores no sets of those owners for whom `is_over` returns true. A selection may still run while its key is revoked.
    #[must_use]
    pub fn without(self, is_over: impl Fn(&PrincipalId) -> bool + Send + Sync + 'static) -> Self {
        // It is set once.
        let _ = self.owners.0.set(Arc::new(is_over));
        self
    }

    /// Sets how long a message waits for the store, and how many sets may be read at once.
    #[must_use]
    pub fn with_patience(self, patience: Duration, reads: usize) -> Self {
        Self { speed: Arc::new(Speed::of(patience, reads)), ..self }
    }

    /// Adds offered tools and marks called ones. `budget` is the maximum number of tools in the set.
    pub async fn update(&self, key: &ChatKey, offered: &[ToolId], called: &[ToolId], budget: usize) -> Updated {
        self.take(key, &Wanted { offered, all_of: offered, ..Wanted::default() }, called, budget).await
    }

    /// Like [`Self::update`], but adds nothing if the set already contains what the message needs. Every change of the
    /// definitions invalidates the provider's prompt cache.
    pub async fn take(&self, key: &ChatKey, wanted: &Wanted<'_>, called: &[ToolId], budget: usize) -> Updated {
        let entry = self.held.entry_by_ref(key).or_default().await.into_value();
        let is_known = refresh(&entry, key, &self.store, (&self.speed, self.speed.patience())).await;
        // What is offered now is merged with the earlier tools as soon as they can be read.
        let mut warning = (!is_known).then(|| "the chat's earlier tools are not known: the store does not answer".to_owned());
        let (set, dropped, is_changed, is_gone) = {
            let mut held = entry.lock();
            let before = held.set.clone();
            let offered: &[ToolId] = &needed(&held.set, wanted);
            let dropped = held.set.update(offered, called, budget);
            held.removed.retain(|tool| !offered.contains(tool) && !called.contains(tool));
            let set = held.set.clone();
            held.is_changed |= set != before || held.is_outdated(SystemTime::now());
            held.is_gone |= !self.owners.keep(&key.principal);
            (set, dropped, held.is_changed, held.is_gone)
        };
        if is_gone {
            // A later key may have the same name.
            self.held.invalidate(key).await;
            return Updated { set, dropped, warning };
        }
        // If the queue is full, the set is queued again with the next message.
        if is_changed && self.changed.try_send((key.clone(), entry)).is_err() {
            warning = Some("the chat's tools are kept in memory only: the store is too slow".to_owned());
        }
        Updated { set, dropped, warning }
    }

    /// What [`Self::take`] would return. Changes nothing.
    pub(crate) async fn preview(&self, key: &ChatKey, wanted: &Wanted<'_>, called: &[ToolId], budget: usize) -> Updated {
        let entry = self.held.entry_by_ref(key).or_default().await.into_value();
        refresh(&entry, key, &self.store, (&self.speed, self.speed.patience())).await;
        let mut set = entry.lock().set.clone();
        let offered = needed(&set, wanted);
        let dropped = set.update(&offered, called, budget);
        Updated { set, dropped, warning: None }
    }

    /// The current set; `None` if the store fails and memory has no copy.
    pub async fn read(&self, key: &ChatKey) -> Option<ChatSet> {
        let entry = self.held.entry_by_ref(key).or_default().await.into_value();
        refresh(&entry, key, &self.store, (&self.speed, PATIENCE)).await.then(|| entry.lock().set.clone())
    }

    /// Removes these tools from a set. Returns the remaining set and whether it contained any of them; `None` if the set can't be
    /// read.
    pub async fn remove(&self, key: &ChatKey, tools: &HashSet<ToolId>) -> Option<(ChatSet, bool)> {
        let entry = self.held.entry_by_ref(key).or_default().await.into_value();
        if !refresh(&entry, key, &self.store, (&self.speed, PATIENCE)).await || !self.owners.keep(&key.principal) {
            return None;
        }
        let mut held = entry.lock();
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

    /// Writes a chat's changes now instead of soon, so that other services have them, and a killed one doesn't lose them. Returns whether
    /// they are stored. If the store takes too long, they are written later.
    pub async fn store_now(&self, key: &ChatKey) -> bool {
        let Some(entry) = self.held.get(key).await else { return true };
        let is_settled = || !entry.lock().is_changed || !self.owners.keep(&key.principal);
        if is_settled() {
            return true;
        }
        let write = async {
            // Like the writer, for whoever deletes the owner's sets.
            let _writing = self.writing.lock().await;
            is_settled() || writer::save(self.store.as_ref(), key, &entry).await
        };
        timeout(PATIENCE, write).await.unwrap_or(false)
    }

    /// Drops an owner's sets from memory and from the store. What is in memory now is never written again, and what comes later only if
    /// the owner's data may be stored.
    pub async fn forget(&self, owner: &PrincipalId) {
        let theirs: Vec<(Arc<ChatKey>, Entry)> = self.held.iter().filter(|(key, _)| key.principal == *owner).collect();
        for (key, entry) in theirs {
            entry.lock().is_gone = true;
            self.held.invalidate(&*key).await;
        }
        // A write that has begun before ends first. It could otherwise come after the deletion.
        let _written = timeout(PATIENCE, self.writing.lock()).await;
        if let Err(error) = self.store.remove_chats(owner).await {
            tracing::warn!(%error, "the tools of the chats of a revoked key could not be deleted");
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

/// The warning about tools that were removed because a chat's set exceeded its budget. It contains at most this many names, because a
/// model may read it. `None` without names.
pub(in crate::service) fn over_budget(budget: usize, most: usize, mut names: Vec<String>) -> Option<String> {
    let others = names.len().saturating_sub(most);
    names.truncate(most);
    let more = if others == 0 { String::new() } else { format!(", and {others} more") };
    (!names.is_empty()).then(|| format!("over the chat's budget of {budget}, no longer offered: {}{more}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, SystemTime};

    use async_trait::async_trait;
    use parking_lot::Mutex;
    use tokio::sync::Semaphore;
    use tokio_util::sync::CancellationToken;

    use super::{ChatKey, ChatStore, Chats, PrincipalId, ToolId, over_budget};
    use crate::domain::selection::chat::ChatSet;
    use crate::service::ports::{StoreError, StoredChat};

    /// Has one chat, and counts the writes.
    struct OneChat {
        stored: StoredChat,
        writes: Mutex<usize>,
    }

    #[async_trait]
    impl ChatStore for OneChat {
        async fn chat(&self, _: &ChatKey) -> Result<Option<StoredChat>, StoreError> {
            Ok(Some(self.stored.clone()))
        }

        async fn save_chat(&self, _: &ChatKey, _: &ChatSet, _: u64) -> Result<Option<u64>, StoreError> {
            unreachable!("nobody else writes")
        }

        async fn save_chats(&self, chats: &[(ChatKey, StoredChat)]) -> Result<Vec<Option<u64>>, StoreError> {
            *self.writes.lock() += chats.len();
            Ok(chats.iter().map(|(_, chat)| Some(chat.version + 1)).collect())
        }

        async fn remove_chats(&self, _: &PrincipalId) -> Result<(), StoreError> {
            unreachable!("nobody is forgotten")
        }
    }

    /// Has the sets that were written. A write begins with a notification and waits for a permit.
    struct SlowStore {
        sets: Mutex<HashMap<ChatKey, StoredChat>>,
        begun: Semaphore,
        permits: Semaphore,
    }

    #[async_trait]
    impl ChatStore for SlowStore {
        async fn chat(&self, key: &ChatKey) -> Result<Option<StoredChat>, StoreError> {
            Ok(self.sets.lock().get(key).cloned())
        }

        async fn save_chat(&self, _: &ChatKey, _: &ChatSet, _: u64) -> Result<Option<u64>, StoreError> {
            unreachable!("nobody else writes")
        }

        async fn save_chats(&self, chats: &[(ChatKey, StoredChat)]) -> Result<Vec<Option<u64>>, StoreError> {
            if !chats.is_empty() {
                self.begun.add_permits(1);
                self.permits.acquire().await.unwrap().forget();
            }
            self.sets.lock().extend(chats.iter().cloned());
            Ok(chats.iter().map(|(_, chat)| Some(chat.version + 1)).collect())
        }

        async fn remove_chats(&self, owner: &PrincipalId) -> Result<(), StoreError> {
            self.sets.lock().retain(|key, _| key.principal != *owner);
            Ok(())
        }
    }

    /// Regression test: a selection that ran while its key was revoked wrote the chat's set after the deletion.
    #[tokio::test]
    async fn a_running_selection_of_a_revoked_key_stores_nothing() {
        let tools = [ToolId::new("s", "a")];
        let store = Arc::new(SlowStore { sets: Mutex::default(), begun: Semaphore::new(0), permits: Semaphore::new(0) });
        let (stop, is_revoked) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let (chats, writer) = Chats::start(Arc::clone(&store) as Arc<dyn ChatStore>, stop.clone());
        let ci = PrincipalId::new("key:ci");
        let (owner, revoked) = (ci.clone(), Arc::clone(&is_revoked));
        let chats = chats.without(move |principal| *principal == owner && revoked.load(Ordering::Relaxed));
        let key = |chat: &str| ChatKey { principal: ci.clone(), chat: chat.to_owned() };
        chats.update(&key("one"), &tools, &[], 24).await;
        store.begun.acquire().await.unwrap().forget();
        // The key is revoked while a set is being written.
        is_revoked.store(true, Ordering::Relaxed);
        let forgetting = tokio::spawn({
            let (chats, ci) = (chats.clone(), ci.clone());
            async move { chats.forget(&ci).await }
        });
        store.permits.add_permits(10);
        forgetting.await.unwrap();
        // These selections began before.
        for chat in ["one", "other"] {
            let updated = chats.update(&key(chat), &tools, &[], 24).await;
            assert!(updated.set.contains(&tools[0]), "they still get their answers");
        }
        let anna = ChatKey { principal: PrincipalId::new("user:anna"), chat: "one".to_owned() };
        chats.update(&anna, &tools, &[], 24).await;
        stop.cancel();
        writer.await.unwrap();
        assert_eq!(store.sets.lock().keys().collect::<Vec<_>>(), [&anna]);
        // Another key with this name begins with an empty set.
        is_revoked.store(false, Ordering::Relaxed);
        assert_eq!(chats.read(&key("other")).await, Some(ChatSet::default()));
    }

    /// Regression test: the store deleted the set of a chat that was in use, because the set had not changed for a month.
    #[tokio::test]
    async fn a_set_in_use_is_written_now_and_then() {
        let tools = [ToolId::new("s", "a")];
        for (age, expected) in [(Duration::from_secs(1), 0), (Duration::from_hours(24), 1)] {
            let mut set = ChatSet::default();
            set.update(&tools, &[], 24);
            let stored = StoredChat { set, version: 3, written_at: Some(SystemTime::now() - age) };
            let store = Arc::new(OneChat { stored, writes: Mutex::default() });
            let stop = CancellationToken::new();
            let (chats, writer) = Chats::start(Arc::clone(&store) as Arc<dyn ChatStore>, stop.clone());
            let key = ChatKey { principal: PrincipalId::new("anna"), chat: "chat".to_owned() };
            for _ in 0..3 {
                chats.update(&key, &tools, &[], 24).await;
            }
            stop.cancel();
            writer.await.unwrap();
            assert_eq!(*store.writes.lock(), expected, "{age:?}");
        }
    }

    /// Takes all sets but those of one chat.
    struct Refusing {
        refused: &'static str,
        sets: Mutex<HashMap<String, ChatSet>>,
    }

    impl Refusing {
        fn save(&self, chats: &[(&ChatKey, &ChatSet)]) -> Result<(), StoreError> {
            if chats.iter().any(|(key, _)| key.chat == self.refused) {
                return Err(StoreError::Failed { action: "save a chat", source: "a character that it can't store".into() });
            }
            self.sets.lock().extend(chats.iter().map(|(key, set)| (key.chat.clone(), (*set).clone())));
            Ok(())
        }
    }

    #[async_trait]
    impl ChatStore for Refusing {
        async fn chat(&self, key: &ChatKey) -> Result<Option<StoredChat>, StoreError> {
            let set = self.sets.lock().get(&key.chat).cloned();
            Ok(set.map(|set| StoredChat { set, version: 1, written_at: Some(SystemTime::now()) }))
        }

        async fn save_chat(&self, key: &ChatKey, set: &ChatSet, version: u64) -> Result<Option<u64>, StoreError> {
            self.save(&[(key, set)]).map(|()| Some(version + 1))
        }

        async fn save_chats(&self, chats: &[(ChatKey, StoredChat)]) -> Result<Vec<Option<u64>>, StoreError> {
            self.save(&chats.iter().map(|(key, chat)| (key, &chat.set)).collect::<Vec<_>>())?;
            Ok(chats.iter().map(|(_, chat)| Some(chat.version + 1)).collect())
        }

        async fn remove_chats(&self, _: &PrincipalId) -> Result<(), StoreError> {
            unreachable!("nobody is forgotten")
        }
    }

    /// Regression test: while one chat's set was retried, for up to a minute, no other one was written.
    #[tokio::test]
    async fn a_set_that_the_store_refuses_holds_up_no_other_one() {
        let tools = [ToolId::new("s", "a")];
        let store = Arc::new(Refusing { refused: "bad", sets: Mutex::default() });
        let (chats, writer) = Chats::start(Arc::clone(&store) as Arc<dyn ChatStore>, CancellationToken::new());
        let key = |chat: &str| ChatKey { principal: PrincipalId::new("user:anna"), chat: chat.to_owned() };
        for chat in ["bad", "before"] {
            chats.update(&key(chat), &tools, &[], 24).await;
        }
        // A retry fails, so that the next one comes later.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(store.sets.lock().len(), 1, "the first failure costs the other chat of its statement nothing");
        for chat in ["bad", "after"] {
            chats.update(&key(chat), &tools, &tools, 24).await;
        }
        // Longer than changes are collected, shorter than the pause before the next retry.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut stored: Vec<String> = store.sets.lock().keys().cloned().collect();
        stored.sort_unstable();
        assert_eq!(stored, ["after", "before"]);
        writer.abort();
    }

    /// Regression test: a loaded toolset was lost if the service was killed right after the response.
    #[tokio::test]
    async fn a_set_is_stored_before_its_change_is_acknowledged() {
        let tools = [ToolId::new("s", "a")];
        let store = Arc::new(Refusing { refused: "bad", sets: Mutex::default() });
        let (chats, writer) = Chats::start(Arc::clone(&store) as Arc<dyn ChatStore>, CancellationToken::new());
        writer.abort();
        let key = |chat: &str| ChatKey { principal: PrincipalId::new("user:anna"), chat: chat.to_owned() };
        let good = key("good");
        chats.update(&good, &tools, &[], 24).await;
        assert!(chats.store_now(&good).await && store.sets.lock()["good"].contains(&tools[0]));
        chats.remove(&good, &HashSet::from(tools.clone())).await.unwrap();
        assert!(chats.store_now(&good).await && !store.sets.lock()["good"].contains(&tools[0]));
        chats.update(&key("bad"), &tools, &[], 24).await;
        assert!(!chats.store_now(&key("bad")).await);
        // Another write takes too long.
        chats.update(&good, &tools, &[], 24).await;
        let writing = chats.writing.lock().await;
        assert!(!chats.store_now(&good).await);
        drop(writing);
        assert!(chats.store_now(&good).await);
    }

    /// Several services write to it.
    #[derive(Default)]
    struct Shared(Mutex<HashMap<ChatKey, StoredChat>>);

    #[async_trait]
    impl ChatStore for Shared {
        async fn chat(&self, key: &ChatKey) -> Result<Option<StoredChat>, StoreError> {
            Ok(self.0.lock().get(key).cloned())
        }

        async fn save_chat(&self, key: &ChatKey, set: &ChatSet, expected: u64) -> Result<Option<u64>, StoreError> {
            let mut stored = self.0.lock();
            if stored.get(key).map_or(0, |chat| chat.version) != expected {
                return Ok(None);
            }
            let version = expected + 1;
            stored.insert(key.clone(), StoredChat { set: set.clone(), version, written_at: Some(SystemTime::now()) });
            Ok(Some(version))
        }

        async fn save_chats(&self, _: &[(ChatKey, StoredChat)]) -> Result<Vec<Option<u64>>, StoreError> {
            unreachable!("the writers have ended")
        }

        async fn remove_chats(&self, _: &PrincipalId) -> Result<(), StoreError> {
            unreachable!("nobody is forgotten")
        }
    }

    /// Regression test: a message at one replica restored what another one had unloaded, and didn't see what it had loaded.
    #[tokio::test]
    async fn an_unwritten_change_undoes_and_hides_none_of_another_replica() {
        let store = Arc::new(Shared::default());
        let start = || {
            let (chats, writer) = Chats::start(Arc::clone(&store) as Arc<dyn ChatStore>, CancellationToken::new());
            writer.abort();
            chats
        };
        let (one, other) = (start(), start());
        let key = ChatKey { principal: PrincipalId::new("user:anna"), chat: "chat".to_owned() };
        let ids = |names: &[&str]| names.iter().map(|name| ToolId::new("s", *name)).collect::<Vec<_>>();
        let names = |set: &ChatSet| set.tools().iter().map(|entry| entry.tool.name.to_string()).collect::<Vec<_>>();
        let unload = async |chats: &Chats, name: &str| {
            let (_, was_there) = chats.remove(&key, &HashSet::from_iter(ids(&[name]))).await.unwrap();
            assert!(was_there && chats.store_now(&key).await);
        };
        one.update(&key, &ids(&["a", "b"]), &[], 24).await;
        assert!(one.store_now(&key).await);
        one.update(&key, &ids(&["c"]), &[], 24).await;
        other.update(&key, &ids(&["d"]), &[], 24).await;
        unload(&other, "b").await;
        // The next message reads what the other replica has stored.
        assert_eq!(names(&one.update(&key, &[], &[], 24).await.set), ["a", "d", "c"]);
        // A write finds out by itself.
        unload(&other, "a").await;
        assert!(one.store_now(&key).await);
        assert_eq!(names(&other.read(&key).await.unwrap()), ["d", "c"]);
        assert_eq!(names(&one.read(&key).await.unwrap()), ["d", "c"]);
    }

    #[test]
    fn a_warning_names_the_first_removed_tools() {
        let named = |count: usize| over_budget(24, 5, (0..count).map(|at| format!("git__t{at}")).collect());
        assert_eq!(named(0), None);
        assert_eq!(named(1).unwrap(), "over the chat's budget of 24, no longer offered: git__t0");
        assert!(named(5).unwrap().ends_with("git__t3, git__t4"), "{:?}", named(5));
        assert!(named(7).unwrap().ends_with("git__t3, git__t4, and 2 more"), "{:?}", named(7));
    }

    /// Its reads wait for a permit each.
    struct Locked(Semaphore);

    #[async_trait]
    impl ChatStore for Locked {
        async fn chat(&self, _: &ChatKey) -> Result<Option<StoredChat>, StoreError> {
            self.0.acquire().await.unwrap().forget();
            Ok(None)
        }

        async fn save_chat(&self, _: &ChatKey, _: &ChatSet, version: u64) -> Result<Option<u64>, StoreError> {
            Ok(Some(version + 1))
        }

        async fn save_chats(&self, chats: &[(ChatKey, StoredChat)]) -> Result<Vec<Option<u64>>, StoreError> {
            Ok(chats.iter().map(|(_, chat)| Some(chat.version + 1)).collect())
        }

        async fn remove_chats(&self, _: &PrincipalId) -> Result<(), StoreError> {
            unreachable!("nobody is forgotten")
        }
    }

    /// Regression test: with a locked table, the reads of chats occupied all connections of the store.
    #[tokio::test]
    async fn reads_that_wait_for_the_store_are_few() {
        let store = Arc::new(Locked(Semaphore::new(0)));
        let (chats, writer) = Chats::start(Arc::clone(&store) as Arc<dyn ChatStore>, CancellationToken::new());
        let chats = chats.with_patience(Duration::from_millis(100), 3);
        let key = |number: usize| ChatKey { principal: PrincipalId::new("user:anna"), chat: number.to_string() };
        for number in 0..20 {
            let updated = chats.update(&key(number), &[ToolId::new("s", "a")], &[], 24).await;
            assert!(updated.warning.is_some_and(|warning| warning.contains("the store does not answer")), "{number}");
        }
        // Longer than a read waits for its turn.
        tokio::time::sleep(Duration::from_millis(300)).await;
        store.0.add_permits(20);
        // Three reads run: whoever gets a permit ends, and the rest has ended without one.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(store.0.available_permits(), 17);
        // Longer than the store counts as slow.
        tokio::time::sleep(Duration::from_secs(6)).await;
        for number in 0..17 {
            assert_eq!(chats.update(&key(number), &[ToolId::new("s", "a")], &[], 24).await.warning, None, "{number}");
        }
        writer.abort();
    }
}

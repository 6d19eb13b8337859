//! The chats' sets: in memory, written behind to the store, read from there on a miss.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use crate::domain::chat::{ChatKey, ChatSet};
use crate::domain::tool::ToolId;
use crate::service::current::LiveSelection;
use crate::service::ports::{Store, StoreError};

/// Chats held in memory.
const HELD: u64 = 10_000;
const IDLE: Duration = Duration::from_hours(2);
const QUEUE: usize = 4_096;
/// How long a change may wait for more of them before it is written.
const GATHER: Duration = Duration::from_millis(100);

type Entry = Arc<Mutex<ChatSet>>;

/// What became of a chat's set.
#[derive(Clone, Debug, Default)]
pub struct Updated {
    /// The chat's tools in the order in which they were first offered.
    pub set: ChatSet,
    /// Tools that went over the budget.
    pub dropped: Vec<ToolId>,
    pub warning: Option<String>,
}

#[derive(Clone)]
pub struct Chats {
    store: Arc<dyn Store>,
    held: Cache<ChatKey, Entry>,
    changed: mpsc::Sender<(ChatKey, Entry)>,
    settings: LiveSelection,
}

impl Chats {
    /// Starts the writer. It ends after `stop`, when everything that was queued is written.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, settings: LiveSelection, stop: CancellationToken) -> (Self, tokio::task::JoinHandle<()>) {
        let (changed, queue) = mpsc::channel(QUEUE);
        let task = tokio::spawn(write(Arc::clone(&store), queue, stop));
        let held = Cache::builder().max_capacity(HELD).time_to_idle(IDLE).build();
        (Self { store, held, changed, settings }, task)
    }

    /// Adds what was offered and marks what was called.
    pub async fn update(&self, key: &ChatKey, offered: &[ToolId], called: &[ToolId]) -> Updated {
        let budget = self.settings.load().chat_budget;
        let Ok(entry) = self.entry(key).await else {
            let mut set = ChatSet::default();
            let dropped = set.update(offered, called, budget);
            let warning = Some("the chat's earlier tools are not known: the store does not answer".to_owned());
            return Updated { set, dropped, warning };
        };
        let mut warning = None;
        let mut set = entry.lock().await;
        let before = set.clone();
        let dropped = set.update(offered, called, budget);
        let updated = set.clone();
        drop(set);
        if updated != before && self.changed.try_send((key.clone(), entry)).is_err() {
            warning = Some("the chat's set is kept in memory only: the store does not keep up".to_owned());
        }
        Updated { set: updated, dropped, warning }
    }

    /// The chat's set; an error when the store does not answer. Then nothing is kept, so that nothing stored is overwritten.
    async fn entry(&self, key: &ChatKey) -> Result<Entry, ()> {
        if let Some(entry) = self.held.get(key).await {
            return Ok(entry);
        }
        let load = async { Ok(Arc::new(Mutex::new(self.store.chat(key).await?.unwrap_or_default()))) };
        self.held.try_get_with_by_ref(key, load).await.map_err(|error: Arc<StoreError>| {
            tracing::warn!(error = %error, "a chat's set could not be read");
        })
    }
}

async fn write(store: Arc<dyn Store>, mut queue: mpsc::Receiver<(ChatKey, Entry)>, stop: CancellationToken) {
    let mut changed = Vec::new();
    loop {
        tokio::select! {
            biased;
            count = queue.recv_many(&mut changed, QUEUE) => if count == 0 { return },
            () = stop.cancelled() => {
                queue.close();
                if queue.recv_many(&mut changed, QUEUE).await == 0 {
                    return;
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(GATHER) => {}
            () = stop.cancelled() => {}
        }
        while let Ok(more) = queue.try_recv() {
            changed.push(more);
        }
        // A chat that changed several times is written once, as it is now.
        let changed: HashMap<ChatKey, Entry> = changed.drain(..).collect();
        for (key, entry) in changed {
            let set = entry.lock().await.clone();
            if let Err(error) = store.save_chat(&key, &set).await {
                tracing::warn!(error = %error, "a chat's set was not stored");
            }
        }
    }
}

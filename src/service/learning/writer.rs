//! Stores what is learned, soon after it is in memory.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::domain::learning::memory::Memory;
use crate::service::learning::co_uses::CoUses;
use crate::service::learning::forgettings::Forgettings;
use crate::service::learning::memories::Memories;
use crate::service::ports::{CalledInChat, FilledCall, Forgotten, LearnedUse, LearningStore, StoreError, Unfollowed};
use crate::service::write_behind::BatchWriter;

/// Maximum number of vectors in memory, of messages and of the words of calls, counted once per scope: about 60 MiB with 384 dimensions.
pub(super) const MOST_IN_MEMORY: usize = 100_000;
/// Maximum number of chats in memory, counted once per scope: about 5 MiB.
pub(super) const MOST_CHATS_IN_MEMORY: usize = 50_000;

/// What the writer stores.
#[derive(Clone, Debug)]
pub(super) enum Taught {
    Use(LearnedUse),
    Called(CalledInChat),
    /// With the number of forgettings before it.
    Filled(u64, FilledCall),
    /// What only another service may learn from.
    Unfollowed(Unfollowed),
}

/// Stores what is learned, and keeps memory within its bounds.
pub(super) struct Writer {
    pub(super) memories: Arc<Memories>,
    pub(super) co_uses: Arc<CoUses>,
    pub(super) store: Arc<dyn LearningStore>,
    pub(super) writing: Arc<tokio::sync::Mutex<()>>,
    pub(super) forgettings: Forgettings,
    pub(super) model: Arc<str>,
    pub(super) retention: Duration,
}

impl BatchWriter for Writer {
    type Item = Taught;

    const NAME: &str = "learning";
    const CAPACITY: usize = 16_384;
    const BATCH: usize = 1_024;
    const GATHER: Duration = Duration::from_millis(300);

    fn report_lost(&self, lost: u64, reason: Option<&StoreError>) {
        let (error, source) = (reason.map(tracing::field::display), reason.and_then(Error::source).map(tracing::field::display));
        tracing::warn!(error, source, lost, "uses will be forgotten at the next start: the store fails or is too slow");
    }

    async fn save(&self, batch: &[Taught]) -> Result<(), Option<StoreError>> {
        let _writing = self.writing.lock().await;
        let (mut uses, mut calls, mut filled, mut unfollowed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let forgotten = self.forgettings.count();
        for taught in batch {
            match taught {
                Taught::Use(one) => uses.push(LearnedUse { scopes: self.memories.holding(one), ..one.clone() }),
                Taught::Called(call) => calls.push(CalledInChat { scopes: self.co_uses.holding(call), ..call.clone() }),
                Taught::Filled(before, call) => filled.extend((*before == forgotten).then(|| call.clone())),
                Taught::Unfollowed(one) => unfollowed.push(one.clone()),
            }
        }
        uses.retain(|one| !one.scopes.is_empty());
        calls.retain(|call| !call.scopes.is_empty());
        let mut saved = if uses.is_empty() { Ok(()) } else { self.store.save_learned(&self.model, &uses).await };
        if saved.is_ok() && !calls.is_empty() {
            saved = self.store.save_called(&calls).await;
        }
        if saved.is_ok() && !filled.is_empty() {
            saved = self.store.save_filled(&filled).await;
        }
        if saved.is_ok() && !unfollowed.is_empty() {
            saved = self.store.save_unfollowed(&unfollowed).await;
        }
        keep_within_bounds(&self.memories, &self.co_uses);
        let memories = Arc::clone(&self.memories);
        let _ = tokio::task::spawn_blocking(move || memories.refit(Memory::is_due)).await;
        saved.map_err(Some)
    }

    async fn forget(&self) {
        let before = SystemTime::now().checked_sub(self.retention).unwrap_or(SystemTime::UNIX_EPOCH);
        let forgotten = Forgotten::Before(before);
        let _writing = self.writing.lock().await;
        self.memories.forget(&forgotten);
        self.memories.refit_soon();
        self.co_uses.forget(&forgotten);
        match self.store.forget_learned(&forgotten).await {
            Ok(0) => {}
            Ok(uses) => tracing::info!(uses, "what was learned before the retention was removed"),
            Err(error) => tracing::warn!(%error, "what was learned before the retention was not removed"),
        }
    }
}

/// Forgets in memory what was used least recently, if it is too much.
pub(super) fn keep_within_bounds(memories: &Memories, co_uses: &CoUses) {
    if memories.rows() > MOST_IN_MEMORY {
        memories.shrink_to(MOST_IN_MEMORY);
    }
    if co_uses.chats() > MOST_CHATS_IN_MEMORY {
        co_uses.shrink_to(MOST_CHATS_IN_MEMORY);
    }
}

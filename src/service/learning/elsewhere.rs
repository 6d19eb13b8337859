//! What other services on the same store learn.
//!
//! Each service learns from the calls and verdicts that follow its own selections. It reads what the others have stored. A call or a
//! verdict on another service's selection is noted in the store, and the service that has selected learns from it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::co_use::MOST_CHATS_OF_ONE;
use crate::domain::learning::evidence::EvidenceKind;
use crate::domain::learning::memory::{MOST_OF_ONE, Memory};
use crate::domain::learning::scope::Scope;
use crate::service::learning::learn::Learning;
use crate::service::learning::writer::{Taught, keep_within_bounds};
use crate::service::ports::{FollowedName, StoreError, Unfollowed};

/// Maximum number of messages, and of chats, that are read at once.
const MOST_NEW: usize = 2_000;
/// What is read again, because clocks differ, times are in minutes, and others store with a delay.
const OVERLAP: Duration = Duration::from_mins(2);

impl Learning {
    /// Whether other services may learn with the same store.
    pub(crate) fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    /// Lets the service that has selected learn from a call or a verdict.
    pub(in crate::service) fn leave(&self, caller: &Principal, followed: FollowedName, tool: ToolId, kind: EvidenceKind) {
        if !self.is_shared() {
            return;
        }
        let scopes: Arc<[Scope]> = Scope::of(caller).into();
        if scopes.is_empty() {
            return;
        }
        let (key, principal, vouches) = (caller.key.as_ref().map(|key| key.id.clone()), caller.id.clone(), caller.vouches);
        self.queue.push(Taught::Unfollowed(Unfollowed { key, principal, vouches, scopes, followed, tool, kind }));
    }

    /// What other services left, with its numbers.
    ///
    /// # Errors
    /// The store fails.
    pub(in crate::service) async fn left(&self) -> Result<Vec<(i64, Unfollowed)>, StoreError> {
        self.store.unfollowed().await
    }

    /// Takes what this service learns from. Returns the numbers that no other service has taken.
    ///
    /// # Errors
    /// The store fails.
    pub(in crate::service) async fn take_left(&self, numbers: &[i64]) -> Result<Vec<i64>, StoreError> {
        self.store.take_unfollowed(numbers).await
    }

    /// Takes over what other services have stored since a time.
    ///
    /// # Errors
    /// The store fails.
    pub(in crate::service) async fn take_over(&self, since: SystemTime) -> Result<(), StoreError> {
        let since = since.checked_sub(OVERLAP).unwrap_or(SystemTime::UNIX_EPOCH);
        // What is forgotten meanwhile is forgotten in memory afterwards.
        let _writing = self.writing.lock().await;
        let uses = self.store.learned(&self.model, since, (MOST_NEW, MOST_OF_ONE)).await?;
        let calls = self.store.called(since, (MOST_NEW, MOST_CHATS_OF_ONE)).await?;
        let (memories, co_uses) = (Arc::clone(&self.memories), Arc::clone(&self.co_uses));
        let taking_over = tokio::task::spawn_blocking(move || {
            // The oldest first, as if it had happened here.
            let new = uses.iter().rev().filter(|one| memories.add_new(one)).count();
            for call in &calls {
                co_uses.add_new(call);
            }
            keep_within_bounds(&memories, &co_uses);
            if new > 0 {
                tracing::debug!(uses = new, "learned what other services have learned");
                memories.refit(Memory::is_due);
            }
        });
        // It doesn't panic. If it did, the next time would read the same again.
        let _ = taking_over.await;
        Ok(())
    }
}

//! Collects a server's notifications about prompts and resources until the supervisor forwards them.
//!
//! Repeated notifications are collapsed into one, so a noisy server uses little memory and time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use indexmap::IndexSet;
use tokio::sync::Notify;

use crate::service::ports::NewsKind;

/// Maximum number of pending resource updates. A server that exceeds it sends updates without subscriptions.
const UPDATED: usize = 4_000;
/// Maximum length of a URI, in bytes.
const LONGEST_ADDRESS: usize = 2 * 1024;

/// Notifications that are not forwarded yet.
#[derive(Debug, Default)]
pub(in crate::adapters::mcp) struct Pending {
    told: Mutex<NewsSet>,
    is_news: Notify,
    /// Whether updates are collected at all. Connections of single users have no subscribers.
    is_heard: AtomicBool,
}

#[derive(Debug, Default)]
struct NewsSet {
    renewed: bool,
    prompts: bool,
    resources: bool,
    updated: IndexSet<String>,
}

impl Pending {
    pub(in crate::adapters::mcp) fn renewed(&self) {
        self.note(|told| told.renewed = true);
    }

    pub(in crate::adapters::mcp) fn prompts(&self) {
        self.note(|told| told.prompts = true);
    }

    pub(in crate::adapters::mcp) fn resources(&self) {
        self.note(|told| told.resources = true);
    }

    pub(in crate::adapters::mcp) fn updated(&self, uri: &str) {
        if uri.len() > LONGEST_ADDRESS || !self.is_heard.load(Ordering::Relaxed) {
            return;
        }
        self.note(|told| {
            if told.updated.len() < UPDATED {
                told.updated.insert(uri.to_owned());
            }
        });
    }

    fn note(&self, change: impl FnOnce(&mut NewsSet)) {
        change(&mut self.lock());
        self.is_news.notify_one();
    }

    /// Waits for notifications and removes all pending ones.
    pub(in crate::adapters::mcp) async fn next(&self) -> Vec<NewsKind> {
        self.is_news.notified().await;
        let NewsSet { renewed, prompts, resources, updated } = std::mem::take(&mut *self.lock());
        let lists = [(renewed, NewsKind::Renewed), (prompts, NewsKind::Prompts), (resources, NewsKind::Resources)];
        let told = lists.into_iter().filter_map(|(is_told, what)| is_told.then_some(what));
        told.chain(updated.into_iter().map(NewsKind::Updated)).collect()
    }

    /// Starts to collect notifications.
    pub(in crate::adapters::mcp) fn listen(&self) {
        self.is_heard.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, NewsSet> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{NewsKind, Ordering, Pending};

    #[tokio::test]
    async fn what_is_told_again_and_again_is_told_once() {
        let pending = Pending::default();
        pending.updated("nobody hears");
        pending.is_heard.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            pending.updated("b");
            pending.resources();
            pending.updated("a");
            pending.renewed();
        }
        pending.updated(&"x".repeat(100_000));
        let updated = |uri: &str| NewsKind::Updated(uri.into());
        assert_eq!(pending.next().await, [NewsKind::Renewed, NewsKind::Resources, updated("b"), updated("a")]);
        pending.prompts();
        assert_eq!(pending.next().await, [NewsKind::Prompts]);
    }
}

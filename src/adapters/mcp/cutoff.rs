//! Why the service kills a server's process: it floods one of its streams.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// Shared between the readers of a process's streams and its owner.
#[derive(Clone, Debug, Default)]
pub(super) struct Cutoff(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    reason: OnceLock<String>,
    reached: CancellationToken,
}

impl Cutoff {
    /// The first reason wins.
    pub(super) fn because(&self, reason: String) {
        let _ = self.0.reason.set(reason);
        self.0.reached.cancel();
    }

    pub(super) fn reason(&self) -> Option<&str> {
        self.0.reason.get().map(String::as_str)
    }

    /// Waits until a reason is set.
    pub(super) async fn reached(&self) {
        self.0.reached.cancelled().await;
    }
}

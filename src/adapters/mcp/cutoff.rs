//! Why the service itself ends a server's process, where it does: it floods one of its streams.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// Shared by those who read a process's streams and those who watch over it.
#[derive(Clone, Debug, Default)]
pub(super) struct Cutoff(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    reason: OnceLock<String>,
    reached: CancellationToken,
}

impl Cutoff {
    /// The first reason counts.
    pub(super) fn because(&self, reason: String) {
        let _ = self.0.reason.set(reason);
        self.0.reached.cancel();
    }

    pub(super) fn reason(&self) -> Option<&str> {
        self.0.reason.get().map(String::as_str)
    }

    /// Waits until there is a reason.
    pub(super) async fn reached(&self) {
        self.0.reached.cancelled().await;
    }
}

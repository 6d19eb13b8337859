//! Why the service itself ends a server's process, where it does: it floods one of its streams.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// Shared by those who read a process's streams and those who watch over it.
#[derive(Clone, Debug, Default)]
pub(in crate::adapters::mcp) struct Cutoff(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    reason: OnceLock<String>,
    reached: CancellationToken,
}

impl Cutoff {
    /// The first reason counts.
    pub(in crate::adapters::mcp) fn because(&self, reason: String) {
        let _ = self.0.reason.set(reason);
        self.0.reached.cancel();
    }

    pub(in crate::adapters::mcp) fn reason(&self) -> Option<&str> {
        self.0.reason.get().map(String::as_str)
    }

    /// Waits until there is a reason.
    pub(in crate::adapters::mcp) async fn reached(&self) {
        self.0.reached.cancelled().await;
    }
}

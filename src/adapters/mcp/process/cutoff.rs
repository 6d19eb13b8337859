//! Signals that a server's process must be killed because it floods one of its streams.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// Signals that a process must be killed. Shared between the readers of its streams and its owner.
#[derive(Clone, Debug, Default)]
pub(in crate::adapters::mcp) struct Cutoff(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    reason: OnceLock<String>,
    reached: CancellationToken,
}

impl Cutoff {
    /// Signals that the process must be killed. The first reason is kept.
    pub(in crate::adapters::mcp) fn because(&self, reason: String) {
        let _ = self.0.reason.set(reason);
        self.0.reached.cancel();
    }

    pub(in crate::adapters::mcp) fn reason(&self) -> Option<&str> {
        self.0.reason.get().map(String::as_str)
    }

    /// Waits for the signal.
    pub(in crate::adapters::mcp) async fn reached(&self) {
        self.0.reached.cancelled().await;
    }
}

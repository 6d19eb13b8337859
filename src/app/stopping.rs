//! Stops the service in steps, so that no request gets lost.

use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use tokio_util::sync::CancellationToken;

use crate::adapters::systemd;
use crate::http::connections::Connections;

/// How long no connection must have been opened until the server counts as paused, and how often to look.
const QUIET: Duration = Duration::from_millis(200);
const LOOKS: usize = 20;

/// A handle that stops the application.
#[derive(Clone)]
pub struct Stopper {
    pub(super) server: ServerHandle,
    pub(super) connections: Arc<Connections>,
    /// Cancelled at the beginning of the stop. From then on, the service is not ready, and connections close after their next response.
    pub(super) draining: CancellationToken,
    /// Cancelled when the server stops, so that idle streams end.
    pub(super) closing: CancellationToken,
    /// Cancelled by a second request to stop, which ends the delay.
    pub(super) hurry: CancellationToken,
    /// How long to accept connections after the stop has begun.
    pub(super) delay: Duration,
    /// Whether another process keeps the socket open. Connections that this process doesn't accept then wait for its successor.
    pub(super) is_socket_kept: bool,
}

impl Stopper {
    /// Stops the service, and returns once the running requests have been answered or the time limit has passed. At first, the
    /// service accepts requests for the configured delay. Without `graceful`, it waits for nothing.
    pub async fn stop(&self, graceful: bool) {
        if !graceful || self.draining.is_cancelled() {
            self.hurry.cancel();
        }
        if !self.draining.is_cancelled() {
            self.draining.cancel();
            systemd::stopping();
        }
        if graceful {
            tokio::select! {
                () = tokio::time::sleep(self.delay) => {}
                () = self.hurry.cancelled() => {}
            }
            if self.is_socket_kept {
                self.pause().await;
            }
        }
        self.closing.cancel();
        self.server.stop(graceful).await;
    }

    /// Stops the application in the background.
    pub(super) fn begin_stop(&self, graceful: bool) {
        let stopper = self.clone();
        tokio::spawn(async move { stopper.stop(graceful).await });
    }

    /// Accepts no more connections, and waits until the accepted ones are served. A stopping server would close connections that it
    /// has accepted but not served yet. Its threads don't report when they have paused, so this waits until nothing happens any more.
    async fn pause(&self) {
        self.server.pause().await;
        let mut opened = self.connections.opened();
        for _ in 0..LOOKS {
            tokio::time::sleep(QUIET).await;
            let now = self.connections.opened();
            if now == opened {
                return;
            }
            opened = now;
        }
    }
}

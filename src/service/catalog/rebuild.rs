//! Asks for the tools of a server to be made anew, because something beside what the server says has changed.

use tokio::sync::{mpsc, oneshot};

use crate::domain::catalog::tool::ServerName;

/// Requests that may wait; whoever asks waits with them.
const QUEUE: usize = 64;

/// A request, which is told when it is done.
#[derive(Debug)]
pub struct Rebuild {
    pub server: ServerName,
    pub done: oneshot::Sender<()>,
}

/// Where requests go.
#[derive(Clone, Debug)]
pub struct Rebuilds(mpsc::Sender<Rebuild>);

impl Rebuilds {
    #[must_use]
    pub fn channel() -> (Self, mpsc::Receiver<Rebuild>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Returns when the catalog has the server's tools as they are now. While the service stops nothing happens.
    pub async fn of(&self, server: &ServerName) {
        let (done, told) = oneshot::channel();
        if self.0.send(Rebuild { server: server.clone(), done }).await.is_ok() {
            let _ = told.await;
        }
    }
}

//! Requests to rebuild a server's tools after a change outside its listing.

use tokio::sync::{mpsc, oneshot};

use crate::domain::catalog::tool::ServerName;

/// Maximum number of queued requests. Further senders wait.
const QUEUE: usize = 64;

/// A request, with a channel that confirms its completion.
#[derive(Debug)]
pub struct Rebuild {
    pub server: ServerName,
    pub done: oneshot::Sender<()>,
}

/// The sending side of the queue.
#[derive(Clone, Debug)]
pub struct Rebuilds(mpsc::Sender<Rebuild>);

impl Rebuilds {
    pub fn channel() -> (Self, mpsc::Receiver<Rebuild>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Returns when the catalog has the server's current tools. During shutdown it returns without a rebuild.
    pub async fn of(&self, server: &ServerName) {
        let (done, rebuilt) = oneshot::channel();
        if self.0.send(Rebuild { server: server.clone(), done }).await.is_ok() {
            let _ = rebuilt.await;
        }
    }
}

//! Requests to rebuild the tools of a server, for changes other than a new listing.

use tokio::sync::{mpsc, oneshot};

use crate::domain::catalog::tool::ServerName;

/// Maximum number of queued requests. Further senders wait.
const QUEUE: usize = 64;

/// A rebuild request, with a channel that confirms its completion.
#[derive(Debug)]
pub struct Rebuild {
    pub server: ServerName,
    pub done: oneshot::Sender<()>,
}

/// The sending side of the queue of requests.
#[derive(Clone, Debug)]
pub struct Rebuilds(mpsc::Sender<Rebuild>);

impl Rebuilds {
    pub fn channel() -> (Self, mpsc::Receiver<Rebuild>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Requests a rebuild and waits until the catalog contains the result. During shutdown, returns without a rebuild.
    pub async fn of(&self, server: &ServerName) {
        let (done, rebuilt) = oneshot::channel();
        if self.0.send(Rebuild { server: server.clone(), done }).await.is_ok() {
            let _ = rebuilt.await;
        }
    }
}

//! Requests to rebuild the tools of a server, for changes other than a new listing, and news of listings that the catalog contains.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::domain::catalog::tool::ServerName;

/// Maximum number of queued requests. Further senders wait.
const QUEUE: usize = 64;

/// A rebuild request, with a channel that confirms its completion.
#[derive(Debug)]
pub(crate) struct Rebuild {
    pub server: ServerName,
    pub done: oneshot::Sender<()>,
}

/// The number of listings that the catalog has taken over, and for each server the number of its last one.
#[derive(Debug, Default)]
struct Listings {
    number: u64,
    last: HashMap<ServerName, u64>,
}

/// The sending side of the queue of requests.
#[derive(Clone, Debug)]
pub struct Rebuilds {
    requests: mpsc::Sender<Rebuild>,
    listings: watch::Receiver<Listings>,
}

/// The catalog's side of [`Rebuilds`].
#[derive(Debug)]
pub struct RebuildRequests {
    requests: mpsc::Receiver<Rebuild>,
    listings: watch::Sender<Listings>,
}

impl Rebuilds {
    pub fn channel() -> (Self, RebuildRequests) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (noting, listings) = watch::channel(Listings::default());
        (Self { requests: sender, listings }, RebuildRequests { requests: receiver, listings: noting })
    }

    /// Requests a rebuild and waits until the catalog contains the result. During shutdown, returns without a rebuild.
    pub async fn of(&self, server: &ServerName) {
        let (done, rebuilt) = oneshot::channel();
        if self.requests.send(Rebuild { server: server.clone(), done }).await.is_ok() {
            let _ = rebuilt.await;
        }
    }

    /// The number of listings that the catalog has taken over.
    pub(crate) fn listings(&self) -> u64 {
        self.listings.borrow().number
    }

    /// Waits until the catalog contains a listing of the server after this number of listings, but no longer than `patience`.
    pub(crate) async fn listed_after(&self, number: u64, server: &ServerName, patience: Duration) {
        let mut listings = self.listings.clone();
        let listed = listings.wait_for(|listings| listings.last.get(server).is_some_and(|last| *last > number));
        let _ = timeout(patience, listed).await;
    }
}

impl RebuildRequests {
    pub(crate) async fn next(&mut self) -> Option<Rebuild> {
        self.requests.recv().await
    }

    /// Notes that the catalog contains a server's new listing.
    pub(crate) fn note_listed(&self, server: &ServerName) {
        self.listings.send_modify(|listings| {
            listings.number += 1;
            listings.last.insert(server.clone(), listings.number);
        });
    }

    /// Notes that a server was removed.
    pub(crate) fn note_removed(&self, server: &ServerName) {
        self.listings.send_if_modified(|listings| {
            listings.last.remove(server);
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_listing_is_waited_for_by_its_server_and_its_time() {
        let (rebuilds, requests) = Rebuilds::channel();
        let (one, other, long) = (ServerName::from("one"), ServerName::from("other"), Duration::from_hours(1));
        requests.note_listed(&one);
        let number = rebuilds.listings();
        requests.note_listed(&other);
        assert!(rebuilds.listed_after(number, &one, long).now_or_never().is_none(), "the former listing, and one of another server");
        assert!(rebuilds.listed_after(number, &other, long).now_or_never().is_some());
        let waiting = rebuilds.listed_after(number, &one, long);
        requests.note_removed(&one);
        requests.note_listed(&one);
        waiting.await;
        rebuilds.listed_after(number + 9, &one, Duration::ZERO).await;
    }
}

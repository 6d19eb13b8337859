//! The last known health of an endpoint, with notifications of changes.

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::fault::Fault;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No request has been made yet.
    Unknown,
    Answers,
    Fails(Fault),
}

pub(super) struct Health {
    state: Mutex<State>,
    /// Wakes the background probe after a failure.
    failed: Notify,
    /// The number of recoveries so far.
    recoveries: watch::Sender<u64>,
}

impl Health {
    pub(super) fn unknown() -> Self {
        Self { state: Mutex::new(State::Unknown), failed: Notify::new(), recoveries: watch::Sender::new(0) }
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        match *self.state.lock() {
            State::Fails(fault) => Some(fault),
            State::Unknown | State::Answers => None,
        }
    }

    pub(super) fn answers(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Answers);
        if before != State::Answers {
            self.recoveries.send_modify(|count| *count += 1);
        }
        if let State::Fails(fault) = before {
            tracing::info!(after = %fault, "the embedder is available again");
        }
    }

    /// Records a failure, logs the first one and wakes the background probe.
    pub(super) fn fails(&self, fault: Fault) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Fails(fault));
        if !matches!(before, State::Fails(_)) {
            tracing::warn!(reason = %fault, "the embedder is unavailable; search is lexical only until it recovers");
        }
        self.failed.notify_one();
    }

    pub(super) async fn failure(&self) {
        self.failed.notified().await;
    }

    pub(super) fn recoveries(&self) -> watch::Receiver<u64> {
        self.recoveries.subscribe()
    }
}

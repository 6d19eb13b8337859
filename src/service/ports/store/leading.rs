//! Which of the services on a store does what must happen once.

use tokio::sync::watch;

pub trait LeaderStore: Send + Sync {
    /// Whether this service leads. At any time, at most one of the services on the store does. If it ends or can't reach the store,
    /// another one leads within ten seconds. A service on a store of its own always leads.
    fn leads(&self) -> watch::Receiver<bool>;
}

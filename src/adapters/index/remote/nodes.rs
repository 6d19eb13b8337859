//! The nodes of a Qdrant cluster: health checks and failover.
//!
//! A failed node is skipped until a background probe reaches it, so that a node's failure delays at most one search. With each
//! consecutive failure, the probes become less frequent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use qdrant_client::{Qdrant, QdrantError};
use secrecy::ExposeSecret;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::RemoteIndexOptions;
use super::fault::Fault;
use crate::service::ports::{IndexError, QdrantState};

/// Time limit for connecting and for a probe, long enough for a distant node with TLS.
const CONNECT: Duration = Duration::from_secs(5);
/// Time limit of a single call, such as creating a collection or writing a batch.
pub(super) const CALL: Duration = Duration::from_secs(30);
/// The version that the client supports. Qdrant guarantees compatibility with servers one minor version older; newer ones are
/// accepted too.
const VERSION: (u32, u32) = (1, 20);

pub(super) struct Nodes {
    nodes: Vec<Arc<Node>>,
    /// The position of the node to ask next.
    turn: AtomicUsize,
}

struct Node {
    /// Host and port of the node, for the log.
    name: String,
    client: Arc<Qdrant>,
    health: Mutex<Health>,
    first_pause: Duration,
    longest_pause: Duration,
    /// The collection name in probes, which check whether the node responds and accepts the key.
    probe: String,
    recovered: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Health {
    /// The reason why the node is skipped, if it is.
    fault: Option<Fault>,
    /// Number of failures since the last successful call. Probes don't reset it, because a node may answer probes and still be
    /// too slow for searches.
    failures: u32,
}

impl Nodes {
    /// Connects in the background. Calls `recovered` whenever a node responds again.
    ///
    /// # Errors
    /// [`IndexError::Qdrant`] for an invalid address.
    pub(super) fn connect(options: &RemoteIndexOptions, recovered: &Arc<dyn Fn() + Send + Sync>) -> Result<Self, IndexError> {
        let mut nodes = Vec::with_capacity(options.urls.len());
        for url in &options.urls {
            let mut config = Qdrant::from_url(url.as_str().trim_end_matches('/'))
                .timeout(CALL)
                .connect_timeout(CONNECT)
                // Qdrant's own check would block and print.
                .skip_compatibility_check();
            // One connection carries all calls.
            config.set_pool_size(1);
            if let Some(key) = &options.api_key {
                config.set_api_key(key.expose_secret());
            }
            let client = config.build().map_err(|error| Fault::of(&error).during("be connected to"))?;
            nodes.push(Arc::new(Node {
                name: format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default()),
                client: Arc::new(client),
                health: Mutex::default(),
                first_pause: options.timing.first_pause,
                longest_pause: options.timing.longest_pause,
                probe: options.prefix.clone(),
                recovered: Arc::clone(recovered),
            }));
        }
        for node in &nodes {
            tokio::spawn(Arc::clone(node).greet());
        }
        Ok(Self { nodes, turn: AtomicUsize::new(0) })
    }

    /// Calls one node after another until one responds, starting with a different node each time. If further nodes remain, a
    /// node may use half of the remaining time.
    ///
    /// # Errors
    /// The fault of the last node. If all nodes are skipped, fails at once with the fault for which they are skipped.
    pub(super) async fn call<T, Answer>(&self, deadline: Instant, request: impl Fn(Arc<Qdrant>) -> Answer) -> Result<T, Fault>
    where
        Answer: Future<Output = Result<T, QdrantError>>,
    {
        let mut fault = self.fault().unwrap_or(Fault::Unreachable);
        let nodes = self.in_turn();
        for (position, node) in nodes.iter().enumerate() {
            let now = Instant::now();
            let is_last = position + 1 == nodes.len();
            let until = if is_last { deadline } else { now + deadline.saturating_duration_since(now) / 2 };
            fault = match timeout_at(until, request(Arc::clone(&node.client))).await {
                Ok(Ok(answer)) => {
                    node.health.lock().failures = 0;
                    return Ok(answer);
                }
                Ok(Err(error)) => Fault::of(&error),
                Err(_) => Fault::Slow,
            };
            if fault == Fault::Refused {
                break;
            }
            if fault.is_of_node() {
                node.failed(fault);
            }
            // With other faults, another node may succeed: it may have space, or know a new collection earlier.
        }
        Err(fault)
    }

    /// The nodes that are not skipped, starting with a different node each time.
    fn in_turn(&self) -> Vec<Arc<Node>> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let nodes = (0..self.nodes.len()).map(|offset| &self.nodes[turn.wrapping_add(offset) % self.nodes.len()]);
        nodes.filter(|node| node.health.lock().fault.is_none()).cloned().collect()
    }

    /// The fault of the skipped nodes. A rejected key takes precedence, because an admin can fix that.
    pub(super) fn fault(&self) -> Option<Fault> {
        let faults: Vec<Fault> = self.nodes.iter().filter_map(|node| node.health.lock().fault).collect();
        faults.iter().find(|fault| **fault == Fault::KeyRefused).or(faults.first()).copied()
    }

    pub(super) fn any_answers(&self) -> bool {
        self.nodes.iter().any(|node| node.health.lock().fault.is_none())
    }

    pub(super) fn state(&self, searched: bool) -> QdrantState {
        let answering = self.nodes.iter().filter(|node| node.health.lock().fault.is_none()).count();
        QdrantState { nodes: self.nodes.len(), answering, searched, error: self.fault().map(Fault::words) }
    }
}

impl Node {
    /// Makes the first call, which opens the connection. That may take longer than a search can wait.
    async fn greet(self: Arc<Self>) {
        match timeout(CONNECT, self.client.health_check()).await {
            Ok(Ok(reply)) => {
                tracing::info!(node = self.name, version = reply.version, "connected to Qdrant");
                if !is_near(&reply.version) {
                    let (major, minor) = VERSION;
                    tracing::warn!(
                        node = self.name,
                        "Qdrant {} may not support all requests: use {major}.{} or later",
                        reply.version,
                        minor - 1
                    );
                }
            }
            Ok(Err(error)) => self.failed(Fault::of(&error)),
            Err(_) => self.failed(Fault::Slow),
        }
    }

    /// Records a failure and skips the node until it answers a probe.
    fn failed(self: &Arc<Self>, fault: Fault) {
        let mut health = self.health.lock();
        if health.fault.replace(fault).is_some() {
            // This call began before the node was skipped. Calls at the same time count as one failure.
            return;
        }
        health.failures = health.failures.saturating_add(1);
        drop(health);
        if fault == Fault::KeyRefused {
            tracing::error!(node = self.name, "Qdrant rejects the API key: set index.qdrant_api_key or QDRANT_API_KEY");
        } else {
            tracing::warn!(node = self.name, "a Qdrant node {}", fault.words());
        }
        tokio::spawn(Self::recover(Arc::downgrade(self)));
    }

    async fn recover(node: Weak<Self>) {
        loop {
            let Some(pause) = node.upgrade().map(|node| node.pause()) else { return };
            sleep(pause).await;
            let Some(node) = node.upgrade() else { return };
            let fault = match timeout(CONNECT, node.client.collection_exists(node.probe.as_str())).await {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(Fault::of(&error)).filter(|fault| fault.is_of_node()),
                Err(_) => Some(Fault::Slow),
            };
            let mut health = node.health.lock();
            health.fault = fault;
            if fault.is_some() {
                health.failures = health.failures.saturating_add(1);
                continue;
            }
            drop(health);
            tracing::info!(node = node.name, "a Qdrant node is available again");
            (node.recovered)();
            return;
        }
    }

    fn pause(&self) -> Duration {
        let doublings = self.health.lock().failures.saturating_sub(1).min(16);
        self.longest_pause.min(self.first_pause * (1 << doublings))
    }
}

/// Whether the client supports a version such as "1.19.0".
fn is_near(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split(['.', '-']).map(|number| number.parse::<u32>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next()) else { return false };
    major == VERSION.0 && minor + 1 >= VERSION.1
}

#[cfg(test)]
mod tests {
    use super::is_near;

    #[test]
    fn versions_are_compared_by_their_first_two_numbers() {
        for near in ["1.19.0", "1.20.3", "v1.19.1", "1.20.0-dev", "1.25.0"] {
            assert!(is_near(near), "{near}");
        }
        for far in ["1.18.9", "2.0.0", "0.11.0", "", "dev", "1"] {
            assert!(!is_near(far), "{far}");
        }
    }
}

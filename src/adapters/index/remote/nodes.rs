//! The nodes of a Qdrant cluster: who answers, and who is asked instead of one that does not.
//!
//! A node that fails is left alone until a probe in the background has reached it, so that no search pays for it
//! twice. The probes come less often the more often it failed in a row.

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

/// For connecting and for a probe: a node far away, with TLS, on a bad day.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest that a single call may take: creating a collection on a cluster, writing a batch.
pub(super) const CALL: Duration = Duration::from_secs(30);
/// The version that the client was made for; Qdrant promises to get along with one minor version more or less.
const VERSION: (u32, u32) = (1, 20);

pub(super) struct Nodes {
    nodes: Vec<Arc<Node>>,
    /// Who is asked next.
    turn: AtomicUsize,
}

struct Node {
    /// Host and port, for the log.
    name: String,
    client: Arc<Qdrant>,
    health: Mutex<Health>,
    first_pause: Duration,
    longest_pause: Duration,
    /// A name that is asked for to see whether the node answers and takes the key.
    probe: String,
    recovered: Arc<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Health {
    /// Set while the node is left alone.
    fault: Option<Fault>,
    /// Since the last call that went well. A probe is no such call: a node may answer it and be too slow to search.
    failures: u32,
}

impl Nodes {
    /// Connects in the background. `recovered` is told whenever a node answers again.
    ///
    /// # Errors
    /// [`IndexError::Qdrant`] for an address that is none.
    pub(super) fn connect(options: &RemoteIndexOptions, recovered: &Arc<dyn Fn() + Send + Sync>) -> Result<Self, IndexError> {
        let mut nodes = Vec::with_capacity(options.urls.len());
        for url in &options.urls {
            let mut config = Qdrant::from_url(url.as_str().trim_end_matches('/'))
                .timeout(CALL)
                .connect_timeout(CONNECT)
                // It would block, and print.
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

    /// Asks one node after the other, beginning with another one each time, until one answers. While there is another
    /// one to ask, a node gets half of the time that is left.
    ///
    /// # Errors
    /// What the last node failed of; at once, what they are left alone for.
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
            // Otherwise another one may have room, or the collection: nodes hear of a new one one after the other.
        }
        Err(fault)
    }

    /// Those that are not left alone, beginning with another one each time.
    fn in_turn(&self) -> Vec<Arc<Node>> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let nodes = (0..self.nodes.len()).map(|offset| &self.nodes[turn.wrapping_add(offset) % self.nodes.len()]);
        nodes.filter(|node| node.health.lock().fault.is_none()).cloned().collect()
    }

    /// What the nodes that are left alone failed of; a refused key first, because it can be helped.
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
    /// The first call, which makes the connection: searches have less patience than that may take.
    async fn greet(self: Arc<Self>) {
        match timeout(CONNECT, self.client.health_check()).await {
            Ok(Ok(reply)) => {
                tracing::info!(node = self.name, version = reply.version, "connected to Qdrant");
                if !is_near(&reply.version) {
                    let (major, minor) = VERSION;
                    tracing::warn!(
                        node = self.name,
                        "Qdrant {} may not understand what it is asked: use {major}.{} or later",
                        reply.version,
                        minor - 1
                    );
                }
            }
            Ok(Err(error)) => self.failed(Fault::of(&error)),
            Err(_) => self.failed(Fault::Slow),
        }
    }

    /// Leaves the node alone until it answers a probe.
    fn failed(self: &Arc<Self>, fault: Fault) {
        let mut health = self.health.lock();
        health.failures = health.failures.saturating_add(1);
        if health.fault.replace(fault).is_some() {
            return;
        }
        drop(health);
        if fault == Fault::KeyRefused {
            tracing::error!(node = self.name, "Qdrant refuses the API key: set index.qdrant_api_key or QDRANT_API_KEY");
        } else {
            tracing::warn!(node = self.name, "a node of Qdrant {}", fault.words());
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
            tracing::info!(node = node.name, "a node of Qdrant answers again");
            (node.recovered)();
            return;
        }
    }

    fn pause(&self) -> Duration {
        let doublings = self.health.lock().failures.saturating_sub(1).min(16);
        self.longest_pause.min(self.first_pause * (1 << doublings))
    }
}

/// Whether a version such as "1.19.0" is one that the client gets along with.
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

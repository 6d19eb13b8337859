//! A node of a Qdrant cluster: the real wire, served from the traits that the client itself exports, over the real
//! engine. A node can be slow, fail, and refuse a key.
//!
//! Only the calls that the adapter makes are there; every other one is "unimplemented".

mod services;
mod storage;

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qdrant_client::qdrant::collections_server::CollectionsServer;
use qdrant_client::qdrant::points_server::PointsServer;
use qdrant_client::qdrant::qdrant_server::QdrantServer;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Status};

pub(crate) use storage::Storage;

/// How a node behaves, and what it was asked.
#[derive(Default)]
pub(crate) struct Behaviour {
    key: Option<&'static str>,
    /// Before every answer, in milliseconds.
    delay: AtomicU64,
    failures: Mutex<HashMap<&'static str, Failure>>,
    calls: Mutex<HashMap<&'static str, usize>>,
}

struct Failure {
    code: Code,
    /// How many calls go well first.
    after: usize,
}

/// Serves until the runtime ends.
pub(crate) async fn serve(listener: TcpListener, storage: Arc<Storage>, behaviour: Arc<Behaviour>) {
    listener.set_nonblocking(true).unwrap();
    let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener).unwrap()).with_nodelay(Some(true));
    let service = services::Service { storage, behaviour };
    Server::builder()
        .add_service(QdrantServer::new(service.clone()))
        .add_service(CollectionsServer::new(service.clone()))
        .add_service(PointsServer::new(service).max_decoding_message_size(usize::MAX))
        .serve_with_incoming(incoming)
        .await
        .unwrap();
}

impl Behaviour {
    /// Refuses calls with another key.
    pub(crate) fn with_key(key: &'static str) -> Self {
        Self { key: Some(key), ..Self::default() }
    }

    /// Waits so long before every answer.
    pub(crate) fn delay(&self, delay: Duration) {
        self.delay.store(u64::try_from(delay.as_millis()).unwrap(), Ordering::Relaxed);
    }

    /// Fails every call of this method from now on, after so many that go well.
    pub(crate) fn fail(&self, method: &'static str, code: Code, after: usize) {
        self.failures.lock().unwrap().insert(method, Failure { code, after });
    }

    pub(crate) fn work_again(&self) {
        self.failures.lock().unwrap().clear();
        self.delay(Duration::ZERO);
    }

    /// How often a method was called.
    pub(crate) fn calls(&self, method: &str) -> usize {
        self.calls.lock().unwrap().get(method).copied().unwrap_or_default()
    }

    /// What happens before a method does its work.
    async fn admit<T>(&self, request: &Request<T>, method: &'static str) -> Result<(), Status> {
        *self.calls.lock().unwrap().entry(method).or_default() += 1;
        let given = request.metadata().get("api-key").and_then(|key| key.to_str().ok());
        // As the original: whether it is alive is for everybody.
        if method != "health_check" && self.key.is_some() && given != self.key {
            return Err(Status::unauthenticated("Invalid API key or JWT"));
        }
        let delay = Duration::from_millis(self.delay.load(Ordering::Relaxed));
        if !delay.is_zero() {
            // The test asked for a slow node.
            tokio::time::sleep(delay).await;
        }
        let mut failures = self.failures.lock().unwrap();
        let Some(failure) = failures.get_mut(method) else { return Ok(()) };
        if failure.after > 0 {
            failure.after -= 1;
            return Ok(());
        }
        Err(Status::new(failure.code, "as the test wants it"))
    }
}

//! A Qdrant cluster in this process: the real wire, served from the traits that the client itself exports, over the
//! real engine. Nodes share what is stored; each can be slow, fail, refuse a key, die and come back.
//!
//! Only the calls that the adapter makes are there; every other one is "unimplemented".

mod services;
mod storage;

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qdrant_client::qdrant::collections_server::CollectionsServer;
use qdrant_client::qdrant::points_server::PointsServer;
use qdrant_client::qdrant::qdrant_server::QdrantServer;
use tokio::runtime::Runtime;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Status};
use url::Url;

use crate::harness::wait::eventually_blocking;

pub(crate) use storage::Storage;

/// A node of a cluster. Dies with this value.
pub(crate) struct Node {
    address: SocketAddr,
    pub(crate) behaviour: Arc<Behaviour>,
    /// Its connections end when it does.
    runtime: Option<Runtime>,
}

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

impl Node {
    /// A node of the cluster that stores there, on a free port.
    pub(crate) fn start(storage: &Arc<Storage>) -> Self {
        Self::start_with(storage, Behaviour::default())
    }

    /// One that takes this key only.
    pub(crate) fn with_key(storage: &Arc<Storage>, key: &'static str) -> Self {
        Self::start_with(storage, Behaviour { key: Some(key), ..Behaviour::default() })
    }

    fn start_with(storage: &Arc<Storage>, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut node = Self { address: listener.local_addr().unwrap(), behaviour: Arc::new(behaviour), runtime: None };
        node.serve(listener, storage);
        node
    }

    /// An address where nobody listens yet.
    pub(crate) fn dead() -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self { address, behaviour: Arc::default(), runtime: None }
    }

    pub(crate) fn url(&self) -> Url {
        format!("http://{}", self.address).parse().unwrap()
    }

    /// As with `kill -9`: nothing is said to anybody.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Starts it at its address, over what is stored there.
    pub(crate) fn revive(&mut self, storage: &Arc<Storage>) {
        self.serve(listen(self.address), storage);
    }

    fn serve(&mut self, listener: TcpListener, storage: &Arc<Storage>) {
        listener.set_nonblocking(true).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let service = services::Service { storage: Arc::clone(storage), behaviour: Arc::clone(&self.behaviour) };
        runtime.spawn(async move {
            let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener).unwrap()).with_nodelay(Some(true));
            Server::builder()
                .add_service(QdrantServer::new(service.clone()))
                .add_service(CollectionsServer::new(service.clone()))
                .add_service(PointsServer::new(service).max_decoding_message_size(usize::MAX))
                .serve_with_incoming(incoming)
                .await
                .unwrap();
        });
        self.runtime = Some(runtime);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Behaviour {
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

/// A killed node holds its port for a moment longer.
fn listen(address: SocketAddr) -> TcpListener {
    eventually_blocking("the address is free again", || TcpListener::bind(address))
}

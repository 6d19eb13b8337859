//! Nodes of a Qdrant cluster in this process. They share what is stored; each can die and come back.

#[expect(dead_code, reason = "the program over it, tests/servers/qdrant_server.rs, keeps what is stored")]
#[path = "../../../servers/qdrant/mod.rs"]
mod server;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio::runtime::Runtime;
use url::Url;

use crate::harness::wait::eventually_blocking;

use server::Behaviour;
pub(crate) use server::Storage;

/// A node of a cluster. Dies with this value.
pub(crate) struct Node {
    address: SocketAddr,
    pub(crate) behaviour: Arc<Behaviour>,
    /// Its connections end when it does.
    runtime: Option<Runtime>,
}

impl Node {
    /// A node of the cluster that stores there, on a free port.
    pub(crate) fn start(storage: &Arc<Storage>) -> Self {
        Self::start_with(storage, Behaviour::default())
    }

    /// One that takes this key only.
    pub(crate) fn with_key(storage: &Arc<Storage>, key: &'static str) -> Self {
        Self::start_with(storage, Behaviour::with_key(key))
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
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.spawn(server::serve(listener, Arc::clone(storage), Arc::clone(&self.behaviour)));
        self.runtime = Some(runtime);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A killed node holds its port for a moment longer.
fn listen(address: SocketAddr) -> TcpListener {
    eventually_blocking("the address is free again", || TcpListener::bind(address))
}

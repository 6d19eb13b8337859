//! The Qdrant node of the tests as a program: `test-qdrant-server FOLDER PORT`. It keeps what it acknowledged in the folder,
//! however it ends.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test server may panic")]
#![allow(clippy::pedantic, unreachable_pub, dead_code, reason = "shared with the tests")]

mod qdrant;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use qdrant::{Behaviour, Storage};

#[tokio::main]
async fn main() {
    let folder: PathBuf = std::env::args_os().nth(1).expect("the folder").into();
    let port: u16 = std::env::args().nth(2).expect("the port").parse().unwrap();
    let storage = Storage::open(&folder);
    // Listens only when everything is loaded.
    qdrant::serve(TcpListener::bind(("127.0.0.1", port)).unwrap(), storage, Arc::<Behaviour>::default()).await;
}

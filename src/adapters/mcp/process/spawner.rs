//! Starts all server processes on one thread. Each process should end with the service. The kernel ties a process to the thread
//! that started it (`PR_SET_PDEATHSIG`), so this thread must live as long as the service.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{OnceLock, mpsc};
use std::thread;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

type Work = Box<dyn FnOnce() + Send>;

static QUEUE: OnceLock<mpsc::Sender<Work>> = OnceLock::new();

/// Runs work on the thread, within the caller's runtime. `None` if the thread does not run.
pub(in crate::adapters::mcp) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = oneshot::channel();
    let runtime = Handle::current();
    let work = move || {
        let _runtime = runtime.enter();
        // If the caller no longer waits, this drops the result and thereby the process.
        let _ = done.send(work());
    };
    queue().send(Box::new(work)).ok()?;
    result.await.ok()
}

fn queue() -> &'static mpsc::Sender<Work> {
    QUEUE.get_or_init(|| {
        let (sender, queue) = mpsc::channel::<Work>();
        let work = move || queue.into_iter().for_each(|work| drop(catch_unwind(AssertUnwindSafe(work))));
        // A panic must not end the thread, because that would kill all processes.
        let _ = thread::Builder::new().name("spawner".to_owned()).spawn(work);
        sender
    })
}

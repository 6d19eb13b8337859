//! The thread that starts all processes of servers. Each of them is to end with the service, which the system does by the thread that
//! started it (`PR_SET_PDEATHSIG`): so that has to be one that lives as long as the service.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{OnceLock, mpsc};
use std::thread;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

type Work = Box<dyn FnOnce() + Send>;

static QUEUE: OnceLock<mpsc::Sender<Work>> = OnceLock::new();

/// Does something there, in the runtime of the caller. `None` where there is no such thread.
pub(in crate::adapters::mcp) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = oneshot::channel();
    let runtime = Handle::current();
    let work = move || {
        let _runtime = runtime.enter();
        // Whoever has given up waiting: what was made is dropped, and with it the process.
        let _ = done.send(work());
    };
    queue().send(Box::new(work)).ok()?;
    result.await.ok()
}

fn queue() -> &'static mpsc::Sender<Work> {
    QUEUE.get_or_init(|| {
        let (sender, queue) = mpsc::channel::<Work>();
        let work = move || queue.into_iter().for_each(|work| drop(catch_unwind(AssertUnwindSafe(work))));
        // A panic must not be its end, which would be that of all processes. Without a thread nobody takes what is sent.
        let _ = thread::Builder::new().name("spawner".to_owned()).spawn(work);
        sender
    })
}

//! Restarts long-running tasks after a panic.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Pause after the first panic. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Time without a panic after which the pauses start over.
const STABLE: Duration = Duration::from_mins(1);

/// A supervised task. `while part.panicked(work()).await {}` runs it until it ends normally.
pub(crate) struct Supervised {
    name: &'static str,
    pause: Duration,
}

impl Supervised {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, pause: FIRST_PAUSE }
    }

    /// Runs the task. Returns `false` when it ends. After a panic, pauses and returns `true`, so that the caller restarts it.
    pub(crate) async fn panicked(&mut self, work: impl Future<Output = ()>) -> bool {
        let begun = Instant::now();
        if AssertUnwindSafe(work).catch_unwind().await.is_ok() {
            return false;
        }
        if begun.elapsed() >= STABLE {
            self.pause = FIRST_PAUSE;
        }
        tracing::error!(part = self.name, "a part of the service panicked; it is restarted");
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

/// The result of a task that nobody cancels. If the task panicked, so does the caller.
pub(crate) async fn joined<T>(task: JoinHandle<T>) -> T {
    task.await.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    /// Regression test: after a panic, the writer of the audit log never wrote again.
    #[tokio::test]
    async fn a_part_that_panics_goes_on_with_what_comes_after() {
        let (sender, mut queue) = mpsc::channel(9);
        for number in [1, 0, 0, 2] {
            sender.send(number).await.unwrap();
        }
        drop(sender);
        let mut seen = Vec::new();
        let mut part = Supervised::new("a test");
        let begun = Instant::now();
        let work = async |queue: &mut mpsc::Receiver<i32>, seen: &mut Vec<i32>| {
            while let Some(number) = queue.recv().await {
                seen.push(4 / number);
            }
        };
        while part.panicked(work(&mut queue, &mut seen)).await {}
        assert_eq!(seen, [4, 2]);
        assert!(begun.elapsed() >= FIRST_PAUSE * 3, "ever longer pauses");
        assert!(part.panicked(async { panic!("much later") }).await);
    }
}

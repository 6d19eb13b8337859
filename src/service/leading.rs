//! Lets one of several services on a store do what must happen once: retention and enrichment.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Whether this service leads.
#[derive(Clone, Debug)]
pub struct Leading(watch::Receiver<bool>);

impl Leading {
    pub fn of(leads: watch::Receiver<bool>) -> Self {
        Self(leads)
    }

    /// Of a service that always leads.
    pub fn always() -> Self {
        Self(watch::channel(true).1)
    }

    pub(crate) fn leads(&self) -> bool {
        *self.0.borrow()
    }

    /// Does the work whenever this service leads, and cancels it when another one may lead. Returns after `stop`, or when the work has
    /// ended by itself.
    pub(crate) async fn while_leading<W: Future<Output = ()>>(&mut self, stop: &CancellationToken, work: impl Fn(CancellationToken) -> W) {
        while !stop.is_cancelled() {
            let Some(Ok(_)) = stop.run_until_cancelled(self.0.wait_for(|leads| *leads)).await else { return };
            let term = stop.child_token();
            let ending = async {
                // Nobody sends any more where a service always leads.
                let is_over = self.0.wait_for(|leads| !leads).await.is_ok();
                if is_over {
                    term.cancel();
                    return;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = work(term.clone()) => if !term.is_cancelled() {
                    return;
                },
                () = ending => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    struct Ended<'a>(&'a AtomicU32);

    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn the_work_is_done_only_while_the_service_leads() {
        let (sender, receiver) = watch::channel(false);
        let (begun, running, stop) = (AtomicU32::new(0), AtomicU32::new(0), CancellationToken::new());
        let mut leading = Leading::of(receiver);
        let (begun, running) = (&begun, &running);
        let work = |term: CancellationToken| async move {
            begun.fetch_add(1, Ordering::Relaxed);
            running.fetch_add(1, Ordering::Relaxed);
            let _ended = Ended(running);
            term.cancelled().await;
        };
        let changes = async {
            let counts = async |expected: (u32, u32)| {
                while (begun.load(Ordering::Relaxed), running.load(Ordering::Relaxed)) != expected {
                    tokio::task::yield_now().await;
                }
            };
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            counts((0, 0)).await;
            sender.send_replace(true);
            counts((1, 1)).await;
            sender.send_replace(false);
            counts((1, 0)).await;
            sender.send_replace(true);
            counts((2, 1)).await;
            stop.cancel();
        };
        tokio::join!(leading.while_leading(&stop, work), changes);
        assert_eq!(running.load(Ordering::Relaxed), 0);
        assert!(Leading::always().leads());
    }
}

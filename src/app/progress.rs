//! Shows the progress of background work: a bar on a terminal if the work takes long, log lines while tools are embedded, and one at the
//! end.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::adapters::index::IndexProgress;
use crate::service::catalog::indexing::OnProgress;

/// Shorter work shows no progress bar.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two log lines about the same work.
const REPORTS: Duration = Duration::from_secs(30);

/// Work in progress.
struct Work {
    since: Instant,
    reported: Instant,
    bar: Option<ProgressBar>,
}

impl Work {
    fn begin() -> Self {
        Self { since: Instant::now(), reported: Instant::now(), bar: None }
    }

    /// Whether it is time for a log line.
    fn reports(&mut self) -> bool {
        let reports = self.reported.elapsed() >= REPORTS;
        if reports {
            self.reported = Instant::now();
        }
        reports
    }

    fn show(&mut self, what: &'static str, done: usize, total: usize) {
        if self.bar.is_none() && self.since.elapsed() > PATIENCE && std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {eta}").unwrap_or_else(|_| ProgressStyle::default_bar());
            self.bar = Some(ProgressBar::new(total as u64).with_style(style).with_message(what));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
        }
    }

    fn end(&self) -> Duration {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.since.elapsed()
    }
}

fn milliseconds(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn embedding() -> OnProgress {
    let work: Mutex<Option<Work>> = Mutex::new(None);
    Arc::new(move |done, total| {
        let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
        let current = work.get_or_insert_with(Work::begin);
        current.show("embedding tools", done, total);
        if done < total && current.reports() {
            tracing::info!(done, total, "embedding tools");
        }
        if done >= total {
            tracing::info!(texts = total, took_ms = milliseconds(current.end()), "tools embedded");
            *work = None;
        }
    })
}

pub(super) fn indexing() -> Arc<dyn Fn(IndexProgress) + Send + Sync> {
    let work: Mutex<Option<Work>> = Mutex::new(None);
    Arc::new(move |progress| {
        let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
        let current = work.get_or_insert_with(Work::begin);
        match progress {
            IndexProgress::Storing { done, total } => current.show("indexing tools", done, total),
            IndexProgress::Optimizing => current.show("optimising the index", 0, 1),
            IndexProgress::Finished => {
                tracing::debug!(took_ms = milliseconds(current.end()), "index built");
                *work = None;
            }
        }
    })
}

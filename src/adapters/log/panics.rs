//! Logs panics, in place of the standard library's direct output to standard error.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{self, PanicHookInfo};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

static COUNT: AtomicU64 = AtomicU64::new(0);
static INSTALLED: Once = Once::new();

pub(super) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

pub(super) fn log_them() {
    INSTALLED.call_once(|| panic::set_hook(Box::new(note)));
}

fn note(info: &PanicHookInfo<'_>) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| tracing::field::display(backtrace));
    let (thread, place) = (thread::current(), info.location().map(tracing::field::display));
    let thread = thread.name().unwrap_or("unnamed");
    tracing::error!(thread, place, backtrace, "panic (a bug, please report it): {}", words(info.payload()));
}

/// The message in a panic's payload.
fn words(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(words), _) => words,
        (None, Some(words)) => words,
        (None, None) => "no message",
    }
}

//! Logs panics, in place of the standard library's direct output to standard error.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

static COUNT: AtomicU64 = AtomicU64::new(0);
static INSTALLED: Once = Once::new();

thread_local! {
    /// Whether the work on this thread expects a panic.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

pub(super) fn log_them() {
    INSTALLED.call_once(|| panic::set_hook(Box::new(note)));
}

/// Runs work that may panic for a known reason. Such a panic is neither logged nor counted.
pub(super) fn expected<T>(work: impl FnOnce() -> T) -> thread::Result<T> {
    let before = EXPECTED.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    EXPECTED.set(before);
    done
}

fn note(info: &PanicHookInfo<'_>) {
    if EXPECTED.get() {
        return;
    }
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

#[cfg(test)]
mod tests {
    use super::{EXPECTED, expected};

    #[test]
    fn a_panic_is_expected_only_within_the_work() {
        assert!(expected(|| EXPECTED.get()).unwrap());
        assert!(expected(|| assert!(!EXPECTED.get())).is_err());
        assert!(!EXPECTED.get());
    }
}

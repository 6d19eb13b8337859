//! Handles signals of the system: `SIGTERM`, `SIGINT` and `SIGQUIT` stop the service; `SIGHUP` means that it should reload, or
//! that its terminal has closed.

use std::fs::{self, File};
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The meaning of a `SIGHUP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hangup {
    Reload,
    /// The terminal has closed, so no key press could stop the service any more.
    TerminalGone,
}

pub(crate) struct Hangups {
    signals: Signal,
    /// Whether the service ends with its terminal. False if it was started with `nohup`.
    ends_with_terminal: bool,
}

impl Hangups {
    /// Starts to handle the signal, which then does not kill the process.
    pub(crate) fn listen() -> io::Result<Self> {
        let ends_with_terminal = has_terminal() && !is_ignored();
        Ok(Self { signals: signal(SignalKind::hangup())?, ends_with_terminal })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Hangup {
        if self.signals.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
        if self.ends_with_terminal && !has_terminal() { Hangup::TerminalGone } else { Hangup::Reload }
    }
}

/// Receives the signals that stop the process. Create only one per process: a second one would consume signals without stopping
/// the process.
pub(crate) struct Stops {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Stops {
    /// Starts to handle these signals, which then do not kill the process.
    pub(crate) fn listen() -> io::Result<Self> {
        let [terminate, interrupt, quit] = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()].map(signal);
        Ok(Self { terminate: terminate?, interrupt: interrupt?, quit: quit? })
    }

    /// Waits for a signal. Returns `true` if running calls may finish: after `SIGTERM`, but not after a key press in the
    /// terminal.
    pub(crate) async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => false,
            _ = self.quit.recv() => false,
        }
    }
}

fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Whether the process was started with this signal ignored (Linux only).
fn is_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

//! Signals of the system: stop (`SIGTERM`, `SIGINT`, `SIGQUIT`) and `SIGHUP`, which means either reload or the end of the
//! terminal.

use std::fs::{self, File};
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The meaning of a `SIGHUP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hangup {
    Reload,
    /// The terminal is gone, so nobody could stop the service with a key any more.
    TerminalGone,
}

pub(crate) struct Hangups {
    signals: Signal,
    /// Whether the service ends with its terminal: not if it was started with `nohup`.
    ends_with_terminal: bool,
}

impl Hangups {
    /// From now on, the signal does not kill the process.
    pub(crate) fn listen() -> io::Result<Self> {
        let ends_with_terminal = has_terminal() && !is_ignored();
        Ok(Self { signals: signal(SignalKind::hangup())?, ends_with_terminal })
    }

    /// The next signal; pending forever if there can be none.
    pub(crate) async fn next(&mut self) -> Hangup {
        if self.signals.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
        if self.ends_with_terminal && !has_terminal() { Hangup::TerminalGone } else { Hangup::Reload }
    }
}

/// Requests to stop. A process has only one of these: any other listener would take the signals' effect away without being
/// able to stop the process.
pub(crate) struct Stops {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Stops {
    /// From now on, these signals do not kill the process by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        let [terminate, interrupt, quit] = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()].map(signal);
        Ok(Self { terminate: terminate?, interrupt: interrupt?, quit: quit? })
    }

    /// Waits for a request. `true` if running calls may finish: after `SIGTERM`, but not after a key in the terminal.
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

/// Whether the process was started with the signal ignored, according to Linux.
fn is_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

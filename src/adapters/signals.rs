//! What the system tells the process: to stop (`SIGTERM`, `SIGINT`, `SIGQUIT`), or `SIGHUP`, which is a request to reload or the end of the
//! terminal that the service was started on.

use std::fs::{self, File};
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hangup {
    Reload,
    /// Nobody could stop the service with a key any more.
    TerminalGone,
}

pub struct Hangups {
    signals: Signal,
    /// Whether the end of the terminal is to be the end of the service: not where it was started with `nohup`.
    ends_with_terminal: bool,
}

impl Hangups {
    /// From now on the signal does not end the process.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen() -> io::Result<Self> {
        let ends_with_terminal = has_terminal() && !is_ignored();
        Ok(Self { signals: signal(SignalKind::hangup())?, ends_with_terminal })
    }

    /// The next one; never comes back where there can be none.
    pub async fn next(&mut self) -> Hangup {
        if self.signals.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
        if self.ends_with_terminal && !has_terminal() { Hangup::TerminalGone } else { Hangup::Reload }
    }
}

/// Requests to stop. A process has one of these: whoever else listens to these signals takes their effect from the process without being
/// able to stop it.
pub struct Stops {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Stops {
    /// From now on these signals do not end the process by themselves.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen() -> io::Result<Self> {
        let [terminate, interrupt, quit] = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()].map(signal);
        Ok(Self { terminate: terminate?, interrupt: interrupt?, quit: quit? })
    }

    /// Whether the next request leaves time for what is under way: `SIGTERM` does, a key of the terminal does not.
    pub async fn next(&mut self) -> bool {
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

/// Whether the process was started with the signal ignored, as Linux tells it.
fn is_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

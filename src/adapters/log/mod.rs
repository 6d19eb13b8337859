//! Log output: standard error, as text or as JSON.
//!
//! Nothing here can fail, block or panic: the service never depends on the log's reader.

mod lines;
mod panics;
mod text;

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use self::lines::{Line, Lines};
use crate::settings::{LogFormat, LoggingSettings};

/// How long the process waits at its end for the last lines.
const FLUSHING: Duration = Duration::from_secs(1);

/// The queue in front of standard error, once a long-running command has requested it.
static LINES: OnceLock<Arc<Lines>> = OnceLock::new();

/// From now on, log lines never wait for the log's reader.
pub(crate) fn begin() {
    LINES.get_or_init(|| {
        // A separate descriptor, because a stuck reader would hold the lock of `std::io::stderr`.
        let stderr = io::stderr().as_fd().try_clone_to_owned().map(std::fs::File::from);
        match stderr {
            Ok(stderr) => Lines::start(stderr),
            Err(_) => Lines::start(io::sink()),
        }
    });
}

/// Installs the logger with these settings.
pub(crate) fn install(settings: &LoggingSettings) {
    begin();
    let builder = fmt()
        .with_env_filter(EnvFilter::new(directives(&settings.filter)))
        .with_writer(writer)
        // A line that can't be written is dropped and counted; the default would panic.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    // A second installation in one process (tests) is not an error.
    let _ = match settings.format {
        LogFormat::Text => builder.fmt_fields(text::fields()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    panics::log_them();
}

/// The same for a command without settings.
pub(crate) fn install_plain() {
    install(&LoggingSettings { filter: "info".to_owned(), format: LogFormat::Text });
}

/// Prints a message for people, outside of the log. Long-running commands don't wait for the reader.
pub(crate) fn say(text: &str) {
    match LINES.get() {
        Some(lines) => lines.push(format!("{text}\n").as_bytes()),
        None => {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// Waits a moment for the last lines to be written.
pub(crate) fn flush() {
    if let Some(lines) = LINES.get() {
        lines.flush(FLUSHING);
    }
}

/// Lines lost since the start because they could not be written.
pub(crate) fn dropped() -> u64 {
    LINES.get().map_or(0, |lines| lines.dropped())
}

/// Panics since the start. Each one is a bug, and is logged.
pub(crate) fn panics() -> u64 {
    panics::count()
}

fn writer() -> Line<'static> {
    Line(LINES.get().map(Arc::as_ref))
}

/// A bare level applies to this crate and to the servers' output; libraries log only if they are named.
fn directives(filter: &str) -> String {
    let is_level = filter.chars().all(char::is_alphabetic);
    if is_level { format!("off,toolsieve={filter},mcp_server={filter}") } else { filter.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::directives;

    #[test]
    fn a_level_is_ours_and_a_filter_is_taken_as_it_is() {
        assert_eq!(directives("info"), "off,toolsieve=info,mcp_server=info");
        assert_eq!(directives("info,rmcp=debug"), "info,rmcp=debug");
    }
}

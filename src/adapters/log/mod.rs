//! Writes the log to standard error, as text or as JSON.
//!
//! No function here can fail, block or panic, so the service never depends on the reader of the log.

mod lines;
mod panics;
mod text;

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{DefaultFields, Format};

use self::lines::{Line, Lines};
use crate::settings::{AccessLines, LogFormat, LoggingSettings};

/// How long the process waits before it exits, so that the last lines are written.
const FLUSHING: Duration = Duration::from_secs(1);

/// The target of access lines that do not depend on the level.
const ACCESS: &str = "toolsieve::access";

/// The queue for standard error, if a long-running command has started it.
static LINES: OnceLock<Arc<Lines>> = OnceLock::new();

/// Whether the lines of the log are JSON.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Expects the logger to write JSON, before it is installed.
pub(crate) fn expect_json() {
    IS_JSON.store(true, Ordering::Relaxed);
}

/// Prints a warning about the configuration, before the logger is installed. If the log is JSON, this is a line of the log.
pub(crate) fn say_warning(warning: &str) {
    if IS_JSON.load(Ordering::Relaxed) {
        let logger = lines_of_log().json().flatten_event(true).finish();
        tracing::subscriber::with_default(logger, || tracing::warn!("{warning}"));
    } else {
        say(&format!("warning: {warning}"));
    }
}

/// Starts the queue. From then on, log lines never wait for the reader.
pub(crate) fn begin() {
    LINES.get_or_init(|| {
        // Use a separate descriptor, because a stuck reader would hold the lock of `std::io::stderr`.
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
    IS_JSON.store(settings.format == LogFormat::Json, Ordering::Relaxed);
    let builder = lines_of_log().with_env_filter(EnvFilter::new(directives(settings)));
    // Ignore a second installation in the same process, as in tests.
    let _ = match settings.format {
        LogFormat::Text => builder.fmt_fields(text::fields()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    panics::log_them();
}

/// Installs the logger for a command without settings.
pub(crate) fn install_plain() {
    install(&LoggingSettings { filter: "info".to_owned(), format: LogFormat::Text, access: AccessLines::default() });
}

/// Prints a message for people, outside the log. Long-running commands don't wait for the reader.
pub(crate) fn say(text: &str) {
    match LINES.get() {
        Some(lines) => lines.push(format!("{text}\n").as_bytes()),
        None => {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// Prints why a command failed. If the log is JSON, this is a line of the log, for the program that reads it.
pub(crate) fn say_failure(text: &str) {
    if IS_JSON.load(Ordering::Relaxed) {
        // Changes nothing if the logger is installed already.
        install(&LoggingSettings { filter: "info".to_owned(), format: LogFormat::Json, access: AccessLines::default() });
        if tracing::enabled!(tracing::Level::ERROR) {
            tracing::error!("{}", text.strip_prefix("error: ").unwrap_or(text));
            return;
        }
    }
    say(text);
}

/// Waits briefly until the last lines are written.
pub(crate) fn flush() {
    if let Some(lines) = LINES.get() {
        lines.flush(FLUSHING);
    }
}

/// Number of lines since the start that were dropped because they could not be written.
pub(crate) fn dropped() -> u64 {
    LINES.get().map_or(0, |lines| lines.dropped())
}

/// Number of panics since the start. Each one is a bug and is logged.
pub(crate) fn panics() -> u64 {
    panics::count()
}

/// Runs work of a library that panics for a known reason, which the caller reports. Such a panic is no bug, so it is neither logged nor
/// counted.
///
/// # Errors
/// The panic.
pub(crate) fn expecting_panic<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    panics::expected(work)
}

/// A logger whose lines look like those of the log.
fn lines_of_log() -> SubscriberBuilder<DefaultFields, Format, LevelFilter, fn() -> Line<'static>> {
    fmt()
        .with_writer(writer as fn() -> Line<'static>)
        // Drop and count lines that can't be written; the default would panic.
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
}

fn writer() -> Line<'static> {
    Line(LINES.get().map(Arc::as_ref))
}

/// Expands the setting: a level without a target applies to this crate and to the servers' output. Libraries log only if they are
/// named. An access log with all requests does not depend on the level.
fn directives(settings: &LoggingSettings) -> String {
    let LoggingSettings { filter, access, .. } = settings;
    let is_level = filter.chars().all(char::is_alphabetic);
    let directives = if is_level { format!("off,toolsieve={filter},mcp_server={filter}") } else { filter.clone() };
    if *access == AccessLines::All { format!("{directives},{ACCESS}=info") } else { directives }
}

#[cfg(test)]
mod tests {
    use super::directives;
    use crate::settings::{AccessLines, LogFormat, LoggingSettings};

    fn of(filter: &str, access: AccessLines) -> String {
        directives(&LoggingSettings { filter: filter.to_owned(), format: LogFormat::Text, access })
    }

    #[test]
    fn a_level_is_ours_and_a_filter_is_taken_as_it_is() {
        assert_eq!(of("info", AccessLines::Failures), "off,toolsieve=info,mcp_server=info");
        assert_eq!(of("info,rmcp=debug", AccessLines::Off), "info,rmcp=debug");
    }

    #[test]
    fn a_complete_access_log_does_not_depend_on_the_level() {
        assert_eq!(of("off", AccessLines::All), "off,toolsieve=off,mcp_server=off,toolsieve::access=info");
        assert_eq!(of("warn,rmcp=debug", AccessLines::All), "warn,rmcp=debug,toolsieve::access=info");
    }
}

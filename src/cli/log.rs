//! Where log lines go: standard error, as text or as JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::settings::{LogFormat, LoggingSettings};

pub(super) fn install(settings: &LoggingSettings) {
    let filter = EnvFilter::new(directives(&settings.filter));
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal()).with_target(false);
    // A second installation in one process (tests) is no error.
    let _ = match settings.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// What a command has to say that has no settings.
pub(super) fn to_stderr() {
    let filter = EnvFilter::new(directives("info"));
    let _ = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).with_target(false).try_init();
}

/// A level alone is meant for us and for the servers' own words; the libraries beneath are heard when they are named.
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

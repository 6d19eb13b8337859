//! Section `[calls]`: limits and validation for tool calls. Servers can override them.

use std::time::Duration;

use indexmap::IndexMap;

use crate::domain::text::named::named;
use crate::settings::finding::suggestion;
use crate::settings::servers::ServerSettings;
use crate::settings::values::{Reader, section};

const EXCEPTIONS: &str = "calls.validation_exceptions";

section! {
    /// The settings in section `[calls]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CallSettings = read(reader) {
        pub timeout: Duration = reader.seconds("calls.timeout_seconds", 1..=86_400),
        /// Time limit for connecting to a server and listing its tools.
        pub start_timeout: Duration = reader.seconds("calls.start_timeout_seconds", 1..=3600),
        /// Maximum size of a result. A larger result is an error.
        pub max_result_bytes: usize = reader.whole("calls.max_result_bytes", 1024..=1 << 30),
        /// Maximum length of the text in a result. Longer text is truncated; `None` means no limit.
        pub max_text_bytes: Option<usize> = max_text_bytes(reader),
        /// Whether to return objects and lists in results as JSON text without whitespace.
        pub compact_results: bool = reader.switch("calls.compact_results"),
        /// Whether structured content may replace or complete a result's content. If not, it is returned only without any content.
        pub structured_results: bool = reader.switch("calls.structured_results"),
        pub validation: Validation = validation(reader),
        /// Exceptions by server name.
        pub validation_exceptions: IndexMap<String, Validation> = exceptions(reader),
    }
}

named! {
    /// What to do with arguments that don't match the tool's input schema.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Validation {
        /// Don't validate them.
        Off = "off",
        /// Log the errors, and send the call anyway.
        Warn = "warn",
        /// Reject the call.
        #[default]
        Strict = "strict",
    }
}

impl CallSettings {
    /// Warns about exceptions for unknown servers, which are probably typos.
    pub(super) fn check_exceptions(&self, servers: &[ServerSettings], reader: &mut Reader<'_>) {
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        for name in self.validation_exceptions.keys().filter(|name| !names.is_empty() && !names.contains(&name.as_str())) {
            reader.warning(EXCEPTIONS, "names a server that is not configured, or disabled", suggestion(name, &names));
        }
    }
}

fn max_text_bytes(reader: &mut Reader<'_>) -> Option<usize> {
    const LEAST: usize = 256;
    let bytes = reader.whole("calls.max_text_bytes", 0..=1 << 30);
    if (1..LEAST).contains(&bytes) {
        reader.problem("calls.max_text_bytes", "too small", format!("write {LEAST} or more, or 0 to cut nothing"));
    }
    (bytes > 0).then_some(bytes)
}

fn validation(reader: &mut Reader<'_>) -> Validation {
    let name = reader.text("calls.validation");
    Validation::of_name(&name).unwrap_or_else(|| {
        reader.problem("calls.validation", "unknown mode", suggestion(&name, &Validation::NAMES));
        Validation::default()
    })
}

/// Parses `server=rule`. Splits at the last `=`, because server names may contain `=`.
fn exceptions(reader: &mut Reader<'_>) -> IndexMap<String, Validation> {
    let mut exceptions = IndexMap::new();
    for text in reader.list(EXCEPTIONS) {
        match text.rsplit_once('=').map(|(server, rule)| (server.trim(), Validation::of_name(rule.trim()))) {
            Some((server, Some(rule))) if !server.is_empty() => {
                exceptions.insert(server.to_owned(), rule);
            }
            _ => reader.problem(
                EXCEPTIONS,
                "contains an invalid exception",
                "write each as \"server=off\", \"server=warn\" or \"server=strict\"",
            ),
        }
    }
    exceptions
}

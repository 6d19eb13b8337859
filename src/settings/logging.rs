//! Log level and format.

use tracing_subscriber::EnvFilter;

use crate::settings::finding::suggestion;
use crate::settings::values::Reader;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Section `[logging]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggingSettings {
    /// Directives for [`EnvFilter`].
    pub filter: String,
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

impl LoggingSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        Self { filter: filter(reader), format: format(reader) }
    }
}

fn filter(reader: &mut Reader<'_>) -> String {
    let filter = reader.text("logging.level");
    // A single word is also a valid filter: it would name a target and silence everything else.
    let is_word = !filter.is_empty() && filter.chars().all(char::is_alphanumeric);
    if is_word && !LEVELS.contains(&filter.to_lowercase().as_str()) {
        reader.problem("logging.level", "unknown level", suggestion(&filter, &LEVELS));
    } else if filter.is_empty() || EnvFilter::try_new(&filter).is_err() {
        reader.problem(
            "logging.level",
            "not a filter",
            format!("write one of {}, or filters such as \"info,toolsieve=debug\"", LEVELS.join(", ")),
        );
    }
    filter
}

fn format(reader: &mut Reader<'_>) -> LogFormat {
    match reader.text("logging.format").as_str() {
        "text" => LogFormat::Text,
        "json" => LogFormat::Json,
        _ => {
            reader.problem("logging.format", "unknown format", "write \"text\" or \"json\"");
            LogFormat::Text
        }
    }
}

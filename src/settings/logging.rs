//! Section `[logging]`: the log level, the log format and the access log.

use tracing_subscriber::EnvFilter;

use crate::domain::text::named::named;
use crate::settings::finding::suggestion;
use crate::settings::values::{Reader, section};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

section! {
    /// Section `[logging]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LoggingSettings = read(reader) {
        /// Directives for [`EnvFilter`].
        pub filter: String = filter(reader),
        pub format: LogFormat = reader.choice("logging.format", LogFormat::of_name, ("unknown format", "write \"text\" or \"json\"")),
        pub access: AccessLines = reader.choice(
            "logging.access",
            AccessLines::of_name,
            ("unknown choice", "write \"failures\", \"all\" or \"off\""),
        ),
    }
}

named! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum LogFormat {
        #[default]
        Text = "text",
        Json = "json",
    }
}

named! {
    /// Which requests the access log contains.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum AccessLines {
        /// Rejected and failed requests, with a rate limit. At level `debug`, all requests.
        #[default]
        Failures = "failures",
        /// All requests, at any log level.
        All = "all",
        Off = "off",
    }
}

fn filter(reader: &mut Reader<'_>) -> String {
    let filter = reader.text("logging.level");
    // `EnvFilter` would accept a single unknown word as a target, and log nothing else.
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

//! Section `[logging]`: the log level, the log format and the access log.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

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

/// Reads the directives without the spaces around them, which [`EnvFilter`] would take for parts of names.
fn filter(reader: &mut Reader<'_>) -> String {
    let filter = reader.text("logging.level");
    let directives: Vec<&str> = filter.split(',').map(str::trim).filter(|directive| !directive.is_empty()).collect();
    let filter = directives.join(",");
    let first = directives.iter().find_map(|directive| fault(directive));
    match first {
        Some(Fault::Level(level)) => reader.problem("logging.level", "unknown level", suggestion(level, &LEVELS)),
        None if !filter.is_empty() && EnvFilter::try_new(&filter).is_ok() => {}
        Some(Fault::Form) | None => reader.problem(
            "logging.level",
            "not a filter",
            format!("write one of {}, or filters such as \"info,toolsieve=debug\"", LEVELS.join(", ")),
        ),
    }
    filter
}

/// What is wrong with a directive that [`EnvFilter`] may accept. It takes every other text for the name of a target, and the service
/// then logs nothing.
enum Fault<'a> {
    Level(&'a str),
    Form,
}

fn fault(directive: &str) -> Option<Fault<'_>> {
    let is_path =
        |text: &str| !text.is_empty() && text.chars().all(|character| matches!(character, '_' | ':' | '-') || is_letter(character));
    let is_level = |text: &str| !text.is_empty() && text.parse::<LevelFilter>().is_ok();
    let (target, level) = match (directive.split_once('['), directive.rsplit_once(']')) {
        // `target[span{field=value}]=level`. What is in the brackets is checked by `EnvFilter`.
        (Some((target, _)), Some((_, rest))) => match (target, rest) {
            ("", "") => return None,
            (target, "") => (target, None),
            ("", rest) => return rest.strip_prefix('=').is_none_or(|level| !is_level(level)).then_some(Fault::Form),
            (target, rest) => (target, Some(rest.strip_prefix('=').unwrap_or(rest))),
        },
        _ => match directive.split_once('=') {
            Some((target, level)) => (target, Some(level)),
            None if is_level(directive) || (directive.contains("::") && is_path(directive)) => return None,
            None if is_path(directive) => return Some(Fault::Level(directive)),
            None => return Some(Fault::Form),
        },
    };
    match level {
        _ if !is_path(target) => Some(Fault::Form),
        Some(level) if !is_level(level) => {
            Some(if !level.is_empty() && level.chars().all(is_letter) { Fault::Level(level) } else { Fault::Form })
        }
        _ => None,
    }
}

fn is_letter(character: char) -> bool {
    character.is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use crate::settings::{Environment, Settings, Sources};

    fn read(level: &str) -> Result<String, (String, String)> {
        let environment = Environment::default().with("TOOLSIEVE_LOGGING__LEVEL", level);
        let loaded = Settings::load(&Sources { environment, ..Sources::default() });
        loaded.map(|(settings, _)| settings.start.logging.filter).map_err(|errors| {
            let problem = &errors.problems[0];
            (problem.message.clone(), problem.remedy.clone())
        })
    }

    /// Regression: only single words were checked. The service accepted the other texts, and logged nothing.
    #[test]
    fn every_directive_is_checked() {
        for filter in [
            "info toolsieve=debug",
            "warn;toolsieve=debug",
            "error info",
            "wrong value !",
            "info,=debug",
            "toolsieve=",
            "to olsieve[span]=debug",
            "[span]debug",
            ",",
        ] {
            assert_eq!(read(filter).unwrap_err().0, "not a filter", "{filter}");
        }
        for (filter, remedy) in [
            ("inffo,toolsieve::adapters=debug", "did you mean `info`?"),
            ("info,toolsieve=debugg", "did you mean `debug`?"),
            ("info,toolsieve[span{field=1}]=debugg", "did you mean `debug`?"),
            ("info,toolsieve", "known: off, error, warn, info, debug, trace"),
        ] {
            assert_eq!(read(filter).unwrap_err(), ("unknown level".to_owned(), remedy.to_owned()), "{filter}");
        }
    }

    #[test]
    fn filters_of_targets_and_spans_are_accepted() {
        for filter in [
            "INFO",
            "warn,toolsieve::adapters=debug",
            "info,toolsieve::adapters",
            "off,my-crate=trace",
            "info,toolsieve[span{field=value}]=debug",
            "info,[span]=debug",
            "info,[{field}]",
        ] {
            assert_eq!(read(filter).as_deref(), Ok(filter));
        }
        assert_eq!(read(" info , toolsieve=debug,").as_deref(), Ok("info,toolsieve=debug"));
    }
}

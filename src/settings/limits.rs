//! Section `[limits]`: rate limits for callers and servers.

use crate::domain::access::principal::may_match_a_caller;
use crate::domain::access::rule;
use crate::settings::finding::suggestion;
use crate::settings::servers::ServerSettings;
use crate::settings::values::{Reader, section};

const MOST_PER_MINUTE: usize = 1_000_000;
const MOST_AT_ONCE: usize = 10_000;
const CALLERS: &str = "name callers as in policy rules: \"key:ci\", \"user:*@example.org\", \"service-key\"";

section! {
    /// The settings in section `[limits]`. 0 means no limit.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct LimitSettings = values(reader) {
        /// Calls per minute for each caller.
        pub calls: u32 = number("limits.calls_per_minute", MOST_PER_MINUTE, reader),
        /// Limits for callers that match a pattern. The first match counts.
        pub call_exceptions: Vec<(String, u32)> = exceptions("limits.call_exceptions", MOST_PER_MINUTE, reader),
        /// Messages and searches per minute for each caller.
        pub selections: u32 = number("limits.selections_per_minute", MOST_PER_MINUTE, reader),
        pub selection_exceptions: Vec<(String, u32)> = exceptions("limits.selection_exceptions", MOST_PER_MINUTE, reader),
        /// How many of a minute's requests may arrive at the same time; 0 means all.
        pub burst: u32 = number("limits.burst", MOST_PER_MINUTE, reader),
        /// Calls per minute to each server, from all callers together.
        pub server_calls: u32 = number("limits.server_calls_per_minute", MOST_PER_MINUTE, reader),
        /// Limits for individual servers, by name.
        pub server_exceptions: Vec<(String, u32)> = exceptions("limits.server_exceptions", MOST_PER_MINUTE, reader),
        /// Maximum number of concurrent calls to each server.
        pub concurrent_calls: u32 = number("limits.concurrent_calls", MOST_AT_ONCE, reader),
        pub concurrent_exceptions: Vec<(String, u32)> = exceptions("limits.concurrent_exceptions", MOST_AT_ONCE, reader),
    }
}

impl LimitSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let settings = Self::values(reader);
        for (key, patterns) in
            [("limits.call_exceptions", &settings.call_exceptions), ("limits.selection_exceptions", &settings.selection_exceptions)]
        {
            for (pattern, _) in patterns {
                if let Err(problem) = rule::glob(pattern) {
                    reader.problem(key, problem, CALLERS);
                } else if !may_match_a_caller(pattern) {
                    reader.warning(key, format!("`{pattern}` matches no caller"), CALLERS);
                }
            }
        }
        settings
    }

    /// Warns about exceptions for unknown servers, which are probably typos.
    pub(super) fn check_exceptions(&self, servers: &[ServerSettings], reader: &mut Reader<'_>) {
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        for (key, exceptions) in
            [("limits.server_exceptions", &self.server_exceptions), ("limits.concurrent_exceptions", &self.concurrent_exceptions)]
        {
            for (name, _) in exceptions.iter().filter(|(name, _)| !names.is_empty() && !names.contains(&name.as_str())) {
                reader.warning(key, "names a server that is not configured, or disabled", suggestion(name, &names));
            }
        }
    }
}

fn number(key: &str, most: usize, reader: &mut Reader<'_>) -> u32 {
    u32::try_from(reader.whole(key, 0..=most)).unwrap_or(u32::MAX)
}

/// Parses `name=number`. Splits at the last `=`, because names may contain `=`.
fn exceptions(key: &str, most: usize, reader: &mut Reader<'_>) -> Vec<(String, u32)> {
    let mut exceptions = Vec::new();
    for text in reader.list(key) {
        let split = text.rsplit_once('=').map(|(name, number)| (name.trim(), number.trim().parse::<u32>()));
        match split {
            Some((name, Ok(number))) if !name.is_empty() && number as usize <= most => {
                exceptions.push((name.to_owned(), number));
            }
            _ => reader.problem(
                key,
                format!("contains `{text}`, which is not an exception"),
                format!("write each as \"name=number\", with a whole number from 0 (no limit) to {most}"),
            ),
        }
    }
    exceptions
}

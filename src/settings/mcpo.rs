//! What mcpo's command line means here.
//!
//! Its defaults are less careful than ours, and its users depend on them: in this mode they hold, and each is said at
//! the start with what to do about it.

use indexmap::IndexMap;
use secrecy::SecretString;
use toml::Value;

use crate::domain::catalog::tool::ServerName;
use crate::settings::finding::{Findings, Place};
use crate::settings::http::HttpSettings;
use crate::settings::interpolate::Environment;
use crate::settings::servers::{ServerSettings, TransportSettings};
use crate::settings::values::Values;

/// mcpo's flags that are no settings of ours.
#[derive(Clone, Debug, Default)]
pub struct McpoSettings {
    /// The one server of the command line, which lives at `/`.
    pub single: Option<ServerName>,
    /// `--path-prefix`, as [`path`] makes it.
    pub path_prefix: String,
    /// `--root-path`, as [`path`] makes it.
    pub root_path: String,
    /// Whether documents need the key too.
    pub strict_auth: bool,
    /// `--name`, `--description` and `--version`: of the document of everything.
    pub title: Option<String>,
    pub description: Option<String>,
    pub version: Option<String>,
    /// Variables that `--env` and `--env-path` add to the environment of the servers.
    pub environment: IndexMap<String, SecretString>,
}

/// A path as both ends of it are written here: `/a/b`, or nothing.
#[must_use]
pub fn path(text: &str) -> String {
    let inner = text.trim().trim_matches('/');
    if inner.is_empty() { String::new() } else { format!("/{inner}") }
}

/// The level that a value of `LOG_LEVEL` means.
#[must_use]
pub fn log_level(text: &str) -> Option<&'static str> {
    match text.trim().to_lowercase().as_str() {
        "debug" => Some("debug"),
        "info" => Some("info"),
        "warning" | "warn" => Some("warn"),
        "error" | "critical" | "fatal" => Some("error"),
        _ => None,
    }
}

/// Sets mcpo's defaults over ours, below every other source.
pub(super) fn add_defaults(environment: &Environment, values: &mut Values, findings: &mut Findings) {
    let origins = Value::Array(vec![Value::String("*".into())]);
    let defaults =
        [("http.host", Value::String("0.0.0.0".into())), ("http.insecure", Value::Boolean(true)), ("http.cors_origins", origins)];
    for (key, value) in defaults {
        values.add_flag("mcpo's defaults", key, value, findings);
    }
    if let Some(text) = environment.get("LOG_LEVEL").filter(|text| !text.is_empty()) {
        if let Some(level) = log_level(text) {
            values.add_flag("LOG_LEVEL", "logging.level", Value::String(level.into()), findings);
        } else {
            let place = Place { source: "LOG_LEVEL".into(), ..Place::default() };
            findings.warning(place, "no level", "set DEBUG, INFO, WARNING, ERROR or CRITICAL");
        }
    }
    if let Some(text) = environment.get("CONNECTION_TIMEOUT").filter(|text| !text.is_empty()) {
        let seconds = text.trim().parse::<i64>().ok().filter(|seconds| (1..=3600).contains(seconds));
        if let Some(seconds) = seconds {
            values.add_flag("CONNECTION_TIMEOUT", "calls.start_timeout_seconds", Value::Integer(seconds), findings);
        } else {
            let place = Place { source: "CONNECTION_TIMEOUT".into(), ..Place::default() };
            findings.warning(place, "not a number of seconds", "set a whole number from 1 to 3600");
        }
    }
}

impl McpoSettings {
    /// Gives the servers what they would get from mcpo, and says where that is less careful than ours.
    pub(super) fn complete(&self, servers: &mut [ServerSettings], http: &HttpSettings, findings: &mut Findings) {
        let mut has_children = false;
        for server in servers {
            if let TransportSettings::Stdio { env, .. } = &mut server.transport {
                has_children = true;
                for (name, value) in &self.environment {
                    env.entry(name.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        let mut warn = |message: String, remedy: &str| {
            findings.warning(Place { source: "as mcpo does it".into(), ..Place::default() }, message, remedy);
        };
        if !http.is_loopback() {
            warn(format!("listening on {}, other machines reach the service", http.host), "if they need not: --host 127.0.0.1");
        }
        if http.api_key.is_some() && !self.strict_auth {
            let remedy = "protect them too with --strict-auth; Open WebUI sends its key for them";
            warn("documents are public: who reaches the address can read what every tool does".to_owned(), remedy);
        }
        if http.cors_origins.iter().any(|origin| origin == "*") {
            let remedy = "name those that may: --cors-allow-origins https://chat.example.org";
            warn("pages of every site may call the service from a browser".to_owned(), remedy);
        }
        if has_children {
            let remedy = "`toolsieve serve` gives them a short list of variables and what `env` names";
            warn(
                "MCP servers inherit the whole environment of this process, secrets included, but for what is Toolsieve's own".to_owned(),
                remedy,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{log_level, path};

    #[test]
    fn paths_begin_with_a_slash_and_do_not_end_with_one() {
        for (text, expected) in [("", ""), ("/", ""), ("pre", "/pre"), ("/pre/", "/pre"), ("a/b/", "/a/b"), ("//a", "/a")] {
            assert_eq!(path(text), expected, "{text}");
        }
    }

    #[test]
    fn levels_of_python_are_levels_of_ours() {
        for (text, expected) in [("WARNING", Some("warn")), ("critical", Some("error")), (" Info ", Some("info")), ("loud", None)] {
            assert_eq!(log_level(text), expected, "{text}");
        }
    }
}

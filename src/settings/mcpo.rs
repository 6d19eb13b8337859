//! Settings from mcpo's command line.
//!
//! mcpo's defaults are less strict than Toolsieve's, and mcpo's users depend on them. In mcpo mode, the service uses
//! these defaults. At its start, it logs each of them and how to change it.

use indexmap::IndexMap;
use secrecy::SecretString;
use toml::Value;

use crate::domain::catalog::tool::ServerName;
use crate::settings::finding::{Findings, Location};
use crate::settings::http::HttpSettings;
use crate::settings::interpolate::Environment;
use crate::settings::servers::{ServerSettings, TransportSettings};
use crate::settings::values::Values;

/// mcpo's flags that have no corresponding setting.
#[derive(Clone, Debug, Default)]
pub struct McpoSettings {
    /// Name of the single server on the command line, which is published at `/`.
    pub single: Option<ServerName>,
    /// The value of `--path-prefix`, normalised by `path`.
    pub path_prefix: String,
    /// The value of `--root-path`, normalised by `path`.
    pub root_path: String,
    /// Whether documents require the key too.
    pub strict_auth: bool,
    /// The values of `--name`, `--description` and `--version`, for the document that contains all servers.
    pub title: Option<String>,
    pub description: Option<String>,
    pub version: Option<String>,
    /// Variables from `--env` and `--env-path`, for the servers.
    pub environment: IndexMap<String, SecretString>,
}

/// Normalises a path to the form `/a/b`, or to an empty text.
pub(crate) fn path(text: &str) -> String {
    let inner = text.trim().trim_matches('/');
    if inner.is_empty() { String::new() } else { format!("/{inner}") }
}

/// Translates a value of `LOG_LEVEL` to this program's log level.
pub(crate) fn log_level(text: &str) -> Option<&'static str> {
    match text.trim().to_lowercase().as_str() {
        "debug" => Some("debug"),
        "info" => Some("info"),
        "warning" | "warn" => Some("warn"),
        "error" | "critical" | "fatal" => Some("error"),
        _ => None,
    }
}

/// Replaces the service's defaults with mcpo's. All other sources override mcpo's defaults.
pub(super) fn add_defaults(environment: &Environment, values: &mut Values, findings: &mut Findings) {
    let origins = Value::Array(vec![Value::String("*".into())]);
    let defaults = [
        ("http.host", Value::String("0.0.0.0".into())),
        ("http.insecure", Value::Boolean(true)),
        ("http.cors_origins", origins),
        // mcpo's callers read a result that is an object as an object.
        ("calls.compact_results", Value::Boolean(false)),
        // mcpo returns the content, and ignores structured content.
        ("calls.structured_results", Value::Boolean(false)),
    ];
    for (key, value) in defaults {
        values.add_flag("mcpo's defaults", key, value, findings);
    }
    if let Some(text) = environment.get("LOG_LEVEL").filter(|text| !text.is_empty()) {
        if let Some(level) = log_level(text) {
            values.add_flag("LOG_LEVEL", "logging.level", Value::String(level.into()), findings);
        } else {
            let place = Location { source: "LOG_LEVEL".into(), ..Location::default() };
            findings.warning(place, "unknown level", "set DEBUG, INFO, WARNING, ERROR or CRITICAL");
        }
    }
    if let Some(text) = environment.get("CONNECTION_TIMEOUT").filter(|text| !text.is_empty()) {
        let seconds = text.trim().parse::<i64>().ok().filter(|seconds| (1..=3600).contains(seconds));
        if let Some(seconds) = seconds {
            values.add_flag("CONNECTION_TIMEOUT", "calls.start_timeout_seconds", Value::Integer(seconds), findings);
        } else {
            let place = Location { source: "CONNECTION_TIMEOUT".into(), ..Location::default() };
            findings.warning(place, "not a number of seconds", "set a whole number from 1 to 3600");
        }
    }
}

impl McpoSettings {
    /// Gives the servers mcpo's behaviour, and warns where mcpo is less strict.
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
            findings.warning(Location { source: "mcpo mode".into(), ..Location::default() }, message, remedy);
        };
        if !http.is_loopback() {
            warn(format!("listening on {}, other machines reach the service", http.host), "to prevent this: --host 127.0.0.1");
        }
        if http.api_key.is_some() && !self.strict_auth {
            let remedy = "protect them too with --strict-auth; Open WebUI sends its key for them";
            warn("documents are public: anyone who can reach the address can read what every tool does".to_owned(), remedy);
        }
        if http.cors_origins.iter().any(|origin| origin == "*") {
            let remedy = "restrict them: --cors-allow-origins https://chat.example.org";
            warn("pages of any site may call the service from a browser".to_owned(), remedy);
        }
        if has_children {
            let remedy = "`toolsieve serve` passes only a short list of variables and those in `env`";
            warn(
                "MCP servers inherit the whole environment of this process, secrets included, except Toolsieve's own variables".to_owned(),
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

//! The settings of one MCP server, for the adapter that connects to it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::domain::catalog::tool::ServerName;
use crate::settings::calls::Validation;
use crate::settings::connect::ConnectSettings;
use crate::settings::forwarding::HeaderForwarding;
use crate::settings::oauth::OAuthSettings;
use crate::settings::per_user::PerUserSettings;
use crate::settings::sandbox::SandboxSettings;

/// A checked entry of the `mcpServers` map, in which every `${VAR}` has been replaced.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    pub name: ServerName,
    pub transport: TransportSettings,
    /// Time limit for one call.
    pub call_timeout: Duration,
    /// Time limit for connecting and listing the tools.
    pub start_timeout: Duration,
    /// Exact names of tools that are not published.
    pub disabled_tools: Vec<String>,
    /// Tags for all of the server's tools.
    pub tags: Vec<String>,
    /// Maximum size of a result, in bytes.
    pub max_result_bytes: usize,
    /// Maximum length of the text in a result. Longer text is truncated; `None` means no limit.
    pub max_text_bytes: Option<usize>,
    /// Whether to return objects and lists in results as JSON text without whitespace.
    pub compact_results: bool,
    pub validation: Validation,
    /// Additional settings for HTTP servers.
    pub remote: RemoteSettings,
    /// Values that differ between users.
    pub per_user: PerUserSettings,
    /// Limits on the file access of the server's process.
    pub sandbox: Option<SandboxSettings>,
}

#[cfg(test)]
impl ServerSettings {
    /// A server `test` for unit tests, with this transport and without limits.
    pub(crate) fn of_test(transport: TransportSettings) -> Self {
        Self {
            name: ServerName::from("test"),
            transport,
            call_timeout: Duration::ZERO,
            start_timeout: Duration::ZERO,
            disabled_tools: Vec::new(),
            tags: Vec::new(),
            max_result_bytes: 0,
            max_text_bytes: None,
            compact_results: false,
            validation: Validation::Off,
            remote: RemoteSettings::default(),
            per_user: PerUserSettings::default(),
            sandbox: None,
        }
    }
}

/// Headers that requests to an HTTP server contain in addition to its configured headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteSettings {
    /// Which of the caller's headers are forwarded; `None` means none.
    pub forwarding: Option<HeaderForwarding>,
    /// Where the server's token comes from.
    pub oauth: Option<OAuthSettings>,
    /// How the service signs in to the server for its users.
    pub connect: Option<ConnectSettings>,
}

/// How the service connects to a server.
#[derive(Clone)]
pub enum TransportSettings {
    /// Starts a process and communicates over its standard input and output.
    Stdio { command: String, args: Vec<String>, env: IndexMap<String, SecretString>, directory: Option<PathBuf> },
    /// Streamable HTTP (MCP specification 2025-03-26 and later). If the server doesn't support it, another transport is
    /// used.
    StreamableHttp { url: Url, headers: IndexMap<String, SecretString> },
    /// HTTP with server-sent events (MCP specification 2024-11-05). If the server doesn't support it, another transport
    /// is used.
    Sse { url: Url, headers: IndexMap<String, SecretString> },
}

/// Omits arguments and URLs, because they may contain values of `${VAR}`.
impl fmt::Debug for TransportSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, env, directory } => formatter
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &format_args!("{} omitted", args.len()))
                .field("env", &env.keys().collect::<Vec<_>>())
                .field("directory", directory)
                .finish(),
            Self::StreamableHttp { url, headers } => remote(formatter, "StreamableHttp", url, headers),
            Self::Sse { url, headers } => remote(formatter, "Sse", url, headers),
        }
    }
}

fn remote(formatter: &mut fmt::Formatter<'_>, kind: &str, url: &Url, headers: &IndexMap<String, SecretString>) -> fmt::Result {
    formatter
        .debug_struct(kind)
        .field("origin", &url.origin().ascii_serialization())
        .field("headers", &headers.keys().collect::<Vec<_>>())
        .finish()
}

impl ServerSettings {
    /// The keys in which two entries for a server differ, as written in the servers file. Never contains values.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        // Names every field, so that a new field can't be forgotten here.
        let Self {
            name: _,
            transport,
            call_timeout,
            start_timeout,
            disabled_tools,
            tags,
            max_result_bytes,
            max_text_bytes,
            compact_results,
            validation,
            remote,
            per_user,
            sandbox,
        } = self;
        let mut found = transport.differences(&other.transport);
        let others = [
            ("timeout", *call_timeout != other.call_timeout),
            ("startTimeout", *start_timeout != other.start_timeout),
            ("disabledTools", *disabled_tools != other.disabled_tools),
            ("tags", *tags != other.tags),
            ("maxResultBytes", *max_result_bytes != other.max_result_bytes),
            ("client_header_forwarding", remote.forwarding != other.remote.forwarding),
            ("oauth", remote.oauth != other.remote.oauth),
            ("auth", remote.connect != other.remote.connect),
            ("maxTextBytes", *max_text_bytes != other.max_text_bytes),
            ("compactResults", *compact_results != other.compact_results),
            ("validation", *validation != other.validation),
            (self.transport.values_key(), per_user.templates != other.per_user.templates),
            ("sandbox", *sandbox != other.sandbox),
            ("listWith", !same_secrets(&per_user.list_with, &other.per_user.list_with)),
        ];
        for (key, _) in others.into_iter().filter(|(_, differs)| *differs) {
            if !found.contains(&key) {
                found.push(key);
            }
        }
        found
    }

    /// The same server with additional headers, or with additional variables for its process.
    #[must_use]
    pub fn with<'a>(&self, values: impl IntoIterator<Item = (&'a String, &'a SecretString)>) -> Self {
        let mut with = self.clone();
        let into = match &mut with.transport {
            TransportSettings::Stdio { env, .. } => env,
            TransportSettings::StreamableHttp { headers, .. } | TransportSettings::Sse { headers, .. } => headers,
        };
        into.extend(values.into_iter().map(|(name, value)| (name.clone(), value.clone())));
        with
    }

    /// Whether another value of this key may mean another server.
    pub fn names_server(key: &str) -> bool {
        matches!(key, "type" | "url" | "command" | "args" | "cwd")
    }

    /// Whether an existing connection can apply a change of this key.
    pub fn keeps_connection(key: &str) -> bool {
        matches!(key, "timeout" | "startTimeout" | "disabledTools" | "tags" | "maxTextBytes" | "compactResults" | "validation")
    }
}

impl TransportSettings {
    /// The key that contains the headers or the variables.
    pub fn values_key(&self) -> &'static str {
        match self {
            Self::Stdio { .. } => "env",
            Self::StreamableHttp { .. } | Self::Sse { .. } => "headers",
        }
    }

    fn differences(&self, other: &Self) -> Vec<&'static str> {
        let found = match (self, other) {
            (
                Self::Stdio { command, args, env, directory },
                Self::Stdio { command: command_2, args: args_2, env: env_2, directory: directory_2 },
            ) => vec![
                ("command", command != command_2),
                ("args", args != args_2),
                ("env", !same_secrets(env, env_2)),
                ("cwd", directory != directory_2),
            ],
            (Self::StreamableHttp { url, headers }, Self::StreamableHttp { url: url_2, headers: headers_2 })
            | (Self::Sse { url, headers }, Self::Sse { url: url_2, headers: headers_2 }) => {
                vec![("url", url != url_2), ("headers", !same_secrets(headers, headers_2))]
            }
            _ => vec![("type", true)],
        };
        found.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

fn same_secrets(one: &IndexMap<String, SecretString>, other: &IndexMap<String, SecretString>) -> bool {
    let same =
        |(name, value): (&String, &SecretString)| other.get(name).is_some_and(|other| other.expose_secret() == value.expose_secret());
    one.len() == other.len() && one.iter().all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_printed_without_secrets() {
        let secrets = || IndexMap::from([("NAME".to_owned(), SecretString::from("hunter22"))]);
        let stdio = TransportSettings::Stdio { command: "npx".into(), args: vec!["hunter22".into()], env: secrets(), directory: None };
        assert_eq!(format!("{stdio:?}"), r#"Stdio { command: "npx", args: 1 omitted, env: ["NAME"], directory: None }"#);
        let url = "https://hunter22:hunter22@example.org:8443/hunter22?key=hunter22#hunter22".parse().unwrap();
        let remote = TransportSettings::StreamableHttp { url, headers: secrets() };
        assert_eq!(format!("{remote:?}"), r#"StreamableHttp { origin: "https://example.org:8443", headers: ["NAME"] }"#);
    }

    #[test]
    fn a_difference_is_named_by_its_key_without_its_value() {
        let server = |env: &str, disabled: &[&str], seconds| ServerSettings {
            name: ServerName::from("s"),
            transport: TransportSettings::Stdio {
                command: "run".into(),
                args: Vec::new(),
                env: IndexMap::from([("TOKEN".to_owned(), SecretString::from(env))]),
                directory: None,
            },
            call_timeout: Duration::from_secs(seconds),
            start_timeout: Duration::from_secs(1),
            disabled_tools: disabled.iter().map(|name| (*name).to_owned()).collect(),
            tags: Vec::new(),
            max_result_bytes: 1,
            remote: RemoteSettings::default(),
            max_text_bytes: None,
            compact_results: false,
            validation: Validation::Strict,
            per_user: PerUserSettings::default(),
            sandbox: None,
        };
        let one = server("hunter22", &[], 1);
        assert_eq!(one.differences(&server("hunter22", &[], 1)), Vec::<&str>::new());
        let differences = one.differences(&server("hunter23", &["a"], 2));
        assert_eq!(differences, ["env", "timeout", "disabledTools"]);
        assert_eq!(differences.iter().filter(|key| !ServerSettings::keeps_connection(key)).collect::<Vec<_>>(), [&"env"]);
        let url: Url = "http://h/".parse().unwrap();
        let lenient = ServerSettings { max_text_bytes: Some(256), validation: Validation::Warn, ..one.clone() };
        let differences = one.differences(&lenient);
        assert_eq!(differences, ["maxTextBytes", "validation"]);
        assert!(differences.into_iter().all(ServerSettings::keeps_connection));
        let remote = ServerSettings { transport: TransportSettings::Sse { url, headers: IndexMap::new() }, ..one.clone() };
        assert_eq!(one.differences(&remote), ["type"]);
    }
}

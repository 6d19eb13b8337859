//! One configured MCP server, as the adapter that connects to it needs it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use secrecy::SecretString;
use url::Url;

use crate::domain::tool::ServerName;

/// A server of the `mcpServers` map, checked and with every `${VAR}` replaced.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    pub name: ServerName,
    pub transport: TransportSettings,
    /// How long one call may take.
    pub call_timeout: Duration,
    /// How long connecting and the first listing may take.
    pub start_timeout: Duration,
    /// Tools of this server that are not published, by their exact names.
    pub disabled_tools: Vec<String>,
    /// Largest result in bytes.
    pub max_result_bytes: usize,
}

/// How a server is reached.
#[derive(Clone)]
pub enum TransportSettings {
    /// A child process that speaks over its standard streams.
    Stdio { command: String, args: Vec<String>, env: IndexMap<String, SecretString>, directory: Option<PathBuf> },
    /// Streamable HTTP (MCP specification 2025-03-26 and later).
    StreamableHttp { url: Url, headers: IndexMap<String, SecretString> },
}

/// Arguments and URLs may hold what `${VAR}` stood for, so their values are left out.
impl fmt::Debug for TransportSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, env, directory } => formatter
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &format_args!("{} left out", args.len()))
                .field("env", &env.keys().collect::<Vec<_>>())
                .field("directory", directory)
                .finish(),
            Self::StreamableHttp { url, headers } => formatter
                .debug_struct("StreamableHttp")
                .field("origin", &url.origin().ascii_serialization())
                .field("headers", &headers.keys().collect::<Vec<_>>())
                .finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_printed_without_secrets() {
        let secrets = || IndexMap::from([("NAME".to_owned(), SecretString::from("hunter22"))]);
        let stdio = TransportSettings::Stdio { command: "npx".into(), args: vec!["hunter22".into()], env: secrets(), directory: None };
        assert_eq!(format!("{stdio:?}"), r#"Stdio { command: "npx", args: 1 left out, env: ["NAME"], directory: None }"#);
        let url = "https://hunter22:hunter22@example.org:8443/hunter22?key=hunter22#hunter22".parse().unwrap();
        let remote = TransportSettings::StreamableHttp { url, headers: secrets() };
        assert_eq!(format!("{remote:?}"), r#"StreamableHttp { origin: "https://example.org:8443", headers: ["NAME"] }"#);
    }
}

//! One configured MCP server, as the adapter that connects to it needs it.

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
#[derive(Clone, Debug)]
pub enum TransportSettings {
    /// A child process that speaks over its standard streams.
    Stdio { command: String, args: Vec<String>, env: IndexMap<String, SecretString>, directory: Option<PathBuf> },
    /// Streamable HTTP (MCP specification 2025-03-26 and later).
    StreamableHttp { url: Url, headers: IndexMap<String, SecretString> },
}

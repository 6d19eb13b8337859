//! Requests to MCP servers, and their events.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::catalog::catalog::ServerListing;
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::text::canonical::Fingerprint;
use crate::settings::servers::ServerSettings;

/// The configured MCP servers: their lists of tools and their calls.
#[async_trait]
pub trait ToolServers: Send + Sync {
    /// The servers' events, beginning with the current state of each. Taken once, by the use case that keeps the catalog. Ends
    /// when the servers are shut down.
    fn events(&self) -> mpsc::Receiver<ServerEvent>;

    /// The servers' notifications about prompts and resources. Taken once, by the use case that forwards them to clients. Ends
    /// when the servers are shut down.
    fn news(&self) -> mpsc::Receiver<ServerNews>;

    /// Replaces the configured servers at once and returns the changes. Unchanged servers keep their connections and running
    /// calls; changed ones reconnect, while calls on their former connections may continue for a bounded time.
    fn configure(&self, servers: Vec<ServerSettings>) -> Vec<ServerChange>;

    /// The current state of every configured server, in configured order.
    fn states(&self) -> Vec<ServerState>;

    /// The servers that are down: the last attempt failed and a retry is scheduled. Excludes servers with a separate connection
    /// for each caller.
    fn down(&self) -> Vec<ServerName>;

    /// Calls a tool and returns the raw result object (MCP specification, `CallToolResult`). Arguments (an object) and result are
    /// JSON text, forwarded unchanged.
    ///
    /// Dropping the future cancels the call at the server.
    ///
    /// # Errors
    /// [`CallError`]. A result with `isError` is a result, not an error.
    async fn call(&self, tool: &ToolId, arguments: Arc<RawValue>, context: CallContext) -> Result<Box<RawValue>, CallError>;

    /// Sends a request other than a call and returns the raw result object.
    ///
    /// # Errors
    /// [`CallError`]. A server without this capability returns a protocol error with code -32601.
    async fn ask(&self, server: &ServerName, request: PassthroughRequest, context: CallContext) -> Result<Box<RawValue>, CallError>;

    /// A server's capabilities besides tools, as far as known.
    fn offers(&self, server: &ServerName) -> Offers;

    /// Whether a server's configuration forwards callers' headers.
    fn forwards_headers(&self, _server: &ServerName) -> bool {
        false
    }

    /// Ends the connections made for this caller, to this server or to all.
    fn disconnect(&self, _principal: &PrincipalId, _server: Option<&ServerName>, _parting: Parting) {}

    /// Lists a server with the credentials of a permitted caller, in the background, if it was not listed yet.
    fn introduce(&self, _server: &ServerName, _principal: &PrincipalId, _credentials: Arc<Credentials>) {}

    /// Ends every connection and every child process.
    async fn shut_down(&self);
}

/// The context of a call, besides tool and arguments.
#[derive(Clone)]
pub struct CallContext {
    pub principal: Arc<Principal>,
    /// The caller's headers, which a server's configuration may forward. Not forwarded by default.
    pub headers: Arc<http::HeaderMap>,
    /// The caller's credentials, if the server's configuration wants any.
    pub credentials: Option<Arc<Credentials>>,
    /// `None`: the server's configured timeout, from now.
    pub deadline: Option<Instant>,
    /// Receives progress notifications.
    pub progress: Option<mpsc::Sender<Progress>>,
    /// Receives the server's questions and log messages.
    pub messages: Option<mpsc::Sender<ServerMessage>>,
    /// Set if the client answers questions with another request.
    pub round: Option<Round>,
}

impl CallContext {
    /// A context without credentials and receivers, with the configured timeout.
    pub fn new(principal: Arc<Principal>) -> Self {
        Self { principal, headers: Arc::default(), credentials: None, deadline: None, progress: None, messages: None, round: None }
    }
}

/// A newer-era client's request in a call with questions (MCP specification 2026-07-28, "Multi Round-Trip Requests").
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// The client's `ClientCapabilities`.
    pub capabilities: Value,
    /// Answers to the questions of the former round, by key.
    pub responses: Option<BTreeMap<String, Value>>,
    /// The state sent with those questions, unchanged.
    pub state: Option<String>,
}

impl Round {
    /// Whether it follows an earlier round.
    pub fn is_another(&self) -> bool {
        self.responses.is_some() || self.state.is_some()
    }
}

/// A server's capabilities besides tools.
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own, as the protocol has them")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    pub prompts: bool,
    pub resources: bool,
    pub completions: bool,
    /// It supports subscriptions to resources.
    pub subscriptions: bool,
}

impl Offers {
    /// Whether the server supports this kind of request.
    pub fn have(self, what: PassthroughKind) -> bool {
        match what {
            PassthroughKind::Prompts | PassthroughKind::Prompt => self.prompts,
            PassthroughKind::Resources | PassthroughKind::ResourceTemplates | PassthroughKind::Resource => self.resources,
            PassthroughKind::Completion => self.completions,
            PassthroughKind::Subscribe | PassthroughKind::Unsubscribe => self.subscriptions,
        }
    }
}

/// A request to a server other than a tool call.
#[derive(Clone, Debug)]
pub struct PassthroughRequest {
    pub what: PassthroughKind,
    /// An object, as the protocol defines it for this request.
    pub params: Value,
}

/// Kinds of requests other than tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PassthroughKind {
    Prompts,
    Prompt,
    Resources,
    ResourceTemplates,
    Resource,
    Completion,
    /// Subscribe to a resource, over the connection that all callers share.
    Subscribe,
    Unsubscribe,
}

impl PassthroughKind {
    /// The protocol's method.
    pub fn method(self) -> &'static str {
        match self {
            Self::Prompts => "prompts/list",
            Self::Prompt => "prompts/get",
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Resource => "resources/read",
            Self::Completion => "completion/complete",
            Self::Subscribe => "resources/subscribe",
            Self::Unsubscribe => "resources/unsubscribe",
        }
    }
}

/// A server's message to the caller during a call.
#[derive(Debug)]
pub enum ServerMessage {
    Question(ServerQuestion),
    /// The `params` of a notification `notifications/message`.
    Note(Value),
}

/// A request of the server to the client: `elicitation/create` or `sampling/createMessage`.
#[derive(Debug)]
pub struct ServerQuestion {
    pub method: String,
    pub params: Value,
    pub answer: oneshot::Sender<Result<Value, Refusal>>,
}

/// A JSON-RPC error instead of an answer to a question.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub code: i64,
    pub message: String,
}

/// A caller's credentials for one server: headers, or variables of its process.
pub struct Credentials {
    values: BTreeMap<String, SecretString>,
    fingerprint: Fingerprint,
    /// From before the credentials were read.
    pub read_at: Instant,
}

impl Credentials {
    pub fn new(values: BTreeMap<String, SecretString>, read_at: Instant) -> Self {
        let mut hash = Sha256::new();
        for part in values.iter().flat_map(|(name, value)| [name.as_str(), value.expose_secret()]) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self { fingerprint: Fingerprint::from_bytes(hash.finalize().into()), values, read_at }
    }

    pub fn values(&self) -> &BTreeMap<String, SecretString> {
        &self.values
    }

    /// Differs for other values.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// Names only, never values.
impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.values.keys()).finish()
    }
}

/// How a caller's connections end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// After running calls, within bounds.
    AfterCalls,
    AtOnce,
}

/// A progress notification (MCP specification, "Progress").
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub progress: f64,
    pub total: Option<f64>,
    pub message: Option<String>,
}

/// An event of a server.
#[derive(Clone, Debug)]
pub enum ServerEvent {
    /// The server was listed: at start, after `list_changed`, or after a reconnect.
    Listed(ServerListing),
    /// An attempt to connect or to list failed; a retry is scheduled. The last good listing remains valid.
    Failed { server: ServerName, reason: String },
    /// The server is no longer configured.
    Removed { server: ServerName },
}

/// A server's notification about prompts or resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNews {
    pub server: ServerName,
    pub what: NewsKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewsKind {
    /// The connection is new: subscriptions are gone, and notifications may have been missed.
    Renewed,
    /// Its list of prompts has changed.
    Prompts,
    /// Its list of resources or of resource templates has changed.
    Resources,
    /// A resource or a part of it has changed, by the server's URI.
    Updated(String),
}

/// A server's change when the configuration was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerChange {
    pub server: ServerName,
    pub kind: ServerChangeKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerChangeKind {
    Added,
    Removed,
    Unchanged,
    Changed {
        /// The configuration keys that differ.
        keys: Vec<&'static str>,
        /// Whether it reconnects.
        reconnects: bool,
    },
}

#[derive(Clone, Debug, Serialize)]
pub struct ServerState {
    pub server: ServerName,
    pub phase: ServerPhase,
    /// Number of tools in the last listing.
    pub tools: usize,
    /// Invalid tools that were skipped; the log has the reasons.
    #[serde(skip_serializing_if = "is_none")]
    pub left_out: usize,
    /// Why the last attempt failed. Free of secrets.
    pub error: Option<String>,
    /// The negotiated protocol version.
    pub protocol: Option<String>,
    /// Connections of single users, if the server gets users' credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_connections: Option<usize>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_none(count: &usize) -> bool {
    *count == 0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerPhase {
    /// The first attempt is in progress.
    Starting,
    Connected,
    /// The last attempt failed; a retry is scheduled.
    Retrying,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the server is not configured")]
    UnknownServer,
    #[error("the server is not connected: {reason}")]
    Unavailable { reason: String, retry_after: Duration },
    /// The server needs a caller's credentials, and this call has none.
    #[error("the server is called on behalf of a user or a named key, and this call belongs to neither")]
    NoCredentials,
    /// The connection with the caller's own credentials failed. The reason is free of them.
    #[error("no connection with your own credentials: {reason}")]
    NotLetIn { reason: String, retry_after: Duration },
    #[error("all {limit} connections that users may have {of} are in use")]
    TooManyUsers { limit: usize, of: &'static str, retry_after: Duration },
    #[error("no answer within {} s", in_hundredths(*.0))]
    Timeout(Duration),
    /// An HTTP status without a response to the call.
    #[error("the MCP server refused the call with HTTP status {status}")]
    Refused { status: u16 },
    /// A JSON-RPC error of the server. The message is the server's own, in plain text of at most 4,000 characters; so are the
    /// data.
    #[error("the server answered with error {code}: {message}")]
    Protocol { code: i64, message: String, data: Option<Box<Value>> },
    #[error("the answer is larger than {limit} bytes")]
    TooLarge { limit: usize },
}

impl CallError {
    /// The error for the log, without the server's message, which may quote the call.
    pub(crate) fn without_words(&self) -> String {
        if matches!(self, Self::Protocol { .. }) { "an error of the server".to_owned() } else { self.to_string() }
    }
}

/// Seconds, rounded for people.
fn in_hundredths(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

//! Requests to MCP servers, and events from them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::domain::access::authorization::Challenge;
use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::catalog::catalog::ServerListing;
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::catalog::user_lists::UserList;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::TraceContext;
use crate::settings::servers::ServerSettings;

/// The configured MCP servers: lists their tools and forwards calls.
#[async_trait]
pub trait ToolServers: Send + Sync {
    /// The servers' events, starting with the current state of each. Call it once, for the use case that maintains the catalog.
    /// Ends when the servers are shut down.
    fn events(&self) -> mpsc::Receiver<ServerEvent>;

    /// The servers' notifications about prompts and resources. Call it once, for the use case that forwards them to clients. Ends
    /// when the servers are shut down.
    fn news(&self) -> mpsc::Receiver<ServerNews>;

    /// Replaces the configured servers at once and returns the changes. Unchanged servers keep their connections and running
    /// calls. Changed ones reconnect; calls on their former connections may continue for a limited time.
    fn configure(&self, servers: Vec<ServerSettings>) -> Vec<ServerChange>;

    /// Replaces a server's connection and its process by new ones. Calls on the former connection may continue for a limited time.
    /// Returns whether there is such a server.
    fn restart(&self, server: &ServerName) -> bool;

    /// The current state of every server, in configured order.
    fn states(&self) -> Vec<ServerState>;

    /// The servers that are down: their last connection attempt failed, and a retry is scheduled. Excludes servers with one
    /// connection per caller.
    fn down(&self) -> Vec<ServerName>;

    /// The last lines that the processes of a stdio server wrote to standard error, oldest first, without secrets.
    fn log(&self, server: &ServerName) -> Vec<LogLine>;

    /// Calls a tool and returns the raw result object (MCP specification, `CallToolResult`). The arguments (an object) and the
    /// result are JSON text and forwarded unchanged.
    ///
    /// Dropping the future cancels the call at the server.
    ///
    /// # Errors
    /// [`CallError`]. A result with `isError` is a result, not an error.
    async fn call(&self, tool: &ToolId, arguments: Arc<RawValue>, context: CallContext) -> Result<Box<RawValue>, CallError>;

    /// Sends a request other than a tool call and returns the raw result object.
    ///
    /// # Errors
    /// [`CallError`]. A server without this capability returns a protocol error with code -32601.
    async fn ask(&self, server: &ServerName, request: PassthroughRequest, context: CallContext) -> Result<Box<RawValue>, CallError>;

    /// A server's capabilities other than tools, as far as known.
    fn offers(&self, server: &ServerName) -> Offers;

    /// Whether a server's configuration forwards callers' headers.
    fn forwards_headers(&self, _server: &ServerName) -> bool {
        false
    }

    /// Ends this caller's own connections to one server or to all.
    fn disconnect(&self, _principal: &PrincipalId, _server: Option<&ServerName>, _parting: Parting) {}

    /// Lists the tools of an unlisted server in the background, with the credentials of a permitted caller.
    fn introduce(&self, _server: &ServerName, _principal: &PrincipalId, _credentials: Arc<Credentials>) {}

    /// Like [`Self::introduce`], for a call that waits for the list. Returns once the caller's connection stands; the list follows.
    ///
    /// # Errors
    /// [`CallError`], if there is no connection until then. The call itself was not sent.
    async fn introduce_for_call(
        &self,
        _server: &ServerName,
        _principal: &PrincipalId,
        _credentials: &Credentials,
        _until: Instant,
    ) -> Result<(), CallError> {
        Ok(())
    }

    /// Ends all connections and child processes.
    async fn shut_down(&self);
}

/// The context of a call: everything except the tool and the arguments.
#[derive(Clone)]
pub struct CallContext {
    pub principal: Arc<Principal>,
    /// The caller's headers, if the server's configuration needs them. It says which of them are forwarded.
    pub headers: Arc<http::HeaderMap>,
    /// The caller's credentials, if the server's configuration requires any.
    pub credentials: Option<Arc<Credentials>>,
    /// The deadline; `None` for the server's configured time limit, starting now.
    pub deadline: Option<Instant>,
    /// Receives the call's progress notifications.
    pub progress: Option<mpsc::Sender<Progress>>,
    /// Receives the server's requests (elicitation, sampling) and log messages.
    pub messages: Option<mpsc::Sender<ServerMessage>>,
    /// Set if the client answers server requests by repeating its own request.
    pub round: Option<Round>,
    /// The trace to which the call belongs.
    pub trace: Option<TraceContext>,
}

impl CallContext {
    /// Creates a context without credentials and receivers, and with the configured time limit.
    pub fn new(principal: Arc<Principal>) -> Self {
        Self {
            principal,
            headers: Arc::default(),
            credentials: None,
            deadline: None,
            progress: None,
            messages: None,
            round: None,
            trace: None,
        }
    }
}

/// A round of a call by a client that answers server requests by repeating its own request (MCP specification 2026-07-28, "Multi
/// Round-Trip Requests").
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// The client's `ClientCapabilities`.
    pub capabilities: Value,
    /// Answers to the server requests in the previous round, by key.
    pub responses: Option<BTreeMap<String, Value>>,
    /// The state that the previous round returned, unchanged.
    pub state: Option<String>,
}

impl Round {
    /// Whether there was a previous round.
    pub fn is_another(&self) -> bool {
        self.responses.is_some() || self.state.is_some()
    }
}

/// A server's capabilities other than tools.
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own, as the protocol has them")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    pub prompts: bool,
    pub resources: bool,
    pub completions: bool,
    /// Whether the server supports subscriptions to resources.
    pub subscriptions: bool,
}

impl Offers {
    /// Whether the server supports requests of this kind.
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
    /// The parameters, as an object that the protocol defines for this request.
    pub params: Value,
}

/// Kinds of requests to servers other than tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PassthroughKind {
    Prompts,
    Prompt,
    Resources,
    ResourceTemplates,
    Resource,
    Completion,
    /// Subscribe to a resource, over the connection shared by all callers.
    Subscribe,
    Unsubscribe,
}

impl PassthroughKind {
    /// The method in the protocol.
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

/// A message from a server to the caller during a call.
#[derive(Debug)]
pub enum ServerMessage {
    Question(ServerQuestion),
    /// A log message: the `params` of `notifications/message`.
    Note(Value),
}

/// A request from the server to the client: `elicitation/create` or `sampling/createMessage`.
#[derive(Debug)]
pub struct ServerQuestion {
    pub method: String,
    pub params: Value,
    pub answer: oneshot::Sender<Result<Value, Refusal>>,
}

/// The JSON-RPC error with which a client rejects a server request.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub code: i64,
    pub message: String,
}

/// A caller's credentials for one server: HTTP headers, or environment variables of its process.
pub struct Credentials {
    values: BTreeMap<String, SecretString>,
    token: Option<SignInToken>,
    fingerprint: Fingerprint,
    /// A time before the credentials were read.
    pub read_at: Instant,
}

/// The token of a sign-in to a server (OAuth), or an exchanged token, with which it is called.
#[derive(Clone, Debug)]
pub struct SignInToken {
    pub access: SecretString,
    /// Identifies the sign-in, and stays the same when its tokens are refreshed. Of exchanged tokens: the person and their rights.
    pub sign_in: Arc<str>,
    /// Identifies the token.
    pub version: u64,
    /// The caller, or the owner of a sign-in that all callers share.
    pub owner: PrincipalId,
}

impl Credentials {
    pub fn new(values: BTreeMap<String, SecretString>, token: Option<SignInToken>, read_at: Instant) -> Self {
        let mut hash = Sha256::new();
        let of_values = values.iter().flat_map(|(name, value)| [name.as_str(), value.expose_secret()]);
        // Of a sign-in only its id, so that a connection outlives its tokens.
        let of_sign_in = token.iter().flat_map(|token| [&*token.sign_in, token.owner.as_str()]);
        for part in of_values.chain(of_sign_in) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self { fingerprint: Fingerprint::from_bytes(hash.finalize().into()), values, token, read_at }
    }

    /// Credentials that consist only of a token.
    pub fn of_sign_in(token: SignInToken) -> Self {
        Self::new(BTreeMap::new(), Some(token), Instant::now())
    }

    pub fn token(&self) -> Option<&SignInToken> {
        self.token.as_ref()
    }

    /// The owner of connections with these credentials.
    pub fn owner<'a>(&'a self, caller: &'a PrincipalId) -> &'a PrincipalId {
        self.token.as_ref().map_or(caller, |token| &token.owner)
    }

    pub fn values(&self) -> &BTreeMap<String, SecretString> {
        &self.values
    }

    /// A hash of all values.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// Prints names, but no values.
impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.values.keys()).finish()
    }
}

/// A line that a server's process wrote to standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    pub at: SystemTime,
    /// Without line break, control characters and secrets.
    pub text: String,
}

/// When to end a caller's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// Once the running calls have ended, or after a time limit.
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

/// An event from a server.
#[derive(Clone, Debug)]
pub enum ServerEvent {
    /// The server has listed its tools: at the start, after `list_changed` or after a reconnect.
    Listed(ServerListing),
    /// A user's connection has listed the tools of a server without a shared connection. `listing` is merged from all users' lists of this
    /// process, and may be the same as before.
    ListedForUser { listing: ServerListing, list: UserList },
    /// An attempt to connect or to list tools failed, and a retry is scheduled. The last valid listing still applies. On a connected
    /// server, calls still work.
    Failed { server: ServerName, reason: String, is_connected: bool },
    /// The server was removed from the configuration.
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
    /// The connection is new, so subscriptions are gone and notifications may have been missed.
    Renewed,
    /// The list of prompts has changed.
    Prompts,
    /// The list of resources or of resource templates has changed.
    Resources,
    /// A resource with this URI, or a part of it, has changed.
    Updated(String),
}

/// A change of a server in a new configuration.
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
        /// The configuration keys with different values.
        keys: Vec<&'static str>,
        /// Whether the server reconnects.
        reconnects: bool,
    },
}

impl ServerChangeKind {
    /// Whether the server connects anew.
    pub fn reconnects(&self) -> bool {
        matches!(self, Self::Added | Self::Changed { reconnects: true, .. })
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct ServerState {
    pub server: ServerName,
    pub phase: ServerPhase,
    /// Number of tools in the last listing.
    pub tools: usize,
    /// Number of invalid tools that were skipped. The log contains the reasons.
    #[serde(skip_serializing_if = "is_none")]
    pub left_out: usize,
    /// The reason why the last attempt failed, without secrets.
    pub error: Option<String>,
    /// The negotiated version of the protocol.
    pub protocol: Option<String>,
    /// Number of connections of single users; only for servers with per-user credentials.
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

/// The reason why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the server is not configured")]
    UnknownServer,
    #[error("the server is not connected: {reason}")]
    Unavailable {
        reason: String,
        retry_after: Duration,
        /// Whether the server may have received the call, and carried it out.
        sent: bool,
    },
    /// The server needs the caller's credentials, but the call contains none.
    #[error("the server is called on behalf of a user or a named key, and this call belongs to neither")]
    NoCredentials,
    /// A connection with the caller's own credentials failed. The reason does not contain them.
    #[error("no connection with your own credentials: {reason}")]
    NotLetIn { reason: String, retry_after: Duration },
    #[error("all {limit} connections that users may have {of} are in use")]
    TooManyUsers { limit: usize, of: &'static str, retry_after: Duration },
    #[error("no answer within {} s", in_hundredths(*.0))]
    Timeout(Duration),
    /// The server responded with this HTTP status, without a response to the call.
    #[error("the MCP server refused the call with HTTP status {status}")]
    Refused {
        status: u16,
        /// The time after which the server accepts another call, if it has too many.
        retry_after: Option<Duration>,
    },
    /// The server rejected the token of the caller's sign-in, or there was none. It has not run the call.
    #[error("the MCP server requires a sign-in (HTTP status {})", .0.status)]
    Challenged(Box<Challenge>),
    /// The server responded with a JSON-RPC error. Its message and data are the server's own, as plain text of at most 4,000
    /// characters.
    #[error("the server answered with error {code}: {message}")]
    Protocol { code: i64, message: String, data: Option<Box<Value>> },
    #[error("the answer is larger than {limit} bytes")]
    TooLarge { limit: usize },
}

impl CallError {
    /// The kind of the error, for traces.
    pub(crate) fn kind(&self) -> Cow<'static, str> {
        match self {
            Self::UnknownServer => "unknown_server".into(),
            Self::Unavailable { .. } => "unavailable".into(),
            Self::NoCredentials => "no_credentials".into(),
            Self::NotLetIn { .. } => "not_let_in".into(),
            Self::TooManyUsers { .. } => "too_many_users".into(),
            Self::Timeout(_) => "timeout".into(),
            Self::Refused { status, .. } => status.to_string().into(),
            Self::Protocol { code, .. } => code.to_string().into(),
            Self::TooLarge { .. } => "too_large".into(),
            Self::Challenged(_) => "unauthorized".into(),
        }
    }

    /// Describes the error for the log, without the server's message, which may quote the call.
    pub(crate) fn without_words(&self) -> String {
        if matches!(self, Self::Protocol { .. }) { "an error of the server".to_owned() } else { self.to_string() }
    }
}

/// Converts a duration to seconds, rounded to hundredths.
fn in_hundredths(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

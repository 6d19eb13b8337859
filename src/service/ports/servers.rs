//! What MCP servers are asked, and what they tell.

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

/// The configured MCP servers: their lists of tools and the way to call one.
#[async_trait]
pub trait ToolServers: Send + Sync {
    /// The stream of what happens to the servers. It starts with the present state of each and is taken once,
    /// by the use case that keeps the catalog. It ends when the servers are shut down.
    fn events(&self) -> mpsc::Receiver<ServerEvent>;

    /// What servers tell unasked of what they have beside tools. Taken once, by the use case that tells clients of it. It ends when
    /// the servers are shut down.
    fn news(&self) -> mpsc::Receiver<ServerNews>;

    /// Makes these the configured servers, at once, and tells what became of each. Those that have not changed keep
    /// their connections and the calls under way; the others get theirs anew while calls under way on the former ones
    /// go on for a bounded time.
    fn configure(&self, servers: Vec<ServerSettings>) -> Vec<ServerChange>;

    /// The present state of every configured server, in configured order.
    fn states(&self) -> Vec<ServerState>;

    /// The servers that do not answer: the last attempt failed, and the next one is scheduled. Not those that are asked in the
    /// name of their callers, each of whom has a connection of their own.
    fn down(&self) -> Vec<ServerName>;

    /// Calls one tool and returns the raw result object (MCP specification, `CallToolResult`). Arguments, an object, and
    /// result are JSON text that nobody touches on the way.
    ///
    /// Dropping the future cancels the call at the server.
    ///
    /// # Errors
    /// See [`CallError`]. A result with `isError` is not an error here: it is a result.
    async fn call(&self, tool: &ToolId, arguments: Arc<RawValue>, context: CallContext) -> Result<Box<RawValue>, CallError>;

    /// Asks a server for something else than a call, and returns the raw result object.
    ///
    /// # Errors
    /// See [`CallError`]. A server that does not offer such things answers with a protocol error of code -32601.
    async fn ask(&self, server: &ServerName, asked: Asked, context: CallContext) -> Result<Box<RawValue>, CallError>;

    /// What a server has beside tools, as far as is known.
    fn offers(&self, server: &ServerName) -> Offers;

    /// Whether the configuration of a server lets headers of callers through.
    fn forwards_headers(&self, _server: &ServerName) -> bool {
        false
    }

    /// Ends the connections that were made for this caller, to this server or to all.
    fn disconnect(&self, _principal: &PrincipalId, _server: Option<&ServerName>, _parting: Parting) {}

    /// Lists a server in the name of a caller who may, in the background, where nobody else has.
    fn introduce(&self, _server: &ServerName, _principal: &PrincipalId, _credentials: Arc<Credentials>) {}

    /// Ends every connection and every child process.
    async fn shut_down(&self);
}

/// What a call carries beside the tool and its arguments.
#[derive(Clone)]
pub struct CallContext {
    pub principal: Arc<Principal>,
    /// Headers of the caller that a server's configuration may let through. Never forwarded by default.
    pub headers: Arc<http::HeaderMap>,
    /// What the server is given of the caller, where its configuration wants something.
    pub credentials: Option<Arc<Credentials>>,
    /// `None`: the server's configured timeout counts from now.
    pub deadline: Option<Instant>,
    /// Where progress notifications go, if anybody listens.
    pub progress: Option<mpsc::Sender<Progress>>,
    /// Where questions of the server go, and what it notes down for its caller, if the caller can be told.
    pub said: Option<mpsc::Sender<Said>>,
    /// Of a caller whose client answers questions with another request.
    pub round: Option<Round>,
}

impl CallContext {
    /// Of somebody who gives the server nothing, hears nothing and waits for as long as is configured.
    #[must_use]
    pub fn new(principal: Arc<Principal>) -> Self {
        Self { principal, headers: Arc::default(), credentials: None, deadline: None, progress: None, said: None, round: None }
    }
}

/// One of the requests in which a client of the newer era makes a call that its server asks something about (MCP specification
/// 2026-07-28, "Multi Round-Trip Requests").
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// What the client says that it can do: `ClientCapabilities`.
    pub capabilities: Value,
    /// What it answers to the questions of the round before, by their keys.
    pub responses: Option<BTreeMap<String, Value>>,
    /// What came with those questions, as it came.
    pub state: Option<String>,
}

impl Round {
    /// Whether there was one before it.
    #[must_use]
    pub fn is_another(&self) -> bool {
        self.responses.is_some() || self.state.is_some()
    }
}

/// What a server has beside tools.
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of its own, as the protocol has them")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    pub prompts: bool,
    pub resources: bool,
    pub completions: bool,
    /// It tells of changes of a resource to who subscribes to it.
    pub subscriptions: bool,
}

impl Offers {
    /// Whether the server answers such requests.
    #[must_use]
    pub fn have(self, what: AskedKind) -> bool {
        match what {
            AskedKind::Prompts | AskedKind::Prompt => self.prompts,
            AskedKind::Resources | AskedKind::ResourceTemplates | AskedKind::Resource => self.resources,
            AskedKind::Completion => self.completions,
            AskedKind::Subscribe | AskedKind::Unsubscribe => self.subscriptions,
        }
    }
}

/// A request to a server that is no call of a tool.
#[derive(Clone, Debug)]
pub struct Asked {
    pub what: AskedKind,
    /// An object, as the protocol has it for this request.
    pub params: Value,
}

/// What else than tools a server can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AskedKind {
    Prompts,
    Prompt,
    Resources,
    ResourceTemplates,
    Resource,
    Completion,
    /// To be told of changes of a resource, over the connection that all callers share.
    Subscribe,
    Unsubscribe,
}

impl AskedKind {
    /// The name of the request in the protocol.
    #[must_use]
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

/// What a server says to the caller in the middle of a call.
#[derive(Debug)]
pub enum Said {
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

/// Why a question has no answer: an error of the protocol.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub code: i64,
    pub message: String,
}

/// What a server is given of one caller, beside what is configured for all: headers, or variables of its process.
pub struct Credentials {
    values: BTreeMap<String, SecretString>,
    fingerprint: Fingerprint,
    /// Before what they were made of was read.
    pub read_at: Instant,
}

impl Credentials {
    #[must_use]
    pub fn new(values: BTreeMap<String, SecretString>, read_at: Instant) -> Self {
        let mut hash = Sha256::new();
        for part in values.iter().flat_map(|(name, value)| [name.as_str(), value.expose_secret()]) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self { fingerprint: Fingerprint::from_bytes(hash.finalize().into()), values, read_at }
    }

    #[must_use]
    pub fn values(&self) -> &BTreeMap<String, SecretString> {
        &self.values
    }

    /// Other values have another one.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// Names alone.
impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.values.keys()).finish()
    }
}

/// How connections of a caller end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// When the calls under way are over, within bounds.
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

/// What the servers tell.
#[derive(Clone, Debug)]
pub enum ServerEvent {
    /// The server was listed, at start, after `list_changed`, or after a reconnect.
    Listed(ServerListing),
    /// The attempt to connect or to list failed; a retry is scheduled. A last good listing stays valid.
    Failed { server: ServerName, reason: String },
    /// The server is not configured any more.
    Removed { server: ServerName },
}

/// What a server tells of what it has beside tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNews {
    pub server: ServerName,
    pub what: NewsKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewsKind {
    /// The connection is a new one: what was subscribed to is so no more, and what happened meanwhile nobody told.
    Renewed,
    /// Its list of prompts has changed.
    Prompts,
    /// Its list of resources has changed, or that of their templates.
    Resources,
    /// A resource has changed, or a part of one, by the server's own address of it.
    Updated(String),
}

/// What became of a server when the configuration was replaced.
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
        /// The keys of its entry that differ.
        keys: Vec<&'static str>,
        /// Whether the connection is made anew.
        reconnects: bool,
    },
}

/// One server as `/readyz` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct ServerState {
    pub server: ServerName,
    pub phase: ServerPhase,
    /// How many tools the last listing had.
    pub tools: usize,
    /// Tools of it that could not be taken; the log says why.
    #[serde(skip_serializing_if = "is_none")]
    pub left_out: usize,
    /// Why the last attempt failed. Free of secrets.
    pub error: Option<String>,
    /// Protocol version that was agreed on.
    pub protocol: Option<String>,
    /// Connections in the name of single users, where the server is given something of them.
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
    /// The first attempt is still under way.
    Starting,
    Connected,
    /// The last attempt failed; the next one is scheduled.
    Retrying,
}

/// Why a call brought no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the server is not configured")]
    UnknownServer,
    #[error("the server is not connected: {reason}")]
    Unavailable { reason: String, retry_after: Duration },
    /// The server is only called in the name of somebody, and this call has nobody's credentials.
    #[error("the server is called in the name of a user or a named key, and this call is of neither")]
    NoCredentials,
    /// No connection could be made with the caller's own credentials. The reason is free of them.
    #[error("no connection with your own credentials: {reason}")]
    NotLetIn { reason: String, retry_after: Duration },
    #[error("all {limit} connections that users may have {of} are in use")]
    TooManyUsers { limit: usize, of: &'static str, retry_after: Duration },
    #[error("no answer within {} s", in_hundredths(*.0))]
    Timeout(Duration),
    /// A status of HTTP without an answer to the call.
    #[error("the MCP server refused the call with HTTP status {status}")]
    Refused { status: u16 },
    /// A JSON-RPC error of the server. The message is the server's own, plain and at most 4,000 characters, and so are the data.
    #[error("the server answered with error {code}: {message}")]
    Protocol { code: i64, message: String, data: Option<Box<Value>> },
    #[error("the answer is larger than {limit} bytes")]
    TooLarge { limit: usize },
}

impl CallError {
    /// For the log, which is not for the words of a server: they may be of whatever the call was about.
    pub(crate) fn without_words(&self) -> String {
        if matches!(self, Self::Protocol { .. }) { "an error of the server".to_owned() } else { self.to_string() }
    }
}

/// Seconds as people read them.
fn in_hundredths(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

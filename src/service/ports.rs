//! The seams to the outside: the only traits of the crate, implemented by `adapters` and held as `Arc<dyn _>`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use uuid::Uuid;

use crate::domain::api_key::{ApiKey, KeyId};
use crate::domain::canonical::Fingerprint;
pub use crate::domain::catalog::{ServerListing, SkippedTool};
use crate::domain::chat::{ChatKey, ChatSet};
use crate::domain::conversation::Conversation;
use crate::domain::enrichment::{Author, Brief, Enrichment, EnrichmentProblem, Written};
use crate::domain::experiment::Arm;
pub use crate::domain::feedback::{Feedback, Verdict};
use crate::domain::judgement::{AnswerProblem, Choice, Provider, Question};
use crate::domain::loading::Group;
use crate::domain::policy::{Effect, RulePlace};
use crate::domain::principal::{Principal, PrincipalId, Visibility, VisibilityClass};
use crate::domain::relevance::SparseVector;
use crate::domain::secret::{SealedSecret, SecretPlace};
use crate::domain::session::{Session, SessionId};
pub use crate::domain::session_figures::{ArmFigures, SessionCounts, SessionFigures, SessionQuery, SessionReport};
use crate::domain::tool::{ServerName, ToolId};
use crate::domain::tool_facts::WrittenFacts;
use crate::domain::toolset::{Definition, Toolset, ToolsetName};
pub use crate::domain::usage::{DayUsage, MessageCounts, ToolCounts, ToolUsage, Usage, UsageQuery};
use crate::settings::servers::ServerSettings;

// ---------------------------------------------------------------------------------------------- MCP servers

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
    /// Why the last attempt failed. Free of secrets.
    pub error: Option<String>,
    /// Protocol version that was agreed on.
    pub protocol: Option<String>,
    /// Connections in the name of single users, where the server is given something of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_connections: Option<usize>,
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

/// Seconds as people read them.
fn in_hundredths(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

// ---------------------------------------------------------------------------------------------------- index

/// Finds tools by vectors. The visibility is part of the query, so that a hidden tool never takes a place.
#[async_trait]
pub trait ToolIndex: Send + Sync {
    /// Makes the index hold exactly these documents. Readers see the old contents until the new ones are complete.
    ///
    /// # Errors
    /// [`IndexError`]; the old contents stay, or are found by words alone where they are gone.
    async fn replace(&self, contents: IndexContents) -> Result<(), IndexError>;

    /// Resolves when the contents must be handed over again: the index has lost them, or could not take them before
    /// and can now.
    async fn needs_contents(&self) {
        std::future::pending::<()>().await;
    }

    /// The candidates of each text, merged: for every tool that is among the `limit` best of any text by dense or by
    /// lexical score, its scores for all texts. A dense score that a list did not bring is computed, a lexical
    /// one is 0. With them, where it is asked for and a text has a vector, all visible servers that have one. The order of both is not
    /// defined. An index that can't be reached answers with lexical scores and a warning.
    ///
    /// # Errors
    /// [`IndexError`]
    async fn search(&self, request: &IndexQuery<'_>) -> Result<IndexAnswer, IndexError>;

    /// How many documents it holds and from which contents, for `/readyz` and for skipping a rebuild at start.
    fn state(&self) -> IndexState;
}

/// Everything that the index shall hold.
#[derive(Clone, Debug, Default)]
pub struct IndexContents {
    /// Which embedder made the dense vectors.
    pub model: Arc<str>,
    /// Length of every dense vector.
    pub dimension: usize,
    pub documents: Vec<IndexDocument>,
    pub servers: Vec<IndexServer>,
}

/// One tool in the index.
#[derive(Clone, Debug)]
pub struct IndexDocument {
    pub tool: ToolId,
    pub class: VisibilityClass,
    /// One or more unit vectors; a query's dense score is the largest cosine over them, to a thousandth. Empty: not embedded yet,
    /// found lexically only.
    pub dense: Vec<Arc<[f32]>>,
    /// Term weights without the inverse document frequency, which the index applies.
    pub sparse: SparseVector,
}

/// One server in the index: a point beside those of its tools, in the same collection.
#[derive(Clone, Debug)]
pub struct IndexServer {
    pub server: ServerName,
    /// Those of its tools. Who sees one of them sees the server.
    pub classes: BTreeSet<VisibilityClass>,
    /// Unit vectors, as those of a tool. Empty: not embedded yet, not found.
    pub dense: Vec<Arc<[f32]>>,
}

/// A search for one message.
#[derive(Clone, Debug)]
pub struct IndexQuery<'a> {
    /// The whole message first, then its sentences where it was split.
    pub texts: &'a [IndexQueryText],
    pub visibility: &'a Visibility,
    /// Length of each of the lists that are merged.
    pub limit: usize,
    /// Whether servers are scored as well.
    pub servers: bool,
}

/// One text of a search.
#[derive(Clone, Debug)]
pub struct IndexQueryText {
    /// A unit vector; `None` searches lexically only.
    pub dense: Option<Arc<[f32]>>,
    pub sparse: SparseVector,
}

/// What a search brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexAnswer {
    pub candidates: Vec<IndexCandidate>,
    /// However many there are, and whatever the limit.
    pub servers: Vec<IndexServerScore>,
    /// Why the answer is worse than it could be, for the caller.
    pub warning: Option<&'static str>,
}

/// A tool that one of the lists brought, with its raw scores.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexCandidate {
    pub tool: ToolId,
    /// Cosine per text of the query; `None` where the text or the tool has no vector.
    pub dense: Vec<Option<f32>>,
    /// BM25 score per text of the query.
    pub lexical: Vec<f32>,
}

/// How near a visible server lies to the message.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexServerScore {
    pub server: ServerName,
    /// The best cosine over the texts of the query.
    pub dense: f32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IndexState {
    pub documents: usize,
    /// How many of them are searched by a dense vector.
    pub embedded: usize,
    /// Only of an index on a Qdrant server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qdrant: Option<QdrantState>,
}

/// The nodes of a Qdrant cluster as they are seen from here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QdrantState {
    pub nodes: usize,
    /// How many of them answer.
    pub answering: usize,
    /// Whether searches go there. Otherwise tools are found by words alone, in memory.
    pub searched: bool,
    /// What the last node that failed failed of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
}

#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The engine's own words stay out: they carry backtraces. They are in the log.
    #[error("the index could not {action}")]
    Engine { action: &'static str },
    #[error("index folder: {0}")]
    Io(#[from] std::io::Error),
    /// The client's own words stay out: they carry headers.
    #[error("Qdrant could not {action}: {reason}")]
    Qdrant { action: &'static str, reason: &'static str },
}

// ------------------------------------------------------------------------------------------------- embedder

/// Turns texts into unit vectors.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// Name and version of the model and its form: part of every key under which a vector is kept.
    fn model(&self) -> &str;

    /// Length of the vectors; 0 until it is known.
    fn dimension(&self) -> usize;

    /// The vectors of queries: few short texts, now.
    ///
    /// # Errors
    /// [`EmbedError`]
    async fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Arc<[f32]>>, EmbedError>;

    /// The vectors of tool texts: many, in the background, all cores.
    ///
    /// # Errors
    /// [`EmbedError`]
    async fn embed_passages(&self, texts: Vec<String>) -> Result<Vec<Arc<[f32]>>, EmbedError>;

    /// Why it can't embed anything now, as far as that is known; for `/readyz`. Free of secrets.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Changes whenever it can embed what it could not before. `None`: it always can.
    fn recoveries(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// Waits until the embedder of these [`Embedder::recoveries`] recovers.
pub async fn recovered(recoveries: &mut Option<watch::Receiver<u64>>) {
    if let Some(recoveries) = recoveries
        && recoveries.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    #[error("the embedder failed: {0}")]
    Failed(String),
}

// ---------------------------------------------------------------------------------------------------- judge

/// Asks a language model which tools a task needs.
#[async_trait]
pub trait Judge: Send + Sync {
    /// The tools that the model chose, best first, as [`Question::read`] has checked them. Asks once; how long it may
    /// take is the caller's affair: dropping the future ends the request.
    ///
    /// # Errors
    /// [`JudgeError`], which holds nothing of what was asked or answered.
    async fn judge(&self, advisor: &Advisor, question: &Question) -> Result<Vec<Choice>, JudgeError>;
}

/// Which language model is asked, and on whose account.
#[derive(Clone, Debug)]
pub enum Advisor {
    /// The one in the settings.
    Configured,
    /// One of a provider, with the key of the person who asks.
    Own { provider: Provider, key: SecretString },
}

impl Advisor {
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Own { provider, .. } => provider.name(),
        }
    }
}

/// Why a language model brought no judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JudgeError {
    #[error("it is not configured")]
    NotConfigured,
    #[error("it refused the key")]
    Unauthorized,
    #[error("it had too many requests")]
    RateLimited,
    #[error("it refused the request with HTTP status {0}")]
    Refused(u16),
    #[error("it did not answer in time")]
    Timeout,
    #[error("it can't be reached")]
    Unreachable,
    #[error("its answer was {0}")]
    Answer(#[from] AnswerProblem),
}

// ------------------------------------------------------------------------------------------------- enricher

/// Has a language model write what a tool is found by.
#[async_trait]
pub trait Enricher: Send + Sync {
    /// What the model wrote, as [`Brief::read`] has checked it. Asks once; how long it may take is the caller's affair:
    /// dropping the future ends the request.
    ///
    /// # Errors
    /// [`EnrichError`], which holds nothing of what was asked or answered.
    async fn enrich(&self, brief: &Brief) -> Result<Enrichment, EnrichError>;
}

/// Why a language model wrote nothing that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnrichError {
    #[error(transparent)]
    Model(#[from] JudgeError),
    #[error("its answer has {0}")]
    Answer(#[from] EnrichmentProblem),
}

// ---------------------------------------------------------------------------------------------------- store

/// What must survive a restart. Everything else is a cache.
#[async_trait]
pub trait Store: Send + Sync {
    /// The last good listing of every server.
    ///
    /// # Errors
    /// [`StoreError`], as every method here.
    async fn listings(&self) -> Result<Vec<ServerListing>, StoreError>;

    async fn save_listing(&self, listing: &ServerListing) -> Result<(), StoreError>;

    async fn remove_listing(&self, server: &ServerName) -> Result<(), StoreError>;

    /// The known vectors of these texts, by the hash of the text.
    async fn vectors(&self, model: &str, texts: &[Fingerprint]) -> Result<HashMap<Fingerprint, Arc<[f32]>>, StoreError>;

    async fn save_vectors(&self, model: &str, vectors: &[(Fingerprint, Arc<[f32]>)]) -> Result<(), StoreError>;

    /// Known token counts of function definitions, by the hash of the minified definition.
    async fn token_counts(&self, definitions: &[Fingerprint]) -> Result<HashMap<Fingerprint, u32>, StoreError>;

    async fn save_token_counts(&self, counts: &[(Fingerprint, u32)]) -> Result<(), StoreError>;

    /// Notes that these texts of the model and these definitions are in use, and removes every vector and every count
    /// that was not in use since then, of any model; returns how many went.
    async fn forget_unused(
        &self,
        model: &str,
        texts: &[Fingerprint],
        definitions: &[Fingerprint],
        since: SystemTime,
    ) -> Result<u64, StoreError>;

    /// What is written about the tools of these keys ([`crate::domain::enrichment::key`]): by an admin, otherwise by this
    /// model.
    async fn enrichments(&self, model: Option<&str>, tools: &[Fingerprint]) -> Result<HashMap<Fingerprint, Written>, StoreError>;

    /// Replaces what the same author wrote about the tool. What an admin writes is on the disk when this returns.
    async fn save_enrichment(&self, tool: &Fingerprint, written: &Written) -> Result<(), StoreError>;

    /// Removes what this author wrote about the tool. Returns whether there was anything.
    async fn remove_enrichment(&self, tool: &Fingerprint, author: &Author) -> Result<bool, StoreError>;

    /// Notes that what an admin or this model wrote about these tools is in use, and removes everything written, by
    /// whomever, that was not in use since then; returns how many went.
    async fn forget_unused_enrichments(&self, model: Option<&str>, tools: &[Fingerprint], since: SystemTime) -> Result<u64, StoreError>;

    /// Whether it answers, for `/readyz`.
    async fn check(&self) -> Result<(), StoreError>;

    async fn chat(&self, key: &ChatKey) -> Result<Option<StoredChat>, StoreError>;

    /// Makes this the chat's set, if `expected` is the present version (0: there is none), and returns the next one; `None`
    /// where another process was quicker.
    async fn save_chat(&self, key: &ChatKey, set: &ChatSet, expected: u64) -> Result<Option<u64>, StoreError>;

    /// Writes events down, and adds them to the sums of their days.
    async fn record(&self, events: &[SelectionEvent]) -> Result<(), StoreError>;

    /// The id of a selection that this principal was answered with; of a chat the last one.
    async fn selection(&self, principal: &str, named: &SelectionName) -> Result<Option<String>, StoreError>;

    /// Keeps what was said last of this selection and this tool.
    async fn save_feedback(&self, feedback: &Feedback) -> Result<(), StoreError>;

    /// Sums over the days, of universal time, that these times touch.
    async fn usage(&self, query: &UsageQuery) -> Result<Usage, StoreError>;

    /// What happened in the sessions that were used last in this time.
    async fn session_figures(&self, query: &SessionQuery) -> Result<SessionReport, StoreError>;

    /// Removes the sums of days, and of sessions that were used last, before then; returns how many rows went.
    async fn forget_usage_before(&self, time: SystemTime) -> Result<u64, StoreError>;

    /// All API keys, those that are revoked too.
    async fn api_keys(&self) -> Result<Vec<ApiKey>, StoreError>;

    /// Adds a key, or replaces the one with its id. What was acknowledged survives a power cut.
    async fn save_api_key(&self, key: &ApiKey) -> Result<(), StoreError>;

    /// Notes when a key was used last. Changes nothing else, and nothing where there is no such key.
    async fn touch_api_key(&self, id: &KeyId, at: SystemTime) -> Result<(), StoreError>;

    /// The policy that administrators gave last.
    async fn policy(&self) -> Result<Option<StoredPolicy>, StoreError>;

    /// Makes this the policy, if `expected` is the present version (0: there is none), and returns the next one; `None`
    /// where another version holds. What was acknowledged survives a power cut.
    async fn save_policy(&self, expected: u64, body: &str) -> Result<Option<u64>, StoreError>;

    /// The toolsets that administrators gave, by name.
    async fn toolsets(&self) -> Result<Vec<Toolset>, StoreError>;

    /// Adds a toolset, or replaces the one of this name. What was acknowledged survives a power cut.
    async fn save_toolset(&self, name: &ToolsetName, definition: &Definition) -> Result<(), StoreError>;

    /// Returns whether there was one. What was acknowledged survives a power cut.
    async fn remove_toolset(&self, name: &ToolsetName) -> Result<bool, StoreError>;

    /// Also one whose time is over, as long as it is still there.
    async fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError>;

    /// Those of one owner, or all, whose time is not over, oldest first.
    async fn sessions(&self, owner: Option<&PrincipalId>, now: SystemTime) -> Result<Vec<Session>, StoreError>;

    /// Adds a session. Those whose time is over go before; of its owner's others the ones that were not used for longest, where
    /// there would be more than one owner may have.
    async fn save_session(&self, session: &Session, caps: SessionCaps) -> Result<SessionSaved, StoreError>;

    /// Notes that a session is used.
    async fn touch_session(&self, id: &SessionId, at: SystemTime) -> Result<(), StoreError>;

    /// What is loaded into a session, in the order in which it was. It goes with the session.
    async fn session_groups(&self, id: &SessionId) -> Result<Vec<Group>, StoreError>;

    /// Adds groups to what is loaded into a session. One that is loaded already stays in its place; where there is no such
    /// session any more nothing happens.
    async fn load_session_groups(&self, id: &SessionId, groups: &[Group]) -> Result<(), StoreError>;

    /// Returns whether it was loaded.
    async fn unload_session_group(&self, id: &SessionId, group: &Group) -> Result<bool, StoreError>;

    /// Returns whether there was one.
    async fn remove_session(&self, id: &SessionId) -> Result<bool, StoreError>;

    /// What admins wrote about tools, and what they took back.
    async fn tool_facts(&self) -> Result<Vec<StoredToolFacts>, StoreError>;

    /// Replaces what is written about a tool, if `expected` is the present version (0: nothing ever was), and returns the
    /// next one; `None` where another version holds. Without facts nothing is written about it any more. What was
    /// acknowledged survives a power cut.
    async fn save_tool_facts(&self, tool: &ToolId, expected: u64, facts: Option<&WrittenFacts>) -> Result<Option<u64>, StoreError>;

    /// What is known of the definitions of all tools that were ever seen.
    async fn definitions(&self) -> Result<Vec<StoredDefinition>, StoreError>;

    /// The definition of a tool that was seen first, or approved last, as JSON.
    async fn definition(&self, tool: &ToolId) -> Result<Option<String>, StoreError>;

    /// Keeps the definitions of tools that were never seen before, each with its JSON. One that is there stays.
    async fn add_definitions(&self, new: &[(StoredDefinition, String)]) -> Result<(), StoreError>;

    /// Notes which other definition of a tool was seen and logged, and when.
    async fn note_definition(&self, tool: &ToolId, other: &Fingerprint, at: SystemTime) -> Result<(), StoreError>;

    /// Puts a definition in the place of the one that later ones are held against; the tool is new no longer. What was
    /// acknowledged survives a power cut.
    async fn approve_definition(&self, tool: &ToolId, definition: &Fingerprint, json: &str, at: SystemTime) -> Result<(), StoreError>;

    /// When each server was listed last.
    async fn listing_times(&self) -> Result<HashMap<ServerName, SystemTime>, StoreError>;

    /// All secrets of one owner.
    async fn secrets(&self, owner: &PrincipalId) -> Result<Vec<SealedSecret>, StoreError>;

    /// All secrets that were not sealed with this key.
    async fn secrets_of_other_keys(&self, key_id: &str) -> Result<Vec<SealedSecret>, StoreError>;

    /// Adds a secret, or replaces the one in its place. What was acknowledged survives a power cut.
    async fn save_secret(&self, secret: &SealedSecret) -> Result<(), StoreError>;

    /// Puts the second in the place of the first, if that is still as it is given here; returns whether it was.
    async fn reseal_secret(&self, former: &SealedSecret, new: &SealedSecret) -> Result<bool, StoreError>;

    /// Returns whether there was one. What was acknowledged survives a power cut.
    async fn remove_secret(&self, place: &SecretPlace) -> Result<bool, StoreError>;

    /// Removes all of one owner; returns how many went. What was acknowledged survives a power cut.
    async fn remove_secrets(&self, owner: &PrincipalId) -> Result<u64, StoreError>;

    async fn save_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError>;

    /// Entries of the audit log, newest first.
    async fn audit(&self, query: &AuditQuery) -> Result<Vec<StoredAuditEntry>, StoreError>;

    /// Removes the entries before then; returns how many went.
    async fn forget_audit_before(&self, time: SystemTime) -> Result<u64, StoreError>;

    /// Removes chats that nobody touched since then, and events and feedback before then; returns how many rows went.
    async fn forget_before(&self, chats: SystemTime, events: SystemTime) -> Result<u64, StoreError>;
}

/// A policy as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// From 1.
    pub version: u64,
    /// JSON.
    pub body: String,
}

/// A chat's set as it was stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredChat {
    pub set: ChatSet,
    /// From 1.
    pub version: u64,
}

/// How many sessions there may be at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionCaps {
    /// Of one owner.
    pub of_one: usize,
    pub of_all: usize,
}

/// What became of a new session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionSaved {
    Saved {
        /// Of the same owner, that made room for it.
        gone: Vec<SessionId>,
    },
    /// There are as many as there may be, and too few of its owner's to make room.
    Full,
}

/// What an admin wrote about a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToolFacts {
    pub tool: ToolId,
    /// From 1; it grows with every change.
    pub version: u64,
    /// `None`: it was taken back.
    pub facts: Option<WrittenFacts>,
}

/// What is known of the definition of a tool, apart from its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDefinition {
    pub tool: ToolId,
    /// Of the definition that was seen first, or approved last. Later ones are held against it.
    pub fingerprint: Fingerprint,
    /// Whether its server was known before it, and nobody has approved it yet.
    pub is_new: bool,
    pub first_seen: SystemTime,
    /// Another definition that was seen and logged, and when.
    pub noticed: Option<(Fingerprint, SystemTime)>,
    pub approved: Option<SystemTime>,
}

/// Something that happened to a selection. Holds no arguments and no results, and of a message its text only where the settings
/// want it.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectionEvent {
    pub at: SystemTime,
    /// The selection itself, or the one that the event follows.
    pub selection: Option<String>,
    pub principal: String,
    pub chat: Option<String>,
    /// To whose figures it counts.
    pub conversation: Option<Conversation>,
    pub kind: SelectionEventKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SelectionEventKind {
    /// Tools of ours that a selection left on offer.
    Offered {
        message: EventMessage,
        tools: Vec<ToolId>,
        tokens_before: u64,
        tokens_after: u64,
        /// Of a comparison.
        arm: Option<Arm>,
    },
    /// A tool was called. `recovered`: though the chat's last selection had not offered it.
    Called { tool: ToolId, outcome: CallOutcome, took: Duration, recovered: bool },
    /// The model searched. `recovered`: the best tool that was found is one that the chat's last selection had not offered.
    Searched { message: EventMessage, tools: Vec<ToolId>, recovered: bool },
    /// A group was loaded into the conversation. `bound`: tools that are bound since, beside the meta-tools.
    Loaded { took: Duration, before: u64, bound: u64 },
    /// A group was taken back.
    Unloaded { before: u64, bound: u64 },
    /// The conversation was given its list of tools.
    Listed { bound: u64 },
}

/// A message as it is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventMessage {
    /// What made the vector.
    pub model: Arc<str>,
    pub vector: Option<Arc<[f32]>>,
    pub text: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    Success,
    /// The tool's own error (`isError`).
    ToolError,
    /// The caller's mistake: invalid arguments.
    Rejected,
    /// Server down, timeout, broken protocol.
    Failed,
    /// The caller went away before the answer.
    Cancelled,
    /// Refused by a limit.
    Limited,
    /// The server asked something in place of a result, and the caller's next request brings the answer: neither a failure nor the
    /// end of the call. The audit log alone has it.
    InputRequired,
}

impl CallOutcome {
    const ALL: [Self; 7] =
        [Self::Success, Self::ToolError, Self::Rejected, Self::Failed, Self::Cancelled, Self::Limited, Self::InputRequired];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ToolError => "tool_error",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Limited => "limited",
            Self::InputRequired => "input_required",
        }
    }

    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.name() == name)
    }
}

/// How a caller names a selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectionName {
    Id(String),
    /// The last one of this chat.
    Chat(String),
}

/// Something that somebody did. Holds no arguments and no results.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    pub at: SystemTime,
    pub principal: String,
    pub action: AuditAction,
    /// Of a call, and of a change of what holds for a tool.
    pub tool: Option<ToolId>,
    /// Of a read: the server that has it.
    pub server: Option<ServerName>,
    /// Of a change: what was changed. Of a read: the name of the prompt, or the address of the resource without its query.
    pub subject: Option<String>,
    pub decision: Effect,
    /// The rule that decided, as it was numbered then.
    pub rule: Option<RulePlace>,
    /// Of a call and of a read that were allowed.
    pub outcome: Option<CallOutcome>,
    pub took: Duration,
    /// Of the answer.
    pub bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditAction {
    Call,
    PromptGet,
    ResourceRead,
    KeyCreate,
    KeyRotate,
    KeyRevoke,
    PolicyReplace,
    ToolsetReplace,
    ToolsetRemove,
    EnrichmentReplace,
    EnrichmentRemove,
    ToolFactsReplace,
    ToolFactsRemove,
    DefinitionApprove,
    SecretReplace,
    SecretRemove,
    SecretsForget,
    SessionEnd,
}

impl AuditAction {
    const ALL: [Self; 18] = [
        Self::Call,
        Self::PromptGet,
        Self::ResourceRead,
        Self::KeyCreate,
        Self::KeyRotate,
        Self::KeyRevoke,
        Self::PolicyReplace,
        Self::ToolsetReplace,
        Self::ToolsetRemove,
        Self::EnrichmentReplace,
        Self::EnrichmentRemove,
        Self::ToolFactsReplace,
        Self::ToolFactsRemove,
        Self::DefinitionApprove,
        Self::SecretReplace,
        Self::SecretRemove,
        Self::SecretsForget,
        Self::SessionEnd,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::PromptGet => "prompt_get",
            Self::ResourceRead => "resource_read",
            Self::KeyCreate => "key_create",
            Self::KeyRotate => "key_rotate",
            Self::KeyRevoke => "key_revoke",
            Self::PolicyReplace => "policy_replace",
            Self::ToolsetReplace => "toolset_replace",
            Self::ToolsetRemove => "toolset_remove",
            Self::EnrichmentReplace => "enrichment_replace",
            Self::EnrichmentRemove => "enrichment_remove",
            Self::ToolFactsReplace => "tool_facts_replace",
            Self::ToolFactsRemove => "tool_facts_remove",
            Self::DefinitionApprove => "definition_approve",
            Self::SecretReplace => "secret_replace",
            Self::SecretRemove => "secret_remove",
            Self::SecretsForget => "secrets_forget",
            Self::SessionEnd => "session_end",
        }
    }

    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

impl AuditEntry {
    /// A change that was made by this principal.
    #[must_use]
    pub fn of_change(principal: &Principal, action: AuditAction, subject: String) -> Self {
        Self {
            at: SystemTime::now(),
            principal: principal.id.as_str().to_owned(),
            action,
            tool: None,
            server: None,
            subject: Some(subject),
            decision: Effect::Allow,
            rule: None,
            outcome: None,
            took: Duration::ZERO,
            bytes: None,
        }
    }
}

/// An entry with its number, which grows with time.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAuditEntry {
    pub id: u64,
    pub entry: AuditEntry,
}

/// Which entries are wanted; what is `None` does not matter.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    pub principal: Option<String>,
    pub action: Option<AuditAction>,
    pub server: Option<String>,
    pub tool: Option<String>,
    pub decision: Option<Effect>,
    pub outcome: Option<CallOutcome>,
    pub since: Option<SystemTime>,
    pub until: Option<SystemTime>,
    /// Only those with smaller numbers.
    pub before: Option<u64>,
    pub limit: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store could not {action}")]
    Failed {
        action: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

// -------------------------------------------------------------------------------------------------- process

/// What this process uses, as the system tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessState {
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub threads: u64,
    pub open_files: u64,
    /// `None`: as many as it likes.
    pub most_files: Option<u64>,
    /// Since 1970.
    pub started_seconds: f64,
}

// ---------------------------------------------------------------------------------------------------- files

/// Keeps files that tools returned until their links run out.
#[async_trait]
pub trait FileStore: Send + Sync {
    /// Keeps a file under a new id.
    ///
    /// # Errors
    /// [`FileStoreError`]
    async fn save(&self, id: Uuid, file: StoredFile) -> Result<(), FileStoreError>;

    /// The file, if it is still there.
    ///
    /// # Errors
    /// [`FileStoreError`]
    async fn read(&self, id: Uuid) -> Result<Option<StoredFile>, FileStoreError>;
}

/// A file and what its readers need to know.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// `type/subtype`.
    pub mime_type: String,
    pub name: Option<String>,
    pub expires: SystemTime,
    pub bytes: Bytes,
}

#[derive(Debug, thiserror::Error)]
pub enum FileStoreError {
    #[error("the file is larger than all files together may be")]
    TooLarge,
    #[error("the folder for files: {0}")]
    Io(#[from] std::io::Error),
}

//! A live connection to one server: transport, handshake, requests with raw results, and shutdown.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http::StatusCode;
use rmcp::model::{
    ClientConfig, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation, ListRootsRequestMethod, ProtocolVersion,
    RequestMetaObject, SubscriptionFilter,
};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RequestContext, RunningServiceCancellationToken};
use rmcp::transport::IntoTransport;
use rmcp::transport::common::client_side_sse::FixedInterval;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpClientWorker};
use rmcp::transport::worker::WorkerTransport;
use rmcp::{ClientHandler, RoleClient};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use url::Url;

use crate::adapters::mcp::exchange::{Exchange, RAW, Recipients, UNUSABLE};
use crate::adapters::mcp::link::error::{LinkError, transport_error};
use crate::adapters::mcp::link::follow::{self, Followed};
use crate::adapters::mcp::link::link::{LIST_LIMIT, Link, Questions, Wire};
use crate::adapters::mcp::process::child::{Child, Manners, Processes, Program, SpawnError};
use crate::adapters::mcp::text::{Secrets, cut, foreign};
use crate::adapters::mcp::transport::http::HttpClient;
use crate::adapters::mcp::transport::oauth::{TokenError, TokenStore, Tokens};
use crate::adapters::mcp::transport::sending::{HttpFailure, Sender, SignIn, configured};
use crate::adapters::mcp::transport::sse::{Remote, SseFailure, SseTransport};
use crate::adapters::mcp::transport::stdio::StdioTransport;
use crate::domain::access::authorization::Challenge;
use crate::service::ports::{Offers, Refusal, ServerMessage, ServerQuestion};
use crate::settings::servers::{ServerSettings, TransportSettings};

/// Additional bytes allowed for the parts of a message around its result.
const ENVELOPE: usize = 64 * 1024;
/// Maximum length of a server's title, name and version, in bytes. Longer ones are cut.
const LONGEST_NAME: usize = 1000;
/// Maximum number of concurrent HTTP requests. With rmcp's default of 16, calls would queue.
const CONCURRENT_POSTS: usize = 4096;
/// Maximum duration of a clean shutdown, without that of the process.
const CLOSING: Duration = Duration::from_secs(3);
/// Statuses in response to a streamable HTTP handshake that suggest a server with the older transport.
const MAY_BE_SSE: [StatusCode; 3] = [StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED];

/// The handshake to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::adapters::mcp) enum Era {
    /// `initialize`, up to protocol 2025-11-25.
    Initialize,
    /// `server/discover`, from protocol 2026-07-28 on.
    Discover,
    /// `Discover`, then `Initialize` if the server does not support it.
    Either,
}

impl Era {
    /// The first handshake to try with an unknown server.
    pub(in crate::adapters::mcp) fn usual(transport: &TransportSettings) -> Self {
        match Wire::of(transport) {
            // The newer handshake would break servers that start slowly, because rmcp limits it to 10 s.
            Wire::Stdio => Self::Initialize,
            Wire::StreamableHttp | Wire::Sse => Self::Either,
        }
    }
}

/// The parameters of a connection.
#[derive(Clone, Copy)]
pub(in crate::adapters::mcp) struct Connector<'a> {
    pub(in crate::adapters::mcp) settings: &'a ServerSettings,
    pub(in crate::adapters::mcp) secrets: &'a Arc<Secrets>,
    pub(in crate::adapters::mcp) client: &'a reqwest::Client,
    pub(in crate::adapters::mcp) processes: &'a Arc<Processes>,
    /// The transport to try first.
    pub(in crate::adapters::mcp) wire: Wire,
    pub(in crate::adapters::mcp) oauth: &'a TokenStore,
    pub(in crate::adapters::mcp) questions: Questions,
    /// The token of a sign-in, for a connection that has one.
    pub(in crate::adapters::mcp) sign_in: Option<&'a SignIn>,
}

#[derive(Debug, thiserror::Error)]
pub(in crate::adapters::mcp) enum ConnectError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Http(#[from] HttpFailure),
    #[error(transparent)]
    Sse(#[from] SseFailure),
    #[error("neither over SSE ({sse}) nor over streamable HTTP ({streamable})")]
    Neither { sse: Box<ConnectError>, streamable: Box<ConnectError> },
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The server answered the handshake with an error. It may support the other handshake.
    #[error("the server rejected the handshake: {0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
}

impl ConnectError {
    /// The server's challenge, if it rejected the token of a sign-in.
    pub(in crate::adapters::mcp) fn challenge(&self) -> Option<&Challenge> {
        match self {
            Self::Http(HttpFailure::Challenge(challenge)) | Self::Sse(SseFailure::Http(HttpFailure::Challenge(challenge))) => {
                Some(challenge)
            }
            Self::Neither { sse, streamable } => streamable.challenge().or_else(|| sse.challenge()),
            _ => None,
        }
    }
}

/// A connection with its resources. Dropping it kills the child process.
pub(in crate::adapters::mcp) struct Connection {
    pub(in crate::adapters::mcp) link: Arc<Link>,
    pub(in crate::adapters::mcp) about: About,
    pub(in crate::adapters::mcp) child: Option<Child>,
    cancel: Option<RunningServiceCancellationToken>,
    closed: CancellationToken,
    _listener: Option<AbortOnDropHandle<()>>,
}

/// A server's self-description.
#[derive(Clone, Debug, Default)]
pub(in crate::adapters::mcp) struct About {
    pub(in crate::adapters::mcp) title: Option<String>,
    /// `serverInfo.name`.
    pub(in crate::adapters::mcp) program: Option<String>,
    pub(in crate::adapters::mcp) version: Option<String>,
    pub(in crate::adapters::mcp) instructions: Option<String>,
}

impl Connector<'_> {
    /// Connects and performs the handshake, without a timeout. Stores the process in `child`, so that its last output is
    /// available after a failure.
    pub(in crate::adapters::mcp) async fn connect(&self, era: Era, child: &mut Option<Child>) -> Result<Connection, ConnectError> {
        let settings = self.settings;
        match &settings.transport {
            TransportSettings::Stdio { command, args, env, directory } => {
                let program = Program {
                    command: command.clone(),
                    args: args.clone(),
                    env: env.clone(),
                    directory: directory.clone(),
                    sandbox: settings.sandbox.clone(),
                    processes: Arc::clone(self.processes),
                };
                let (process, streams) = Child::spawn(settings.name.clone(), program, Arc::clone(self.secrets)).await?;
                *child = Some(process);
                let (exchange, limit) = (Arc::<Exchange>::default(), self.limit());
                let transport = StdioTransport::new(settings.name.clone(), Arc::clone(&exchange), streams, limit);
                let mut connection = self.shake_hands(transport, exchange, era, Wire::Stdio).await?;
                connection.child = child.take();
                Ok(connection)
            }
            TransportSettings::StreamableHttp { url, headers } | TransportSettings::Sse { url, headers } => {
                let tokens = self.tokens().await?;
                let sign_in = settings.per_user.signs_in.then(|| self.sign_in.cloned().unwrap_or_default());
                let sender = Sender { client: self.client.clone(), headers: configured(headers)?, tokens, sign_in };
                self.remote(url, &sender, era).await
            }
        }
    }

    /// Maximum size of a message, in bytes.
    fn limit(&self) -> usize {
        self.settings.max_result_bytes.max(LIST_LIMIT).saturating_add(ENVELOPE)
    }

    /// Tries one HTTP transport. If the response suggests it, tries the other one too (MCP specification, "Backwards
    /// Compatibility" of the transports).
    async fn remote(&self, url: &Url, sender: &Sender, era: Era) -> Result<Connection, ConnectError> {
        let failure = match self.over(self.wire, url, sender, era).await {
            Ok(connection) => return Ok(connection),
            Err(failure) => failure,
        };
        let other = match (&failure, self.wire) {
            (ConnectError::Sse(failure), _) if failure.may_be_streamable() => Wire::StreamableHttp,
            (ConnectError::Http(HttpFailure::Status(status)), Wire::StreamableHttp) if MAY_BE_SSE.contains(status) => Wire::Sse,
            _ => return Err(failure),
        };
        let (sse, streamable) = match self.over(other, url, sender, era).await {
            Ok(connection) => return Ok(connection),
            Err(refused @ ConnectError::Refused(_)) => return Err(refused),
            Err(_) if matches!(self.settings.transport, TransportSettings::StreamableHttp { .. }) => return Err(failure),
            Err(second) if other == Wire::Sse => (second, failure),
            Err(second) => (failure, second),
        };
        Err(ConnectError::Neither { sse: Box::new(sse), streamable: Box::new(streamable) })
    }

    async fn over(&self, wire: Wire, url: &Url, sender: &Sender, era: Era) -> Result<Connection, ConnectError> {
        let (exchange, limit, sender) = (Arc::<Exchange>::default(), self.limit(), sender.clone());
        match wire {
            Wire::Sse => {
                let ServerSettings { start_timeout, call_timeout, .. } = *self.settings;
                let remote = Remote { sender, url, start_timeout, call_timeout };
                let transport = SseTransport::open(remote, Arc::clone(&exchange), limit).await?;
                // This transport does not support the newer handshake.
                self.shake_hands(transport, exchange, Era::Initialize, wire).await
            }
            Wire::StreamableHttp | Wire::Stdio => {
                let client = HttpClient::new(sender, Arc::clone(&exchange), limit);
                let mut retry = FixedInterval::default();
                retry.max_times = Some(1);
                let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .max_concurrent_requests(CONCURRENT_POSTS)
                    .max_sse_event_size(limit);
                config.retry_config = Arc::new(retry);
                let transport = WorkerTransport::spawn(StreamableHttpClientWorker::new(client, config));
                self.shake_hands(transport, exchange, era, Wire::StreamableHttp).await
            }
        }
    }

    /// The shared OAuth tokens, if the server uses OAuth.
    async fn tokens(&self) -> Result<Option<Arc<Tokens>>, TokenError> {
        let Some(oauth) = &self.settings.remote.oauth else { return Ok(None) };
        let tokens = self.oauth.tokens(oauth);
        tokens.reload().await;
        tokens.bearer().await?;
        Ok(Some(tokens))
    }

    async fn shake_hands<T, E, A>(&self, transport: T, exchange: Arc<Exchange>, era: Era, wire: Wire) -> Result<Connection, ConnectError>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        let mode = match era {
            Era::Initialize => ClientLifecycleMode::Initialize,
            Era::Discover => ClientLifecycleMode::Discover { preferred_versions },
            // If no version were pinned, a server that echoes the newest version would be treated as stateless.
            Era::Either => ClientLifecycleMode::Auto { preferred_versions, legacy_version: Some(ProtocolVersion::V_2025_11_25) },
        };
        let client = Client { exchange: Arc::clone(&exchange), questions: self.questions };
        let running = client.serve_with_lifecycle(transport, mode).await.map_err(refused)?;
        let info = running.peer().peer_info();
        let mut about = About::default();
        let (mut protocol, mut has_tools, mut followed) = (ProtocolVersion::V_2025_11_25, false, SubscriptionFilter::default());
        let mut offers = Offers::default();
        if let Some(info) = info.as_deref() {
            let server = info.server_info.as_ref();
            about.title = server.map(|server| name(server.title.as_ref().unwrap_or(&server.name)));
            about.program = server.map(|server| name(&server.name));
            about.version = server.map(|server| name(&server.version));
            about.instructions.clone_from(&info.instructions);
            protocol = info.protocol_version.clone();
            has_tools = info.capabilities.tools.is_some();
            offers = Offers {
                prompts: info.capabilities.prompts.is_some(),
                resources: info.capabilities.resources.is_some(),
                completions: info.capabilities.completions.is_some(),
                subscriptions: info.capabilities.resources.as_ref().is_some_and(|resources| resources.subscribe == Some(true)),
            };
            followed = follow::lists_of(&info.capabilities);
        }
        let peer = running.peer().clone();
        let cancel = Some(running.cancellation_token());
        let closed = CancellationToken::new();
        let ended = closed.clone();
        tokio::spawn(async move {
            let _ = running.waiting().await;
            ended.cancel();
        });
        let is_modern = protocol >= ProtocolVersion::V_2026_07_28;
        let listens = is_modern && followed != SubscriptionFilter::default();
        let listener = listens.then(|| tokio::spawn(follow::lists(peer.clone(), followed, Arc::clone(&exchange))));
        let link = Link {
            peer,
            exchange,
            is_modern,
            followed: Followed::default(),
            protocol: name(&protocol.to_string()),
            has_tools,
            offers,
            wire,
            questions: self.questions,
            calls: TaskTracker::new(),
            is_doubted: AtomicBool::new(false),
            closed: closed.clone(),
            result_limit: self.settings.max_result_bytes,
        };
        let listener = listener.map(AbortOnDropHandle::new);
        Ok(Connection { link: Arc::new(link), about, child: None, cancel, closed, _listener: listener })
    }
}

/// A name in a server's self-description. It may be of any length, and is part of documents and lists.
fn name(text: &str) -> String {
    cut(text, LONGEST_NAME).to_owned()
}

impl Connection {
    /// Waits until the connection is lost and returns the reason. Cancel-safe.
    pub(in crate::adapters::mcp) async fn lost(&mut self) -> String {
        let Some(child) = &mut self.child else {
            self.closed.cancelled().await;
            return "the connection was closed".to_owned();
        };
        let how = tokio::select! {
            how = child.exited() => {
                // The last output may still be in the pipe. The time is limited, because a grandchild can keep the pipe open
                // forever.
                let _ = timeout(Duration::from_millis(200), self.closed.cancelled()).await;
                how
            }
            () = self.closed.cancelled() => match timeout(Duration::from_millis(500), child.exited()).await {
                Ok(how) => how,
                Err(_) => "the server closed its standard output".to_owned(),
            },
        };
        match child.last_words().await {
            Some(words) => format!("{how}: {words}"),
            None => how,
        }
    }

    /// Ends the session and the child process. Pending requests fail.
    pub(in crate::adapters::mcp) async fn close(mut self, manners: Manners) {
        if let Some(cancel) = self.cancel.take() {
            cancel.cancel();
        }
        let _ = timeout(CLOSING, self.closed.cancelled()).await;
        if let Some(mut child) = self.child.take() {
            child.stop(manners).await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            cancel.cancel();
        }
    }
}

/// The client side of the protocol. Forwards server requests to callers and provides no roots.
struct Client {
    exchange: Arc<Exchange>,
    questions: Questions,
}

/// Time limit for the answer of a person or a model.
const ANSWERING: Duration = Duration::from_mins(10);
const INVALID_REQUEST: ErrorCode = ErrorCode::INVALID_REQUEST;

impl Client {
    /// Forwards a server request to the caller and returns the answer.
    async fn hand_on(&self, method: String, params: Value, meta: &RequestMetaObject) -> Result<Value, ErrorData> {
        let recipient = match self.exchange.recipients(meta) {
            Recipients::One(recipient) => recipient,
            Recipients::Several => {
                let message = "several calls are running on this connection, and the request does not say which one it belongs to";
                return Err(ErrorData::new(INVALID_REQUEST, message, None));
            }
            Recipients::Nobody => return Err(ErrorData::new(INVALID_REQUEST, "the caller can't be asked", None)),
        };
        let gone = || ErrorData::new(INVALID_REQUEST, "the caller has disconnected", None);
        let (answer, answered) = oneshot::channel();
        let _waits = recipient.waits();
        recipient.messages.send(ServerMessage::Question(ServerQuestion { method, params, answer })).await.map_err(|_| gone())?;
        match timeout(ANSWERING, answered).await {
            Ok(answered) => answered.map_err(|_| gone())?.map_err(|Refusal { code, message }| {
                ErrorData::new(ErrorCode(i32::try_from(code).unwrap_or(INVALID_REQUEST.0)), message, None)
            }),
            Err(_) => Err(ErrorData::new(INVALID_REQUEST, "the caller did not answer in time", None)),
        }
    }
}

impl ClientHandler for Client {
    #[expect(deprecated, reason = "servers of the older era still ask for roots")]
    async fn list_roots(&self, _context: RequestContext<RoleClient>) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListRootsRequestMethod>())
    }

    async fn on_custom_request(&self, request: CustomRequest, context: RequestContext<RoleClient>) -> Result<CustomResult, ErrorData> {
        if request.method == UNUSABLE {
            return Err(ErrorData::new(INVALID_REQUEST, "the request is too large or invalid", None));
        }
        let method = request.method.strip_prefix(RAW).filter(|method| self.questions.allow(method)).map(str::to_owned);
        let Some(method) = method else {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "method not found", None));
        };
        // rmcp removes `_meta` from the parameters.
        let asked = self.hand_on(method, request.params.unwrap_or_default(), &context.meta);
        tokio::select! {
            answer = asked => answer.map(CustomResult::new),
            // The server has cancelled its request, so rmcp drops the answer.
            () = context.ct.cancelled() => Err(ErrorData::new(INVALID_REQUEST, "the request was cancelled", None)),
        }
    }

    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("toolsieve", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(self.questions.capabilities(), us).with_protocol_version(ProtocolVersion::V_2025_11_25)
    }
}

/// Builds an error without rmcp's text, which may contain whole messages.
fn refused(error: ClientInitializeError) -> ConnectError {
    match error {
        ClientInitializeError::JsonRpcError(error) => ConnectError::Refused(format!("{} ({})", foreign(&error.message), error.code.0)),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => refused(*fallback),
        ClientInitializeError::TransportError { error, .. } => match transport_error(&error) {
            LinkError::Refused(status) => HttpFailure::Status(status).into(),
            LinkError::Challenged(challenge) => HttpFailure::Challenge(challenge).into(),
            other => ConnectError::Failed(other.to_string()),
        },
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let supported: Vec<_> = server_supported.iter().map(ToString::to_string).collect();
            ConnectError::Refused(format!("it supports only protocol {}", foreign(&supported.join(", "))))
        }
        ClientInitializeError::ConnectionClosed(_) => ConnectError::Failed("the connection was closed during the handshake".to_owned()),
        _ => ConnectError::Failed("the response to the handshake is invalid".to_owned()),
    }
}

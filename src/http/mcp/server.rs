//! Answers the requests of MCP clients.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix_web::web;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult, ContentBlock,
    CustomRequest, CustomResult, ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse, Implementation, JsonObject,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, SubscriptionFilter,
    Tool as McpTool,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::as_written::AsWritten;
use super::message::has_sessions;
use super::rounds;
use super::sign_in;
use super::subscriptions::Open;
use super::{definition, questions, unreadable};
use crate::domain::access::visibility::Visibility;
use crate::domain::catalog::catalog::{Catalog, CatalogServer};
use crate::domain::catalog::tool::{ServerName, Tool, ToolId};
use crate::domain::execution::outcome;
use crate::domain::publishing::address::Address;
use crate::domain::publishing::meta_tools::MetaTool::{self, DescribeTools, FindTools, LoadToolset, RunTool};
use crate::domain::publishing::meta_tools::{MAX_DESCRIBED, describe_listed, summarize_servers};
use crate::domain::text::json;
use crate::domain::toolsets::mode::{DefaultMode, Mode};
use crate::http::llm_keys;
use crate::http::meta_tools::{self, Ran, Through};
use crate::http::problem::{Code, Problem};
use crate::http::state::State;
use crate::service::caller::{CallOptions, CallerContext};
use crate::service::catalog::current::View;
use crate::service::execution::execute::ExecuteError;
use crate::service::mcp::mcp_sessions::{McpSession, listed_at};
use crate::service::ports::{Progress, Round, Span, SpanKind, TraceContext};
use crate::service::publishing::publish::Publish;
use crate::service::spans;
use crate::service::toolsets::loading::CallerAt;

/// How long a client may cache a list, in milliseconds. Servers rarely change their lists, and not all clients get
/// notifications.
pub(super) const LIST_TTL_MS: u64 = 60_000;
const PROGRESS_QUEUE: usize = 16;
/// How long a result waits until pending notifications have been sent.
pub(super) const NOTIFYING: Duration = Duration::from_secs(1);
/// Methods of the lazy mode, which are not part of the protocol.
pub(super) const DESCRIBE: &str = "tools/describe";
pub(super) const DESCRIBE_BATCH: &str = "tools/describe_batch";

/// Which tools the client's list contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Whole(Mode),
    /// All tools if these are few, and otherwise those of the dynamic mode.
    Auto,
    /// All tools, with names and first sentences only. Full definitions are available on request.
    Stubs,
    /// The selection for the current message, or all tools if there is no selection.
    ForMessage,
}

/// Handles a single request of an MCP client.
#[derive(Clone)]
pub(super) struct Handler {
    pub(super) state: web::Data<State>,
    pub(super) caller: CallerContext,
    /// The requested address: the whole service, a toolset or a session.
    pub(super) address: Arc<Address>,
    /// The same address with the groups that are loaded into its session, for messages about prompts and resources.
    pub(super) served: Arc<Address>,
    pub(super) shown: Shown,
    /// The names of the selected tools, in order, for [`Shown::ForMessage`].
    pub(super) chosen: Option<Arc<[String]>>,
    /// The server to which the address belongs, if it belongs to only one. Its tools have their original names.
    pub(super) server: Option<ServerName>,
    /// The client's MCP session, if any.
    pub(super) session: Option<Arc<McpSession>>,
    /// Sends messages to the client before the response to this request.
    pub(super) stream: Option<mpsc::Sender<Arc<str>>>,
    /// The path and the mode, as one text.
    pub(super) path: Arc<str>,
    /// The arguments of a call, unchanged. The SDK gets a copy for its own checks only.
    pub(super) arguments: Option<Arc<str>>,
    /// The original JSON text of the result, which replaces the SDK's result.
    pub(super) written: AsWritten,
    /// Whether the response needs the server's name and capabilities. The SDK requests them for every message.
    pub(super) introduces: bool,
    /// Whether the client can receive notifications about changes.
    pub(super) receives_changes: bool,
    /// The notification stream that this request opens (protocol 2026-07-28).
    pub(super) open: Option<Arc<Open>>,
    /// The span of the HTTP request. The SDK may handle the message in another task.
    pub(super) span: Option<Arc<dyn Span>>,
    /// The mode for [`Shown::Auto`], once it is needed.
    pub(super) automatic: OnceLock<Mode>,
    /// The address whose tools the list contains, once it is needed.
    pub(super) listed_at: OnceLock<Arc<Address>>,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        if !self.introduces {
            return ServerConfig::new(ServerCapabilities::default());
        }
        let (catalog, visibility) = self.view();
        let mut capabilities = ServerCapabilities::builder().enable_tools().build();
        if let Some(tools) = capabilities.tools.as_mut().filter(|_| self.receives_changes) {
            tools.list_changed = Some(true);
        }
        self.announce(&mut capabilities);
        if self.session.is_some() {
            announce_notes(&mut capabilities);
        }
        let config = ServerConfig::new(capabilities);
        if let Some(server) = &self.server {
            return of_one_server(config, catalog.server(server.as_str()));
        }
        config
            .with_server_info(Implementation::new("toolsieve", env!("CARGO_PKG_VERSION")).with_title("Toolsieve"))
            .with_instructions(instructions(&catalog, &visibility, self.shown, self.mode()))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        check_cursor(request)?;
        let (catalog, visibility) = self.view();
        if let Some(server) = &self.server {
            let own = catalog.visible(&visibility).filter(|tool| tool.id.server == *server);
            let listed = own.filter(|tool| self.address.shows(tool, &visibility, Mode::Full));
            let tools = listed.map(|tool| definition::named(tool, &tool.label)).collect();
            return Ok(ListToolsResult::with_all_items(tools).with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Private));
        }
        if let Some(session) = self.session.as_deref().filter(|_| self.shown == Shown::Auto) {
            let _ = self.automatic.set(self.state.mcp_sessions.mode_to_list(session));
        }
        let mode = self.mode();
        let (of_meta, define): (_, fn(&Tool) -> McpTool) = match self.shown {
            // The client gets the names of all tools, so it needs no search.
            Shown::Stubs => (vec![describe_listed()], definition::stub),
            Shown::Whole(_) | Shown::Auto | Shown::ForMessage => (Publish::meta_tools(&catalog, &visibility, mode), definition::of),
        };
        let mut tools: Vec<McpTool> = of_meta.iter().map(definition::of_meta).collect();
        let bound = self.state.loading.bound(self.here(), mode).await;
        let mut listed = Publish::listed(&catalog, self.listed_at(), &visibility, mode, &bound);
        if let Some(names) = &self.chosen {
            let of_names = names.iter().filter_map(|name| listed.iter().copied().find(|tool| tool.operation_id.as_str() == name));
            listed = of_names.collect();
        }
        self.state.loading.note_listed(&self.caller, listed.len());
        tools.extend(listed.into_iter().map(|tool| define(tool)));
        // After a load, the client must see the new tools immediately.
        let changes = mode == Mode::Dynamic || matches!(*self.address, Address::Session(_)) || self.shown == Shown::ForMessage;
        let ttl = if changes { 0 } else { LIST_TTL_MS };
        Ok(ListToolsResult::with_all_items(tools).with_ttl_ms(ttl).with_cache_scope(CacheScope::Private))
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        let cancelled = context.ct.clone();
        let round = rounds::round(&context, request.input_responses, request.request_state);
        let answer = async {
            let arguments = self.arguments.as_deref().unwrap_or("{}");
            let name = &*request.name;
            let Some(tool) = MetaTool::of_name(name).filter(|tool| self.has(*tool)) else {
                return self.call(name, arguments, &context, round).await;
            };
            name_call(tool.name());
            let own_models = || llm_keys::advisors_in(&self.caller.headers);
            let answer = match meta_tools::run(tool, &self.state, self.here(), Through::Mcp, own_models, arguments.as_bytes()).await {
                Ok(Ran::Call(name, arguments)) => match self.find_for_call(&name).await {
                    Ok(tool) => return self.call_found(&name, &tool, &arguments, &context, round).await,
                    // The meta-tool itself exists, so that the model learns of its mistake from a result.
                    Err(error) => failed_run(&name, error),
                },
                Ok(Ran::Answered(answer)) => {
                    if !tool.reads_only() {
                        self.notify_change().await;
                    }
                    // Structured content is also sent as text, for clients that don't support it (MCP specification,
                    // "Structured Content").
                    CallToolResult::structured(serde_json::to_value(answer).unwrap_or_default())
                }
                Err(problem) => failed(&problem),
            };
            Ok(CallToolResponse::from(answer))
        };
        let span = CallSpan { span: self.call_span(&context), has_ended: false };
        tokio::select! {
            answer = spans::within(span.span.clone(), answer) => {
                span.end(&answer);
                answer
            }
            () = cancelled.cancelled() => Err(ErrorData::internal_error("the call was cancelled", None)),
        }
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        check_cursor(request)?;
        Ok(self.prompts().await)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        spans::within(self.span.clone(), self.prompt(request, &context)).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        check_cursor(request)?;
        Ok(self.resources().await)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        check_cursor(request)?;
        Ok(self.resource_templates().await)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        spans::within(self.span.clone(), self.resource(request, &context)).await
    }

    async fn complete(&self, request: CompleteRequestParams, _: RequestContext<RoleServer>) -> Result<CompleteResult, ErrorData> {
        self.completion(request).await
    }

    #[expect(deprecated, reason = "clients of the older era ask for notes")]
    async fn set_level(&self, request: rmcp::model::SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let Some(session) = &self.session else {
            return Err(no_method("logging/setLevel. Log messages belong to a session: send the header Mcp-Session-Id."));
        };
        let level = serde_json::to_value(request.level).unwrap_or_default();
        session.want_notes(level.as_str().unwrap_or_default());
        Ok(())
    }

    async fn subscribe(&self, request: rmcp::model::SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.follow(&request.uri).await
    }

    async fn unsubscribe(&self, request: rmcp::model::UnsubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.unfollow(&request.uri).await
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.accepted(requested)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.notify(&context).await;
        Ok(())
    }

    /// The tool's definition. The SDK needs it to check headers that repeat arguments (`x-mcp-header`). A client that has not seen the
    /// definition in its list can't know which headers to send, so only those that it did send are compared.
    fn get_tool(&self, name: &str) -> Option<McpTool> {
        let tool = self.find(name).ok()?;
        let whole = definition::of(&tool);
        Some(if self.lists_whole(&tool) { whole } else { definition::with_headers_among(whole, &self.caller.headers) })
    }

    async fn on_custom_request(&self, request: CustomRequest, _: RequestContext<RoleServer>) -> Result<CustomResult, ErrorData> {
        let params = request.params.unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let names: Vec<String> = match request.method.as_str() {
            DESCRIBE => params.get("name").and_then(text).into_iter().collect(),
            DESCRIBE_BATCH => params.get("names").and_then(Value::as_array).into_iter().flatten().filter_map(text).collect(),
            // The SDK treats malformed requests of known methods as custom requests.
            method => {
                let known = unreadable::of(method, !has_sessions(&self.caller.headers));
                return Err(known.unwrap_or_else(|| no_method(method)));
            }
        };
        if names.is_empty() || names.len() > MAX_DESCRIBED {
            let words = format!("{DESCRIBE} takes a `name`, {DESCRIBE_BATCH} 1 to {MAX_DESCRIBED} `names`");
            return Err(ErrorData::invalid_params(words, None));
        }
        let find = |name: &String| self.find(name).map_err(|error| (name.clone(), error));
        let (found, missing): (Vec<_>, Vec<_>) = names.iter().map(find).partition(Result::is_ok);
        let tools: Vec<McpTool> = found.into_iter().flatten().map(|tool| definition::of(&tool)).collect();
        let missing: Vec<(String, ExecuteError)> = missing.into_iter().filter_map(Result::err).collect();
        if request.method == DESCRIBE {
            return match (tools.first(), missing.into_iter().next()) {
                (Some(tool), _) => Ok(CustomResult::new(json!({ "tool": tool }))),
                (None, missing) => Err(missing.map_or_else(|| unknown("", None), |(name, error)| unknown(&name, did_you_mean(error)))),
            };
        }
        let missing: Vec<String> = missing.into_iter().map(|(name, _)| name).collect();
        Ok(CustomResult::new(json!({ "tools": tools, "unknown": missing })))
    }
}

impl Handler {
    fn view(&self) -> (Arc<Catalog>, Visibility) {
        {
            let View { catalog, visibility, .. } = self.state.current.view(&self.caller.principal);
            (catalog, visibility)
        }
    }

    fn here(&self) -> CallerAt<'_> {
        let client = self.session.as_ref().map(|session| session.loads());
        CallerAt { caller: &self.caller, address: self.listed_at(), client, can_load: LoadToolset.is_in(self.mode()) }
    }

    /// The span of a call (OpenTelemetry semantic conventions, "MCP server"). Its parent is the span in the message, if there is one.
    fn call_span(&self, context: &RequestContext<RoleServer>) -> Option<Arc<dyn Span>> {
        const METHOD: &str = "tools/call";
        let (http, tracer) = (self.span.as_ref()?, self.state.tracer.as_ref()?);
        let meta = |key: &str| context.meta.0.0.get(key).and_then(Value::as_str);
        let parent = meta(TraceContext::PARENT).and_then(|parent| TraceContext::read(parent, meta(TraceContext::STATE)));
        let span = match parent {
            Some(parent) => tracer.start(METHOD.into(), SpanKind::Server, Some(&parent)),
            None if http.is_recorded() => http.child(METHOD.into(), SpanKind::Server),
            None => Arc::clone(http),
        };
        if span.is_recorded() {
            span.set("mcp.method.name", METHOD.into());
            span.set("gen_ai.operation.name", "execute_tool".into());
        }
        Some(span)
    }

    /// Notifies the affected clients that their list of tools has changed.
    async fn notify_change(&self) {
        if let Address::Session(_) = *self.address {
            self.state.mcp_sessions.notify_address(&self.address);
            self.state.subscriptions.notify_address(&self.address).await;
        } else if let Some(session) = &self.session {
            session.notify_list_changed();
        }
    }

    /// Finds a tool by the name under which this address lists it.
    fn find(&self, name: &str) -> Result<Arc<Tool>, ExecuteError> {
        let principal = &self.caller.principal;
        let Some(server) = &self.server else { return self.state.execute.by_name(name, principal) };
        let id = ToolId::new(server.clone(), name);
        self.state.execute.by_id(&id, principal)
    }

    async fn find_for_call(&self, name: &str) -> Result<Arc<Tool>, ExecuteError> {
        let (principal, headers) = (&self.caller.principal, || http::HeaderMap::clone(&self.caller.headers));
        match &self.server {
            Some(server) => self.state.execute.find_by_id(&ToolId::new(server.clone(), name), principal, headers).await,
            None => self.state.execute.find_by_name(name, principal, headers).await,
        }
    }

    /// Whether the list at this address always contains the tool's whole definition.
    fn lists_whole(&self, tool: &Tool) -> bool {
        match self.shown {
            _ if self.server.is_some() => true,
            Shown::Stubs | Shown::ForMessage => false,
            Shown::Whole(_) | Shown::Auto => {
                let (_, visibility) = self.view();
                self.listed_at().shows(tool, &visibility, self.mode())
            }
        }
    }

    /// Whether this address lists the meta-tool, or has listed it before the list became shorter or longer.
    fn has(&self, tool: MetaTool) -> bool {
        let is_listed = match self.shown {
            Shown::Stubs => tool == DescribeTools,
            Shown::Auto => tool.is_in(Mode::Full) || tool.is_in(Mode::Dynamic),
            Shown::Whole(_) | Shown::ForMessage => tool.is_in(self.mode()),
        };
        self.server.is_none() && is_listed
    }

    /// The mode that decides which of the servers' tools are listed.
    fn mode(&self) -> Mode {
        let sessions = &self.state.mcp_sessions;
        match (self.shown, &self.session) {
            (Shown::Whole(mode), _) => mode,
            (Shown::Stubs | Shown::ForMessage, _) => Mode::Full,
            (Shown::Auto, Some(session)) => *self.automatic.get_or_init(|| sessions.mode_in(session)),
            (Shown::Auto, None) => *self.automatic.get_or_init(|| sessions.mode_of(&self.caller.principal, &self.address)),
        }
    }

    /// The address whose tools the list contains.
    fn listed_at(&self) -> &Address {
        if self.shown != Shown::Auto || !matches!(*self.address, Address::Session(_)) {
            return &self.address;
        }
        self.listed_at.get_or_init(|| listed_at(&self.address, DefaultMode::Auto, self.mode()).into_owned().into())
    }

    async fn call(
        &self,
        name: &str,
        arguments: &str,
        context: &RequestContext<RoleServer>,
        round: Option<Round>,
    ) -> Result<CallToolResponse, ErrorData> {
        match self.find_for_call(name).await {
            Ok(tool) => self.call_found(name, &tool, arguments, context, round).await,
            Err(error) => failed_call(name, error).map(CallToolResponse::from),
        }
    }

    async fn call_found(
        &self,
        name: &str,
        tool: &Arc<Tool>,
        arguments: &str,
        context: &RequestContext<RoleServer>,
        round: Option<Round>,
    ) -> Result<CallToolResponse, ErrorData> {
        name_call(&tool.label);
        if let Some(round) = round {
            return self.call_in_rounds(name, tool, arguments, context, round).await;
        }
        let (progress, notifying) = progress(context).unzip();
        let ended = CancellationToken::new();
        let listener = self.session.as_ref().zip(self.stream.as_ref());
        let (messages, handing) = listener.map(|(session, stream)| questions::hand_on(session, stream, ended.clone())).unzip();
        let executed =
            self.state.execute.call_raw(tool, arguments, self.for_tool(tool), CallOptions { progress, messages, round: None }).await;
        ended.cancel();
        for task in notifying.into_iter().chain(handing) {
            // Sends the tool's notifications first, because the result ends the stream.
            let _ = tokio::time::timeout(NOTIFYING, task).await;
        }
        if let Err(error) = &executed.result
            && let Some(elicitation) = sign_in::elicitation(error)
            && self.session.as_ref().is_some_and(|session| session.answers(sign_in::ELICIT, &elicitation))
        {
            return Err(sign_in::required(&elicitation));
        }
        self.called(name, tool, executed.result).map(CallToolResponse::from)
    }

    /// Converts the outcome of a call to a result for the client.
    pub(super) fn called(&self, name: &str, tool: &Tool, ended: Result<String, ExecuteError>) -> Result<CallToolResult, ErrorData> {
        match ended {
            Ok(result) => Ok(self.result(tool, result)),
            Err(error) => failed_call(name, error),
        }
    }

    /// Forwards the result unchanged, even if it contains items that the SDK doesn't know. What is no result at all becomes text, so that
    /// nothing is lost.
    fn result(&self, tool: &Tool, result: String) -> CallToolResult {
        let is_error = outcome::is_error(&result);
        if is_error {
            fail_call("tool_error");
        }
        if is_result(&result) {
            let result = if self.server.is_some() { result } else { definition::with_prefixed_uris(&tool.id.server, result) };
            return self.written.result(result).unwrap_or_default();
        }
        let text = vec![ContentBlock::text(result)];
        if is_error { CallToolResult::error(text) } else { CallToolResult::success(text) }
    }

    /// The context for a call to this tool. It contains headers only if the server's configuration needs them.
    pub(super) fn for_tool(&self, tool: &Tool) -> CallerContext {
        let mut caller = self.caller.clone();
        if !self.state.execute.takes_headers(tool) {
            caller.headers = Arc::default();
        }
        caller
    }
}

/// Adds the name of the called tool to the call's span. Only known tools have a name there, because callers may send any.
fn name_call(tool: &str) {
    if let Some(span) = spans::current().filter(|span| span.is_recorded()) {
        span.rename(format!("tools/call {tool}"));
        span.set("gen_ai.tool.name", tool.to_owned().into());
    }
}

/// Marks the call's span as failed. Calls whose result is an error succeed for the protocol.
fn fail_call(error: &'static str) {
    if let Some(span) = spans::current().filter(|span| span.is_recorded()) {
        span.fail(error.into());
    }
}

/// The span of a call without an answer. If it is dropped before [`Self::end`], the call was cancelled.
struct CallSpan {
    span: Option<Arc<dyn Span>>,
    has_ended: bool,
}

impl CallSpan {
    fn end(mut self, answer: &Result<CallToolResponse, ErrorData>) {
        self.has_ended = true;
        if let (Some(span), Err(error)) = (&self.span, answer) {
            span.fail(error.code.0.to_string().into());
        }
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        let Some(span) = &self.span else { return };
        if !self.has_ended {
            span.fail("cancelled".into());
        }
        // A suspended call keeps the span as the parent of its steps.
        span.end();
    }
}

/// Rejects every cursor: each list is a single page, so no client has one from here (MCP specification, "Pagination").
fn check_cursor(request: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    match request.and_then(|request| request.cursor).filter(|cursor| !cursor.is_empty()) {
        Some(_) => Err(ErrorData::invalid_params("Unknown cursor. The list is a single page: request it without `cursor`.", None)),
        None => Ok(()),
    }
}

/// Whether the JSON text is the result of a call: an object with a list of typed content, or without content and with another member of
/// such results.
fn is_result(result: &str) -> bool {
    let Some(members) = json::members(result) else { return false };
    match members.get("content").map(|content| content.get()) {
        None => members.contains_key("structuredContent") || members.contains_key("isError"),
        Some(content) => {
            let has_type = |item: &&RawValue| json::member(item.get(), "type").is_some_and(|kind| kind.get().starts_with('"'));
            json::items(content).is_some_and(|items| items.iter().all(has_type))
        }
    }
}

/// Forwards a tool's progress notifications to a client that has requested them.
pub(super) fn progress(context: &RequestContext<RoleServer>) -> Option<(mpsc::Sender<Progress>, JoinHandle<()>)> {
    let token = context.meta.get_progress_token()?;
    let peer = context.peer.clone();
    let (sender, mut receiver) = mpsc::channel::<Progress>(PROGRESS_QUEUE);
    let notifying = tokio::spawn(async move {
        while let Some(Progress { progress, total, message }) = receiver.recv().await {
            let mut param = ProgressNotificationParam::new(token.clone(), progress);
            param.total = total;
            param.message = message;
            if peer.notify_progress(param).await.is_err() {
                return;
            }
        }
    });
    Some((sender, notifying))
}

/// Converts the error of a call: unknown tools are protocol errors, and all other errors are results.
fn failed_call(name: &str, error: ExecuteError) -> Result<CallToolResult, ErrorData> {
    match error {
        ExecuteError::NotFound { did_you_mean } => Err(unknown(name, did_you_mean)),
        error => Ok(failed(&Problem::from(error))),
    }
}

/// The result of a call that failed here.
pub(super) fn failed(problem: &Problem) -> CallToolResult {
    fail_call(problem.code.name());
    definition::failed(problem)
}

/// The result of a meta-tool that was to run a tool which can't be called.
fn failed_run(name: &str, error: ExecuteError) -> CallToolResult {
    failed_call(name, error).unwrap_or_else(|unknown| {
        fail_call(Code::NotFound.name());
        let text = MetaTool::of_name(name).map_or_else(|| unknown.message.into_owned(), MetaTool::call_directly);
        CallToolResult::error(vec![ContentBlock::text(text)])
    })
}

/// Unknown and denied tools get the same error (MCP specification, "Tools", "Error Handling").
fn unknown(name: &str, did_you_mean: Option<String>) -> ErrorData {
    let mut words = format!("Unknown tool: {name}");
    if let Some(meant) = did_you_mean {
        let _ = write!(words, ". Did you mean {meant}?");
    }
    ErrorData::invalid_params(words, None)
}

fn no_method(method: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("Method not found: {method}"), None)
}

fn did_you_mean(error: ExecuteError) -> Option<String> {
    match error {
        ExecuteError::NotFound { did_you_mean } => did_you_mean,
        _ => None,
    }
}

fn announce_notes(capabilities: &mut ServerCapabilities) {
    capabilities.logging = Some(JsonObject::new());
}

/// Presents a single server with its own name, version and instructions.
fn of_one_server(config: ServerConfig, server: Option<&CatalogServer>) -> ServerConfig {
    let Some(server) = server else { return config };
    let name = server.program.as_deref().unwrap_or(server.name.as_str());
    let mut info = Implementation::new(name, server.version.as_deref().unwrap_or_default());
    info.title.clone_from(&server.title);
    let config = config.with_server_info(info);
    match &server.instructions {
        Some(instructions) => config.with_instructions(instructions.clone()),
        None => config,
    }
}

/// Describes the service to the model, and explains how to use it.
fn instructions(catalog: &Catalog, visibility: &Visibility, shown: Shown, mode: Mode) -> String {
    let count = |server: &CatalogServer| server.tools.iter().filter(|tool| visibility.allows(tool)).count();
    let overview = summarize_servers(catalog.servers().iter().map(|server| (server, count(server))));
    let how = match (shown, mode) {
        (Shown::Stubs, _) => format!("They are listed without their parameters: {DescribeTools} gives those."),
        (_, Mode::Full) => format!("{FindTools} finds the right ones by what they do."),
        (_, Mode::Dynamic) => format!(
            "{FindTools} finds them by what they do and says which toolset they are in, {LoadToolset} makes that toolset's tools yours; \
             {RunTool} runs one without loading."
        ),
        (_, Mode::Meta | Mode::Smart) => {
            format!("{FindTools} finds them by what they do, {DescribeTools} gives their parameters, {RunTool} runs them.")
        }
    };
    format!("{overview}. {how}")
}

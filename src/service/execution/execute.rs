//! Executes a tool call: finds the tool, validates the arguments, calls the server and records the outcome.

mod unlisted;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::value::RawValue;

use crate::domain::access::principal::Principal;
use crate::domain::access::rule::Effect;
use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::execution::arguments::{self, ArgumentProblem, ArgumentsVerdict, Repair};
use crate::domain::execution::outcome::{self, ToolAnswer};
use crate::domain::learning::arguments::CallArguments;
use crate::domain::text::similar::nearest_of_family;
use crate::service::access::limits::{CallPermit, Limited, Limits};
use crate::service::access::rates::Rates;
use crate::service::access::secrets::{CredentialError, Secrets};
use crate::service::caller::{CallOptions, CallerContext};
use crate::service::catalog::current::{CurrentCatalog, View};
use crate::service::execution::answer;
use crate::service::execution::call_rules::{CallRule, CallRules};
use crate::service::execution::files::Files;
use crate::service::ports::{AuditAction, AuditEntry, CallContext, CallError, CallOutcome, SpanKind, ToolServers};
use crate::service::records::audit::Audit;
use crate::service::records::record::{FinishedCall, Recorder};
use crate::service::spans::{self, Step};
use crate::settings::{LiveSettings, Validation};

pub(crate) use self::unlisted::LIST_RETRY;

/// Maximum number of repairs listed in a log line.
const LOGGED_REPAIRS: usize = 10;

/// The reason why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecuteError {
    /// The tool is unknown or denied. The caller can't distinguish the two.
    #[error("there is no such tool")]
    NotFound {
        /// The name of a similar tool that the caller may use.
        did_you_mean: Option<String>,
    },
    #[error("the arguments do not fit the tool's schema")]
    Invalid(Vec<ArgumentProblem>),
    /// The tool returned an error (MCP `isError`), with this text.
    #[error("{0}")]
    Tool(String),
    #[error(transparent)]
    Call(#[from] CallError),
    /// Credentials of the caller are missing or unusable.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    #[error(transparent)]
    Limited(#[from] Limited),
}

/// The outcome of a call.
#[derive(Debug)]
pub(crate) struct Executed {
    /// The response body, as JSON text.
    pub result: Result<String, ExecuteError>,
    /// Repairs made to the arguments before the call.
    pub repairs: Vec<Repair>,
}

pub(crate) struct Execute {
    current: Arc<CurrentCatalog>,
    servers: Arc<dyn ToolServers>,
    recorder: Recorder,
    audit: Audit,
    limits: Arc<Limits>,
    /// Serves files returned by tools behind links; `None` if the service has no public address.
    files: Option<Arc<Files>>,
    secrets: Arc<Secrets>,
    call_rules: CallRules,
}

impl Execute {
    #[must_use]
    pub(crate) fn new(
        current: Arc<CurrentCatalog>,
        servers: Arc<dyn ToolServers>,
        recorder: Recorder,
        audit: Audit,
        files: Option<Arc<Files>>,
        secrets: Arc<Secrets>,
    ) -> Self {
        let limits = Arc::new(Limits::new(Arc::default(), Rates::new(None)));
        Self { current, servers, recorder, audit, limits, files, secrets, call_rules: CallRules::default() }
    }

    /// Sets the limits to apply.
    #[must_use]
    pub(crate) fn with_limits(self, limits: Arc<Limits>) -> Self {
        Self { limits, ..self }
    }

    /// Applies changed settings.
    pub(crate) fn configure(&self, live: &LiveSettings) {
        self.call_rules.replace(&live.calls, &live.servers);
    }

    /// Finds a tool by server and name, if this caller may use it. The raw name takes precedence over the displayed one.
    ///
    /// # Errors
    /// [`ExecuteError::NotFound`] if the tool is unknown or denied.
    pub(crate) fn by_id(&self, id: &ToolId, principal: &Principal) -> Result<Arc<Tool>, ExecuteError> {
        let View { catalog, visibility, .. } = self.current.view(principal);
        let of_label = || catalog.server(id.server.as_str())?.tools.iter().find(|tool| *tool.label == *id.name);
        let known = catalog.tool(id).or_else(of_label);
        known.filter(|tool| visibility.allows(tool)).cloned().ok_or_else(|| {
            self.note_denial(known, principal);
            let of_server = catalog.visible(&visibility).filter(|tool| tool.id.server == id.server);
            let did_you_mean = nearest_of_family(&id.name, of_server.map(|tool| &*tool.label)).map(str::to_owned);
            ExecuteError::NotFound { did_you_mean }
        })
    }

    /// Finds a tool by its published name, if this caller may use it.
    ///
    /// # Errors
    /// [`ExecuteError::NotFound`] if the tool is unknown or denied.
    pub(crate) fn by_name(&self, name: &str, principal: &Principal) -> Result<Arc<Tool>, ExecuteError> {
        let View { catalog, visibility, .. } = self.current.view(principal);
        let known = catalog.operation(name);
        known.filter(|tool| visibility.allows(tool)).cloned().ok_or_else(|| {
            self.note_denial(known, principal);
            // Models may omit the server's name. A name that is similar as a whole may belong to another product.
            let same_name = catalog.visible(&visibility).find(|tool| *tool.label == *name).map(|tool| tool.operation_id.as_str());
            let near = || nearest_of_family(name, catalog.visible(&visibility).map(|tool| tool.operation_id.as_str()));
            ExecuteError::NotFound { did_you_mean: same_name.or_else(near).map(str::to_owned) }
        })
    }

    /// Whether calls of this tool need the caller's headers, to forward some of them or to exchange a token in one of them.
    #[must_use]
    pub(crate) fn takes_headers(&self, tool: &Tool) -> bool {
        let server = &tool.id.server;
        self.servers.forwards_headers(server) || self.secrets.exchanges(server)
    }

    /// Calls a tool. `sent` contains the arguments as JSON text. Dropping the future cancels the call at the server.
    pub(crate) async fn call(&self, tool: &Tool, sent: &str, caller: CallerContext) -> Executed {
        let mut record = match self.begin(tool, caller).await {
            Ok(record) => record,
            Err(error) => return Executed { result: Err(error), repairs: Vec::new() },
        };
        let (result, repairs) = self.ask(tool, sent, &mut record, CallOptions::default()).await;
        let result = match result {
            Ok(result) => {
                let rule = self.call_rules.of(&tool.id.server);
                match outcome::answer(&result, rule.structured_content(tool)) {
                    ToolAnswer::Result(parts) => Ok(answer::body(parts, self.files.as_deref(), rule).await),
                    ToolAnswer::Error(text) => Err(ExecuteError::Tool(text)),
                }
            }
            Err(error) => Err(error),
        };
        (record.outcome, record.teaches) = (outcome(&result), teaches(&result));
        record.bytes = result.as_ref().ok().map(|body| body.len() as u64);
        log(tool, &result, record.outcome, record.started.elapsed());
        Executed { result, repairs }
    }

    /// Like [`Self::call`], for MCP clients: the body is the server's unmodified result object (MCP specification,
    /// `CallToolResult`), even for tool errors. With `options.round`, it may be an `input_required` result. The server's progress
    /// and messages are sent to `options`.
    pub(crate) async fn call_raw(&self, tool: &Tool, sent: &str, caller: CallerContext, options: CallOptions) -> Executed {
        let mut record = match self.begin(tool, caller).await {
            Ok(record) => record,
            Err(error) => return Executed { result: Err(error), repairs: Vec::new() },
        };
        let (result, repairs) = self.ask(tool, sent, &mut record, options).await;
        let result = result.map(|result| Box::<str>::from(result).into_string());
        record.outcome = match &result {
            Ok(result) if outcome::is_error(result) => CallOutcome::ToolError,
            Ok(result) if outcome::is_question(result) => CallOutcome::InputRequired,
            result => outcome(result),
        };
        record.teaches = teaches(&result);
        record.bytes = result.as_ref().ok().map(|body| body.len() as u64);
        log(tool, &result, record.outcome, record.started.elapsed());
        Executed { result, repairs }
    }

    /// Starts the record of a call, if the caller may make the call now.
    async fn begin(&self, tool: &Tool, caller: CallerContext) -> Result<Record<'_>, ExecuteError> {
        // Visibility may have changed since the lookup. The policy at the time of the call decides.
        if !self.current.visibility(&caller.principal).allows(tool) {
            self.audit.record(self.entry(tool, &caller.principal, Effect::Block));
            return Err(ExecuteError::NotFound { did_you_mean: None });
        }
        let mut entry = self.entry(tool, &caller.principal, Effect::Allow);
        let permit = match self.limits.call(&caller.principal, &tool.id.server).await {
            Ok(permit) => permit,
            Err(limited) => {
                self.recorder.meters().call_refused(&tool.id);
                entry.outcome = Some(CallOutcome::Limited);
                self.audit.record(entry);
                tracing::info!(tool = %tool.id, outcome = "limited", "call");
                return Err(limited.into());
            }
        };
        let (recorder, audit, entry) = (&self.recorder, &self.audit, Some(entry));
        let (started, since, outcome) = (Instant::now(), recorder.forgettings(), CallOutcome::Cancelled);
        Ok(Record {
            recorder,
            audit,
            entry,
            bytes: None,
            caller,
            started,
            since,
            outcome,
            teaches: false,
            arguments: None,
            _permit: permit,
        })
    }

    /// Validates the arguments and sends them to the server.
    async fn ask(
        &self,
        tool: &Tool,
        sent: &str,
        record: &mut Record<'_>,
        options: CallOptions,
    ) -> (Result<Box<RawValue>, ExecuteError>, Vec<Repair>) {
        match prepare(tool, sent, self.call_rules.of(&tool.id.server)) {
            Ok((given, repairs)) => {
                let result = self.send(tool, &completed(tool, &given), &record.caller, options).await;
                // Only calls with a result teach by their arguments, and the call didn't wait for that.
                if result.is_ok() {
                    record.arguments = self.recorder.read_arguments(tool, &given);
                }
                (result, repairs)
            }
            Err(problems) => (Err(ExecuteError::Invalid(problems)), Vec::new()),
        }
    }

    /// Records a denied call of an existing tool in the audit log.
    fn note_denial(&self, tool: Option<&Arc<Tool>>, principal: &Principal) {
        if let Some(tool) = tool {
            self.audit.record(self.entry(tool, principal, Effect::Block));
        }
    }

    fn entry(&self, tool: &Tool, principal: &Principal, decision: Effect) -> AuditEntry {
        // If the key's limits exclude the tool, no rule was evaluated.
        let reached = principal.servers.contains(&tool.id.server) && self.current.policy().reaches(principal, tool);
        let rule = if reached { self.current.decision(principal, tool).rule } else { None };
        AuditEntry {
            at: SystemTime::now(),
            principal: principal.id.as_str().to_owned(),
            action: AuditAction::Call,
            tool: Some(tool.id.clone()),
            server: None,
            subject: None,
            decision,
            rule,
            outcome: None,
            took: Duration::ZERO,
            bytes: None,
        }
    }

    async fn send(
        &self,
        tool: &Tool,
        arguments: &str,
        caller: &CallerContext,
        options: CallOptions,
    ) -> Result<Box<RawValue>, ExecuteError> {
        let invalid = |error: serde_json::Error| ExecuteError::Invalid(vec![ArgumentProblem::of_whole(format!("can't be read: {error}"))]);
        let arguments: Box<RawValue> = serde_json::from_str(arguments).map_err(invalid)?;
        let (principal, headers) = (Arc::clone(&caller.principal), Arc::clone(&caller.headers));
        let credentials = self.secrets.credentials(&principal, &headers, &tool.id.server).await?;
        let CallOptions { progress, messages, round } = options;
        let sending = Sending { step: step(tool, &arguments), has_ended: false };
        let trace = sending.step.context();
        let context = CallContext { principal, headers, credentials, deadline: None, progress, messages, round, trace };
        let arguments: Arc<RawValue> = arguments.into();
        let call = |context| self.servers.call(&tool.id, Arc::clone(&arguments), context);
        let result = self.secrets.send(&tool.id.server, context, call).await;
        sending.end(&result);
        result
    }
}

/// The step of a call without a result. If it is dropped before [`Self::end`], the caller has given up.
struct Sending {
    step: Step,
    has_ended: bool,
}

impl Sending {
    fn end(mut self, result: &Result<Box<RawValue>, ExecuteError>) {
        self.has_ended = true;
        if self.step.recorded().is_some() {
            note_result(&self.step, result);
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.has_ended {
            self.step.fail("cancelled");
        }
    }
}

/// Starts the step of a call in its trace (OpenTelemetry semantic conventions, "MCP client").
fn step(tool: &Tool, arguments: &RawValue) -> Step {
    let step = spans::child(SpanKind::Client, || format!("tools/call {}", tool.label).into());
    if let Some(span) = step.recorded() {
        span.set("mcp.method.name", "tools/call".into());
        span.set("gen_ai.operation.name", "execute_tool".into());
        span.set("gen_ai.tool.name", tool.label.to_string().into());
        span.set("toolsieve.server", tool.id.server.to_string().into());
    }
    step.capture("gen_ai.tool.call.arguments", || arguments.get());
    step
}

fn note_result(step: &Step, result: &Result<Box<RawValue>, ExecuteError>) {
    match result {
        Ok(result) => {
            if outcome::is_error(result.get()) {
                step.fail("tool_error");
            }
            step.capture("gen_ai.tool.call.result", || result.get());
        }
        Err(ExecuteError::Call(error)) => step.fail(error.kind()),
        Err(_) => step.fail("sign_in_needed"),
    }
}

/// Validates and repairs the arguments. Returns them with the repairs.
fn prepare<'a>(tool: &Tool, sent: &'a str, rule: CallRule) -> Result<(Cow<'a, str>, Vec<Repair>), Vec<ArgumentProblem>> {
    let (mut arguments, repair) = arguments::object(sent)?;
    let mut repairs: Vec<Repair> = repair.into_iter().collect();
    if tool.input.wrapped {
        let repair;
        (arguments, repair) = arguments::unwrapped(arguments)?;
        repairs.extend(repair);
    }
    tool.shape.refuse(&arguments)?;
    if rule.validation != Validation::Off {
        match tool.validator.check(&tool.input.source, &arguments) {
            ArgumentsVerdict::Repaired { arguments: repaired, repairs: more } => {
                arguments = repaired.into();
                repairs.extend(more);
            }
            ArgumentsVerdict::Invalid(problems) if rule.validation == Validation::Strict => return Err(problems),
            ArgumentsVerdict::Invalid(problems) => {
                let pointers: Vec<&str> = problems.iter().map(|problem| problem.pointer.as_str()).collect();
                tracing::warn!(tool = %tool.id, ?pointers, "the arguments do not fit the tool's schema and are sent anyway");
            }
            ArgumentsVerdict::Unchecked { reason, first: true } => {
                tracing::warn!(tool = %tool.id, reason, "the tool's arguments are not checked, because its own input schema is invalid or too large");
            }
            ArgumentsVerdict::Valid | ArgumentsVerdict::Unchecked { .. } => {}
        }
    }
    if !repairs.is_empty() {
        let logged: Vec<String> = repairs.iter().take(LOGGED_REPAIRS).map(ToString::to_string).collect();
        tracing::info!(tool = %tool.id, repairs = ?logged, more = repairs.len() - logged.len(), "arguments were repaired");
    }
    Ok((arguments, repairs))
}

/// The arguments as the server gets them: with the values of a shape, and with the original spelling of names.
fn completed<'a>(tool: &Tool, arguments: &'a str) -> Cow<'a, str> {
    let mut arguments = Cow::Borrowed(arguments);
    if let Some(filled) = tool.shape.filled(&arguments) {
        arguments = filled.into();
    }
    if !tool.identifiers.is_empty() {
        arguments = tool.identifiers.restore(&arguments).into();
    }
    arguments
}

/// Records a call when it ends or its caller disconnects.
struct Record<'a> {
    recorder: &'a Recorder,
    audit: &'a Audit,
    /// The audit entry; `None` once it is recorded.
    entry: Option<AuditEntry>,
    /// Size of the result, in bytes.
    bytes: Option<u64>,
    caller: CallerContext,
    started: Instant,
    /// The number of forgettings before the call.
    since: u64,
    outcome: CallOutcome,
    /// Whether the call says whether the tool was the right one for its message.
    teaches: bool,
    /// What its arguments teach.
    arguments: Option<CallArguments>,
    _permit: CallPermit,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        let Some(mut entry) = self.entry.take() else { return };
        let Some(tool) = entry.tool.clone() else { return };
        let took = self.started.elapsed();
        (entry.outcome, entry.took, entry.bytes) = (Some(self.outcome), took, self.bytes);
        self.audit.record(entry);
        if self.outcome == CallOutcome::Cancelled {
            tracing::info!(%tool, outcome = "cancelled", "call");
        }
        // A request for input does not end the call, so count only the request that returns the result.
        if self.outcome != CallOutcome::InputRequired {
            let (outcome, teaches, since, arguments) = (self.outcome, self.teaches, self.since, self.arguments.take());
            self.recorder.record_call(&self.caller, FinishedCall { tool, outcome, teaches, took, since, arguments });
        }
    }
}

fn outcome(result: &Result<String, ExecuteError>) -> CallOutcome {
    match result {
        Ok(_) => CallOutcome::Success,
        Err(ExecuteError::Tool(_)) => CallOutcome::ToolError,
        Err(ExecuteError::Invalid(_) | ExecuteError::NotFound { .. } | ExecuteError::Credentials(_)) => CallOutcome::Rejected,
        Err(ExecuteError::Call(_)) => CallOutcome::Failed,
        Err(ExecuteError::Limited(_)) => CallOutcome::Limited,
    }
}

/// Whether a call says whether its tool was the right one. Unknown tools, missing credentials and unavailable servers say nothing.
fn teaches(result: &Result<String, ExecuteError>) -> bool {
    matches!(result, Ok(_) | Err(ExecuteError::Tool(_) | ExecuteError::Invalid(_)))
}

/// Logs one line per call, without arguments and results.
fn log(tool: &Tool, result: &Result<String, ExecuteError>, outcome: CallOutcome, took: Duration) {
    let took_ms = took.as_secs_f64() * 1_000.0;
    match result {
        Ok(body) => tracing::debug!(tool = %tool.id, outcome = outcome.name(), bytes = body.len(), took_ms, "call"),
        Err(ExecuteError::Tool(_)) => tracing::info!(tool = %tool.id, outcome = "tool_error", took_ms, "call"),
        Err(ExecuteError::Invalid(problems)) => {
            tracing::info!(tool = %tool.id, outcome = "invalid_arguments", problems = problems.len(), took_ms, "call");
        }
        Err(ExecuteError::Credentials(_)) => tracing::info!(tool = %tool.id, outcome = "credentials_missing", took_ms, "call"),
        Err(ExecuteError::NotFound { .. } | ExecuteError::Limited(_)) => {}
        // Log only the code, because the server's message may quote the arguments.
        Err(ExecuteError::Call(CallError::Protocol { code, .. })) => {
            tracing::warn!(tool = %tool.id, outcome = "failed", error = "protocol", code, took_ms, "call");
        }
        Err(ExecuteError::Call(error)) => tracing::warn!(tool = %tool.id, outcome = "failed", error = %error, took_ms, "call"),
    }
}

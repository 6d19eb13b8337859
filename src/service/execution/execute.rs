//! Execution: find the tool that the caller means, check the arguments, call it, tell how it went.

mod unlisted;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::value::RawValue;

use crate::domain::access::policy::Effect;
use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::execution::arguments::{self, ArgumentProblem, Repair, Verdict};
use crate::domain::execution::outcome::{self, ToolAnswer};
use crate::domain::text::similar::nearest_of_family;
use crate::service::access::limits::{CallPermit, Limited, Limits};
use crate::service::access::secrets::{CredentialError, Secrets};
use crate::service::caller::{Caller, Told};
use crate::service::catalog::current::{CurrentCatalog, View};
use crate::service::execution::answer;
use crate::service::execution::call_rules::{Policies, Policy};
use crate::service::execution::files::Files;
use crate::service::ports::{AuditAction, AuditEntry, CallContext, CallError, CallOutcome, ToolServers};
use crate::service::records::audit::Audit;
use crate::service::records::record::Recorder;
use crate::settings::{LiveSettings, Validation};

pub use self::unlisted::LIST_RETRY;

/// Repairs of one call that the log names.
const LOGGED_REPAIRS: usize = 10;

/// Why an execution brought no result.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// Unknown, or denied: the two look the same.
    #[error("there is no such tool")]
    NotFound {
        /// A tool that this caller may use and that was most likely meant.
        did_you_mean: Option<String>,
    },
    #[error("the arguments do not fit the tool's schema")]
    Invalid(Vec<ArgumentProblem>),
    /// MCP `isError`, with the tool's own words.
    #[error("{0}")]
    Tool(String),
    #[error(transparent)]
    Call(#[from] CallError),
    /// The server takes something of the caller that is not there.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    #[error(transparent)]
    Limited(#[from] Limited),
}

/// How an execution ended.
#[derive(Debug)]
pub struct Executed {
    /// The body: JSON text.
    pub result: Result<String, ExecuteError>,
    /// What was put right in the arguments before the call.
    pub repairs: Vec<Repair>,
}

pub struct Execute {
    current: Arc<CurrentCatalog>,
    servers: Arc<dyn ToolServers>,
    recorder: Recorder,
    audit: Audit,
    limits: Arc<Limits>,
    /// `None`: there is no address for links.
    files: Option<Arc<Files>>,
    secrets: Arc<Secrets>,
    policies: Policies,
}

impl Execute {
    #[must_use]
    pub fn new(
        current: Arc<CurrentCatalog>,
        servers: Arc<dyn ToolServers>,
        recorder: Recorder,
        audit: Audit,
        files: Option<Arc<Files>>,
        secrets: Arc<Secrets>,
    ) -> Self {
        let limits = Arc::new(Limits::new(Arc::default()));
        Self { current, servers, recorder, audit, limits, files, secrets, policies: Policies::default() }
    }

    /// Within these limits.
    #[must_use]
    pub fn with_limits(self, limits: Arc<Limits>) -> Self {
        Self { limits, ..self }
    }

    /// What holds for calls from now on.
    pub fn configure(&self, live: &LiveSettings) {
        self.policies.replace(&live.calls, &live.servers);
    }

    /// The tool of a server, if this caller may use it. Where the server has none of this name, one that is shown under it.
    ///
    /// # Errors
    /// [`ExecuteError::NotFound`]: unknown, or denied.
    pub fn by_id(&self, id: &ToolId, principal: &Principal) -> Result<Arc<Tool>, ExecuteError> {
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

    /// The tool of a published name, if this caller may use it.
    ///
    /// # Errors
    /// [`ExecuteError::NotFound`]: unknown, or denied.
    pub fn by_name(&self, name: &str, principal: &Principal) -> Result<Arc<Tool>, ExecuteError> {
        let View { catalog, visibility, .. } = self.current.view(principal);
        let known = catalog.operation(name);
        known.filter(|tool| visibility.allows(tool)).cloned().ok_or_else(|| {
            self.note_denial(known, principal);
            // Models leave the server's name out.
            let same_name = || catalog.visible(&visibility).find(|tool| *tool.label == *name).map(|tool| tool.operation_id.as_str());
            let near = nearest_of_family(name, catalog.visible(&visibility).map(|tool| tool.operation_id.as_str()));
            ExecuteError::NotFound { did_you_mean: near.or_else(same_name).map(str::to_owned) }
        })
    }

    /// Whether a call of this tool can use the caller's headers.
    #[must_use]
    pub fn forwards_headers(&self, tool: &Tool) -> bool {
        self.servers.forwards_headers(&tool.id.server)
    }

    /// Calls a tool with what was sent as its arguments, JSON text. Dropping the future cancels the call at the server.
    pub async fn call(&self, tool: &Tool, sent: &str, caller: Caller) -> Executed {
        let mut record = match self.begin(tool, caller) {
            Ok(record) => record,
            Err(error) => return Executed { result: Err(error), repairs: Vec::new() },
        };
        let (result, repairs) = self.ask(tool, sent, &record.caller, Told::default()).await;
        let result = match result {
            Ok(result) => match outcome::answer(&result, tool.output.is_some()) {
                ToolAnswer::Result(parts) => Ok(answer::body(parts, self.files.as_deref(), self.policies.of(&tool.id.server)).await),
                ToolAnswer::Error(text) => Err(ExecuteError::Tool(text)),
            },
            Err(error) => Err(error),
        };
        record.outcome = outcome(&result);
        record.entry.bytes = result.as_ref().ok().map(|body| body.len() as u64);
        log(tool, &result, record.outcome, record.started.elapsed());
        Executed { result, repairs }
    }

    /// The same for a caller who speaks MCP: the body is the result object as the server sent it (MCP specification,
    /// `CallToolResult`), one that tells an error too, or a question in place of one where `told` has a round. `told`: who hears what
    /// the server says meanwhile.
    pub async fn call_raw(&self, tool: &Tool, sent: &str, caller: Caller, told: Told) -> Executed {
        let mut record = match self.begin(tool, caller) {
            Ok(record) => record,
            Err(error) => return Executed { result: Err(error), repairs: Vec::new() },
        };
        let (result, repairs) = self.ask(tool, sent, &record.caller, told).await;
        let result = result.map(|result| Box::<str>::from(result).into_string());
        record.outcome = match &result {
            Ok(result) if outcome::is_error(result) => CallOutcome::ToolError,
            Ok(result) if outcome::is_question(result) => CallOutcome::InputRequired,
            result => outcome(result),
        };
        record.entry.bytes = result.as_ref().ok().map(|body| body.len() as u64);
        log(tool, &result, record.outcome, record.started.elapsed());
        Executed { result, repairs }
    }

    /// Begins to write a call down, where the caller may make it, now.
    fn begin(&self, tool: &Tool, caller: Caller) -> Result<Record<'_>, ExecuteError> {
        // Who could see the tool a moment ago may still see it: the answer of the policy counts at the call.
        if !self.current.visibility(&caller.principal).allows(tool) {
            self.audit.record(self.entry(tool, &caller.principal, Effect::Block));
            return Err(ExecuteError::NotFound { did_you_mean: None });
        }
        let entry = self.entry(tool, &caller.principal, Effect::Allow);
        let permit = self.limits.call(&caller.principal, &tool.id.server).inspect_err(|_| {
            self.recorder.meters().call_refused(&tool.id);
            self.audit.record(AuditEntry { outcome: Some(CallOutcome::Limited), ..entry.clone() });
            tracing::info!(tool = %tool.id, outcome = "limited", "call");
        })?;
        let (recorder, audit) = (&self.recorder, &self.audit);
        Ok(Record { recorder, audit, entry, caller, started: Instant::now(), outcome: CallOutcome::Cancelled, _permit: permit })
    }

    /// Checks the arguments and sends them.
    async fn ask(&self, tool: &Tool, sent: &str, caller: &Caller, told: Told) -> (Result<Box<RawValue>, ExecuteError>, Vec<Repair>) {
        match prepare(tool, sent, self.policies.of(&tool.id.server)) {
            Ok((arguments, repairs)) => (self.send(tool, &arguments, caller, told).await, repairs),
            Err(problems) => (Err(ExecuteError::Invalid(problems)), Vec::new()),
        }
    }

    /// Writes down that a tool which is there was refused.
    fn note_denial(&self, tool: Option<&Arc<Tool>>, principal: &Principal) {
        if let Some(tool) = tool {
            self.audit.record(self.entry(tool, principal, Effect::Block));
        }
    }

    fn entry(&self, tool: &Tool, principal: &Principal, decision: Effect) -> AuditEntry {
        // Where a key does not reach the tool, no rule was asked.
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

    async fn send(&self, tool: &Tool, arguments: &str, caller: &Caller, told: Told) -> Result<Box<RawValue>, ExecuteError> {
        let invalid = |error: serde_json::Error| ExecuteError::Invalid(vec![ArgumentProblem::of_whole(format!("can't be read: {error}"))]);
        let arguments: Box<RawValue> = serde_json::from_str(arguments).map_err(invalid)?;
        let (principal, headers) = (Arc::clone(&caller.principal), Arc::clone(&caller.headers));
        let credentials = self.secrets.credentials(&principal, &tool.id.server).await?;
        let Told { progress, said, round } = told;
        let context = CallContext { principal, headers, credentials, deadline: None, progress, said, round };
        Ok(self.servers.call(&tool.id, arguments.into(), context).await?)
    }
}

/// The arguments as they go to the server, and what was put right in them.
fn prepare<'a>(tool: &Tool, sent: &'a str, policy: Policy) -> Result<(Cow<'a, str>, Vec<Repair>), Vec<ArgumentProblem>> {
    let (mut arguments, repair) = arguments::object(sent)?;
    let mut repairs: Vec<Repair> = repair.into_iter().collect();
    if tool.input.wrapped {
        let repair;
        (arguments, repair) = arguments::unwrapped(arguments)?;
        repairs.extend(repair);
    }
    if policy.validation != Validation::Off {
        match tool.validator.check(&tool.input.source, &arguments) {
            Verdict::Repaired { arguments: repaired, repairs: more } => {
                arguments = repaired.into();
                repairs.extend(more);
            }
            Verdict::Invalid(problems) if policy.validation == Validation::Strict => return Err(problems),
            Verdict::Invalid(problems) => {
                let pointers: Vec<&str> = problems.iter().map(|problem| problem.pointer.as_str()).collect();
                tracing::warn!(tool = %tool.id, ?pointers, "the arguments do not fit the tool's schema and are sent all the same");
            }
            Verdict::Unchecked { reason, first: true } => {
                tracing::warn!(tool = %tool.id, reason, "the tool's own input schema is invalid: its arguments go unchecked");
            }
            Verdict::Valid | Verdict::Unchecked { .. } => {}
        }
    }
    if !tool.identifiers.is_empty() {
        arguments = tool.identifiers.restore(&arguments).into();
    }
    if !repairs.is_empty() {
        let logged: Vec<String> = repairs.iter().take(LOGGED_REPAIRS).map(ToString::to_string).collect();
        tracing::info!(tool = %tool.id, repairs = ?logged, more = repairs.len() - logged.len(), "arguments were repaired");
    }
    Ok((arguments, repairs))
}

/// Writes a call down when it ends, and when its caller went away before that.
struct Record<'a> {
    recorder: &'a Recorder,
    audit: &'a Audit,
    entry: AuditEntry,
    caller: Caller,
    started: Instant,
    outcome: CallOutcome,
    _permit: CallPermit,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        let Some(tool) = self.entry.tool.clone() else { return };
        let took = self.started.elapsed();
        self.audit.record(AuditEntry { outcome: Some(self.outcome), took, ..self.entry.clone() });
        if self.outcome == CallOutcome::Cancelled {
            tracing::info!(%tool, outcome = "cancelled", "call");
        }
        // A question is not the end of a call: the request that brings its result is counted.
        if self.outcome != CallOutcome::InputRequired {
            self.recorder.record_call(&self.caller, tool, self.outcome, took);
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

/// One line a call, never with arguments or results.
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
        // The server's own words may quote the arguments.
        Err(ExecuteError::Call(CallError::Protocol { code, .. })) => {
            tracing::warn!(tool = %tool.id, outcome = "failed", error = "protocol", code, took_ms, "call");
        }
        Err(ExecuteError::Call(error)) => tracing::warn!(tool = %tool.id, outcome = "failed", error = %error, took_ms, "call"),
    }
}

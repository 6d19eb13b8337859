//! Execution: find the tool that the caller means, check the arguments, call it, tell how it went.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Map, Value};

use crate::domain::arguments::{ArgumentProblem, Checked};
use crate::domain::outcome::{self, ToolAnswer};
use crate::domain::principal::{Principal, Visibility};
use crate::domain::tool::{Tool, ToolId};
use crate::service::current::CurrentCatalog;
use crate::service::ports::{CallContext, CallError, CallOutcome, SelectionEvent, SelectionEventKind, ToolServers};
use crate::service::record::Recorder;

/// Who calls, in which chat.
#[derive(Clone)]
pub struct Caller {
    pub principal: Arc<Principal>,
    pub headers: Arc<http::HeaderMap>,
    pub chat: Option<String>,
    pub selection: Option<String>,
}

/// Why an execution brought no result.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// Unknown, or denied: the two look the same.
    #[error("there is no such tool")]
    NotFound,
    #[error("the arguments do not fit the tool's schema")]
    Invalid(Vec<ArgumentProblem>),
    /// MCP `isError`, with the tool's own words.
    #[error("{0}")]
    Tool(String),
    #[error(transparent)]
    Call(#[from] CallError),
}

pub struct Execute {
    current: Arc<CurrentCatalog>,
    servers: Arc<dyn ToolServers>,
    recorder: Recorder,
    validate: bool,
}

impl Execute {
    #[must_use]
    pub fn new(current: Arc<CurrentCatalog>, servers: Arc<dyn ToolServers>, recorder: Recorder, validate: bool) -> Self {
        Self { current, servers, recorder, validate }
    }

    /// The tool of a server, if this caller may use it.
    ///
    /// # Errors
    /// [`ExecuteError::NotFound`]: unknown, or denied.
    pub fn by_id(&self, id: &ToolId, principal: &Principal) -> Result<Arc<Tool>, ExecuteError> {
        visible(self.current.snapshot().tool(id), principal)
    }

    /// The tool of a published name, if this caller may use it.
    ///
    /// # Errors
    /// [`ExecuteError::NotFound`]: unknown, or denied.
    pub fn by_name(&self, name: &str, principal: &Principal) -> Result<Arc<Tool>, ExecuteError> {
        visible(self.current.snapshot().operation(name), principal)
    }

    /// Whether a call of this tool can use the caller's headers.
    #[must_use]
    pub fn forwards_headers(&self, tool: &Tool) -> bool {
        self.servers.forwards_headers(&tool.id.server)
    }

    /// Calls a tool; the result is JSON text. Dropping the future cancels the call at the server.
    ///
    /// # Errors
    /// [`ExecuteError`]
    pub async fn call(&self, tool: &Tool, arguments: Map<String, Value>, caller: Caller) -> Result<String, ExecuteError> {
        // Who could see the tool a moment ago may still see it: the answer of the policy counts at the call.
        if !Visibility::of(&caller.principal).allows(tool) {
            return Err(ExecuteError::NotFound);
        }
        let (principal, headers) = (Arc::clone(&caller.principal), Arc::clone(&caller.headers));
        let mut record =
            Record { recorder: &self.recorder, caller, tool: &tool.id, started: Instant::now(), outcome: CallOutcome::Cancelled };
        let result = self.send(tool, arguments, principal, headers).await;
        record.outcome = outcome(&result);
        log(tool, &result, record.started.elapsed());
        result
    }

    async fn send(
        &self,
        tool: &Tool,
        arguments: Map<String, Value>,
        principal: Arc<Principal>,
        headers: Arc<http::HeaderMap>,
    ) -> Result<String, ExecuteError> {
        let mut arguments = unwrapped(tool, arguments);
        if self.validate {
            let checked;
            (checked, arguments) = tool.validator.check(&tool.input.source, arguments).map_err(ExecuteError::Invalid)?;
            if checked == Checked::SchemaUnusable {
                tracing::warn!(tool = %tool.id, "the tool's own input schema is invalid: its arguments go unchecked");
            }
        }
        let context = CallContext { principal, headers, deadline: None, progress: None };
        let result = self.servers.call(&tool.id, arguments, context).await?;
        match outcome::answer(&result) {
            ToolAnswer::Result(body) => Ok(body),
            ToolAnswer::Error(text) => Err(ExecuteError::Tool(text)),
        }
    }
}

fn visible(tool: Option<&Arc<Tool>>, principal: &Principal) -> Result<Arc<Tool>, ExecuteError> {
    let visibility = Visibility::of(principal);
    tool.filter(|tool| visibility.allows(tool)).cloned().ok_or(ExecuteError::NotFound)
}

/// Writes a call down when it ends, and when its caller went away before that.
struct Record<'a> {
    recorder: &'a Recorder,
    caller: Caller,
    tool: &'a ToolId,
    started: Instant,
    outcome: CallOutcome,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if self.outcome == CallOutcome::Cancelled {
            tracing::info!(tool = %self.tool, outcome = "cancelled", "call");
        }
        self.recorder.record(SelectionEvent {
            at: SystemTime::now(),
            selection: self.caller.selection.take(),
            principal: self.caller.principal.id.as_str().to_owned(),
            chat: self.caller.chat.take(),
            kind: SelectionEventKind::Called { tool: self.tool.clone(), outcome: self.outcome, took: self.started.elapsed() },
        });
    }
}

/// A wrapped tool is called with `{"arguments": {…}}`.
fn unwrapped(tool: &Tool, mut arguments: Map<String, Value>) -> Map<String, Value> {
    // With anything beside it, `arguments` is an argument of the tool itself.
    if !tool.input.wrapped || arguments.len() != 1 {
        return arguments;
    }
    match arguments.remove("arguments") {
        Some(Value::Object(inner)) => inner,
        Some(other) => {
            arguments.insert("arguments".into(), other);
            arguments
        }
        None => arguments,
    }
}

fn outcome(result: &Result<String, ExecuteError>) -> CallOutcome {
    match result {
        Ok(_) => CallOutcome::Success,
        Err(ExecuteError::Tool(_)) => CallOutcome::ToolError,
        Err(ExecuteError::Invalid(_) | ExecuteError::NotFound) => CallOutcome::Rejected,
        Err(ExecuteError::Call(_)) => CallOutcome::Failed,
    }
}

/// One line a call, never with arguments or results.
fn log(tool: &Tool, result: &Result<String, ExecuteError>, took: Duration) {
    let took_ms = took.as_secs_f64() * 1_000.0;
    match result {
        Ok(body) => tracing::debug!(tool = %tool.id, outcome = "success", bytes = body.len(), took_ms, "call"),
        Err(ExecuteError::Tool(_)) => tracing::info!(tool = %tool.id, outcome = "tool_error", took_ms, "call"),
        Err(ExecuteError::Invalid(problems)) => {
            tracing::info!(tool = %tool.id, outcome = "invalid_arguments", problems = problems.len(), took_ms, "call");
        }
        Err(ExecuteError::NotFound) => {}
        // The server's own words may quote the arguments.
        Err(ExecuteError::Call(CallError::Protocol { code, .. })) => {
            tracing::warn!(tool = %tool.id, outcome = "failed", error = "protocol", code, took_ms, "call");
        }
        Err(ExecuteError::Call(error)) => tracing::warn!(tool = %tool.id, outcome = "failed", error = %error, took_ms, "call"),
    }
}

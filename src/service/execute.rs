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

    /// Calls a tool by its server and name; the result is JSON text.
    ///
    /// # Errors
    /// [`ExecuteError`]
    pub async fn by_id(&self, id: &ToolId, arguments: Map<String, Value>, caller: Caller) -> Result<String, ExecuteError> {
        let tool = self.current.snapshot().tool(id).cloned();
        self.run(tool, arguments, true, caller).await
    }

    /// Calls a tool by its published name, as `run_tool` does. Arguments of a wrapped tool may come bare.
    ///
    /// # Errors
    /// [`ExecuteError`]
    pub async fn by_name(&self, name: &str, arguments: Map<String, Value>, caller: Caller) -> Result<String, ExecuteError> {
        let tool = self.current.snapshot().operation(name).cloned();
        self.run(tool, arguments, false, caller).await
    }

    async fn run(
        &self,
        tool: Option<Arc<Tool>>,
        arguments: Map<String, Value>,
        published: bool,
        caller: Caller,
    ) -> Result<String, ExecuteError> {
        let visibility = Visibility::of(&caller.principal);
        let tool = tool.filter(|tool| visibility.allows(tool)).ok_or(ExecuteError::NotFound)?;
        let started = Instant::now();
        let result = self.call(&tool, unwrapped(&tool, arguments, published), &caller).await;
        self.recorder.record(SelectionEvent {
            at: SystemTime::now(),
            selection: caller.selection,
            principal: caller.principal.id.as_str().to_owned(),
            chat: caller.chat,
            kind: SelectionEventKind::Called { tool: tool.id.clone(), outcome: outcome(&result), took: started.elapsed() },
        });
        log(&tool, &result, started.elapsed());
        result
    }

    async fn call(&self, tool: &Tool, arguments: Map<String, Value>, caller: &Caller) -> Result<String, ExecuteError> {
        if self.validate {
            let checked = tool.validator.check(&tool.input.source, &arguments).map_err(ExecuteError::Invalid)?;
            if checked == Checked::SchemaUnusable {
                tracing::warn!(tool = %tool.id, "the tool's own input schema is invalid: its arguments go unchecked");
            }
        }
        let context =
            CallContext { principal: Arc::clone(&caller.principal), headers: Arc::clone(&caller.headers), deadline: None, progress: None };
        let result = self.servers.call(&tool.id, arguments, context).await?;
        match outcome::answer(&result) {
            ToolAnswer::Result(body) => Ok(body),
            ToolAnswer::Error(text) => Err(ExecuteError::Tool(text)),
        }
    }
}

/// A wrapped tool is called with `{"arguments": {…}}`.
fn unwrapped(tool: &Tool, mut arguments: Map<String, Value>, published: bool) -> Map<String, Value> {
    if !tool.input.wrapped {
        return arguments;
    }
    let is_wrapper = published || arguments.len() == 1;
    match arguments.remove("arguments") {
        Some(Value::Object(inner)) if is_wrapper => inner,
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
        Err(ExecuteError::Call(error)) => tracing::warn!(tool = %tool.id, outcome = "failed", error = %error, took_ms, "call"),
    }
}

//! Calls that ask the client questions and continue in its next request (MCP specification 2026-07-28, "Multi
//! Round-Trip Requests").
//!
//! A server with protocol 2026-07-28 returns a question as its result. The service forwards the question, the answers
//! and the server's state, and stores nothing. A server with an earlier version asks on its own connection. The service
//! then suspends the call ([`crate::service::mcp::waiting_calls`]), and the client gets a question in the same form.

use std::sync::Arc;

use futures::FutureExt as _;
use rmcp::model::{CallToolResponse, ErrorData, InputResponses, ProtocolVersion};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::passthrough::{protocol_error, unknown_state};
use super::server::{Handler, NOTIFYING, failed, progress};
use super::sign_in;
use crate::domain::catalog::tool::{ServerName, Tool};
use crate::http::problem::Problem;
use crate::service::caller::CallOptions;
use crate::service::execution::execute::{ExecuteError, Executed};
use crate::service::mcp::mcp_sessions::Abilities;
use crate::service::mcp::passthrough::PassError;
use crate::service::mcp::waiting_calls::{CallHolder, OpenCall, RoundOutcome, Subject, WaitError, WaitingCalls};
use crate::service::ports::{CallError, PassthroughRequest, Round, ServerMessage};
use crate::service::spans;

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const MISSING_CAPABILITY: i64 = -32021;
const QUEUE: usize = 16;

/// The result of a call or request that may have been suspended.
pub(crate) enum Finished {
    Called(Executed),
    Passed(Result<Box<RawValue>, PassError>),
}

/// The client's answers and state in a request, for a client with protocol 2026-07-28 or newer.
pub(super) fn round(context: &RequestContext<RoleServer>, responses: Option<InputResponses>, state: Option<String>) -> Option<Round> {
    let is_newer = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
    let capabilities = || context.meta.0.0.get(CAPABILITIES).cloned().unwrap_or_default();
    is_newer.then(|| Round { capabilities: capabilities(), responses, state })
}

impl Handler {
    /// Runs a call for a client with protocol 2026-07-28 or newer.
    pub(super) async fn call_in_rounds(
        &self,
        name: &str,
        tool: &Arc<Tool>,
        arguments: &str,
        context: &RequestContext<RoleServer>,
        round: Round,
    ) -> Result<CallToolResponse, ErrorData> {
        let round = sign_in::without_answer(round);
        let is_another = round.is_another();
        let abilities = Abilities::read(&round.capabilities);
        let (progress, notifying) = progress(context).unzip();
        let (state, called, arguments, caller) = (self.state.clone(), Arc::clone(tool), arguments.to_owned(), self.for_tool(tool));
        // Another request's task may continue the call.
        let span = spans::current();
        let call = async move |messages, round| {
            let options = CallOptions { progress, messages, round: Some(round) };
            Finished::Called(spans::within(span, state.execute.call_raw(&called, &arguments, caller, options)).await)
        };
        let turn = self.turn(Subject::Tool(tool.id.clone()), round, call).await;
        let ended = match turn {
            Ok(RoundOutcome::Finished(Finished::Called(executed))) => executed.result,
            Ok(RoundOutcome::Finished(Finished::Passed(_))) | Err(WaitError::Unknown) => return Err(unknown_state(WaitError::Unknown)),
            Ok(RoundOutcome::Question(question)) => Ok(question.to_string()),
            Err(error @ WaitError::TooMany { .. }) => return Ok(failed(&Problem::from(error)).into()),
        };
        match &ended {
            Ok(result) => {
                if let Some(question) = self.written.question(result) {
                    return Ok(question.into());
                }
            }
            Err(error) => {
                if let Some(elicitation) = sign_in::elicitation(error)
                    && abilities.answer(sign_in::ELICIT, &elicitation)
                    && let Some(question) = self.written.question(&sign_in::question(&elicitation))
                {
                    return Ok(question.into());
                }
            }
        }
        match &ended {
            // The client gets the server's errors about its answers, its state and missing capabilities.
            Err(ExecuteError::Call(CallError::Protocol { code, message, data })) if is_another || *code == MISSING_CAPABILITY => {
                return Err(protocol_error(*code, message.clone(), data.as_deref().cloned()));
            }
            Ok(_) | Err(_) => {}
        }
        if let Some(notifying) = notifying {
            let _ = timeout(NOTIFYING, notifying).await;
        }
        self.called(name, tool, ended).map(CallToolResponse::from)
    }

    /// Requests a prompt or a resource from a server. With `round`, the result may be a question.
    pub(super) async fn ask(
        &self,
        server: &ServerName,
        request: PassthroughRequest,
        subject: Subject,
        round: Option<Round>,
    ) -> Result<Box<RawValue>, PassError> {
        let from = self.passthrough_caller();
        let Some(round) = round else { return self.state.passthrough.ask(server, request, &from, CallOptions::default()).await };
        if !self.state.passthrough.sees(&self.caller.principal, &from.address, from.server.as_ref(), server) {
            self.state.passthrough.note_denial(server, &request, &self.caller.principal);
            return Err(PassError::NotFound);
        }
        let (state, server) = (self.state.clone(), server.clone());
        let call = async move |messages, round| {
            let options = CallOptions { progress: None, messages, round: Some(round) };
            Finished::Passed(state.passthrough.ask(&server, request, &from, options).await)
        };
        match self.turn(subject, round, call).await? {
            RoundOutcome::Finished(Finished::Passed(answered)) => answered,
            RoundOutcome::Finished(Finished::Called(_)) => Err(WaitError::Unknown.into()),
            RoundOutcome::Question(question) => Ok(serde_json::value::to_raw_value(&question).map_err(|_| PassError::NotFound)?),
        }
    }

    /// Starts a call, or resumes the suspended call to which the round's state belongs.
    async fn turn<C, F>(&self, subject: Subject, round: Round, call: C) -> Result<RoundOutcome<Finished>, WaitError>
    where
        C: FnOnce(Option<mpsc::Sender<ServerMessage>>, Round) -> F,
        F: Future<Output = Finished> + Send + 'static,
    {
        let holder = CallHolder { owner: self.caller.principal.id.clone(), path: Arc::clone(&self.path), subject };
        let waiting = &self.state.waiting_calls;
        if let Some(state) = round.state.as_deref().filter(|state| WaitingCalls::<Finished>::gives(state)) {
            return waiting.go_on(state, holder, round.responses.unwrap_or_default()).await;
        }
        let abilities = Abilities::read(&round.capabilities);
        let (sender, messages) = abilities.are_any().then(|| mpsc::channel(QUEUE)).unzip();
        waiting.begin(holder, OpenCall::new(call(sender, round).boxed(), messages, abilities)).await
    }
}

//! Calls that are made in several requests, because somebody is asked something in between (MCP specification 2026-07-28, "Multi
//! Round-Trip Requests").
//!
//! A server of the newer era asks in place of a result: question, answers and the server's state pass through, and nothing is kept
//! here. One of the older era asks on its connection: its call waits ([`crate::service::waiting_calls`]), and what the client gets is a
//! question of the same form. Questions leave as they were written: the SDK's types know neither every kind of form nor every key,
//! so the SDK answers with a placeholder, which is replaced on its way out.

use std::sync::{Arc, OnceLock};

use actix_web::web::Bytes;
use futures::FutureExt as _;
use indexmap::IndexMap;
use rmcp::model::{CallToolResponse, ErrorData, InputRequiredResult, InputResponses, ProtocolVersion};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::passthrough::{protocol_error, unknown_state};
use super::server::{Face, TELLING, failed, progress};
use crate::domain::json;
use crate::domain::outcome;
use crate::domain::tool::{ServerName, Tool};
use crate::http::problem::Problem;
use crate::service::execute::{ExecuteError, Executed, Told};
use crate::service::mcp_sessions::Abilities;
use crate::service::passthrough::PassError;
use crate::service::ports::{Asked, CallError, Round, Said};
use crate::service::waiting_calls::{Holder, OpenCall, Subject, Turn, WaitError, WaitingCalls};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const MISSING_CAPABILITY: i64 = -32021;
const QUEUE: usize = 16;
const PLACEHOLDER: &str = "toolsieve";

/// What a call that may have waited ended with.
pub enum Finished {
    Called(Executed),
    Passed(Result<Box<RawValue>, PassError>),
}

/// The round that a request is, where its client is of the newer era.
pub(super) fn round(context: &RequestContext<RoleServer>, responses: Option<InputResponses>, state: Option<String>) -> Option<Round> {
    let is_newer = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
    let capabilities = || context.meta.0.0.get(CAPABILITIES).cloned().unwrap_or_default();
    is_newer.then(|| Round { capabilities: capabilities(), responses, state })
}

/// A question that takes the place of a result, JSON text as it was written.
#[derive(Clone, Default)]
pub(super) struct Question(Arc<OnceLock<Box<RawValue>>>);

impl Question {
    /// Where a result is a question, what stands for it until it leaves.
    pub(super) fn instead_of(&self, result: &str) -> Option<InputRequiredResult> {
        let question = outcome::is_question(result).then(|| RawValue::from_string(result.to_owned()).ok())??;
        // There is one result to a request.
        let _ = self.0.set(question);
        Some(InputRequiredResult::from_request_state(PLACEHOLDER))
    }

    /// Puts it into a message of JSON-RPC that has a result.
    pub(super) fn in_message(&self, message: Bytes) -> Bytes {
        let text = self.0.get().and_then(|_| std::str::from_utf8(&message).ok());
        let replaced = text.and_then(|text| self.replaced(text));
        replaced.map_or(message, Bytes::from)
    }

    /// The same for an event of a stream.
    pub(super) fn in_event(&self, event: Bytes) -> Bytes {
        let Some(text) = self.0.get().and_then(|_| std::str::from_utf8(&event).ok()) else { return event };
        let put_in = |line: &str| {
            let data = line.strip_prefix("data:").and_then(|data| self.replaced(data.trim_start()));
            // A line end in what was written would end the event.
            data.map_or_else(|| line.to_owned(), |data| format!("data: {}", data.replace('\n', "\ndata: ")))
        };
        let lines: Vec<String> = text.split('\n').map(put_in).collect();
        lines.join("\n").into()
    }

    fn replaced(&self, message: &str) -> Option<String> {
        let mut members: IndexMap<String, &RawValue> = json::members(message)?;
        *members.get_mut("result")? = self.0.get()?;
        serde_json::to_string(&members).ok()
    }
}

impl Face {
    /// A call of a client of the newer era.
    pub(super) async fn call_in_rounds(
        &self,
        name: &str,
        tool: &Arc<Tool>,
        arguments: &str,
        context: &RequestContext<RoleServer>,
        round: Round,
    ) -> Result<CallToolResponse, ErrorData> {
        let is_another = round.is_another();
        let (progress, telling) = progress(context).unzip();
        let (state, called, arguments, caller) = (self.state.clone(), Arc::clone(tool), arguments.to_owned(), self.for_tool(tool));
        let call = async move |said, round| {
            let told = Told { progress, said, round: Some(round) };
            Finished::Called(state.execute.call_raw(&called, &arguments, caller, told).await)
        };
        let turn = self.turn(Subject::Tool(tool.id.clone()), round, call).await;
        let ended = match turn {
            Ok(Turn::Finished(Finished::Called(executed))) => executed.result,
            Ok(Turn::Finished(Finished::Passed(_))) | Err(WaitError::Unknown) => return Err(unknown_state(WaitError::Unknown)),
            Ok(Turn::Asked(question)) => Ok(question.to_string()),
            Err(error @ WaitError::TooMany { .. }) => return Ok(failed(&Problem::from(error)).into()),
        };
        match &ended {
            Ok(result) => {
                if let Some(question) = self.question.instead_of(result) {
                    return Ok(question.into());
                }
            }
            // What is wrong with an answer or a state is for the client to know, and so is what it lacks.
            Err(ExecuteError::Call(CallError::Protocol { code, message, data })) if is_another || *code == MISSING_CAPABILITY => {
                return Err(protocol_error(*code, message.clone(), data.as_deref().cloned()));
            }
            Err(_) => {}
        }
        if let Some(telling) = telling {
            let _ = timeout(TELLING, telling).await;
        }
        self.called(name, tool, ended).map(CallToolResponse::from)
    }

    /// Asks a server for a prompt or a resource. What comes may be a question, where the request is a round.
    pub(super) async fn ask(
        &self,
        server: &ServerName,
        asked: Asked,
        subject: Subject,
        round: Option<Round>,
    ) -> Result<Box<RawValue>, PassError> {
        let view = self.view_of_servers();
        let Some(round) = round else { return self.state.passthrough.ask(server, asked, &view, Told::default()).await };
        if !self.state.passthrough.servers(&view).contains(server) {
            return Err(PassError::NotFound);
        }
        let (state, server) = (self.state.clone(), server.clone());
        let call = async move |said, round| {
            let told = Told { progress: None, said, round: Some(round) };
            Finished::Passed(state.passthrough.ask(&server, asked, &view, told).await)
        };
        match self.turn(subject, round, call).await? {
            Turn::Finished(Finished::Passed(answered)) => answered,
            Turn::Finished(Finished::Called(_)) => Err(WaitError::Unknown.into()),
            Turn::Asked(question) => Ok(serde_json::value::to_raw_value(&question).map_err(|_| PassError::NotFound)?),
        }
    }

    /// Begins a call, or goes on with the one that waits under the state of the round.
    async fn turn<C, F>(&self, subject: Subject, round: Round, call: C) -> Result<Turn<Finished>, WaitError>
    where
        C: FnOnce(Option<mpsc::Sender<Said>>, Round) -> F,
        F: Future<Output = Finished> + Send + 'static,
    {
        let holder = Holder { owner: self.caller.principal.id.clone(), address: Arc::clone(&self.address), subject };
        let waiting = &self.state.waiting_calls;
        if let Some(state) = round.state.as_deref().filter(|state| WaitingCalls::<Finished>::gives(state)) {
            return waiting.go_on(state, holder, round.responses.unwrap_or_default()).await;
        }
        let abilities = Abilities::read(&round.capabilities);
        let (said, heard) = abilities.are_any().then(|| mpsc::channel(QUEUE)).unzip();
        waiting.begin(holder, OpenCall::new(call(said, round).boxed(), heard, abilities)).await
    }
}

#[cfg(test)]
mod tests {
    use actix_web::web::Bytes;

    use super::Question;

    #[test]
    fn a_question_leaves_as_it_was_written() {
        let written =
            "{\"resultType\": \"input_required\",\n\"inputRequests\": {\"a\": {\"odd\": 12345678901234567890123}}, \"more\": 1e999}";
        let question = Question::default();
        assert!(question.instead_of("{\"content\":[]}").is_none());
        let message = Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{\"requestState\":\"toolsieve\"}}");
        assert_eq!(question.in_message(message.clone()), message);
        assert!(question.instead_of(written).is_some());
        assert_eq!(question.in_message(message.clone()), format!("{{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{written}}}"));
        let error = Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"\"}}");
        assert_eq!(question.in_message(error.clone()), error);
        let event = Bytes::from([b"id: 0\ndata: ", &*message, b"\n\n"].concat());
        let expected = format!("id: 0\ndata: {{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}}\n\n", written.replace('\n', "\ndata: "));
        assert_eq!(question.in_event(event), expected);
        let alive = Bytes::from_static(b": alive\n\n");
        assert_eq!(question.in_event(alive.clone()), alive);
    }
}

//! Suspended calls, which wait for the answer of a client without a session.
//!
//! A client with the newer protocol version receives a request for input as the response to its own request, and answers by
//! repeating that request (MCP specification 2026-07-28, "Multi Round-Trip Requests"). An older server instead sends a request on
//! its connection while the call runs. So the call is suspended here until the client returns with a state that can't be guessed.
//! Only the same caller, at the same endpoint, repeating the same request may resume it. Suspended calls exist only in this
//! process, for a limited time and in limited number.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::ready;
use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use indexmap::IndexMap;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::service::mcp::mcp_sessions::Abilities;
use crate::service::ports::{Refusal, ServerMessage, ServerQuestion};
use crate::settings::WaitingSettings;

/// Prefix of this service's states. Other states are forwarded to servers.
const OURS: &str = "toolsieve-";
/// Maximum number of unanswered server requests per call.
pub(crate) const QUESTIONS: usize = 16;
/// What a server learns if it exceeds this number.
pub(crate) const TOO_MANY_QUESTIONS: &str = "too many questions wait for an answer";
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_REQUEST: i64 = -32600;

/// The owner and the purpose of a suspended call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallHolder {
    pub owner: PrincipalId,
    /// Path and mode of the request, as a single text.
    pub path: Arc<str>,
    pub subject: Subject,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Tool(ToolId),
    Prompt(ServerName, String),
    Resource(ServerName, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WaitError {
    /// The caller has no suspended call with this state.
    #[error(
        "no suspended call has this `requestState`: it was answered already, it has expired, or it belongs to another request or \
         process. Repeat the request without it"
    )]
    Unknown,
    #[error("{most} calls {of} already wait for answers, the maximum")]
    TooMany { most: usize, of: &'static str },
}

/// The outcome of a round.
#[derive(Debug)]
pub(crate) enum RoundOutcome<T> {
    Finished(T),
    /// The server requests input: an `InputRequiredResult`.
    Question(Value),
}

/// A running call, with requests from its server.
pub(crate) struct OpenCall<T> {
    work: Work<T>,
    /// Receives the server's messages; `None` if the client can't answer requests, or the server can't send any more.
    messages: Option<mpsc::Receiver<ServerMessage>>,
    abilities: Abilities,
    open: IndexMap<String, ServerQuestion>,
    /// Number of server requests so far.
    questions: u64,
}

enum Work<T> {
    /// Until the first server request, the call runs inside the client's request.
    Here(BoxFuture<'static, T>),
    Apart(AbortOnDropHandle<T>),
}

impl<T: Send + 'static> OpenCall<T> {
    /// `messages` receives the server's messages; `abilities` are the client's capabilities.
    pub(crate) fn new(call: BoxFuture<'static, T>, messages: Option<mpsc::Receiver<ServerMessage>>, abilities: Abilities) -> Self {
        Self { work: Work::Here(call), messages, abilities, open: IndexMap::new(), questions: 0 }
    }

    /// Waits for the result. Returns `None` if the server waits for an answer.
    async fn next(&mut self) -> Option<T> {
        loop {
            let waits = !self.open.is_empty();
            tokio::select! {
                biased;
                done = self.work.done() => return Some(done),
                next = next_message(&mut self.messages) => match next {
                    Some(ServerMessage::Question(question)) => self.take(question),
                    Some(ServerMessage::Note(_)) => {}
                    None => self.messages = None,
                },
                () = ready(()), if waits => return None,
            }
        }
    }

    fn take(&mut self, mut question: ServerQuestion) {
        let refusal = if !self.abilities.answer(&question.method, &question.params) {
            Refusal { code: METHOD_NOT_FOUND, message: "the client that called can't answer this".to_owned() }
        } else if self.open.len() >= QUESTIONS {
            Refusal { code: INVALID_REQUEST, message: TOO_MANY_QUESTIONS.to_owned() }
        } else {
            // The progress token belongs to the server's connection.
            if let Some(params) = question.params.as_object_mut() {
                params.remove("_meta");
            }
            self.questions += 1;
            self.open.insert(format!("question-{}", self.questions), question);
            return;
        };
        let _ = question.answer.send(Err(refusal));
    }

    /// Forwards answers by the keys of their requests. Ignores unknown keys and invalid answers.
    fn answer(&mut self, responses: BTreeMap<String, Value>) {
        for (key, response) in responses.into_iter().filter(|(_, response)| response.is_object()) {
            if let Some(question) = self.open.shift_remove(&key) {
                let _ = question.answer.send(Ok(response));
            }
        }
    }

    fn set_apart(self) -> Self {
        let work = match self.work {
            Work::Here(call) => Work::Apart(AbortOnDropHandle::new(tokio::spawn(call))),
            apart @ Work::Apart(_) => apart,
        };
        Self { work, ..self }
    }

    fn requests(&self) -> Map<String, Value> {
        let request = |question: &ServerQuestion| json!({"method": question.method, "params": question.params});
        self.open.iter().map(|(key, question)| (key.clone(), request(question))).collect()
    }
}

impl<T> Work<T> {
    async fn done(&mut self) -> T {
        let failed = match self {
            Self::Here(call) => return call.await,
            Self::Apart(task) => match task.await {
                Ok(done) => return done,
                Err(failed) => failed,
            },
        };
        match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The task ended because the runtime shuts down.
            Err(_) => std::future::pending().await,
        }
    }
}

async fn next_message(messages: &mut Option<mpsc::Receiver<ServerMessage>>) -> Option<ServerMessage> {
    match messages {
        Some(messages) => messages.recv().await,
        None => std::future::pending().await,
    }
}

/// Identifies a suspended call. The id can't be guessed.
#[derive(Clone, PartialEq, Eq, Hash)]
struct StateId(String);

impl StateId {
    fn random() -> Self {
        Self(format!("{OURS}{:032x}", rand::random::<u128>()))
    }
}

impl fmt::Debug for StateId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("StateId(…)")
    }
}

struct Waiting<T> {
    holder: CallHolder,
    call: OpenCall<T>,
    _time: AbortOnDropHandle<()>,
}

/// All suspended calls in this process.
pub(crate) struct WaitingCalls<T> {
    settings: WaitingSettings,
    stop: CancellationToken,
    calls: Mutex<HashMap<StateId, Waiting<T>>>,
}

impl<T: Send + 'static> WaitingCalls<T> {
    /// Creates the collection. After `stop`, suspended calls are cancelled.
    pub(crate) fn new(settings: WaitingSettings, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self { settings, stop, calls: Mutex::default() })
    }

    /// Whether this service issued the state. If not, it is a server's.
    pub(crate) fn gives(state: &str) -> bool {
        state.starts_with(OURS)
    }

    /// Runs a call until it ends or its server requests input.
    ///
    /// # Errors
    /// [`WaitError::TooMany`]. The call is then cancelled.
    pub(crate) async fn begin(self: &Arc<Self>, holder: CallHolder, mut call: OpenCall<T>) -> Result<RoundOutcome<T>, WaitError> {
        match call.next().await {
            Some(done) => Ok(RoundOutcome::Finished(done)),
            None => self.keep(holder, call).map(RoundOutcome::Question),
        }
    }

    /// Resumes a suspended call. Unanswered requests are sent to the client again.
    ///
    /// # Errors
    /// [`WaitError::Unknown`] if this holder has no call with this state.
    pub(crate) async fn go_on(
        self: &Arc<Self>,
        state: &str,
        holder: CallHolder,
        responses: BTreeMap<String, Value>,
    ) -> Result<RoundOutcome<T>, WaitError> {
        let mut call = self.take(state, &holder)?;
        call.answer(responses);
        self.begin(holder, call).await
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.calls.lock().len()
    }

    fn keep(self: &Arc<Self>, holder: CallHolder, call: OpenCall<T>) -> Result<Value, WaitError> {
        let mut calls = self.calls.lock();
        let WaitingSettings { per_caller, total, .. } = self.settings;
        if calls.values().filter(|waiting| waiting.holder.owner == holder.owner).count() >= per_caller {
            return Err(WaitError::TooMany { most: per_caller, of: "of this caller" });
        }
        if calls.len() >= total {
            return Err(WaitError::TooMany { most: total, of: "of all callers together" });
        }
        let id = StateId::random();
        let question = json!({"resultType": "input_required", "inputRequests": call.requests(), "requestState": id.0});
        // No request polls the call now, so run it as a separate task.
        let call = call.set_apart();
        let time = AbortOnDropHandle::new(tokio::spawn(self.give_up(id.clone())));
        calls.insert(id, Waiting { holder, call, _time: time });
        Ok(question)
    }

    /// Drops a call after its time limit, which cancels it.
    fn give_up(self: &Arc<Self>, id: StateId) -> impl Future<Output = ()> + Send + use<T> {
        let (calls, answer, stop): (Weak<Self>, _, _) = (Arc::downgrade(self), self.settings.answer, self.stop.clone());
        async move {
            stop.run_until_cancelled(sleep(answer)).await;
            let Some(calls) = calls.upgrade() else { return };
            let forgotten = calls.calls.lock().remove(&id);
            drop(forgotten);
        }
    }

    fn take(&self, state: &str, holder: &CallHolder) -> Result<OpenCall<T>, WaitError> {
        let id = StateId(state.to_owned());
        let mut calls = self.calls.lock();
        if calls.get(&id).is_none_or(|waiting| waiting.holder != *holder) {
            return Err(WaitError::Unknown);
        }
        calls.remove(&id).map(|waiting| waiting.call).ok_or(WaitError::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use futures::FutureExt as _;
    use serde_json::{Value, json};
    use tokio::sync::{mpsc, oneshot};
    use tokio_util::sync::CancellationToken;

    use super::{CallHolder, OpenCall, RoundOutcome, StateId, Subject, WaitError, WaitingCalls};
    use crate::domain::access::principal::PrincipalId;
    use crate::domain::catalog::tool::ToolId;
    use crate::service::mcp::mcp_sessions::Abilities;
    use crate::service::ports::{Refusal, ServerMessage, ServerQuestion};
    use crate::settings::WaitingSettings;

    type Answer = Result<Value, Refusal>;

    fn waiting_calls(per_caller: usize, total: usize, answer: Duration) -> Arc<WaitingCalls<Vec<Answer>>> {
        WaitingCalls::new(WaitingSettings { answer, per_caller, total }, CancellationToken::new())
    }

    fn holder(name: &str) -> CallHolder {
        CallHolder { owner: PrincipalId::of_key(name), path: "/mcp".into(), subject: Subject::Tool(ToolId::new("a", "b")) }
    }

    /// A call whose server sends these requests one by one and returns the answers.
    fn asking(methods: &'static [&'static str]) -> OpenCall<Vec<Answer>> {
        let (sender, messages) = mpsc::channel(4);
        let call = async move {
            let mut answers = Vec::new();
            for method in methods {
                let (answer, answered) = oneshot::channel();
                let params = json!({"message": "?", "_meta": {"progressToken": 1}});
                sender.send(ServerMessage::Question(ServerQuestion { method: (*method).to_owned(), params, answer })).await.unwrap();
                answers.push(answered.await.unwrap());
            }
            answers
        };
        OpenCall::new(call.boxed(), Some(messages), Abilities { forms: true, ..Abilities::default() })
    }

    fn question_of<T>(turn: Result<RoundOutcome<T>, WaitError>) -> (String, Value) {
        let Ok(RoundOutcome::Question(mut question)) = turn else { panic!("there is no question") };
        assert_eq!(question["resultType"], "input_required");
        (question["requestState"].as_str().unwrap().to_owned(), question["inputRequests"].take())
    }

    fn accepted(key: &str) -> BTreeMap<String, Value> {
        BTreeMap::from([(key.to_owned(), json!({"action": "accept"}))])
    }

    #[tokio::test]
    async fn each_question_is_a_round_and_the_last_answer_brings_the_result() {
        let calls = waiting_calls(9, 9, Duration::from_mins(1));
        let one = || holder("one");
        let call = asking(&["elicitation/create", "sampling/createMessage", "elicitation/create"]);
        let (first, questions) = question_of(calls.begin(one(), call).await);
        assert_eq!(questions, json!({"question-1": {"method": "elicitation/create", "params": {"message": "?"}}}));
        assert!(WaitingCalls::<()>::gives(&first) && !WaitingCalls::<()>::gives("a server's"));
        let (second, questions) = question_of(calls.go_on(&first, one(), accepted("question-1")).await);
        assert_eq!(questions.as_object().unwrap().keys().collect::<Vec<_>>(), ["question-2"], "what it can't answer it is not asked");
        assert_ne!(first, second);
        let again = calls.go_on(&first, one(), accepted("question-1")).await;
        assert_eq!(again.unwrap_err(), WaitError::Unknown, "a state is good for one answer");
        let Ok(RoundOutcome::Finished(answers)) = calls.go_on(&second, one(), accepted("question-2")).await else { panic!("it goes on") };
        let answers: Vec<bool> = answers.iter().map(Result::is_ok).collect();
        assert_eq!((answers, calls.count()), (vec![true, false, true], 0));
    }

    #[tokio::test]
    async fn what_is_not_answered_is_asked_again() {
        let calls = waiting_calls(9, 9, Duration::from_mins(1));
        let (mut state, mut questions) = question_of(calls.begin(holder("one"), asking(&["elicitation/create"])).await);
        let not_a_result = BTreeMap::from([("question-1".to_owned(), json!(12345))]);
        for wrong in [accepted("something"), BTreeMap::new(), not_a_result] {
            let (next, same) = question_of(calls.go_on(&state, holder("one"), wrong).await);
            assert_eq!(same, questions);
            (state, questions) = (next, same);
        }
        let mut more = accepted("question-1");
        more.extend(accepted("something"));
        assert!(matches!(calls.go_on(&state, holder("one"), more).await, Ok(RoundOutcome::Finished(answers)) if answers.len() == 1));
    }

    #[tokio::test]
    async fn a_call_waits_for_its_caller_with_the_same_request_alone() {
        let calls = waiting_calls(9, 9, Duration::from_mins(1));
        let (state, _) = question_of(calls.begin(holder("one"), asking(&["elicitation/create"])).await);
        let elsewhere = CallHolder { path: "/toolsets/x/mcp".into(), ..holder("one") };
        let other = CallHolder { subject: Subject::Prompt("a".into(), "b".into()), ..holder("one") };
        for foreign in [holder("other"), elsewhere, other] {
            let refused = calls.go_on(&state, foreign, accepted("question-1")).await;
            assert_eq!(refused.unwrap_err(), WaitError::Unknown);
        }
        let tampered = calls.go_on(&format!("{state}0"), holder("one"), accepted("question-1")).await;
        assert_eq!(tampered.unwrap_err(), WaitError::Unknown);
        assert!(
            matches!(calls.go_on(&state, holder("one"), accepted("question-1")).await, Ok(RoundOutcome::Finished(_))),
            "it is still there"
        );
    }

    #[tokio::test]
    async fn only_so_many_wait() {
        let calls = waiting_calls(1, 2, Duration::from_mins(1));
        let begin = async |name: &str| calls.begin(holder(name), asking(&["elicitation/create"])).await;
        let (state, _) = question_of(begin("one").await);
        assert_eq!(begin("one").await.unwrap_err(), WaitError::TooMany { most: 1, of: "of this caller" });
        question_of(begin("two").await);
        assert_eq!(begin("three").await.unwrap_err(), WaitError::TooMany { most: 2, of: "of all callers together" });
        assert!(matches!(calls.go_on(&state, holder("one"), accepted("question-1")).await, Ok(RoundOutcome::Finished(_))));
        question_of(begin("three").await);
    }

    #[tokio::test]
    async fn when_its_time_is_up_a_call_is_cancelled() {
        let calls = waiting_calls(9, 9, Duration::from_millis(20));
        let (dropped, is_dropped) = oneshot::channel::<()>();
        let (sender, messages) = mpsc::channel(4);
        let call = async move {
            let _dropped = dropped;
            let (answer, answered) = oneshot::channel();
            let question = ServerQuestion { method: "elicitation/create".to_owned(), params: json!({}), answer };
            sender.send(ServerMessage::Question(question)).await.unwrap();
            vec![answered.await.unwrap()]
        };
        let call = OpenCall::new(call.boxed(), Some(messages), Abilities { forms: true, ..Abilities::default() });
        let (state, _) = question_of(calls.begin(holder("one"), call).await);
        assert!(is_dropped.await.is_err());
        assert_eq!(calls.count(), 0);
        assert_eq!(calls.go_on(&state, holder("one"), accepted("question-1")).await.unwrap_err(), WaitError::Unknown);
    }

    #[tokio::test]
    async fn none_waits_when_the_process_stops() {
        let stop = CancellationToken::new();
        let settings = WaitingSettings { answer: Duration::from_mins(1), per_caller: 9, total: 9 };
        let calls = WaitingCalls::new(settings, stop.clone());
        question_of(calls.begin(holder("one"), asking(&["elicitation/create"])).await);
        stop.cancel();
        while calls.count() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_state_is_not_printed() {
        assert_eq!(format!("{:?}", StateId::random()), "StateId(…)");
    }
}

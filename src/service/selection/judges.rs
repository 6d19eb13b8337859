//! Queries language models with a deadline, a cache and a circuit breaker.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use secrecy::ExposeSecret as _;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use crate::domain::selection::judgement::{Choice, Question};
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{Advisor, Answered, Judge, JudgeError, SpanKind};
use crate::service::records::llm_costs::{AskedFor, LlmCosts};
use crate::service::records::metrics::{JudgeOutcome, Meters, Stage};
use crate::service::selection::breaker::Breaker;
use crate::service::spans::{self, Step};
use crate::settings::LlmSettings;

/// Maximum number of cached judgements.
const HELD: u64 = 10_000;
const FRESH: Duration = Duration::from_hours(1);
/// Maximum number of accounts with a circuit breaker.
const ACCOUNTS: u64 = 10_000;
const IDLE: Duration = Duration::from_mins(10);

pub struct Judges {
    judge: Arc<dyn Judge>,
    pub(in crate::service) settings: LlmSettings,
    /// Cached judgements, by hash of the account and the complete question. Failures are not cached.
    judgements: Cache<Fingerprint, Arc<[Choice]>>,
    breakers: moka::sync::Cache<u64, Arc<Breaker>>,
    /// Hashes accounts, so that keys are not stored. The seed is random per process.
    accounts: RandomState,
    meters: Arc<Meters>,
    costs: Option<LlmCosts>,
}

/// The reason why there is no judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    #[error("it failed several times in a row and is skipped for a moment")]
    LeftOut,
    #[error(transparent)]
    Failed(#[from] JudgeError),
}

/// A request to a model. It counts when it ends, and also if its callers disconnect before.
struct Asking<'a> {
    meters: &'a Meters,
    is_own: bool,
    started: Instant,
    outcome: JudgeOutcome,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.meters.judge(self.outcome, self.is_own);
        self.meters.stage(Stage::Rerank, self.started.into_std());
    }
}

impl AskError {
    /// The kind of the error, for traces.
    fn kind(self) -> Cow<'static, str> {
        match self {
            Self::LeftOut => "left_out".into(),
            Self::Failed(JudgeError::Refused(status)) => status.to_string().into(),
            Self::Failed(JudgeError::NotConfigured) => "not_configured".into(),
            Self::Failed(JudgeError::Unauthorized) => "unauthorized".into(),
            Self::Failed(JudgeError::RateLimited) => "rate_limited".into(),
            Self::Failed(JudgeError::Timeout) => "timeout".into(),
            Self::Failed(JudgeError::Unreachable) => "unreachable".into(),
            Self::Failed(JudgeError::Answer(_)) => "invalid_answer".into(),
        }
    }
}

impl Judges {
    pub fn new(judge: Arc<dyn Judge>, settings: LlmSettings) -> Self {
        Self {
            judge,
            settings,
            judgements: Cache::builder().max_capacity(HELD).time_to_live(FRESH).build(),
            breakers: moka::sync::Cache::builder().max_capacity(ACCOUNTS).time_to_idle(IDLE).build(),
            accounts: RandomState::new(),
            meters: Arc::default(),
            costs: None,
        }
    }

    /// Records the outcomes in these metrics.
    #[must_use]
    pub fn with_meters(self, meters: Arc<Meters>) -> Self {
        Self { meters, ..self }
    }

    /// Also records what the models consume.
    #[must_use]
    pub fn with_costs(self, costs: LlmCosts) -> Self {
        Self { costs: Some(costs), ..self }
    }

    /// Whether a model is configured for this account.
    pub fn knows(&self, advisor: &Advisor) -> bool {
        match advisor {
            Advisor::Configured => self.settings.configured.is_some(),
            Advisor::Own { provider, .. } => self.settings.of(*provider).is_some(),
        }
    }

    /// Asks a model to choose tools. Equal concurrent questions on the same account share one request, which counts for the
    /// first caller.
    ///
    /// # Errors
    /// [`AskError`], no later than the deadline.
    pub async fn ask(
        &self,
        advisor: &Advisor,
        question: &Question,
        deadline: Instant,
        asked: AskedFor<'_>,
    ) -> Result<Arc<[Choice]>, AskError> {
        let step = self.step(advisor, question);
        let account = self.account(advisor);
        let key = format!("{account}\0{}\0{}", question.system(), question.user());
        let asking = self.judgements.try_get_with(Fingerprint::of_text(&key), self.ask_now(account, advisor, question, deadline, asked));
        asking.await.map_err(|error| {
            step.fail(error.kind());
            *error
        })
    }

    /// Starts the step of a question in its trace (OpenTelemetry semantic conventions, "Inference").
    fn step(&self, advisor: &Advisor, question: &Question) -> Step {
        let endpoint = match advisor {
            Advisor::Configured => self.settings.configured.as_ref(),
            Advisor::Own { provider, .. } => self.settings.of(*provider),
        };
        let model = endpoint.map_or("", |endpoint| &endpoint.model);
        let step = spans::child(SpanKind::Client, || format!("chat {model}").into());
        if let Some(span) = step.recorded() {
            span.set("gen_ai.operation.name", "chat".into());
            span.set("gen_ai.request.model", model.to_owned().into());
            // The configured endpoint is any that is compatible with OpenAI's.
            let provider = if matches!(advisor, Advisor::Configured) { "openai" } else { advisor.name() };
            span.set("gen_ai.provider.name", provider.into());
            if span.captures_content() {
                let message = |role, text: &str| json!({"role": role, "parts": [{"type": "text", "content": spans::content(text)}]});
                let messages = json!([message("system", &question.system()), message("user", &question.user())]);
                span.set("gen_ai.input.messages", messages.to_string().into());
            }
        }
        step
    }

    async fn ask_now(
        &self,
        account: u64,
        advisor: &Advisor,
        question: &Question,
        deadline: Instant,
        asked: AskedFor<'_>,
    ) -> Result<Arc<[Choice]>, AskError> {
        let breaker = self.breakers.get_with(account, Arc::default);
        let started = Instant::now();
        let Some(permit) = breaker.admit(started) else {
            self.meters.judge(JudgeOutcome::LeftOut, advisor.is_own());
            return Err(AskError::LeftOut);
        };
        let mut asking = Asking { meters: &self.meters, is_own: advisor.is_own(), started, outcome: JudgeOutcome::Abandoned };
        let answered = timeout_at(deadline, self.judge.judge(advisor, question)).await;
        let Answered { result: judged, exchange } = answered.unwrap_or_else(|_| Answered::unanswered(Err(JudgeError::Timeout)));
        if let (Some(costs), Some(exchange)) = (&self.costs, exchange) {
            costs.record(exchange, asked);
        }
        permit.report(judged.is_ok(), Instant::now());
        asking.outcome = match &judged {
            Ok(_) => JudgeOutcome::Answered,
            Err(JudgeError::Timeout) => JudgeOutcome::TimedOut,
            Err(_) => JudgeOutcome::Failed,
        };
        drop(asking);
        let took_ms = started.elapsed().as_millis();
        match &judged {
            Ok(choices) => tracing::debug!(model = advisor.name(), chosen = choices.len(), took_ms, "a language model chose tools"),
            Err(error) => tracing::warn!(model = advisor.name(), %error, took_ms, "a language model chose no tools"),
        }
        Ok(judged?.into())
    }

    fn account(&self, advisor: &Advisor) -> u64 {
        match advisor {
            Advisor::Configured => 0,
            Advisor::Own { provider, key } => self.accounts.hash_one((provider, key.expose_secret())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use tokio::time::Instant;

    use super::{AskError, Judges};
    use crate::domain::selection::judgement::{Choice, Entry, Provider, Question};
    use crate::service::ports::{Advisor, Answered, Judge, JudgeError, Purpose};
    use crate::service::records::llm_costs::AskedFor;
    use crate::service::records::metrics::Meters;
    use crate::service::selection::breaker::FAILURES;
    use crate::settings::Settings;

    const DEADLINE: Duration = Duration::from_millis(50);

    /// A fake model that chooses the first tool, hangs or fails, depending on the task.
    #[derive(Default)]
    struct Obedient {
        calls: AtomicUsize,
    }

    #[async_trait]
    impl Judge for Obedient {
        async fn judge(&self, _advisor: &Advisor, question: &Question) -> Answered<Result<Vec<Choice>, JudgeError>> {
            self.calls.fetch_add(1, Ordering::SeqCst);
            Answered::unanswered(match question.user() {
                text if text.contains("choose") => Ok(vec![Choice { place: 0, reason: None }]),
                text if text.contains("hang") => std::future::pending().await,
                _ => Err(JudgeError::RateLimited),
            })
        }
    }

    fn judges() -> (Judges, Arc<Obedient>) {
        let judge = Arc::new(Obedient::default());
        (Judges::new(Arc::clone(&judge) as _, Settings::defaults().unwrap().start.llm), judge)
    }

    /// The counted outcomes, in the format of the metrics.
    fn counted(meters: &Meters) -> Vec<String> {
        let mut registry = Registry::default();
        meters.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let mut lines: Vec<String> = text.lines().filter(|line| line.starts_with("judge_requests_total")).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    async fn ask(judges: &Judges, advisor: &Advisor, task: &str) -> Result<usize, AskError> {
        let question = Question::new(task, vec![Entry::new("a", "x"), Entry::new("b", "y")], 1);
        let asked = AskedFor { purpose: Purpose::Judge, principal: None, is_own: advisor.is_own() };
        judges.ask(advisor, &question, Instant::now() + DEADLINE, asked).await.map(|choices| choices.len())
    }

    #[tokio::test]
    async fn the_deadline_is_hard() {
        let (judges, _) = judges();
        let started = Instant::now();
        assert_eq!(ask(&judges, &Advisor::Configured, "hang").await, Err(AskError::Failed(JudgeError::Timeout)));
        assert!((DEADLINE..100 * DEADLINE).contains(&started.elapsed()), "{:?}", started.elapsed());
    }

    #[tokio::test]
    async fn every_outcome_is_counted() {
        let (judges, _) = judges();
        let meters = Arc::<Meters>::default();
        let judges = judges.with_meters(Arc::clone(&meters));
        for (task, succeeds) in [("choose", true), ("hang", false), ("fail", false), ("fail again", false), ("choose again", false)] {
            assert_eq!(ask(&judges, &Advisor::Configured, task).await.is_ok(), succeeds, "{task}");
        }
        let own = Advisor::Own { provider: Provider::OpenAi, key: "own".to_owned().into() };
        assert!(ask(&judges, &own, "fail with the user's key").await.is_err());
        let outcomes = [("abandoned", 0, 0), ("answered", 1, 0), ("failed", 2, 1), ("left_out", 1, 0), ("timed_out", 1, 0)];
        let line = |outcome, payer, count| format!("judge_requests_total{{outcome=\"{outcome}\",paid_by=\"{payer}\"}} {count}");
        let lines = outcomes.map(|(outcome, service, user)| [line(outcome, "service", service), line(outcome, "user", user)]);
        assert_eq!(counted(&meters), lines.concat());
    }

    #[tokio::test]
    async fn a_request_whose_caller_gives_up_is_counted() {
        let (judges, judge) = judges();
        let meters = Arc::<Meters>::default();
        let judges = judges.with_meters(Arc::clone(&meters));
        let advisor = Advisor::Configured;
        {
            let mut asking = pin!(ask(&judges, &advisor, "hang"));
            while judge.calls.load(Ordering::SeqCst) == 0 {
                assert!(futures::poll!(asking.as_mut()).is_pending());
            }
        }
        let abandoned = "judge_requests_total{outcome=\"abandoned\",paid_by=\"service\"} 1".to_owned();
        assert!(counted(&meters).contains(&abandoned), "{:?}", counted(&meters));
        assert_eq!(ask(&judges, &advisor, "choose").await, Ok(1), "nobody waited long, so the model is not skipped");
    }

    #[tokio::test]
    async fn who_keeps_failing_is_left_out_and_nobody_else() {
        let (judges, judge) = judges();
        let own = |key: &str| Advisor::Own { provider: Provider::OpenAi, key: key.to_owned().into() };
        for _ in 0..FAILURES {
            assert_eq!(ask(&judges, &own("one"), "fail").await, Err(AskError::Failed(JudgeError::RateLimited)));
        }
        assert_eq!(ask(&judges, &own("one"), "choose").await, Err(AskError::LeftOut));
        assert_eq!(ask(&judges, &own("two"), "choose").await, Ok(1), "another account");
        assert_eq!(ask(&judges, &Advisor::Configured, "choose").await, Ok(1));
        let before = judge.calls.load(Ordering::SeqCst);
        assert_eq!(ask(&judges, &own("two"), "choose").await, Ok(1), "from the cache");
        assert_eq!(judge.calls.load(Ordering::SeqCst), before);
    }
}

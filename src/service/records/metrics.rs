//! Counters and histograms for Prometheus, without user names.
//!
//! Each message updates atomic counters and a few histograms with short locks. Labels are constants or names of configured
//! servers and their tools, so callers can't create new labels.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::text::named::named;
use crate::service::ports::{AnswerTokens, CallOutcome, Limit, Purpose, Verdict};

/// Upper bounds of the buckets, in seconds. A selection takes one to three milliseconds with the built-in embedder, and some
/// hundred with an endpoint. The Open WebUI filter waits 1.5 s.
const SELECTION_BUCKETS: [f64; 15] = [0.000_25, 0.000_5, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.5];
/// Upper bounds of the buckets, in seconds. A call may take as long as its server's time limit.
const CALL_BUCKETS: [f64; 14] = [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0];
/// Results of requests with a wrong key: `refused` below the limit, `limited` above it.
const WRONG_KEY_ANSWERS: [&str; 2] = ["refused", "limited"];
/// Maximum number of series for single tools, one per tool and outcome. Further calls are counted only per server.
const MOST_TOOLS: usize = 10_000;

named! {
    /// The outcome of a selection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SelectionKind {
        Chosen = "chosen",
        /// The gate decided that the message needs no tool.
        NoneNeeded = "none_needed",
        /// The request offered none of our tools, or the message was empty.
        NothingOnOffer = "nothing_on_offer",
        /// All our tools were kept, because their definitions are small.
        Small = "small",
        /// All tools were kept, because the chat is in the static arm of an experiment.
        Static = "static",
        /// All tools were kept, because the selection is only recorded.
        Shadow = "shadow",
        /// All tools were kept, because the caller has switched the selection off.
        SwitchedOff = "switched_off",
        /// The embedder or the index failed, so the selection relies on words.
        Degraded = "degraded",
        /// The caller disconnected before the selection ended. Counted only here and by its duration until then.
        Abandoned = "abandoned",
    }

    /// A timed stage of a selection or a search.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Stage {
        Embed = "embed",
        Index = "index",
        /// Reranking by a language model.
        Rerank = "rerank",
    }

    /// The way in which a model searched for tools.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SearchKind {
        FindTools = "find_tools",
        SmartSelect = "smart_select",
    }

    /// The outcome of a request to a language model.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum JudgeOutcome {
        Answered = "answered",
        Failed = "failed",
        /// The model did not answer in time.
        TimedOut = "timed_out",
        /// The request was skipped because the circuit breaker is open.
        LeftOut = "left_out",
        /// The callers disconnected before the model answered.
        Abandoned = "abandoned",
    }

    /// What became of a span of a trace.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SpanOutcome {
        Exported = "exported",
        /// The queue was full.
        Dropped = "dropped",
        /// The collector did not take it.
        Failed = "failed",
    }
}

/// A cache whose hits and misses are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    /// Vectors of messages.
    Vectors,
    /// Composed documents.
    Documents,
}

/// Counts hits and misses of a cache.
#[derive(Clone, Debug, Default)]
pub struct CacheMeter {
    hits: Counter,
    misses: Counter,
}

impl CacheMeter {
    pub fn hits(&self, count: usize) {
        self.hits.inc_by(count as u64);
    }

    pub fn misses(&self, count: usize) {
        self.misses.inc_by(count as u64);
    }
}

impl SelectionKind {
    /// Whether all our tools stay, whatever the message says.
    pub(in crate::service) fn keeps_all(self) -> bool {
        matches!(self, Self::Small | Self::Static | Self::Shadow | Self::SwitchedOff)
    }

    /// Whether the record of the selection contains all tools. In shadow mode, it contains those that would have been selected.
    pub(in crate::service) fn records_all(self) -> bool {
        matches!(self, Self::Small | Self::Static | Self::SwitchedOff)
    }
}

/// The metrics of one selection.
#[derive(Clone, Copy, Debug)]
pub struct SelectionFigures {
    pub kind: SelectionKind,
    pub took: Duration,
    /// Number of our tools before and after selection.
    pub tools_before: usize,
    pub tools_after: usize,
    pub tokens_before: u64,
    pub tokens_after: u64,
}

impl SelectionFigures {
    /// Tokens of definitions that the selection left out. If all tools stay on offer, it saved nothing.
    pub fn tokens_saved(&self) -> u64 {
        if self.kind.keeps_all() { 0 } else { self.tokens_before.saturating_sub(self.tokens_after) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpLabels {
    route: String,
    method: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServerLabels {
    server: ServerName,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    server: ServerName,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    cache: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JudgeLabels {
    outcome: &'static str,
    paid_by: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabels {
    server: ServerName,
    tool: String,
    outcome: &'static str,
}

/// The model is one in the settings.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LlmLabels {
    purpose: &'static str,
    model: String,
    paid_by: &'static str,
    direction: &'static str,
}

/// Declares a type of labels with constant values.
macro_rules! labels {
    ($($name:ident $label:ident),* $(,)?) => {
        $(#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $name { $label: &'static str })*
    };
}
labels!(AnswerLabels answer, KindLabels kind, StageLabels stage, OutcomeLabels outcome, LimitLabels limit, VerdictLabels verdict);

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Each metric with its name and meaning. Names get the registry's prefix, and counters `_total`.
macro_rules! meters {
    ($($meter:ident: $type:ty = $new:expr, $name:literal $(in $unit:ident)? $(if $condition:ident)?: $help:literal;)*) => {
        /// All metrics. Without a registry they are not exposed.
        #[derive(Debug)]
        pub struct Meters {
            $($meter: $type,)*
            /// Whether each tool gets a series.
            per_tool: bool,
            tool_series: AtomicUsize,
        }

        impl Meters {
            /// `per_tool`: whether each tool gets a series.
            pub fn new(per_tool: bool) -> Self {
                let meters = Self { $($meter: $new,)* per_tool, tool_series: AtomicUsize::new(0) };
                meters.begin_at_zero();
                meters
            }

            /// Registers all metrics.
            pub fn register(&self, registry: &mut Registry) {
                $(if true $(&& self.$condition)? {
                    register(registry, $name, $help, None $(.or(Some(Unit::$unit)))?, self.$meter.clone());
                })*
            }
        }
    };
}

meters! {
    http_requests: Family<HttpLabels, Counter> = Family::default(), "http_requests": "HTTP requests by route, method and status class";
    http_connections_ended: Counter = Counter::default(), "http_connections_ended": "HTTP connections closed because there were too many";
    wrong_keys: Family<AnswerLabels, Counter> = Family::default(), "wrong_keys": "Wrong keys of HTTP clients by response";
    calls: Family<CallLabels, Counter> = Family::default(), "calls": "Tool calls by server and outcome";
    call_seconds: Histograms<ServerLabels> = Family::new_with_constructor(|| Histogram::new(CALL_BUCKETS)),
        "call_duration" in Seconds: "Duration of tool calls";
    recovered_calls: Counter = Counter::default(), "recovered_calls": "Calls of tools that the chat's last selection had not offered";
    tool_calls: Family<ToolLabels, Counter> = Family::default(), "tool_calls" if per_tool: "Calls by tool and outcome";
    selections: Family<KindLabels, Counter> = Family::default(), "selections": "Selections by outcome";
    selection_seconds: Histogram = Histogram::new(SELECTION_BUCKETS), "selection_duration" in Seconds: "Duration of selections";
    stage_seconds: Histograms<StageLabels> = Family::new_with_constructor(|| Histogram::new(SELECTION_BUCKETS)),
        "stage_duration" in Seconds: "Duration of the stages of selections and searches";
    tools_before: Counter = Counter::default(), "selection_tools_before": "Tools offered before selections";
    tools_after: Counter = Counter::default(), "selection_tools_after": "Tools offered after selections";
    tokens_before: Counter = Counter::default(), "selection_tokens_before": "Tokens of definitions before selections";
    tokens_after: Counter = Counter::default(), "selection_tokens_after": "Tokens of definitions after selections";
    tokens_saved: Counter = Counter::default(), "selection_tokens_saved": "Tokens of definitions left out by selections";
    searches: Family<KindLabels, Counter> = Family::default(), "searches": "Searches for tools by models";
    cache_requests: Family<CacheLabels, Counter> = Family::default(), "cache_requests": "Cache lookups by result";
    judge_requests: Family<JudgeLabels, Counter> = Family::default(), "judge_requests": "Requests to language models by outcome and payer";
    llm_tokens: Family<LlmLabels, Counter> = Family::default(), "llm_tokens":
        "Tokens of language models by purpose, model, payer and direction";
    limited: Family<LimitLabels, Counter> = Family::default(), "rate_limited": "Requests rejected by a limit";
    spans: Family<OutcomeLabels, Counter> = Family::default(), "spans": "Spans of traces by outcome";
    traces_limited: Counter = Counter::default(), "traces_limited": "Requests without a trace because of the rate limit for traces";
    feedback: Family<VerdictLabels, Counter> = Family::default(), "feedback": "Feedback of callers on selected tools";
}

fn register(registry: &mut Registry, name: &str, help: &str, unit: Option<Unit>, metric: impl Metric) {
    match unit {
        Some(unit) => registry.register_with_unit(name, help, unit, metric),
        None => registry.register(name, help, metric),
    }
}

impl Default for Meters {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Meters {
    /// Creates all series with known labels at 0. Otherwise Prometheus would miss their first increase.
    fn begin_at_zero(&self) {
        for answer in WRONG_KEY_ANSWERS {
            drop(self.wrong_keys.get_or_create(&AnswerLabels { answer }));
        }
        for kind in SelectionKind::ALL {
            drop(self.selections.get_or_create(&KindLabels { kind: kind.name() }));
        }
        for kind in SearchKind::ALL {
            drop(self.searches.get_or_create(&KindLabels { kind: kind.name() }));
        }
        for outcome in JudgeOutcome::ALL {
            for is_own in [false, true] {
                drop(self.judge_requests.get_or_create(&JudgeLabels { outcome: outcome.name(), paid_by: payer(is_own) }));
            }
        }
        for outcome in SpanOutcome::ALL {
            drop(self.spans.get_or_create(&OutcomeLabels { outcome: outcome.name() }));
        }
        for limit in Limit::ALL {
            drop(self.limited.get_or_create(&LimitLabels { limit: limit.name() }));
        }
        for verdict in Verdict::ALL {
            drop(self.feedback.get_or_create(&VerdictLabels { verdict: verdict.name() }));
        }
        for stage in Stage::ALL {
            drop(self.stage_seconds.get_or_create(&StageLabels { stage: stage.name() }));
        }
    }

    /// `route` is the template of the route, never the path of the request.
    pub fn request(&self, route: String, method: &str, status: u16) {
        self.http_requests.get_or_create(&HttpLabels { route, method: method_name(method), status: status_class(status) }).inc();
    }

    pub fn connections_ended(&self, count: usize) {
        self.http_connections_ended.inc_by(count as u64);
    }

    /// `is_limited`: the address has exceeded the limit.
    pub fn wrong_key(&self, is_limited: bool) {
        self.wrong_keys.get_or_create(&AnswerLabels { answer: WRONG_KEY_ANSWERS[usize::from(is_limited)] }).inc();
    }

    pub fn call(&self, tool: &ToolId, outcome: CallOutcome, took: Duration, recovered: bool) {
        let (server, outcome) = (&tool.server, outcome.name());
        self.calls.get_or_create(&CallLabels { server: server.clone(), outcome }).inc();
        self.call_seconds.get_or_create(&ServerLabels { server: server.clone() }).observe(took.as_secs_f64());
        if recovered {
            self.recovered_calls.inc();
        }
        self.call_of_tool(tool, outcome);
    }

    /// Counts a call that a limit rejected, without a duration.
    pub fn call_refused(&self, tool: &ToolId) {
        let outcome = CallOutcome::Limited.name();
        self.calls.get_or_create(&CallLabels { server: tool.server.clone(), outcome }).inc();
        self.call_of_tool(tool, outcome);
    }

    fn call_of_tool(&self, tool: &ToolId, outcome: &'static str) {
        if !self.per_tool {
            return;
        }
        let labels = ToolLabels { server: tool.server.clone(), tool: tool.name.to_string(), outcome };
        if let Some(known) = self.tool_calls.get(&labels) {
            known.inc();
        } else if self.tool_series.fetch_add(1, Ordering::Relaxed) < MOST_TOOLS {
            self.tool_calls.get_or_create(&labels).inc();
        }
    }

    pub fn selection(&self, figures: &SelectionFigures) {
        self.selections.get_or_create(&KindLabels { kind: figures.kind.name() }).inc();
        self.selection_seconds.observe(figures.took.as_secs_f64());
        self.tools_before.inc_by(figures.tools_before as u64);
        self.tools_after.inc_by(figures.tools_after as u64);
        self.tokens_before.inc_by(figures.tokens_before);
        self.tokens_after.inc_by(figures.tokens_after);
        self.tokens_saved.inc_by(figures.tokens_saved());
    }

    /// Counts a selection whose caller disconnected before its end.
    pub fn selection_abandoned(&self, since: Instant) {
        self.selections.get_or_create(&KindLabels { kind: SelectionKind::Abandoned.name() }).inc();
        self.selection_seconds.observe(since.elapsed().as_secs_f64());
    }

    pub fn stage(&self, stage: Stage, since: Instant) {
        self.stage_seconds.get_or_create(&StageLabels { stage: stage.name() }).observe(since.elapsed().as_secs_f64());
    }

    pub fn search(&self, kind: SearchKind) {
        self.searches.get_or_create(&KindLabels { kind: kind.name() }).inc();
    }

    pub fn cache(&self, kind: CacheKind) -> CacheMeter {
        let cache = match kind {
            CacheKind::Vectors => "vectors",
            CacheKind::Documents => "documents",
        };
        let counter = |result| self.cache_requests.get_or_create_owned(&CacheLabels { cache, result });
        CacheMeter { hits: counter("hit"), misses: counter("miss") }
    }

    /// `is_own`: a user paid, with a key of their own.
    pub fn judge(&self, outcome: JudgeOutcome, is_own: bool) {
        self.judge_requests.get_or_create(&JudgeLabels { outcome: outcome.name(), paid_by: payer(is_own) }).inc();
    }

    pub fn spans(&self, outcome: SpanOutcome, count: usize) {
        self.spans.get_or_create(&OutcomeLabels { outcome: outcome.name() }).inc_by(count as u64);
    }

    pub fn trace_limited(&self) {
        self.traces_limited.inc();
    }

    /// Counts the tokens of an answer. `model` is the name in the settings, `is_own` whether a user paid.
    pub fn llm_answer(&self, purpose: Purpose, model: &str, is_own: bool, tokens: AnswerTokens) {
        let paid_by = payer(is_own);
        for (direction, count) in [("input", tokens.input), ("output", tokens.output)] {
            let labels = LlmLabels { purpose: purpose.name(), model: model.to_owned(), paid_by, direction };
            self.llm_tokens.get_or_create(&labels).inc_by(count);
        }
    }

    pub fn limited(&self, limit: Limit) {
        self.limited.get_or_create(&LimitLabels { limit: limit.name() }).inc();
    }

    pub fn feedback(&self, verdict: Verdict) {
        self.feedback.get_or_create(&VerdictLabels { verdict: verdict.name() }).inc();
    }
}

impl EncodeLabelValue for ServerName {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.as_str().encode(encoder)
    }
}

fn payer(is_own: bool) -> &'static str {
    if is_own { "user" } else { "service" }
}

/// Maps unknown methods to a constant, because callers may send any method.
fn method_name(method: &str) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN.into_iter().find(|known| *known == method).unwrap_or("other")
}

fn status_class(status: u16) -> &'static str {
    match status / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{SelectionFigures, SelectionKind};

    #[test]
    fn only_what_a_selection_left_out_is_saved() {
        let saved = |kind| {
            let figures =
                SelectionFigures { kind, took: Duration::ZERO, tools_before: 9, tools_after: 2, tokens_before: 900, tokens_after: 20 };
            figures.tokens_saved()
        };
        for kind in SelectionKind::ALL {
            let all = [SelectionKind::Small, SelectionKind::Static, SelectionKind::Shadow, SelectionKind::SwitchedOff];
            let keeps_all = all.contains(&kind);
            assert_eq!(saved(kind), if keeps_all { 0 } else { 880 }, "{kind:?}");
        }
    }
}

//! Decides which traces are recorded: the caller's decision or a share of the traces, up to a rate.

use std::sync::Arc;
use std::time::Instant;

use opentelemetry::trace::{Link, SpanKind, TraceContextExt as _, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, SamplingResult, ShouldSample};

use crate::domain::access::rate::{Pace, Pacer};
use crate::service::records::metrics::Meters;

/// A sampler that follows the parent's decision. The rate also limits traces that callers want to be recorded.
#[derive(Clone, Debug)]
pub(super) struct BoundedSampler {
    sampler: Sampler,
    started: Instant,
    /// `None` means no limit.
    pacer: Option<Arc<Pacer>>,
    meters: Arc<Meters>,
}

impl BoundedSampler {
    pub(super) fn new(ratio: f64, per_minute: u32, meters: Arc<Meters>) -> Self {
        let pacer = Pace::new(per_minute, 0).map(Pacer::new).map(Arc::new);
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio)));
        Self { sampler, started: Instant::now(), pacer, meters }
    }

    fn has_room(&self) -> bool {
        let has_room = self.pacer.as_ref().is_none_or(|pacer| pacer.take(self.started.elapsed()).is_ok());
        if !has_room {
            self.meters.trace_limited();
        }
        has_room
    }
}

impl ShouldSample for BoundedSampler {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let mut result = self.sampler.should_sample(parent, trace_id, name, kind, attributes, links);
        // The limit counts traces. So children of a recorded span are recorded too.
        let is_child = parent.is_some_and(|parent| {
            let span = parent.span();
            span.span_context().is_valid() && !span.span_context().is_remote()
        });
        if result.decision == SamplingDecision::RecordAndSample && !is_child && !self.has_room() {
            result.decision = SamplingDecision::Drop;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceState};

    use super::*;

    fn parent(is_sampled: bool, is_remote: bool) -> Context {
        let flags = TraceFlags::default().with_sampled(is_sampled);
        let span = SpanContext::new(TraceId::from(1), SpanId::from(1), flags, is_remote, TraceState::default());
        Context::new().with_remote_span_context(span)
    }

    fn is_recorded(sampler: &BoundedSampler, parent: Option<&Context>) -> bool {
        let result = sampler.should_sample(parent, TraceId::from(u128::MAX), "", &SpanKind::Server, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }

    #[test]
    fn the_caller_decides_and_otherwise_the_share() {
        let none = BoundedSampler::new(0.0, 0, Arc::default());
        assert!(!is_recorded(&none, None));
        assert!(is_recorded(&none, Some(&parent(true, true))));
        let all = BoundedSampler::new(1.0, 0, Arc::default());
        assert!(is_recorded(&all, None));
        assert!(!is_recorded(&all, Some(&parent(false, true))));
    }

    #[test]
    fn a_caller_can_not_cause_more_traces_than_the_rate_allows() {
        let sampler = BoundedSampler::new(1.0, 3, Arc::default());
        let remote = parent(true, true);
        let recorded = (0..10).filter(|_| is_recorded(&sampler, Some(&remote))).count();
        assert_eq!(recorded, 3);
        assert!(!is_recorded(&sampler, None), "traces that begin here share the rate");
        assert!(is_recorded(&sampler, Some(&parent(true, false))), "a span of a recorded trace");
    }
}

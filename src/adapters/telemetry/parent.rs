//! Reads and writes trace contexts (W3C Trace Context).

use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::SpanContext;
use opentelemetry_sdk::propagation::TraceContextPropagator;

use crate::service::ports::TraceContext;

/// The remote parent of a span.
pub(super) fn read(context: &TraceContext) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Carrier(context))
}

pub(super) fn write(span: &SpanContext) -> TraceContext {
    let parent = format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags().to_u8());
    let state = span.trace_state().header();
    TraceContext { parent, state: (!state.is_empty()).then_some(state) }
}

struct Carrier<'a>(&'a TraceContext);

impl Extractor for Carrier<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            TraceContext::PARENT => Some(&self.0.parent),
            TraceContext::STATE => self.0.state.as_deref(),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        self.0.headers().map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TraceContextExt as _;

    use super::{read, write};
    use crate::service::ports::TraceContext;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn context(parent: &str, state: Option<&str>) -> TraceContext {
        TraceContext { parent: parent.to_owned(), state: state.map(str::to_owned) }
    }

    #[test]
    fn a_context_is_written_as_it_was_read() {
        for (parent, state) in [
            (PARENT, None),
            (PARENT, Some("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", Some("a=1")),
        ] {
            let given = context(parent, state);
            assert_eq!(write(read(&given).span().span_context()), given);
        }
    }

    #[test]
    fn a_later_version_is_read_as_this_one_and_a_bad_state_is_dropped() {
        let later = format!("cc{}-more", &PARENT[2..]);
        assert_eq!(write(read(&context(&later, None)).span().span_context()), context(PARENT, None));
        assert_eq!(write(read(&context(PARENT, Some("no pair"))).span().span_context()), context(PARENT, None));
    }
}

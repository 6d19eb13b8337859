//! Distributed traces: spans, and the context that connects them across processes (W3C Trace Context).

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

/// Starts traces. Ended spans are exported in the background.
pub trait Tracer: Send + Sync {
    /// Starts the first span of a request in this process. `parent` is the caller's span.
    fn start(&self, name: Cow<'static, str>, kind: SpanKind, parent: Option<&TraceContext>) -> Arc<dyn Span>;
}

/// A running step of a request. It ends when it is dropped everywhere.
pub trait Span: Send + Sync + Debug {
    /// Whether the span will be exported. If not, its children won't be either.
    fn is_recorded(&self) -> bool;

    /// Whether the span may contain texts of messages, arguments and results.
    fn captures_content(&self) -> bool;

    fn child(&self, name: Cow<'static, str>, kind: SpanKind) -> Arc<dyn Span>;

    fn rename(&self, name: String);

    fn set(&self, attribute: &'static str, value: SpanValue);

    /// Marks the step as failed. `error` is a kind of error, never its text.
    fn fail(&self, error: Cow<'static, str>);

    /// The context for requests to other services.
    fn context(&self) -> TraceContext;

    fn end(&self);
}

/// Length of a `traceparent` of version 00.
const LENGTH: usize = 55;
/// Maximum length of a `tracestate`. Longer ones are dropped; the specification requires at least 512.
const MOST_STATE: usize = 2_048;

/// The position in a trace, as two headers (W3C Trace Context).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// The value of `traceparent`.
    pub parent: String,
    /// The value of `tracestate`.
    pub state: Option<String>,
}

impl TraceContext {
    pub const PARENT: &'static str = "traceparent";
    pub const STATE: &'static str = "tracestate";

    /// Reads a context from a caller. Returns `None` if `parent` is malformed, so that it has no effect.
    pub fn read(parent: &str, state: Option<&str>) -> Option<Self> {
        let state = state.filter(|state| !state.is_empty() && state.len() <= MOST_STATE);
        is_well_formed(parent).then(|| Self { parent: parent.to_owned(), state: state.map(str::to_owned) })
    }

    /// The names and values of the headers.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [(Self::PARENT, self.parent.as_str())].into_iter().chain(self.state.as_deref().map(|state| (Self::STATE, state)))
    }

    /// The id of the trace; empty if the context is malformed.
    pub fn trace_id(&self) -> &str {
        self.parent.split('-').nth(1).unwrap_or_default()
    }
}

/// Whether the text has the form of a `traceparent` (W3C Trace Context, "traceparent Header").
fn is_well_formed(parent: &str) -> bool {
    let bytes = parent.as_bytes();
    let is_whole = bytes.len() == LENGTH || (bytes.len() > LENGTH && bytes[LENGTH] == b'-' && !parent.starts_with("00"));
    let is_right = |(at, byte): (usize, &u8)| match at {
        2 | 35 | 52 => *byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    let is_zero = |range: Range<usize>| bytes[range].iter().all(|byte| *byte == b'0');
    is_whole && !parent.starts_with("ff") && bytes.iter().take(LENGTH).enumerate().all(is_right) && !is_zero(3..35) && !is_zero(36..52)
}

/// The role of a span in communication between services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A step within this process.
    Internal,
    /// Answers a request.
    Server,
    /// Sends a request and waits for its response.
    Client,
}

/// The value of a span's attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum SpanValue {
    Text(Cow<'static, str>),
    Count(i64),
}

impl From<&'static str> for SpanValue {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for SpanValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<usize> for SpanValue {
    fn from(count: usize) -> Self {
        Self::Count(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<u64> for SpanValue {
    fn from(count: u64) -> Self {
        Self::Count(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<u16> for SpanValue {
    fn from(count: u16) -> Self {
        Self::Count(count.into())
    }
}

#[cfg(test)]
mod tests {
    use super::TraceContext;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_two_headers_at_most() {
        let context = TraceContext::read(PARENT, Some("a=1")).unwrap();
        assert_eq!(context.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.headers().collect::<Vec<_>>(), [("traceparent", PARENT), ("tracestate", "a=1")]);
        for state in [None, Some(""), Some("x".repeat(3_000).as_str())] {
            assert_eq!(TraceContext::read(PARENT, state).unwrap().headers().count(), 1);
        }
        assert_eq!(TraceContext::default().trace_id(), "");
    }

    #[test]
    fn malformed_contexts_have_no_effect() {
        let malformed = [
            "",
            "x",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-1-1-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47é-00f067aa0ba902b7-01",
        ];
        for parent in malformed {
            assert_eq!(TraceContext::read(parent, Some("a=1")), None, "{parent}");
        }
        assert!(TraceContext::read(&format!("cc{}-more", &PARENT[2..]), None).is_some(), "a later version");
    }
}

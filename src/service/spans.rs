//! The span of the current request, and its children.
//!
//! The span belongs to the task that handles the request, so use cases needn't pass it on. Without one, nothing is created.

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::Either;

use crate::service::ports::{Span, SpanKind, SpanValue, TraceContext};

/// Maximum length of a text in a span, in characters.
const MOST_CONTENT: usize = 4_000;

tokio::task_local! {
    static CURRENT: Arc<dyn Span>;
}

/// The span of the current request, if it is traced.
pub(crate) fn current() -> Option<Arc<dyn Span>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Runs a future with this span as the current one.
pub(crate) fn within<F: Future>(span: Option<Arc<dyn Span>>, future: F) -> impl Future<Output = F::Output> {
    match span {
        Some(span) => Either::Left(CURRENT.scope(span, future)),
        None => Either::Right(future),
    }
}

/// Starts a child of the current span.
pub(crate) fn child(kind: SpanKind, name: impl FnOnce() -> Cow<'static, str>) -> Step {
    let start = |span: &Arc<dyn Span>| if span.is_recorded() { span.child(name(), kind) } else { Arc::clone(span) };
    Step(CURRENT.try_with(start).ok())
}

/// Adds an attribute to the current span.
pub(crate) fn note(attribute: &'static str, value: impl Into<SpanValue>) {
    let _ = CURRENT.try_with(|span| span.set(attribute, value.into()));
}

/// The first characters of a text, for a span that may contain texts.
pub(crate) fn content(text: &str) -> String {
    text.chars().take(MOST_CONTENT).collect()
}

/// A step of the current request. Without a traced request, it does nothing.
pub(crate) struct Step(Option<Arc<dyn Span>>);

impl Step {
    /// The step's span, if it is recorded.
    pub(crate) fn recorded(&self) -> Option<&dyn Span> {
        self.0.as_deref().filter(|span| span.is_recorded())
    }

    /// Adds a text, if spans may contain texts.
    pub(crate) fn capture<T: AsRef<str>>(&self, attribute: &'static str, text: impl FnOnce() -> T) {
        if let Some(span) = self.recorded().filter(|span| span.captures_content()) {
            span.set(attribute, content(text().as_ref()).into());
        }
    }

    pub(crate) fn fail(&self, error: impl Into<Cow<'static, str>>) {
        if let Some(span) = self.recorded() {
            span.fail(error.into());
        }
    }

    /// The context for a request to another service. It exists even if the trace is not recorded, so that the other service doesn't
    /// start a trace of its own.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        self.0.as_ref().map(|span| span.context())
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(span) = self.recorded() {
            span.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::{Step, child, content, current, note, within};
    use crate::service::ports::{Span, SpanKind, SpanValue, TraceContext};

    /// A span that writes down what happens to it.
    #[derive(Debug)]
    struct Written {
        name: String,
        is_recorded: bool,
        captures: bool,
        log: Arc<Mutex<Vec<String>>>,
    }

    impl Written {
        fn write(&self, what: &str) {
            self.log.lock().push(format!("{}: {what}", self.name));
        }
    }

    impl Span for Written {
        fn is_recorded(&self) -> bool {
            self.is_recorded
        }

        fn captures_content(&self) -> bool {
            self.captures
        }

        fn child(&self, name: Cow<'static, str>, _: SpanKind) -> Arc<dyn Span> {
            self.write(&format!("child {name}"));
            Arc::new(Self { name: name.into_owned(), log: Arc::clone(&self.log), ..*self })
        }

        fn rename(&self, name: String) {
            self.write(&name);
        }

        fn set(&self, attribute: &'static str, value: SpanValue) {
            self.write(&format!("{attribute} = {value:?}"));
        }

        fn fail(&self, error: Cow<'static, str>) {
            self.write(&format!("failed: {error}"));
        }

        fn context(&self) -> TraceContext {
            TraceContext { parent: self.name.clone(), state: None }
        }

        fn end(&self) {
            self.write("end");
        }
    }

    fn root(is_recorded: bool, captures: bool) -> (Arc<dyn Span>, Arc<Mutex<Vec<String>>>) {
        let log = Arc::default();
        (Arc::new(Written { name: "root".to_owned(), is_recorded, captures, log: Arc::clone(&log) }), log)
    }

    fn step() -> Step {
        child(SpanKind::Client, || "step".into())
    }

    #[tokio::test]
    async fn steps_are_children_of_the_task_s_span_and_end_when_they_are_dropped() {
        let (span, log) = root(true, false);
        let context = within(Some(span), async {
            tokio::task::yield_now().await;
            note("tools", 2_usize);
            let step = step();
            step.recorded().unwrap().set("one", "1".into());
            step.capture("text", || -> String { unreachable!("texts are off") });
            step.fail("timeout");
            step.context()
        });
        assert_eq!(context.await.unwrap().parent, "step");
        let expected = ["root: tools = Count(2)", "root: child step", "step: one = Text(\"1\")", "step: failed: timeout", "step: end"];
        assert_eq!(*log.lock(), expected);
        assert!(current().is_none(), "the span is the future's only");
    }

    #[tokio::test]
    async fn a_trace_that_is_not_recorded_has_a_context_and_nothing_else() {
        let (span, log) = root(false, true);
        let context = within(Some(span), async {
            let step = step();
            step.fail("timeout");
            assert!(step.recorded().is_none());
            step.context()
        });
        assert_eq!(context.await.unwrap().parent, "root");
        assert_eq!(*log.lock(), [""; 0]);
    }

    #[tokio::test]
    async fn without_a_trace_nothing_is_created() {
        let step = within(None, async { child(SpanKind::Internal, || unreachable!("no name is needed")) }).await;
        step.fail("timeout");
        assert!(step.context().is_none() && step.recorded().is_none());
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(content("é"), "é");
        assert_eq!(content(&"é".repeat(5_000)).chars().count(), 4_000);
    }
}

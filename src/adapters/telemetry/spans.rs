//! The port: spans of the SDK.

use std::borrow::Cow;
use std::sync::Arc;

use opentelemetry::trace::{SpanBuilder, SpanKind as OtelKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::trace::SdkTracer;

use super::parent;
use crate::service::ports::{Span, SpanKind, SpanValue, TraceContext, Tracer};

/// The attribute with the kind of an error (OpenTelemetry semantic conventions, "Recording errors").
const ERROR: &str = "error.type";

pub(super) struct RecordingTracer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    tracer: SdkTracer,
    captures_content: bool,
}

#[derive(Debug)]
struct RecordingSpan {
    shared: Arc<Shared>,
    /// Contains the span of the SDK.
    context: Context,
    is_recorded: bool,
}

impl RecordingTracer {
    pub(super) fn new(tracer: SdkTracer, captures_content: bool) -> Self {
        Self(Arc::new(Shared { tracer, captures_content }))
    }
}

impl Tracer for RecordingTracer {
    fn start(&self, name: Cow<'static, str>, kind: SpanKind, parent: Option<&TraceContext>) -> Arc<dyn Span> {
        let parent = parent.map_or_else(Context::new, parent::read);
        Arc::new(RecordingSpan::start(&self.0, name, kind, &parent))
    }
}

impl RecordingSpan {
    fn start(shared: &Arc<Shared>, name: Cow<'static, str>, kind: SpanKind, parent: &Context) -> Self {
        let kind = match kind {
            SpanKind::Internal => OtelKind::Internal,
            SpanKind::Server => OtelKind::Server,
            SpanKind::Client => OtelKind::Client,
        };
        let span = shared.tracer.build_with_context(SpanBuilder::from_name(name).with_kind(kind), parent);
        let context = Context::new().with_span(span);
        let is_recorded = context.span().is_recording();
        Self { shared: Arc::clone(shared), context, is_recorded }
    }
}

impl Span for RecordingSpan {
    fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    fn captures_content(&self) -> bool {
        self.shared.captures_content
    }

    fn child(&self, name: Cow<'static, str>, kind: SpanKind) -> Arc<dyn Span> {
        Arc::new(Self::start(&self.shared, name, kind, &self.context))
    }

    fn rename(&self, name: String) {
        self.context.span().update_name(name);
    }

    fn set(&self, attribute: &'static str, value: SpanValue) {
        let value: Value = match value {
            SpanValue::Text(Cow::Borrowed(text)) => text.into(),
            SpanValue::Text(Cow::Owned(text)) => text.into(),
            SpanValue::Count(count) => count.into(),
        };
        self.context.span().set_attribute(KeyValue::new(attribute, value));
    }

    fn fail(&self, error: Cow<'static, str>) {
        self.set(ERROR, SpanValue::Text(error));
        self.context.span().set_status(Status::error(""));
    }

    fn context(&self) -> TraceContext {
        parent::write(self.context.span().span_context())
    }

    fn end(&self) {
        self.context.span().end();
    }
}

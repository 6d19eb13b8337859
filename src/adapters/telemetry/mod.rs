//! Traces over OTLP/HTTP, with the SDK of OpenTelemetry.
//!
//! Spans wait in a queue of limited size until a task sends them. If the collector is slow or gone, spans are dropped and counted, but
//! no request waits or fails. Deliberately absent: the SDK's global state, and its environment variables. So each application in a
//! process has its own traces, and [`TelemetrySettings`] contains everything.

mod parent;
mod sampler;
mod export;
mod spans;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanLimits};
use reqwest::redirect;
use tokio::sync::mpsc;

pub(crate) use self::export::SpanExport;

use self::export::{Collector, Queue};
use self::sampler::BoundedSampler;
use self::spans::RecordingTracer;
use crate::adapters::proxies;
use crate::service::ports::Tracer;
use crate::service::records::metrics::Meters;
use crate::settings::TelemetrySettings;

const NAME: &str = "toolsieve";
const VERSION: &str = env!("CARGO_PKG_VERSION");
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens the port, and the task that sends spans to the collector. Returns `None` if traces are off.
///
/// # Errors
/// The HTTP client can't be built.
pub(crate) fn open(settings: &TelemetrySettings, meters: &Arc<Meters>) -> reqwest::Result<Option<(Arc<dyn Tracer>, SpanExport)>> {
    let Some(endpoint) = settings.endpoint.clone() else { return Ok(None) };
    // Follows no redirects, because these would send the headers elsewhere.
    let client = proxies::client_builder()
        .user_agent(concat!("toolsieve/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT.min(settings.timeout))
        .timeout(settings.timeout)
        .redirect(redirect::Policy::none())
        .build()?;
    let resource = Resource::builder_empty()
        .with_service_name(settings.service_name.clone())
        .with_attributes([KeyValue::new("service.version", VERSION)])
        .build();
    let (sender, receiver) = mpsc::channel(settings.queue);
    let collector = Collector { client, endpoint, headers: settings.headers.clone() };
    let export = SpanExport::new(receiver, collector, &resource, Arc::clone(meters));
    let provider = SdkTracerProvider::builder()
        .with_resource(resource)
        .with_sampler(BoundedSampler::new(settings.sample_ratio, settings.traces_per_minute, Arc::clone(meters)))
        // The default of the builder depends on environment variables.
        .with_span_limits(SpanLimits::default())
        .with_span_processor(Queue::new(sender, Arc::clone(meters)))
        .build();
    let scope = opentelemetry::InstrumentationScope::builder(NAME).with_version(VERSION).build();
    let tracer = RecordingTracer::new(provider.tracer_with_scope(scope), settings.capture_content);
    Ok(Some((Arc::new(tracer), export)))
}

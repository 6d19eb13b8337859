//! The queue of ended spans, and the task that sends them to the collector.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use opentelemetry::Context;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use prost::Message as _;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::service::records::metrics::{Meters, SpanOutcome};

/// Maximum number of spans per request.
const BATCH: usize = 512;
/// How long spans are gathered before they are sent together.
const GATHERING: Duration = Duration::from_secs(1);
/// Pause before the only retry, unless the collector requests another one.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long the service waits at its end until the last spans are sent.
const FLUSHING: Duration = Duration::from_secs(1);
/// Minimum time between two warnings.
const WARNING: Duration = Duration::from_mins(1);

/// Passes ended spans on to the task, or drops and counts them if too many wait.
#[derive(Debug)]
pub(super) struct Queue {
    sender: mpsc::Sender<SpanData>,
    meters: Arc<Meters>,
}

impl Queue {
    pub(super) fn new(sender: mpsc::Sender<SpanData>, meters: Arc<Meters>) -> Self {
        Self { sender, meters }
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.sender.try_send(span).is_err() {
            self.meters.spans(SpanOutcome::Dropped, 1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The receiver of the spans.
pub(super) struct Collector {
    pub(super) client: reqwest::Client,
    pub(super) endpoint: Url,
    pub(super) headers: HeaderMap,
}

/// Why the collector has not taken a batch.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("it can't be reached: {0}")]
    Unreachable(reqwest::Error),
    #[error("it did not answer in time")]
    Timeout,
    #[error("it answered with HTTP status {status}")]
    Refused { status: StatusCode, retry_after: Option<Duration> },
}

impl ExportError {
    /// How long to wait before a retry; `None` if a retry is useless (OTLP specification, "Retryable Response Codes").
    fn pause(&self) -> Option<Duration> {
        match self {
            Self::Unreachable(_) | Self::Timeout => Some(PAUSE),
            Self::Refused { status, retry_after } => {
                let is_temporary = matches!(status.as_u16(), 429 | 502..=504);
                is_temporary.then(|| retry_after.unwrap_or(PAUSE).min(LONGEST_PAUSE))
            }
        }
    }
}

impl Collector {
    async fn send(&self, body: Vec<u8>) -> Result<(), ExportError> {
        let request = self.client.post(self.endpoint.clone()).headers(self.headers.clone());
        let response = request.header(CONTENT_TYPE, "application/x-protobuf").body(body).send().await.map_err(failed)?;
        if response.status().is_success() {
            return Ok(());
        }
        Err(ExportError::Refused { status: response.status(), retry_after: retry_after(&response) })
    }
}

fn failed(error: reqwest::Error) -> ExportError {
    if error.is_timeout() { ExportError::Timeout } else { ExportError::Unreachable(error.without_url()) }
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The task that sends spans.
pub(crate) struct SpanExport {
    spans: mpsc::Receiver<SpanData>,
    collector: Collector,
    resource: ResourceAttributesWithSchema,
    meters: Arc<Meters>,
    /// The time of the last warning, and the number of spans lost since then. `None` while the collector works.
    warned: Option<Instant>,
    lost: usize,
}

impl SpanExport {
    pub(super) fn new(spans: mpsc::Receiver<SpanData>, collector: Collector, resource: &Resource, meters: Arc<Meters>) -> Self {
        Self { spans, collector, resource: resource.into(), meters, warned: None, lost: 0 }
    }

    /// Sends spans until `stop`, and then those that still wait, for at most a second.
    pub(crate) async fn follow(&mut self, stop: CancellationToken) {
        let mut deadline = pin!(async {
            stop.cancelled().await;
            sleep(FLUSHING).await;
        });
        while let Some(batch) = self.batch(&stop).await {
            let count = batch.len();
            let sent = tokio::select! {
                sent = self.send(batch) => sent,
                () = &mut deadline => false,
            };
            self.meters.spans(if sent { SpanOutcome::Exported } else { SpanOutcome::Failed }, count);
            if !sent && stop.is_cancelled() {
                break;
            }
        }
        // What still waits is lost.
        let mut left = Vec::new();
        while self.spans.try_recv().map(|span| left.push(span)).is_ok() {}
        self.meters.spans(SpanOutcome::Failed, left.len());
    }

    /// Waits for spans and gathers more of them for a moment. Returns `None` after the stop, once no span is left.
    async fn batch(&mut self, stop: &CancellationToken) -> Option<Vec<SpanData>> {
        let mut batch = Vec::new();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            count = self.spans.recv_many(&mut batch, BATCH) => if count == 0 {
                return None;
            },
        }
        let until = Instant::now() + GATHERING;
        let mut stopped = pin!(stop.cancelled());
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            tokio::select! {
                biased;
                () = &mut stopped => {
                    // No further spans are accepted, so this returns at once.
                    self.spans.close();
                    let _ = self.spans.recv_many(&mut batch, room).await;
                    break;
                }
                gathered = timeout_at(until, self.spans.recv_many(&mut batch, room)) => if gathered.is_err() || gathered == Ok(0) {
                    break;
                },
            }
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// Sends a batch, with one retry. Returns whether the collector has taken it.
    async fn send(&mut self, batch: Vec<SpanData>) -> bool {
        let count = batch.len();
        let body = ExportTraceServiceRequest { resource_spans: group_spans_by_resource_and_scope(batch, &self.resource) }.encode_to_vec();
        let mut sent = self.collector.send(body.clone()).await;
        if let Some(pause) = sent.as_ref().err().and_then(ExportError::pause) {
            sleep(pause).await;
            sent = self.collector.send(body).await;
        }
        match &sent {
            Ok(()) if self.warned.take().is_some() => tracing::info!("the collector takes traces again"),
            Ok(()) => {}
            Err(error) => self.warn(error, count),
        }
        sent.is_ok()
    }

    fn warn(&mut self, error: &ExportError, count: usize) {
        self.lost += count;
        if self.warned.is_some_and(|warned| warned.elapsed() < WARNING) {
            return;
        }
        self.warned = Some(Instant::now());
        let lost = std::mem::take(&mut self.lost);
        tracing::warn!(endpoint = %self.collector.endpoint, %error, lost, "traces were not sent; requests are not affected");
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A task for this endpoint, and a tracer whose spans it gets.
    fn export(endpoint: &str, queue: usize) -> (SpanExport, SdkTracer, Arc<Meters>) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (meters, (sender, receiver)) = (Arc::new(Meters::default()), mpsc::channel(queue));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let collector = Collector { client, endpoint: endpoint.parse().unwrap(), headers: HeaderMap::new() };
        let resource = Resource::builder_empty().build();
        let export = SpanExport::new(receiver, collector, &resource, Arc::clone(&meters));
        let provider = SdkTracerProvider::builder().with_span_processor(Queue::new(sender, Arc::clone(&meters))).build();
        (export, provider.tracer("test"), meters)
    }

    /// The number of spans with this outcome.
    fn counted(meters: &Meters, outcome: SpanOutcome) -> String {
        let mut registry = prometheus_client::registry::Registry::default();
        meters.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let start = format!("spans_total{{outcome=\"{}\"}} ", outcome.name());
        text.lines().find_map(|line| line.strip_prefix(&start)).unwrap().to_owned()
    }

    /// A collector that accepts connections and never answers.
    async fn silent() -> (String, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let accepting = tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((connection, _)) = listener.accept().await {
                open.push(connection);
            }
        });
        (url, accepting)
    }

    #[tokio::test]
    async fn a_full_queue_drops_and_counts_spans() {
        let (_export, tracer, meters) = export("http://127.0.0.1:9/v1/traces", 3);
        for _ in 0..5 {
            drop(tracer.start("span"));
        }
        assert_eq!(counted(&meters, SpanOutcome::Dropped), "2");
    }

    #[tokio::test]
    async fn the_stop_does_not_wait_for_a_collector_that_hangs() {
        let (url, accepting) = silent().await;
        let (mut export, tracer, meters) = export(&url, 9);
        drop(tracer.start("span"));
        let stop = CancellationToken::new();
        stop.cancel();
        // The client itself would wait forever.
        export.follow(stop).await;
        assert_eq!(counted(&meters, SpanOutcome::Failed), "1");
        drop(tracer.start("later"));
        assert_eq!(counted(&meters, SpanOutcome::Dropped), "1", "after the end");
        accepting.abort();
    }

    #[tokio::test]
    async fn the_last_spans_are_sent_after_the_stop() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let (mut export, tracer, meters) = export(&url, 9);
        drop(tracer.start("first"));
        drop(tracer.start("second"));
        let stop = CancellationToken::new();
        stop.cancel();
        let answering = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.windows(6).any(|bytes| bytes == b"second") {
                assert_ne!(connection.read_buf(&mut request).await.unwrap(), 0);
            }
            connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            request
        };
        let (request, ()) = tokio::join!(answering, export.follow(stop));
        assert!(request.starts_with(b"POST /v1/traces HTTP/1.1\r\n"));
        assert_eq!(counted(&meters, SpanOutcome::Exported), "2");
    }

    #[test]
    fn only_temporary_failures_are_retried() {
        let refused = |status: u16, retry_after| ExportError::Refused { status: StatusCode::from_u16(status).unwrap(), retry_after };
        assert!([400, 401, 404, 413, 500].into_iter().all(|status| refused(status, None).pause().is_none()));
        assert!([429, 502, 503, 504].into_iter().all(|status| refused(status, None).pause() == Some(PAUSE)));
        assert_eq!(refused(503, Some(Duration::from_secs(3))).pause(), Some(Duration::from_secs(3)));
        assert_eq!(refused(503, Some(Duration::from_hours(1))).pause(), Some(LONGEST_PAUSE));
        assert_eq!(ExportError::Timeout.pause(), Some(PAUSE));
    }
}

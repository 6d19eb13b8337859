//! An OpenTelemetry collector at the wire: takes OTLP over HTTP, or misbehaves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::sync::Mutex;

use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::web::{self, Bytes, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use prost::Message as _;

use crate::harness::wait::eventually;

/// What it does with requests.
#[derive(Clone, Copy)]
pub(crate) enum Manner {
    Takes,
    Refuses(u16),
    /// Answers nothing, ever.
    Hangs,
}

/// A span as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) trace: String,
    pub(crate) id: String,
    /// The id of the parent; empty without one.
    pub(crate) parent: String,
    pub(crate) state: String,
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) has_failed: bool,
    pub(crate) attributes: BTreeMap<String, String>,
}

struct Shared {
    manner: Mutex<Manner>,
    requests: Mutex<Vec<(HttpRequestHead, Bytes)>>,
}

/// Path, content type and authorization of a request.
type HttpRequestHead = (String, Option<String>, Option<String>);

/// The collector. Ends with this value.
pub(crate) struct Collector {
    pub(crate) url: String,
    shared: Data<Shared>,
    handle: ServerHandle,
}

impl Collector {
    pub(crate) fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let shared = Data::new(Shared { manner: Mutex::new(manner), requests: Mutex::default() });
        let (state, url) = (shared.clone(), format!("http://{}", listener.local_addr().unwrap()));
        let server = HttpServer::new(move || App::new().app_data(state.clone()).default_service(web::to(receive)));
        let server = server.workers(1).disable_signals().shutdown_timeout(0).listen(listener).unwrap().run();
        let handle = server.handle();
        tokio::spawn(server);
        Self { url, shared, handle }
    }

    pub(crate) fn behaves(&self, manner: Manner) {
        *self.shared.manner.lock().unwrap() = manner;
    }

    /// The setting that sends traces here, and further ones.
    pub(crate) fn settings(&self, more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        let url: &'static str = self.url.clone().leak();
        [&[("OTEL_EXPORTER_OTLP_ENDPOINT", url)], more].concat()
    }

    pub(crate) fn heads(&self) -> Vec<HttpRequestHead> {
        self.shared.requests.lock().unwrap().iter().map(|(head, _)| head.clone()).collect()
    }

    /// Everything that came, to look for words in it.
    pub(crate) fn words(&self) -> String {
        let requests = self.shared.requests.lock().unwrap();
        requests.iter().map(|(_, body)| String::from_utf8_lossy(body).into_owned()).collect()
    }

    /// All spans that came, in order.
    pub(crate) fn spans(&self) -> Vec<Seen> {
        let requests = self.shared.requests.lock().unwrap();
        let requests = requests.iter().map(|(_, body)| ExportTraceServiceRequest::decode(body.clone()).unwrap());
        let scopes = requests.flat_map(|request| request.resource_spans).flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).map(|span| seen(&span)).collect()
    }

    /// Waits for a span that fulfils the condition.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Seen) -> bool) -> Seen {
        eventually(what, async || self.spans().into_iter().find(&condition).ok_or_else(|| format!("{:#?}", self.spans()))).await
    }

    pub(crate) async fn until_named(&self, name: &str) -> Seen {
        self.until(name, |span| span.name == name).await
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        drop(self.handle.stop(false));
    }
}

async fn receive(request: HttpRequest, body: Bytes, shared: Data<Shared>) -> HttpResponse {
    let manner = *shared.manner.lock().unwrap();
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let head = (request.path().to_owned(), header("content-type"), header("authorization"));
    match manner {
        Manner::Takes => {
            shared.requests.lock().unwrap().push((head, body));
            HttpResponse::Ok().content_type("application/x-protobuf").finish()
        }
        Manner::Refuses(status) => HttpResponse::build(StatusCode::from_u16(status).unwrap()).finish(),
        Manner::Hangs => std::future::pending().await,
    }
}

fn seen(span: &opentelemetry_proto::tonic::trace::v1::Span) -> Seen {
    let text = |value: Option<Attribute>| match value {
        Some(Attribute::StringValue(text)) => text,
        Some(Attribute::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    let attributes = span.attributes.iter().map(|pair| (pair.key.clone(), text(pair.value.clone().and_then(|value| value.value))));
    Seen {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        state: span.trace_state.clone(),
        name: span.name.clone(),
        kind: span.kind(),
        has_failed: span.status.as_ref().is_some_and(|status| status.code() == SpanStatus::Error),
        attributes: attributes.collect(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

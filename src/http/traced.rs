//! The trace of a request: its first span in this service, whose parent is the caller's span.

use std::sync::Arc;

use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::HeaderMap;
use actix_web::http::{Method, StatusCode};
use actix_web::{Error, HttpMessage as _};

use crate::domain::access::principal::{Principal, PrincipalKind};
use crate::http::meter;
use crate::http::state::State;
use crate::service::ports::{Span, SpanKind, TraceContext};

/// Routes that are called every few seconds, by probes and scrapers.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// The span of a request. Without [`RequestSpan::finish`], the caller has disconnected.
pub(super) struct RequestSpan {
    span: Arc<dyn Span>,
    method: &'static str,
    is_finished: bool,
}

impl RequestSpan {
    /// Starts a span for an authenticated request, if traces are on. `path` is the complete path below the root.
    pub(super) fn start(state: &State, request: &ServiceRequest, path: &str, principal: &Principal) -> Option<Self> {
        let tracer = state.tracer.as_ref()?;
        if principal.kind == PrincipalKind::Nobody || PROBES.contains(&path) {
            return None;
        }
        let method = method_name(request.method());
        let span = tracer.start(method.into(), SpanKind::Server, parent(request.headers()).as_ref());
        // For the access log.
        request.extensions_mut().insert(Arc::clone(&span));
        Some(Self { span, method, is_finished: false })
    }

    pub(super) fn span(&self) -> Arc<dyn Span> {
        Arc::clone(&self.span)
    }

    /// Adds the outcome (OpenTelemetry semantic conventions, "HTTP server"). Paths are callers' text, so the span has only the route.
    pub(super) fn finish<B>(mut self, result: &Result<ServiceResponse<B>, Error>) {
        self.is_finished = true;
        if !self.span.is_recorded() {
            return;
        }
        let status = meter::status(result);
        if let Some(route) = meter::route(result) {
            self.span.rename(format!("{} {route}", self.method));
            self.span.set("http.route", route.into());
        }
        self.span.set("http.request.method", self.method.into());
        self.span.set("http.response.status_code", status.as_u16().into());
        let code = meter::code(result);
        if let Some(code) = code {
            self.span.set("toolsieve.problem", code.into());
        }
        if status.is_server_error() {
            self.span.fail(code.map_or_else(|| status_text(status).into(), Into::into));
        }
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        if !self.is_finished {
            self.span.fail("cancelled".into());
        }
        self.span.end();
    }
}

fn status_text(status: StatusCode) -> String {
    status.as_u16().to_string()
}

/// The caller's span. Several `traceparent` headers count as none (W3C Trace Context, "Processing Model").
fn parent(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(TraceContext::PARENT);
    let parent = parents.next().filter(|_| parents.next().is_none())?.to_str().ok()?;
    let states: Vec<&str> = headers.get_all(TraceContext::STATE).filter_map(|state| state.to_str().ok()).collect();
    TraceContext::read(parent.trim(), Some(&states.join(",")))
}

/// Maps unknown methods to a constant, because callers may send any method.
fn method_name(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("HTTP")
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};

    use super::parent;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn the_parent_is_one_header_and_its_state_may_be_several() {
        let read = parent(&headers(&[("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")])).unwrap();
        assert_eq!((read.parent.as_str(), read.state.as_deref()), (PARENT, Some("a=1,b=2")));
        assert_eq!(parent(&headers(&[("traceparent", PARENT)])).unwrap().state, None);
        assert_eq!(parent(&headers(&[("traceparent", PARENT), ("traceparent", PARENT)])), None);
        assert_eq!(parent(&headers(&[("tracestate", "a=1")])), None);
        assert_eq!(parent(&headers(&[("traceparent", "junk")])), None);
    }
}

//! Counts each request by route, method and status class, and logs it, even if the caller disconnects before the response.

use std::cell::OnceCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::{Method, StatusCode};
use actix_web::{Error, HttpMessage as _, HttpRequest};

use crate::domain::access::principal::Principal;
use crate::http::access_log::Access;
use crate::http::address;
use crate::http::problem::{Code, Problem};
use crate::http::state::State;
use crate::service::ports::{Span, TraceContext};

/// The label for requests that matched no route or were rejected before routing. Their paths are callers' text.
const NO_ROUTE: &str = "none";

/// The status that stands for a caller who disconnected before the response. It is never sent.
const NO_RESPONSE: u16 = 499;
/// The code of such a request in the log.
const CANCELLED: &str = "cancelled";

/// Marks a request that was rejected before routing.
pub(super) struct Refused;

/// What becomes known of a request before its response, for the case that it gets none.
#[derive(Default)]
pub(super) struct Known {
    route: OnceCell<Option<String>>,
    principal: OnceCell<Arc<Principal>>,
    span: OnceCell<Arc<dyn Span>>,
}

/// A request without a response. It is counted and logged when it gets one, or when the caller disconnects before.
pub(super) struct Pending<'a> {
    state: &'a State,
    method: &'a Method,
    began: Instant,
    client: Option<IpAddr>,
    known: Rc<Known>,
    is_noted: bool,
}

impl Known {
    /// Adds what an admitted request has.
    pub(super) fn admit(&self, principal: &Arc<Principal>, span: Option<Arc<dyn Span>>) {
        self.principal.get_or_init(|| Arc::clone(principal));
        if let Some(span) = span {
            self.span.get_or_init(|| span);
        }
    }

    /// Adds the route of a request that has reached its handler.
    pub(super) fn route(&self, request: &HttpRequest) {
        self.route.get_or_init(|| request.match_pattern());
    }
}

impl<'a> Pending<'a> {
    pub(super) fn new(state: &'a State, method: &'a Method, began: Instant, request: &ServiceRequest) -> Self {
        let client = address::client(request.peer_addr(), request.headers(), &state.trusted_proxies);
        let known = Rc::<Known>::default();
        request.extensions_mut().insert(Rc::clone(&known));
        Self { state, method, began, client, known, is_noted: false }
    }

    /// Counts and logs the request with its outcome.
    pub(super) fn note<B>(mut self, result: &Result<ServiceResponse<B>, Error>) {
        self.is_noted = true;
        let response = result.as_ref().ok();
        let extensions = response.map(|response| response.request().extensions());
        let of = extensions.as_deref();
        let noted = Noted {
            status: status(result),
            code: code(result),
            request_id: response.and_then(|response| response.headers().get("x-request-id")?.to_str().ok()),
            principal: of.and_then(|extensions| extensions.get::<Arc<Principal>>()),
            span: of.and_then(|extensions| extensions.get::<Arc<dyn Span>>()),
        };
        self.write(route(result), &noted);
    }

    fn write(&self, route: Option<String>, noted: &Noted<'_>) {
        let (state, status) = (self.state, noted.status);
        let route = route.unwrap_or_else(|| NO_ROUTE.to_owned());
        if state.access_log.contains(status) {
            let trace = noted.span.filter(|span| span.is_recorded()).map(|span| span.context());
            state.access_log.write(&Access {
                method: self.method,
                route: &route,
                status,
                code: noted.code,
                request_id: noted.request_id,
                client: self.client,
                principal: noted.principal.map(|principal| principal.id.as_str()),
                trace_id: trace.as_ref().map(TraceContext::trace_id),
                took: self.began.elapsed(),
            });
        }
        state.meters.request(route, self.method.as_str(), status.as_u16());
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.is_noted {
            return;
        }
        let noted = Noted {
            status: StatusCode::from_u16(NO_RESPONSE).unwrap_or(StatusCode::BAD_REQUEST),
            code: Some(CANCELLED),
            request_id: None,
            principal: self.known.principal.get(),
            span: self.known.span.get(),
        };
        self.write(self.known.route.get().cloned().flatten(), &noted);
    }
}

/// How a request ended.
struct Noted<'a> {
    status: StatusCode,
    code: Option<&'static str>,
    request_id: Option<&'a str>,
    principal: Option<&'a Arc<Principal>>,
    span: Option<&'a Arc<dyn Span>>,
}

/// The template of the route that handled the request.
pub(super) fn route<B>(result: &Result<ServiceResponse<B>, Error>) -> Option<String> {
    let request = result.as_ref().ok()?.request();
    let was_routed = !request.extensions().contains::<Refused>();
    request.match_pattern().filter(|_| was_routed)
}

pub(super) fn status<B>(result: &Result<ServiceResponse<B>, Error>) -> StatusCode {
    match result {
        Ok(response) => response.status(),
        Err(error) => error.as_response_error().status_code(),
    }
}

/// The error's `code` in the response.
pub(super) fn code<B>(result: &Result<ServiceResponse<B>, Error>) -> Option<&'static str> {
    let code = match result {
        Ok(response) => response.response().extensions().get::<Code>().copied(),
        Err(error) => error.as_error::<Problem>().map(|problem| problem.code),
    };
    code.map(Code::name)
}

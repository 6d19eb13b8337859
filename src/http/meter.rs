//! Counts each request by route, method and status class, and logs it.

use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServiceResponse;
use actix_web::http::{Method, StatusCode};
use actix_web::{Error, HttpMessage as _};

use crate::domain::access::principal::Principal;
use crate::http::access_log::Access;
use crate::http::address;
use crate::http::problem::{Code, Problem};
use crate::http::state::State;
use crate::service::ports::{Span, TraceContext};

/// The label for requests that matched no route or were rejected before routing. Their paths are callers' text.
const NO_ROUTE: &str = "none";

/// Marks a request that was rejected before routing.
pub(super) struct Refused;

/// Counts and logs a request with its outcome.
pub(super) fn note<B>(state: &State, method: &Method, took: Duration, result: &Result<ServiceResponse<B>, Error>) {
    let (route, status) = (route(result).unwrap_or_else(|| NO_ROUTE.to_owned()), status(result));
    if state.access_log.contains(status) {
        log(state, (method, &route, status), took, result);
    }
    state.meters.request(route, method.as_str(), status.as_u16());
}

fn log<B>(state: &State, (method, route, status): (&Method, &str, StatusCode), took: Duration, result: &Result<ServiceResponse<B>, Error>) {
    let response = result.as_ref().ok();
    let request = response.map(ServiceResponse::request);
    let extensions = request.map(|request| request.extensions());
    let of = extensions.as_deref();
    let trace = of.and_then(|extensions| extensions.get::<Arc<dyn Span>>()).filter(|span| span.is_recorded());
    let trace = trace.map(|span| span.context());
    state.access_log.write(&Access {
        method,
        route,
        status,
        code: code(result),
        request_id: response.and_then(|response| response.headers().get("x-request-id")?.to_str().ok()),
        client: request.and_then(|request| address::client(request.peer_addr(), request.headers(), &state.trusted_proxies)),
        principal: of.and_then(|extensions| extensions.get::<Arc<Principal>>()).map(|principal| principal.id.as_str()),
        trace_id: trace.as_ref().map(TraceContext::trace_id),
        took,
    });
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

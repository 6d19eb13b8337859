//! Handles every request before routing, and every response before it is sent: connection timeouts, metrics and
//! security headers.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use actix_cors::CorsError;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::ConnectionType;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage as _, ResponseError as _, web};
use uuid::Uuid;

use crate::http::body::{Held, is_announced};
use crate::http::connections::{Connection, Sent};
use crate::http::finish::UnknownNumber;
use crate::http::meter::{Pending, Refused};
use crate::http::origin::Standing;
use crate::http::pages;
use crate::http::problem::{Code, Problem};
use crate::http::state::State;

const REQUEST_ID: &str = "x-request-id";
/// The process that has answered.
const REPLICA: HeaderName = HeaderName::from_static("x-toolsieve-replica");
/// The number of the last change that its state contains.
const STATE: HeaderName = HeaderName::from_static("x-toolsieve-state");
/// Response headers that web pages on allowed sites may read.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "etag, retry-after, mcp-session-id, x-request-id, x-toolsieve-repairs, x-toolsieve-replica, x-toolsieve-state",
);

/// Rejects requests from other sites' pages, counts each request by its outcome, and closes a connection whose request
/// body was not read. While the service stops, each connection closes after its response.
pub(crate) async fn enter(request: ServiceRequest, next: Next<impl MessageBody + 'static>) -> Result<ServiceResponse<Sent>, Error> {
    let began = Instant::now();
    let connection = request.conn_data::<Arc<Connection>>().cloned();
    let answering = connection.as_ref().map(Connection::answer);
    let state = request.app_data::<web::Data<State>>().cloned();
    let (method, has_body) = (request.method().clone(), is_announced(request.headers()));
    let is_foreign = state.as_ref().is_some_and(|state| {
        let path = state.publish.layout().without_root(request.path()).unwrap_or(request.path());
        state.origins.of(request.method(), request.headers(), path) == Standing::Foreign
    });
    let pending = state.as_ref().map(|state| Pending::new(state, &method, began, &request));
    let mut result = if is_foreign { Ok(refused(request)) } else { next.call(request).await.map(in_our_form) };
    if let (Some(state), Ok(response)) = (&state, &mut result)
        && state.access_log.contains_all()
    {
        add_id(response.headers_mut());
    }
    if let Some(pending) = pending {
        pending.note(&result);
    }
    result.map(|mut response| {
        let was_read = response.request().extensions().contains::<Rc<Held>>();
        if has_body && !was_read {
            response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
            if let Some(connection) = &connection {
                connection.end_after_answer();
            }
        }
        if let Some(state) = &state {
            response.headers_mut().insert(REPLICA, state.replica.clone());
            if !response.request().extensions().contains::<UnknownNumber>() {
                response.headers_mut().insert(STATE, HeaderValue::from(state.shared.number()));
            }
            if state.draining.is_cancelled() {
                // The client opens a new connection for its next request, which another process may answer.
                response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
            }
        }
        pages::protect(response.headers_mut());
        if response.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
            response.headers_mut().insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
        response.map_body(|_, body| Sent::new(body.boxed(), answering))
    })
}

/// Adds the request's id to a response without one, so that it can be found in the access log.
fn add_id(headers: &mut HeaderMap) {
    if !headers.contains_key(REQUEST_ID)
        && let Ok(id) = HeaderValue::try_from(Uuid::now_v7().to_string())
    {
        headers.insert(HeaderName::from_static(REQUEST_ID), id);
    }
}

/// Gives the error of a preflight request the form that all errors have.
fn in_our_form<B>(response: ServiceResponse<B>) -> ServiceResponse<EitherBody<B>> {
    let error = response.response().error().and_then(|error| error.as_error::<CorsError>());
    let problem = error.map(|error| match error {
        CorsError::MethodNotAllowed | CorsError::MissingRequestMethod | CorsError::BadRequestMethod => {
            Problem::invalid("access-control-request-method", "Pages of other sites may not use this method.")
        }
        CorsError::HeadersNotAllowed | CorsError::BadRequestHeaders => {
            Problem::invalid("access-control-request-headers", "Pages of other sites may not send one of these headers.")
        }
        CorsError::MissingOrigin => Problem::invalid("origin", "A preflight request names its origin."),
        _ => Problem::new(Code::ForeignOrigin, "Pages of this site may not call this service."),
    });
    match problem {
        Some(problem) => response.into_response(problem.error_response()).map_into_right_body(),
        None => response.map_into_left_body(),
    }
}

fn refused<B>(request: ServiceRequest) -> ServiceResponse<EitherBody<B>> {
    let detail = "Pages of other sites may not call this service. An administrator can name them in http.cors_origins, and the \
                  address of the service itself in http.public_url.";
    request.extensions_mut().insert(Refused);
    request.into_response(Problem::new(Code::ForeignOrigin, detail).error_response()).map_into_right_body()
}

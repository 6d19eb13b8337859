//! Counts each request by route, method and status class, and logs it.

use std::time::Duration;

use actix_web::dev::ServiceResponse;
use actix_web::http::Method;
use actix_web::{Error, HttpMessage as _};

use crate::http::access_log::Access;
use crate::http::state::State;

/// The label for requests that matched no route or were rejected before routing. Their paths are callers' text.
const NO_ROUTE: &str = "none";

/// Marks a request that was rejected before routing.
pub(super) struct Refused;

/// Counts and logs a request with its outcome.
pub(super) fn note<B>(state: &State, method: &Method, took: Duration, result: &Result<ServiceResponse<B>, Error>) {
    let (route, status) = match result {
        Ok(response) => {
            let request = response.request();
            let was_routed = !request.extensions().contains::<Refused>();
            (request.match_pattern().filter(|_| was_routed), response.status())
        }
        Err(error) => (None, error.as_response_error().status_code()),
    };
    let route = route.unwrap_or_else(|| NO_ROUTE.to_owned());
    let request_id = result.as_ref().ok().and_then(|response| response.headers().get("x-request-id")?.to_str().ok());
    state.access_log.write(&Access { method, route: &route, status, request_id, took });
    state.meters.request(route, method.as_str(), status.as_u16());
}

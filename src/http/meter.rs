//! Counts requests by route, method and class of the status.

use actix_web::dev::ServiceResponse;
use actix_web::http::Method;
use actix_web::{Error, HttpMessage as _};

use crate::http::state::State;

/// Of requests that fit no route, whose paths are the callers' words, and of those that are refused before one is looked up.
const NO_ROUTE: &str = "none";

/// On a request that was refused before its route was looked up.
pub(super) struct Refused;

/// Counts how a request ended.
pub(super) fn count<B>(state: &State, method: &Method, result: &Result<ServiceResponse<B>, Error>) {
    let (route, status) = match result {
        Ok(response) => {
            let request = response.request();
            let was_routed = !request.extensions().contains::<Refused>();
            (request.match_pattern().filter(|_| was_routed), response.status())
        }
        Err(error) => (None, error.as_response_error().status_code()),
    };
    state.meters.request(route.unwrap_or_else(|| NO_ROUTE.to_owned()), method.as_str(), status.as_u16());
}

//! Counts requests by route, method and class of the status.

use actix_web::Error;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web;

use crate::http::state::State;

/// Of requests that fit no route, whose paths are the callers' words, and of those that are refused before one is looked up.
const NO_ROUTE: &str = "none";

/// Lets a request pass and counts how it ended.
///
/// # Errors
/// Those of the routes.
pub async fn count(request: ServiceRequest, next: Next<impl MessageBody>) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let state = request.app_data::<web::Data<State>>().cloned();
    let method = request.method().clone();
    let result = next.call(request).await;
    if let Some(state) = state {
        let (route, status) = match &result {
            Ok(response) => (response.request().match_pattern(), response.status()),
            Err(error) => (None, error.as_response_error().status_code()),
        };
        state.meters.request(route.unwrap_or_else(|| NO_ROUTE.to_owned()), method.as_str(), status.as_u16());
    }
    result
}

//! The body of a request, with our own words where it can't be read.

use std::future::Future;
use std::pin::Pin;

use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use actix_web::web::Bytes;
use actix_web::{FromRequest, HttpRequest, web};

use crate::http::problem::{Code, Problem};
use crate::http::state::State;

/// All bytes of a body, up to the configured limit.
pub struct Body(pub Bytes);

impl FromRequest for Body {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let limit = request.app_data::<web::Data<State>>().map_or(0, |state| state.body_limit);
        let bytes = Bytes::from_request(request, payload);
        Box::pin(async move {
            bytes.await.map(Self).map_err(|error| match error.as_error::<PayloadError>() {
                Some(PayloadError::Overflow) => Problem::new(Code::BodyTooLarge, format!("A body may have {limit} bytes.")),
                _ => Problem::new(Code::NotJson, "The body could not be read to its end."),
            })
        })
    }
}

//! Work that keeps a processor busy for long.

use actix_web::web;

use crate::http::problem::{Code, Problem};

/// Runs work on a thread of its own, so that other requests go on meanwhile.
///
/// # Errors
/// [`Code::Internal`] if the work can't run.
pub(in crate::http) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    web::block(work).await.map_err(|error| Problem::new(Code::Internal, error.to_string()))
}

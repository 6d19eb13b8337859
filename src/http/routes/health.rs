//! Alive and ready.
#![expect(unreachable_pub, reason = "the route macros repeat the visibility on an inner function")]

use actix_web::{HttpResponse, get, web};

use crate::domain::access::principal::PrincipalKind;
use crate::http::caller::Caller;
use crate::http::state::State;

/// Alive: the process answers.
#[utoipa::path(tag = "operations", responses((status = 200, description = "Alive", content_type = "text/plain", body = String)))]
#[get("/healthz")]
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain").body("ok")
}

/// Ready: every server has answered or failed its first attempt, or a last good catalog is loaded, or 10 s have passed.
#[utoipa::path(
    tag = "operations",
    responses(
        (status = 200, description = "Ready; the body shows the state of each part", body = Object),
        (status = 503, description = "Not yet", body = Object)
    )
)]
#[get("/readyz")]
pub async fn readyz(state: web::Data<State>, caller: Caller) -> HttpResponse {
    let mut readiness = state.status.readiness(caller.0.kind == PrincipalKind::Nobody).await;
    let is_public = caller.0.kind == PrincipalKind::Nobody && state.current.policy().is_open();
    if !is_public && !caller.0.administers {
        // What is hidden has no state either.
        readiness.servers.retain(|server| state.current.shows_server(&caller.0, &server.server));
    }
    if !is_public && !caller.0.administers {
        readiness.definitions = None;
    }
    if caller.0.kind == PrincipalKind::Nobody {
        // What a server wrote before it died is not for everybody.
        readiness.servers.iter_mut().for_each(|server| server.error = None);
        // Nor are the paths and keys of the configuration.
        readiness.reload.hide_details();
    }
    let mut response = if readiness.ready { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() };
    response.json(readiness)
}

//! The toolsets that a caller sees.
#![expect(unreachable_pub, reason = "the route macros repeat the visibility on an inner function")]

use actix_web::{HttpResponse, get, web};
use serde_json::json;

use crate::http::caller::Caller;
use crate::http::state::State;

/// The toolsets in which this caller sees a tool, by name.
#[utoipa::path(
    operation_id = "list_toolsets",
    tag = "toolsets",
    responses(
        (status = 200, description = "`toolsets` with `name`, `description`, the number of `tools` that the caller sees, and what these cost in cl100k `tokens`", body = Object),
        (status = 401, description = "No key, or a wrong one")
    )
)]
#[get("/v1/toolsets")]
pub async fn list(state: web::Data<State>, caller: Caller) -> HttpResponse {
    HttpResponse::Ok().json(json!({"toolsets": state.toolsets.visible(&caller.0)}))
}

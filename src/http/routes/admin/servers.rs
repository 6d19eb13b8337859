//! The MCP servers as they are now.
#![expect(unreachable_pub, reason = "the route macros repeat the visibility on an inner function")]

use actix_web::http::header;
use actix_web::{HttpResponse, get, web};
use serde_json::json;

use crate::http::caller::Administrator;
use crate::http::problem::Problem;
use crate::http::state::State;

/// All configured servers.
#[utoipa::path(
    operation_id = "list_servers",
    tag = "administration",
    responses(
        (status = 200, description = "`servers` with `server`, `phase` (`starting`, `connected`, `retrying`), `title`, `version`, `protocol`, \
            `tools`, `tokens`, how many of their definitions are `changed`, `withheld` and `new`, `listed_at` and `error`", body = Object),
        (status = 404, description = "The caller does not administer")
    )
)]
#[get("/v1/admin/servers")]
pub async fn list(state: web::Data<State>, _caller: Administrator) -> Result<HttpResponse, Problem> {
    let servers = state.tool_admin.servers().await?;
    Ok(HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-store")).json(json!({"servers": servers})))
}

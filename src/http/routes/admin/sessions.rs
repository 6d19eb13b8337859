//! All callers' sessions, for administrators.

use actix_web::{HttpResponse, delete, get, web};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{principal, time};
use crate::domain::toolsets::session::{Session, SessionContents};
use crate::http::caller::Administrator;
use crate::http::problem::{Answer, Code, Problem};
use crate::http::query::Query;
use crate::http::state::State;
use crate::service::ports::{AuditAction, AuditEntry};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct SessionsQuery {
    /// Only sessions of this caller, as named in the audit log: `user:ID` or `key:NAME`.
    principal: Option<String>,
}

/// A session, with its owner.
#[derive(Serialize, ToSchema)]
struct AnySessionBody {
    id: String,
    principal: String,
    created_at: String,
    expires_at: String,
    toolsets: Vec<String>,
    servers: Vec<String>,
    /// The published tools, as `server/tool`.
    tools: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct AnySessionsBody {
    sessions: Vec<AnySessionBody>,
}

/// Lists all callers' sessions, oldest first. Each entry contains the owner, the expiry, and the published tools that
/// the owner may see.
#[utoipa::path(
    params(SessionsQuery),
    responses(
        (status = 200, description = "The sessions that have not expired", body = AnySessionsBody),
        (status = 422, description = "A parameter is unknown, or the principal is invalid")
    )
)]
#[get("/v1/admin/sessions")]
pub async fn list_all_sessions(state: web::Data<State>, _caller: Administrator, query: Query<SessionsQuery>) -> Answer {
    let query = query.0;
    let owner = query.principal.as_deref().map(principal).transpose()?;
    let sessions = state.sessions.all(owner.as_ref()).await?;
    Ok(HttpResponse::Ok().json(AnySessionsBody { sessions: sessions.iter().map(AnySessionBody::of).collect() }))
}

/// Ends any caller's session. Its address stops working before the response is sent. In other processes with the same
/// store, it stops working within five seconds.
#[utoipa::path(
    params(("id" = String, Path, description = "The session's id")),
    responses((status = 204, description = "The session has ended"), (status = 404, description = "The session doesn't exist, or the caller is not an administrator"))
)]
#[delete("/v1/admin/sessions/{id}")]
pub async fn end_any_session(state: web::Data<State>, caller: Administrator, id: web::Path<String>) -> Answer {
    let owner = state.sessions.owner(&id).await?.ok_or_else(unknown)?;
    if !state.sessions.end_any(&id).await? {
        return Err(unknown());
    }
    // The id gives access to the session, so the audit log contains the owner instead.
    state.audit.record(AuditEntry::of_change(&caller.0, AuditAction::SessionEnd, owner.as_str().to_owned()));
    Ok(HttpResponse::NoContent().finish())
}

fn unknown() -> Problem {
    Problem::new(Code::NotFound, "There is no such session. GET /v1/admin/sessions lists the sessions.")
}

impl AnySessionBody {
    fn of(session: &Session) -> Self {
        let SessionContents { toolsets, servers, tools } = &session.contents;
        Self {
            id: session.id.as_str().to_owned(),
            principal: session.owner.as_str().to_owned(),
            created_at: time(session.created_at),
            expires_at: time(session.expires_at),
            toolsets: toolsets.iter().map(ToString::to_string).collect(),
            servers: servers.iter().map(ToString::to_string).collect(),
            tools: tools.iter().map(ToString::to_string).collect(),
        }
    }
}

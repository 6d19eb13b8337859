//! Sessions, for administrators.

use actix_web::{HttpResponse, delete, get, web};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{principal, time};
use crate::domain::toolsets::session::{Session, SessionContents};
use crate::http::caller::Administrator;
use crate::http::problem::{Answer, Problem};
use crate::http::query::Query;
use crate::http::state::State;
use crate::service::ports::{AuditAction, AuditEntry};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct SessionsQuery {
    /// Only sessions of this caller, named as in the audit log: `user:ID`, `key:NAME`.
    principal: Option<String>,
}

/// A session of any caller.
#[derive(Serialize, ToSchema)]
struct AnySessionBody {
    id: String,
    principal: String,
    created_at: String,
    expires_at: String,
    toolsets: Vec<String>,
    servers: Vec<String>,
    /// `server/tool`.
    tools: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct AnySessionsBody {
    sessions: Vec<AnySessionBody>,
}

/// Lists the sessions of all callers, oldest first: owner, expiry, and published tools, as far as the owner may see them.
#[utoipa::path(
    params(SessionsQuery),
    responses(
        (status = 200, description = "Without expired sessions", body = AnySessionsBody),
        (status = 422, description = "An unknown parameter, or an impossible principal")
    )
)]
#[get("/v1/admin/sessions")]
pub async fn list_all_sessions(state: web::Data<State>, _caller: Administrator, query: Query<SessionsQuery>) -> Answer {
    let query = query.0;
    let owner = query.principal.as_deref().map(principal).transpose()?;
    let sessions = state.sessions.all(owner.as_ref()).await?;
    Ok(HttpResponse::Ok().json(AnySessionsBody { sessions: sessions.iter().map(AnySessionBody::of).collect() }))
}

/// Ends a session of any caller. Its address stops working before the response; in other processes on the same store within
/// five seconds.
#[utoipa::path(
    params(("id" = String, Path, description = "Its id")),
    responses((status = 204, description = "The session has ended"), (status = 404, description = "No such session, or the caller is not an administrator"))
)]
#[delete("/v1/admin/sessions/{id}")]
pub async fn end_any_session(state: web::Data<State>, caller: Administrator, id: web::Path<String>) -> Answer {
    let owner = state.sessions.owner(&id).await?.ok_or_else(Problem::not_found)?;
    if !state.sessions.end_any(&id).await? {
        return Err(Problem::not_found());
    }
    // The id grants access to the session, so the log gets the owner instead.
    state.audit.record(AuditEntry::of_change(&caller.0, AuditAction::SessionEnd, owner.as_str().to_owned()));
    Ok(HttpResponse::NoContent().finish())
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

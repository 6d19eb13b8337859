//! The MCP servers and their states, for administrators.

use std::collections::BTreeMap;

use actix_web::http::header;
use actix_web::{HttpResponse, get, post, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ManagedByBody;
use super::tools::{DefinitionStateBody, DifferenceBody};
use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::ServerName;
use crate::http::body::Body;
use crate::http::caller::Administrator;
use crate::http::described::described;
use crate::http::problem::{Answer, Code, Problem, read_json};
use crate::http::routes::health::{DefinitionCountsBody, ServerPhaseBody};
use crate::http::state::State;
use crate::service::catalog::definitions::PartView;
use crate::service::catalog::tool_admin::{ServerDefinitionView, ServerView};
use crate::service::ports::{AuditAction, AuditEntry};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ServerApprovalBody {
    /// The `fingerprint` of the definition that was reviewed.
    fingerprint: String,
    /// The prompt to approve. If it is absent, the request approves the server's title and instructions.
    prompt: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct ServersBody {
    #[schema(value_type = Vec<ServerViewBody>)]
    servers: Vec<ServerView>,
}

described! {
    /// An MCP server and its state.
    struct ServerViewBody of ServerView {
        server: String,
        managed_by: ManagedByBody,
        phase: ServerPhaseBody,
        /// The title that the server gives itself.
        title: Option<String>,
        version: Option<String>,
        /// The MCP version that the service and the server have agreed on.
        protocol: Option<String>,
        /// Number of the server's published tools.
        tools: usize,
        /// cl100k tokens of the definitions of these tools.
        tokens: u64,
        #[serde(flatten)]
        definitions: DefinitionCountsBody,
        listed_at: Option<String>,
        /// The error of the last attempt to connect.
        error: Option<String>,
    }

    /// The texts and prompts of a server, and how they have changed.
    struct ServerDefinitionBody of ServerDefinitionView {
        server: String,
        /// The server's title and instructions.
        definition: Option<PartBody>,
        /// The prompts that the server has listed since the start, by name.
        prompts: BTreeMap<String, PartBody>,
    }

    struct PartBody of PartView {
        /// `null` means that definitions are not compared.
        state: Option<DefinitionStateBody>,
        /// The fingerprint to send for an approval.
        fingerprint: String,
        /// The differences from the approved definition.
        difference unless "Option::is_none": Option<DifferenceBody>,
    }
}

/// Lists all configured servers.
#[utoipa::path(responses((status = 200, description = "All servers", body = ServersBody)))]
#[get("/v1/admin/servers")]
pub async fn list_servers(state: web::Data<State>, _caller: Administrator) -> Answer {
    let servers = state.tool_admin.servers().await?;
    Ok(HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-store")).json(ServersBody { servers }))
}

/// Returns a server's texts and prompts, and how they differ from the approved versions.
#[utoipa::path(
    params(("server" = String, Path, description = "The server's name")),
    responses(
        (status = 200, description = "The server's definition", body = ServerDefinitionBody),
        (status = 404, description = "The server doesn't exist, or the caller is not an administrator")
    )
)]
#[get("/v1/admin/servers/{server}/definition")]
pub async fn show_server_definition(state: web::Data<State>, _caller: Administrator, path: web::Path<String>) -> Answer {
    let server = ServerName::from(path.into_inner().as_str());
    let view = state.tool_admin.server_definition(&server).await?.ok_or_else(unknown)?;
    Ok(HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-store")).json(view))
}

/// Approves the current title and instructions of a server, or one of its prompts.
#[utoipa::path(
    request_body = ServerApprovalBody,
    params(("server" = String, Path, description = "The server's name")),
    responses(
        (status = 200, description = "The server's current definition", body = ServerDefinitionBody),
        (status = 404, description = "The server or prompt doesn't exist, or the caller is not an administrator"),
        (status = 409, description = "Definitions are not compared: `definitions.changes` is `off`; with `managed_by_file`, a file approves the definition"),
        (status = 412, description = "The definition does not match the fingerprint. Review it first."),
        (status = 422, description = "The fingerprint is missing or invalid")
    )
)]
#[post("/v1/admin/servers/{server}/definition/approve")]
pub async fn approve_server_definition(state: web::Data<State>, caller: Administrator, path: web::Path<String>, body: Body) -> Answer {
    let ServerApprovalBody { fingerprint, prompt } = read_json(&body.0)?;
    let server = ServerName::from(path.into_inner().as_str());
    let view = approve(&state, &caller.0, server, prompt.as_deref(), &fingerprint).await?;
    Ok(HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-store")).json(view))
}

/// Approves the current texts of a server or of one of its prompts, and records who did.
pub(in crate::http) async fn approve(
    state: &State,
    administrator: &Principal,
    server: ServerName,
    prompt: Option<&str>,
    fingerprint: &str,
) -> Result<ServerDefinitionView, Problem> {
    let view = state.tool_admin.approve_server(&server, prompt, fingerprint).await?;
    let fingerprint = fingerprint.trim();
    tracing::info!(%server, fingerprint, "definition approved");
    let of = prompt.map_or_else(String::new, |prompt| format!(" prompt {prompt:?}"));
    let entry = AuditEntry::of_change(administrator, AuditAction::DefinitionApprove, format!("{fingerprint}{of}"));
    state.audit.record(AuditEntry { server: Some(server), ..entry });
    Ok(view)
}

fn unknown() -> Problem {
    Problem::new(Code::NotFound, "There is no such server. GET /v1/admin/servers lists the servers.")
}

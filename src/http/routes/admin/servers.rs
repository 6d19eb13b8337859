//! The MCP servers, for administrators: shows their states, and changes them.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::{HttpResponse, delete, get, patch, post, put, web};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::tools::{DefinitionStateBody, DifferenceBody};
use super::{ManagedByBody, time, uncached};
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
use crate::service::ports::{AuditAction, AuditEntry, LogLine};
use crate::service::servers::PATIENCE;
use crate::settings::EntryProblem;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ServerApprovalBody {
    /// The `fingerprint` of the definition that was reviewed.
    fingerprint: String,
    /// The prompt to approve. If it is absent, the request approves the server's title and instructions.
    prompt: Option<String>,
}

/// An entry of the `mcpServers` map, without `${…}`. The how-to guide "MCP servers" describes its members.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone: it is read where the servers file's entries are")]
struct ServerEntryBody {
    /// The address of an HTTP server.
    url: Option<String>,
    /// `streamable-http`, `sse` or `stdio`.
    r#type: Option<String>,
    /// Headers for the server. They are encrypted, and never shown again.
    headers: Option<BTreeMap<String, String>>,
    /// The program of a local server, if `access.allow_commands` is set.
    command: Option<String>,
    /// Whether the server is switched on. By default, a new server is, and an existing one stays as it is.
    enabled: Option<bool>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ServerSwitchBody {
    /// Whether the server is switched on.
    enabled: bool,
}

/// A server after a change.
#[derive(Serialize, ToSchema)]
struct SavedServerBody {
    #[serde(flatten)]
    #[schema(value_type = ServerViewBody)]
    server: ServerView,
    /// Parts of the entry that are ignored or probably wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    warnings: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct ServersBody {
    #[schema(value_type = Vec<ServerViewBody>)]
    servers: Vec<ServerView>,
}

/// The last lines that the server's processes wrote to standard error, oldest first.
#[derive(Serialize, ToSchema)]
struct ServerLogBody {
    lines: Vec<LogLineBody>,
}

#[derive(Serialize, ToSchema)]
struct LogLineBody {
    at: String,
    /// The line, with `***` in place of secret values.
    text: String,
}

described! {
    /// An MCP server and its state.
    struct ServerViewBody of ServerView {
        server: String,
        managed_by: ManagedByBody,
        /// Whether the server is switched on.
        enabled: bool,
        /// `null` if the server is switched off, or if its stored entry can't be used.
        phase: Option<ServerPhaseBody>,
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
        /// The error of the last attempt to connect, or the reason why a stored entry isn't used.
        error: Option<String>,
        /// The entry of a server that the API has added, with `(stored)` in place of every secret value. `null` for a server of the
        /// servers file.
        #[schema(value_type = Option<Object>)]
        entry: Option<Value>,
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
    Ok(uncached(&ServersBody { servers: all(&state).await? }))
}

/// Returns one server.
#[utoipa::path(
    params(("server" = String, Path, description = "The server's name")),
    responses(
        (status = 200, description = "The server", body = ServerViewBody),
        (status = 404, description = "The server doesn't exist, or the caller is not an administrator")
    )
)]
#[get("/v1/admin/servers/{server}")]
pub async fn show_server(state: web::Data<State>, _caller: Administrator, name: web::Path<String>) -> Answer {
    let view = view(&state, &ServerName::from(name.as_str())).await?;
    Ok(uncached(&view))
}

/// Adds a server, or replaces the entry of a server that the API has added. The response is sent once the server has listed its tools
/// or the first attempt has failed, after 10 s at the latest. A secret value `(stored)` stands for the value that is already stored.
/// If the new entry leads to another address or program, the secrets and sign-ins that users have stored for the server are deleted.
#[utoipa::path(
    request_body = ServerEntryBody,
    params(("server" = String, Path, description = "The server's name")),
    responses(
        (status = 200, description = "The server's entry was replaced", body = SavedServerBody),
        (status = 201, description = "The server is new", body = SavedServerBody),
        (status = 403, description = "The entry starts a program, and `access.allow_commands` is not set (`commands_off`)"),
        (status = 409, description = "The servers file defines the server (`managed_by_file`); change it there"),
        (status = 422, description = "The entry is invalid"),
        (status = 501, description = "The entry has secret values, and the service has no key to encrypt them (`secrets_off`)")
    )
)]
#[put("/v1/admin/servers/{server}")]
pub async fn replace_server(state: web::Data<State>, caller: Administrator, name: web::Path<String>, body: Body) -> Answer {
    let name = ServerName::from(name.as_str());
    let (is_new, warnings) = save(&state, &caller.0, &name, (&body.0, None), PATIENCE).await?;
    let mut response = if is_new { HttpResponse::Created() } else { HttpResponse::Ok() };
    let warnings = warnings.iter().map(ToString::to_string).collect();
    Ok(response.json(SavedServerBody { server: view(&state, &name).await?, warnings }))
}

/// Switches a server on or off. Nothing of it is deleted. This also works for servers of the servers file.
#[utoipa::path(
    request_body = ServerSwitchBody,
    params(("server" = String, Path, description = "The server's name")),
    responses(
        (status = 200, description = "The server", body = ServerViewBody),
        (status = 404, description = "The server doesn't exist, or the caller is not an administrator"),
        (status = 422, description = "A value is invalid")
    )
)]
#[patch("/v1/admin/servers/{server}")]
pub async fn switch_server(state: web::Data<State>, caller: Administrator, name: web::Path<String>, body: Body) -> Answer {
    let ServerSwitchBody { enabled } = read_json(&body.0)?;
    let name = ServerName::from(name.as_str());
    switch(&state, &caller.0, &name, enabled, PATIENCE).await?;
    Ok(HttpResponse::Ok().json(view(&state, &name).await?))
}

/// Restarts a server: its process or its connection is replaced. Running calls may continue for a limited time. With several replicas,
/// each restarts its own.
#[utoipa::path(
    params(("server" = String, Path, description = "The server's name")),
    responses(
        (status = 200, description = "The server", body = ServerViewBody),
        (status = 404, description = "The server doesn't exist, or the caller is not an administrator"),
        (status = 409, description = "The server is switched off")
    )
)]
#[post("/v1/admin/servers/{server}/restart")]
pub async fn restart_server(state: web::Data<State>, caller: Administrator, name: web::Path<String>) -> Answer {
    let name = ServerName::from(name.as_str());
    restart(&state, &caller.0, &name, PATIENCE).await?;
    Ok(HttpResponse::Ok().json(view(&state, &name).await?))
}

/// Removes a server that the API has added, with its secret values and with the secrets and sign-ins that users have stored for it.
#[utoipa::path(
    params(("server" = String, Path, description = "The server's name")),
    responses(
        (status = 204, description = "The server is removed"),
        (status = 404, description = "The server doesn't exist, or the caller is not an administrator"),
        (status = 409, description = "The servers file defines the server (`managed_by_file`); remove it there, or switch it off")
    )
)]
#[delete("/v1/admin/servers/{server}")]
pub async fn remove_server(state: web::Data<State>, caller: Administrator, name: web::Path<String>) -> Answer {
    remove(&state, &caller.0, &ServerName::from(name.as_str()), None).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// All servers with their entries.
pub(in crate::http) async fn all(state: &State) -> Result<Vec<ServerView>, Problem> {
    let mut servers = state.tool_admin.servers().await?;
    for server in &mut servers {
        server.entry = state.servers.entry(&server.server);
    }
    Ok(servers)
}

/// One server with its entry.
pub(in crate::http) async fn view(state: &State, name: &ServerName) -> Result<ServerView, Problem> {
    all(state).await?.into_iter().find(|view| view.server == *name).ok_or_else(unknown)
}

/// Adds or replaces the server that a JSON body describes, and records who did. `expected` is the version that the change is based on.
/// Waits for at most `patience` until the server is connected. Returns whether the server is new, and the warnings.
pub(in crate::http) async fn save(
    state: &State,
    administrator: &Principal,
    name: &ServerName,
    (body, expected): (&[u8], Option<&str>),
    patience: Duration,
) -> Result<(bool, Vec<EntryProblem>), Problem> {
    let text = std::str::from_utf8(body).map_err(|_| Problem::new(Code::NotJson, "The body is not UTF-8."))?;
    let saved = state.servers.put(name, text, expected, patience).await?;
    tracing::info!(server = %name, "server saved");
    record(state, administrator, AuditAction::ServerReplace, name);
    Ok(saved)
}

/// Switches a server on or off, and records who did. Waits for at most `patience` until the server is connected.
pub(in crate::http) async fn switch(
    state: &State,
    administrator: &Principal,
    name: &ServerName,
    enabled: bool,
    patience: Duration,
) -> Result<(), Problem> {
    state.servers.switch(name, enabled, patience).await?;
    tracing::info!(server = %name, enabled, "server switched");
    record(state, administrator, if enabled { AuditAction::ServerEnable } else { AuditAction::ServerDisable }, name);
    Ok(())
}

/// Restarts a server, and records who did. Waits for at most `patience` until the server is connected.
pub(in crate::http) async fn restart(
    state: &State,
    administrator: &Principal,
    name: &ServerName,
    patience: Duration,
) -> Result<(), Problem> {
    state.servers.restart(name, patience).await?;
    record(state, administrator, AuditAction::ServerRestart, name);
    Ok(())
}

/// Removes a server, and records who did.
pub(in crate::http) async fn remove(
    state: &State,
    administrator: &Principal,
    name: &ServerName,
    expected: Option<&str>,
) -> Result<(), Problem> {
    state.servers.remove(name, expected).await?;
    tracing::info!(server = %name, "server removed");
    record(state, administrator, AuditAction::ServerRemove, name);
    Ok(())
}

fn record(state: &State, administrator: &Principal, action: AuditAction, name: &ServerName) {
    let entry = AuditEntry::of_change(administrator, action, name.to_string());
    state.audit.record(AuditEntry { server: Some(name.clone()), ..entry });
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
    Ok(uncached(&view))
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
    Ok(uncached(&view))
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

/// Returns the last 100 lines that the processes of a stdio server have written to standard error. They are kept in memory only, by each
/// replica for its own processes.
#[utoipa::path(
    params(("server" = String, Path, description = "The server's name")),
    responses(
        (status = 200, description = "The lines; none if the server is not a process", body = ServerLogBody),
        (status = 404, description = "The server doesn't exist, or the caller is not an administrator")
    )
)]
#[get("/v1/admin/servers/{server}/log")]
pub async fn show_server_log(state: web::Data<State>, _caller: Administrator, name: web::Path<String>) -> Answer {
    let lines = log(&state, &ServerName::from(name.as_str()))?;
    let lines = lines.into_iter().map(|LogLine { at, text }| LogLineBody { at: time(at), text }).collect();
    Ok(uncached(&ServerLogBody { lines }))
}

/// The last lines of a server's processes.
pub(in crate::http) fn log(state: &State, name: &ServerName) -> Result<Vec<LogLine>, Problem> {
    state.tool_admin.log(name).ok_or_else(unknown)
}

fn unknown() -> Problem {
    Problem::new(Code::NotFound, "There is no such server. GET /v1/admin/servers lists the servers.")
}

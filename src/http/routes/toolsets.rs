//! A caller's visible toolsets, and loading them: plain routes, and the requests of the loading meta-tools.

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::publishing::meta_tools::{MAX_GROUPS, MetaTool};
use crate::domain::toolsets::loading::GroupKind;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::described::described;
use crate::http::meta_tools::respond;
use crate::http::place::RequestAddress;
use crate::http::problem::{Answer, Problem, read_json};
use crate::http::routes::execute::{MAX_ID_BYTES, is_kept};
use crate::http::routes::tools::OneOrMany;
use crate::http::state::State;
use crate::service::toolsets::loading::{Available, AvailableToolset, LoadAnswer, UnloadAnswer};
use crate::service::toolsets::toolsets::VisibleToolset;

/// The toolsets to load; at least one of the two.
#[derive(Deserialize, ToSchema)]
struct LoadBody {
    /// The name of a toolset, or of a server.
    toolset: Option<String>,
    /// Several names. A single string is accepted too.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    toolsets: OneOrMany,
    /// The chat to load into, if no header names it.
    chat_id: Option<String>,
}

#[derive(Deserialize, ToSchema)]
struct UnloadBody {
    /// The name used for loading.
    #[serde(alias = "group")]
    toolset: String,
    /// The chat, if no header names it.
    chat_id: Option<String>,
}

#[derive(Deserialize, ToSchema)]
struct EnableBody {
    /// The name of a toolset, a server, or a tag.
    #[serde(alias = "toolset")]
    group: String,
    /// The chat, if no header names it.
    chat_id: Option<String>,
}

#[derive(Deserialize, ToSchema, Default)]
struct AvailableBody {
    /// The chat, if no header names it.
    chat_id: Option<String>,
}

/// A caller's visible toolsets.
#[derive(Serialize, ToSchema)]
struct VisibleToolsetsBody {
    #[schema(value_type = Vec<VisibleToolsetBody>)]
    toolsets: Vec<VisibleToolset>,
}

described! {
    struct VisibleToolsetBody of VisibleToolset {
        name: String,
        description: String,
        /// Number of its tools that the caller sees.
        tools: usize,
        /// cl100k tokens of their definitions.
        tokens: u64,
    }

    /// The loaded groups.
    struct LoadedBody of LoadAnswer {
        /// Names of toolsets, servers or tags.
        loaded: Vec<String>,
        already_loaded unless "Vec::is_empty": Vec<String>,
        /// Published names of their tools.
        tools: Vec<String>,
        /// Number of loaded tools, without the meta-tools.
        bound: usize,
        /// The next step, for the model.
        next: String,
        warnings unless "Vec::is_empty": Vec<String>,
    }

    /// The unloaded group.
    struct UnloadedBody of UnloadAnswer {
        unloaded: String,
        /// Published names of the tools that are no longer loaded.
        tools: Vec<String>,
        /// Number of loaded tools, without the meta-tools.
        bound: usize,
        /// The next step, for the model.
        next: String,
    }

    /// The groups that can be loaded.
    struct AvailableToolsetsBody of Available {
        toolsets: Vec<AvailableToolsetBody>,
        /// Number of loaded tools, without the meta-tools.
        bound: usize,
        /// The next step, for the model.
        next: String,
    }

    struct AvailableToolsetBody of AvailableToolset {
        name: String,
        kind: GroupKindBody,
        description unless "String::is_empty": String,
        /// Number of its tools that the caller sees.
        tools: usize,
        /// cl100k tokens of their definitions.
        tokens: u64,
        loaded: bool,
        /// Whether it was loaded initially and can't be unloaded. Absent: no.
        initial unless "std::ops::Not::not": bool,
    }

    #[serde(rename_all = "lowercase")]
    enum GroupKindBody of GroupKind {
        Toolset,
        Server,
        Tag,
    }
}

/// Groups to load, with the chat named in the body.
pub(in crate::http) struct GroupsRequest {
    pub(in crate::http) names: Vec<String>,
    pub(in crate::http) chat: Option<String>,
}

/// Lists the toolsets with a tool visible to this caller, by name.
#[utoipa::path(
    tag = "toolsets",
    responses((status = 200, description = "By name", body = VisibleToolsetsBody))
)]
#[get("/v1/toolsets")]
pub async fn list_toolsets(state: web::Data<State>, caller: Caller) -> HttpResponse {
    HttpResponse::Ok().json(VisibleToolsetsBody { toolsets: state.toolsets.visible(&caller.0) })
}

/// Loads toolsets, or servers by name, into the session of the address or into the chat. Their tools are bound from then on.
#[utoipa::path(
    tag = "toolsets",
    request_body = LoadBody,
    responses(
        (status = 200, description = "The loaded groups", body = LoadedBody),
        (status = 404, description = "No such toolset; nothing was loaded"),
        (status = 409, description = "There is neither a session nor a chat"),
        (status = 422, description = "No name, or an invalid value")
    )
)]
#[post("/v1/toolsets/load")]
pub async fn load_toolset(state: web::Data<State>, caller: Caller, at: RequestAddress, request: HttpRequest, body: Body) -> Answer {
    respond(MetaTool::LoadToolset, &state, &caller, &at, &request, &body.0).await
}

/// Unloads a loaded group. Initial groups stay.
#[utoipa::path(
    tag = "toolsets",
    request_body = UnloadBody,
    responses(
        (status = 200, description = "The unloaded group", body = UnloadedBody),
        (status = 404, description = "No such toolset"),
        (status = 409, description = "The group is not loaded or is initial, or there is neither a session nor a chat"),
        (status = 422, description = "No name")
    )
)]
#[post("/v1/toolsets/unload")]
pub async fn unload_toolset(state: web::Data<State>, caller: Caller, at: RequestAddress, request: HttpRequest, body: Body) -> Answer {
    respond(MetaTool::UnloadToolset, &state, &caller, &at, &request, &body.0).await
}

/// Loads all tools of a kind: a toolset, a server, or the tools with a tag.
#[utoipa::path(
    tag = "toolsets",
    request_body = EnableBody,
    responses(
        (status = 200, description = "The loaded groups", body = LoadedBody),
        (status = 404, description = "No such group; nothing was loaded"),
        (status = 409, description = "There is neither a session nor a chat"),
        (status = 422, description = "No name")
    )
)]
#[post("/v1/toolsets/enable")]
pub async fn enable_tool_group(state: web::Data<State>, caller: Caller, at: RequestAddress, request: HttpRequest, body: Body) -> Answer {
    respond(MetaTool::EnableToolGroup, &state, &caller, &at, &request, &body.0).await
}

/// Lists the groups that can be loaded, and the loaded ones: toolsets, and servers by name.
#[utoipa::path(
    tag = "toolsets",
    request_body = Option<AvailableBody>,
    responses(
        (status = 200, description = "The available groups", body = AvailableToolsetsBody),
        (status = 422, description = "An invalid value")
    )
)]
#[post("/v1/toolsets/available")]
pub async fn list_available_toolsets(
    state: web::Data<State>,
    caller: Caller,
    at: RequestAddress,
    request: HttpRequest,
    body: Body,
) -> Answer {
    respond(MetaTool::ListAvailableToolsets, &state, &caller, &at, &request, &body.0).await
}

/// The chat of a request for the groups that can be loaded. The body may be empty.
pub(in crate::http) fn available_request(body: &[u8]) -> Result<Option<String>, Problem> {
    let body: AvailableBody = if body.iter().all(u8::is_ascii_whitespace) { AvailableBody::default() } else { read_json(body)? };
    chat(body.chat_id)
}

pub(in crate::http) fn load_request(body: &[u8]) -> Result<GroupsRequest, Problem> {
    let LoadBody { toolset, toolsets, chat_id } = read_json(body)?;
    let names: Vec<String> = toolset.into_iter().chain(toolsets.many()).collect();
    named(names, chat_id, "toolsets", "toolset")
}

pub(in crate::http) fn unload_request(body: &[u8]) -> Result<GroupsRequest, Problem> {
    let UnloadBody { toolset, chat_id } = read_json(body)?;
    named(vec![toolset], chat_id, "toolset", "toolset")
}

pub(in crate::http) fn enable_request(body: &[u8]) -> Result<GroupsRequest, Problem> {
    let EnableBody { group, chat_id } = read_json(body)?;
    named(vec![group], chat_id, "group", "group")
}

fn named(mut names: Vec<String>, chat_id: Option<String>, parameter: &'static str, member: &str) -> Result<GroupsRequest, Problem> {
    names.retain(|name| !name.trim().is_empty());
    if names.is_empty() || names.len() > MAX_GROUPS {
        let detail = format!("Give 1 to {MAX_GROUPS} names, e.g. {{\"{member}\": \"github\"}}. list_available_toolsets lists them.");
        return Err(Problem::invalid(parameter, detail));
    }
    Ok(GroupsRequest { names, chat: chat(chat_id)? })
}

/// A chat named in a body.
pub(super) fn chat(id: Option<String>) -> Result<Option<String>, Problem> {
    match id {
        Some(id) if id.len() > MAX_ID_BYTES => Err(Problem::invalid("chat_id", format!("chat_id has at most {MAX_ID_BYTES} bytes."))),
        id => Ok(id.filter(|id| !id.is_empty() && is_kept(id))),
    }
}

//! The toolsets that a caller may see, and loading them, for these routes and for the meta-tools.

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
use crate::http::routes::context::chat;
use crate::http::routes::tools::OneOrMany;
use crate::http::state::State;
use crate::service::toolsets::loading::{Available, AvailableToolset, LoadAnswer, UnloadAnswer};
use crate::service::toolsets::toolsets::VisibleToolset;

/// The toolsets to load. At least one of `toolset` and `toolsets` is required.
#[derive(Deserialize, ToSchema)]
struct LoadBody {
    /// Name of a toolset or a server.
    toolset: Option<String>,
    /// Several names. A single string is also accepted.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    toolsets: OneOrMany,
    /// The chat into which to load the toolsets, if no header names it.
    chat_id: Option<String>,
}

#[derive(Deserialize, ToSchema)]
struct UnloadBody {
    /// The name by which the toolset was loaded.
    #[serde(alias = "group")]
    toolset: String,
    /// The chat, if no header names it.
    chat_id: Option<String>,
}

#[derive(Deserialize, ToSchema)]
struct EnableBody {
    /// Name of a toolset, a server or a tag.
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

/// The toolsets that the caller may see.
#[derive(Serialize, ToSchema)]
struct VisibleToolsetsBody {
    #[schema(value_type = Vec<VisibleToolsetBody>)]
    toolsets: Vec<VisibleToolset>,
}

described! {
    struct VisibleToolsetBody of VisibleToolset {
        name: String,
        description: String,
        /// Number of the toolset's tools that the caller may see.
        tools: usize,
        /// cl100k tokens of the definitions of these tools.
        tokens: u64,
    }

    /// The toolsets, servers or tags that were loaded.
    struct LoadedBody of LoadAnswer {
        /// Names of the toolsets, servers or tags.
        loaded: Vec<String>,
        already_loaded unless "Vec::is_empty": Vec<String>,
        /// Public names of their tools.
        tools: Vec<String>,
        /// Number of all loaded tools, without the meta-tools.
        bound: usize,
        /// A suggestion for the model's next step.
        next: String,
        warnings unless "Vec::is_empty": Vec<String>,
    }

    /// The toolset, server or tag that was unloaded.
    struct UnloadedBody of UnloadAnswer {
        unloaded: String,
        /// Public names of the tools that are no longer loaded.
        tools: Vec<String>,
        /// Number of all loaded tools, without the meta-tools.
        bound: usize,
        /// A suggestion for the model's next step.
        next: String,
        warnings unless "Vec::is_empty": Vec<String>,
    }

    /// The toolsets and servers that can be loaded.
    struct AvailableToolsetsBody of Available {
        toolsets: Vec<AvailableToolsetBody>,
        /// Number of all loaded tools, without the meta-tools.
        bound: usize,
        /// A suggestion for the model's next step.
        next: String,
    }

    struct AvailableToolsetBody of AvailableToolset {
        name: String,
        kind: GroupKindBody,
        description unless "String::is_empty": String,
        /// Number of its tools that the caller may see.
        tools: usize,
        /// cl100k tokens of the definitions of these tools.
        tokens: u64,
        loaded: bool,
        /// `true` if the session started with these tools, so that they can't be unloaded; otherwise absent.
        initial unless "std::ops::Not::not": bool,
    }

    #[serde(rename_all = "lowercase")]
    enum GroupKindBody of GroupKind {
        Toolset,
        Server,
        Tag,
    }
}

/// A request to load toolsets, servers or tags, with the chat that the body may name.
pub(in crate::http) struct GroupsRequest {
    pub(in crate::http) names: Vec<String>,
    pub(in crate::http) chat: Option<String>,
}

/// Lists the toolsets that contain at least one tool that the caller may see.
#[utoipa::path(
    tag = "toolsets",
    responses((status = 200, description = "Sorted by name", body = VisibleToolsetsBody))
)]
#[get("/v1/toolsets")]
pub async fn list_toolsets(state: web::Data<State>, caller: Caller) -> HttpResponse {
    HttpResponse::Ok().json(VisibleToolsetsBody { toolsets: state.toolsets.visible(&caller.0) })
}

/// Loads toolsets into the session or the chat. The model can then use their tools. A server's name loads all tools of
/// the server.
#[utoipa::path(
    tag = "toolsets",
    request_body = LoadBody,
    responses(
        (status = 200, description = "The toolsets that were loaded", body = LoadedBody),
        (status = 404, description = "The toolset doesn't exist, and nothing was loaded"),
        (status = 409, description = "There is no session or chat to load the tools into"),
        (status = 422, description = "There is no name, or a value is invalid")
    )
)]
#[post("/v1/toolsets/load")]
pub async fn load_toolset(state: web::Data<State>, caller: Caller, at: RequestAddress, request: HttpRequest, body: Body) -> Answer {
    respond(MetaTool::LoadToolset, &state, &caller, &at, &request, &body.0).await
}

/// Unloads a loaded toolset. The toolsets with which a session started can't be unloaded.
#[utoipa::path(
    tag = "toolsets",
    request_body = UnloadBody,
    responses(
        (status = 200, description = "The toolset that was unloaded", body = UnloadedBody),
        (status = 404, description = "The toolset doesn't exist"),
        (status = 409, description = "The toolset is not loaded, the session started with it, or there is no session or chat"),
        (status = 422, description = "There is no name")
    )
)]
#[post("/v1/toolsets/unload")]
pub async fn unload_toolset(state: web::Data<State>, caller: Caller, at: RequestAddress, request: HttpRequest, body: Body) -> Answer {
    respond(MetaTool::UnloadToolset, &state, &caller, &at, &request, &body.0).await
}

/// Loads a toolset, all tools of a server, or all tools with a tag.
#[utoipa::path(
    tag = "toolsets",
    request_body = EnableBody,
    responses(
        (status = 200, description = "The toolsets that were loaded", body = LoadedBody),
        (status = 404, description = "The toolset, server or tag doesn't exist, and nothing was loaded"),
        (status = 409, description = "There is no session or chat to load the tools into"),
        (status = 422, description = "There is no name")
    )
)]
#[post("/v1/toolsets/enable")]
pub async fn enable_tool_group(state: web::Data<State>, caller: Caller, at: RequestAddress, request: HttpRequest, body: Body) -> Answer {
    respond(MetaTool::EnableToolGroup, &state, &caller, &at, &request, &body.0).await
}

/// Lists the toolsets and servers that can be loaded, and those that are loaded.
#[utoipa::path(
    tag = "toolsets",
    request_body = Option<AvailableBody>,
    responses(
        (status = 200, description = "The toolsets and servers that can be loaded", body = AvailableToolsetsBody),
        (status = 422, description = "A value is invalid")
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

/// Reads the chat from the body of a request for the loadable toolsets. The body may be empty.
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

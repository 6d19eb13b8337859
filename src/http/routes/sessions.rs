//! The caller's sessions: temporary addresses with their own tool lists.

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_actix_web::service_config::ServiceConfig;

use crate::domain::publishing::address::Address;
use crate::domain::selection::selection::Selected;
use crate::domain::toolsets::mode::{DefaultMode, Mode};
use crate::domain::toolsets::session::Session;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::problem::{Answer, Problem, limit, read_json};
use crate::http::routes::admin::time;
use crate::http::routes::context::context;
use crate::http::state::State;
use crate::service::caller;
use crate::service::catalog::current::View;
use crate::service::publishing::publish::Publish;
use crate::service::toolsets::loading::CallerAt;
use crate::service::toolsets::sessions::{Made, NewSession};

/// Maximum number of names in a new session.
pub(in crate::http) const MOST_NAMES: usize = 1_000;
/// Maximum number of tools that are selected for a task.
pub(in crate::http) const MOST_TOOLS: usize = 128;
/// Maximum length of a task, in bytes.
pub(in crate::http) const LONGEST_TASK: usize = 64 << 10;

pub fn configure(config: &mut ServiceConfig<'_>) {
    config.service(create_session).service(list_sessions).service(show_session).service(end_session);
}

/// A new session. At least one of `toolsets`, `servers`, `tools` and `task` is required, except in dynamic mode.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewSessionBody {
    /// Toolsets whose tools are published. With a task, tools are selected from these toolsets.
    #[serde(default)]
    toolsets: Vec<String>,
    /// Servers whose tools are published. With a task, tools are selected from these servers.
    #[serde(default)]
    servers: Vec<String>,
    /// Tools that are always published, as public names or as `server/tool`.
    #[serde(default)]
    tools: Vec<String>,
    /// A task for which tools are selected, as for a message. The text of the task is not stored.
    task: Option<String>,
    /// Maximum number of tools that are selected for the task; by default `selection.limit`.
    limit: Option<usize>,
    /// The mode of the session's documents and MCP address, for requests that name no mode: `auto` (default), `full`,
    /// `meta`, `smart` or `dynamic`. With `auto`, documents are full, and the MCP list is full up to
    /// `mcp.full_list_tools` and `mcp.full_list_tokens`, and dynamic beyond them. A `dynamic` session may start without
    /// tools.
    mode: Option<String>,
    /// Lifetime in seconds, at most `sessions.longest_ttl_seconds`; by default `sessions.ttl_seconds`.
    ttl_seconds: Option<u64>,
}

#[derive(Serialize, ToSchema)]
struct SessionBody {
    id: String,
    /// The session's address, for a tool server connection. The document is at `/openapi.json` below this address.
    /// Without `http.public_url`, this address is only a path.
    url: String,
    mode: &'static str,
    created_at: String,
    expires_at: String,
    /// The published tools that the caller may see at the moment.
    tools: Vec<SessionToolBody>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct SessionToolBody {
    name: String,
    server: String,
    tool: String,
    /// How well the tool matches the task, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f32>,
    /// Why the tool is published; present only in the response that creates the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct SessionsBody {
    sessions: Vec<SessionBody>,
}

/// Creates a session: a temporary address with its own document. The session determines which tools the document
/// publishes. With `find_tools` and `run_tool`, the owner can use all other permitted tools.
#[utoipa::path(
    tag = "sessions",
    request_body = NewSessionBody,
    responses(
        (status = 201, description = "The session", body = SessionBody),
        (status = 422, description = "A name is unknown (the error suggests similar names), or a value is invalid"),
        (status = 429, description = "There are too many sessions")
    )
)]
#[post("/v1/sessions")]
pub async fn create_session(state: web::Data<State>, caller: Caller, body: Body) -> Answer {
    let body: NewSessionBody = read_json(&body.0)?;
    let names = [("toolsets", body.toolsets.len()), ("servers", body.servers.len()), ("tools", body.tools.len())];
    if names.iter().map(|(_, count)| count).sum::<usize>() > MOST_NAMES {
        let detail = format!("At most {MOST_NAMES} toolsets, servers and tools.");
        let longest = names.into_iter().max_by_key(|(_, count)| *count).map_or("tools", |(name, _)| name);
        return Err(Problem::invalid(longest, detail));
    }
    limit(body.limit, 1, 1..=MOST_TOOLS)?;
    if body.task.as_ref().is_some_and(|task| task.len() > LONGEST_TASK) {
        return Err(Problem::invalid("task", format!("task has at most {LONGEST_TASK} bytes.")));
    }
    let NewSessionBody { toolsets, servers, tools, task, limit, mode, ttl_seconds } = body;
    let mode = match mode.as_deref() {
        None => DefaultMode::Auto,
        Some(name) => {
            let problem = || Problem::invalid("mode", "mode is `auto`, `full`, `meta`, `smart` or `dynamic`.");
            DefaultMode::of_name(name).ok_or_else(problem)?
        }
    };
    let ttl = ttl_seconds.map(Duration::from_secs);
    let Made { session, tools, warnings } =
        state.sessions.make(NewSession { toolsets, servers, tools, task, limit, mode, ttl }, &caller.0).await?;
    tracing::info!(tools = tools.len(), "session created");
    let tools = tools.into_iter().filter_map(SessionToolBody::of).collect();
    let answer = SessionBody { tools, warnings, ..body_of(&state, &session) };
    Ok(HttpResponse::Created().insert_header((header::LOCATION, format!("/v1/sessions/{}", answer.id))).json(answer))
}

/// Lists the caller's own sessions, oldest first.
#[utoipa::path(
    tag = "sessions",
    responses((status = 200, description = "The sessions that have not expired", body = SessionsBody))
)]
#[get("/v1/sessions")]
pub async fn list_sessions(state: web::Data<State>, caller: Caller, request: HttpRequest) -> Answer {
    let context = context(&caller, &request);
    let mut sessions = Vec::new();
    for session in state.sessions.of(&caller.0).await? {
        sessions.push(with_tools(&state, &context, session.into()).await);
    }
    Ok(HttpResponse::Ok().json(SessionsBody { sessions }))
}

/// Returns one of the caller's own sessions.
#[utoipa::path(
    tag = "sessions",
    params(("id" = String, Path, description = "The session's id")),
    responses(
        (status = 200, description = "The session", body = SessionBody),
        (status = 404, description = "The session doesn't exist, or belongs to another caller")
    )
)]
#[get("/v1/sessions/{id}")]
pub async fn show_session(state: web::Data<State>, caller: Caller, id: web::Path<String>, request: HttpRequest) -> Answer {
    let session = state.sessions.find(&id, &caller.0).await?.ok_or_else(Problem::not_found)?;
    Ok(HttpResponse::Ok().json(with_tools(&state, &context(&caller, &request), session).await))
}

/// Ends one of the caller's own sessions.
#[utoipa::path(
    tag = "sessions",
    params(("id" = String, Path, description = "The session's id")),
    responses(
        (status = 204, description = "The session has ended"),
        (status = 404, description = "The session doesn't exist, or belongs to another caller")
    )
)]
#[delete("/v1/sessions/{id}")]
pub async fn end_session(state: web::Data<State>, caller: Caller, id: web::Path<String>) -> Answer {
    if state.sessions.end(&id, &caller.0).await? { Ok(HttpResponse::NoContent().finish()) } else { Err(Problem::not_found()) }
}

fn body_of(state: &State, session: &Session) -> SessionBody {
    let address = Address::Session(session.clone().into()).prefix();
    // Behind a proxy, the public URL already contains the proxy's path.
    let base = state.public_url.clone().unwrap_or_else(|| state.publish.layout().root_path.clone());
    SessionBody {
        id: session.id.as_str().to_owned(),
        url: format!("{base}{address}"),
        mode: session.mode.name(),
        created_at: time(session.created_at),
        expires_at: time(session.expires_at),
        tools: Vec::new(),
        warnings: Vec::new(),
    }
}

/// A session with its initial and its loaded tools.
async fn with_tools(state: &State, caller: &caller::CallerContext, session: Arc<Session>) -> SessionBody {
    let address = Address::Session(Arc::clone(&session));
    let bound = state.loading.bound(CallerAt::new(caller, &address), Mode::Full).await;
    let View { catalog, visibility, .. } = state.current.view(&caller.principal);
    let tools = Publish::listed(&catalog, &address, &visibility, Mode::Full, &bound);
    let body = |selected| SessionToolBody { reason: None, ..selected };
    let tools = tools.iter().filter_map(|tool| SessionToolBody::of(Selected::named(tool))).map(body).collect();
    SessionBody { tools, ..body_of(state, &session) }
}

impl SessionToolBody {
    fn of(selected: Selected) -> Option<Self> {
        let id = selected.id?;
        let (server, tool) = (id.server.to_string(), id.label().into_owned());
        Some(Self { name: selected.name, server, tool, score: selected.score, reason: Some(selected.reason.to_string()) })
    }
}

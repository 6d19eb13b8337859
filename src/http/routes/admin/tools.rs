//! The tools: what is known about them, what an admin writes about them, and whether they still are what they were.
#![expect(unreachable_pub, unused_qualifications, reason = "the route macros repeat visibility and paths on an inner function")]

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, delete, get, post, put, web};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::expected;
use crate::domain::access::tool_facts::WrittenFacts;
use crate::domain::catalog::tool::ToolId;
use crate::http::body::Body;
use crate::http::caller::Administrator;
use crate::http::problem::{Code, Problem, read_json};
use crate::http::state::State;
use crate::service::catalog::tool_admin::{ToolFilter, ToolView};
use crate::service::ports::{AuditAction, AuditEntry};

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct ToolParameters {
    server: Option<String>,
    tag: Option<String>,
    /// Whether an admin pinned it.
    pinned: Option<bool>,
    /// Whether its definition differs from the one that was seen first or approved last.
    changed: Option<bool>,
    /// Whether its server added it later, and nobody approved it.
    new: Option<bool>,
    /// Stands in its names, title, description or synonyms.
    text: Option<String>,
    /// 1 to 1000, default 100.
    limit: Option<usize>,
    /// How many are skipped; `next` of the part before.
    offset: Option<usize>,
}

/// What an admin writes about a tool. What is left out is not written.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct ToolFactsBody {
    /// At most 50, of at most 64 characters. Rules can go by them.
    tags: Vec<String>,
    /// Words and phrases by which the tool is found beside its own: at most 50, of at most 100 characters.
    synonyms: Vec<String>,
    /// Published, searched and shown in the place of the server's, at most 10000 characters.
    description: Option<String>,
    /// Offered in every chat.
    pinned: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ApprovalBody {
    /// `definition.fingerprint` of what was looked at.
    fingerprint: String,
}

/// All tools, those too that are withheld, and those that are away and about which something is written.
#[utoipa::path(
    operation_id = "list_tools",
    tag = "administration",
    params(ToolParameters),
    responses(
        (status = 200, description = "`tools` with their names, `published`, `description`, `tokens`, `tags` with their sources, `synonyms`, \
            `pinned`, what is `written` with its `version`, `definition` with `state` (`same`, `new`, `changed`, `withheld`), `fingerprint` \
            and times, and `hidden_text`; `total` and the `next` offset", body = Object),
        (status = 404, description = "The caller does not administer"),
        (status = 422, description = "A value that does not fit")
    )
)]
#[get("/v1/admin/tools")]
pub async fn list(
    state: web::Data<State>,
    _caller: Administrator,
    query: Result<web::Query<ToolParameters>, actix_web::Error>,
) -> Result<HttpResponse, Problem> {
    let query = query.map_err(|error| Problem::new(Code::InvalidRequest, error.to_string()))?.into_inner();
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Problem::new(Code::InvalidRequest, format!("limit is 1 to {MAX_LIMIT}.")));
    }
    let ToolParameters { server, tag, pinned, changed, new, text, offset, .. } = query;
    let filter = ToolFilter { server, tag, pinned, changed, new, text };
    let page = state.tool_admin.list(&filter, offset.unwrap_or_default(), limit);
    Ok(HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-store")).json(page))
}

/// Tools of different servers that do the same, in nearly the same words.
#[utoipa::path(
    operation_id = "list_duplicates",
    tag = "administration",
    responses(
        (status = 200, description = "`groups`, each with its `tools` and whether they have the `same_name` and the `same_definition`; \
            `lookalikes`, tools whose names differ and are read as the same one", body = Object),
        (status = 404, description = "The caller does not administer")
    )
)]
#[get("/v1/admin/tools/duplicates")]
pub async fn duplicates(state: web::Data<State>, _caller: Administrator) -> Result<HttpResponse, Problem> {
    let found = web::block(move || state.tool_admin.duplicates()).await;
    let found = found.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    Ok(HttpResponse::Ok().json(found))
}

/// Everything about one tool.
#[utoipa::path(
    operation_id = "show_tool_facts",
    tag = "administration",
    params(("server" = String, Path, description = "The server's name"), ("tool" = String, Path, description = "The tool's own name")),
    responses(
        (status = 200, description = "An entry of the list, with the `raw` tool and, of a changed one, the `difference`: for each place the \
            JSON Pointer, what was there `before` and what is there `after`", body = Object),
        (status = 404, description = "There never was such a tool, or the caller does not administer")
    )
)]
#[get("/v1/admin/tools/{server}/{tool:.+}")]
pub async fn show(state: web::Data<State>, _caller: Administrator, path: web::Path<(String, String)>) -> Result<HttpResponse, Problem> {
    let view = state.tool_admin.show(&id(path)).await?.ok_or_else(unknown)?;
    Ok(answer(HttpResponse::Ok(), &view))
}

/// Replaces what is written about a tool. It holds when the answer goes out, and searches go by it a moment later. It stays
/// over the tool's updates and while its server is away.
#[utoipa::path(
    operation_id = "replace_tool_facts",
    tag = "administration",
    request_body = ToolFactsBody,
    params(
        ("server" = String, Path, description = "The server's name"),
        ("tool" = String, Path, description = "The tool's own name"),
        ("If-Match" = Option<String>, Header, description = "The ETag of what is replaced: if something else holds meanwhile, nothing happens")
    ),
    responses(
        (status = 200, description = "Everything about the tool", body = Object),
        (status = 400, description = "Not JSON"),
        (status = 404, description = "There never was such a tool, or the caller does not administer"),
        (status = 412, description = "Something else is written than the ETag says"),
        (status = 413, description = "The body is too large"),
        (status = 422, description = "A text that does not fit, and why")
    )
)]
#[put("/v1/admin/tools/{server}/{tool:.+}")]
pub async fn replace(
    state: web::Data<State>,
    caller: Administrator,
    request: HttpRequest,
    path: web::Path<(String, String)>,
    body: Body,
) -> Result<HttpResponse, Problem> {
    let facts: WrittenFacts = read_json(&body.0)?;
    let id = id(path);
    let view = state.tool_admin.write(&id, Some(facts), expected(&request)?).await?;
    record(&state, &caller, AuditAction::ToolFactsReplace, &id, format!("version {}", view.version));
    Ok(answer(HttpResponse::Ok(), &view))
}

/// Takes back what is written about a tool.
#[utoipa::path(
    operation_id = "remove_tool_facts",
    tag = "administration",
    params(
        ("server" = String, Path, description = "The server's name"),
        ("tool" = String, Path, description = "The tool's own name"),
        ("If-Match" = Option<String>, Header, description = "The ETag of what is taken back: if something else holds meanwhile, nothing happens")
    ),
    responses(
        (status = 200, description = "Everything about the tool", body = Object),
        (status = 404, description = "Nothing is written about such a tool, or the caller does not administer"),
        (status = 412, description = "Something else is written than the ETag says")
    )
)]
#[delete("/v1/admin/tools/{server}/{tool:.+}")]
pub async fn remove(
    state: web::Data<State>,
    caller: Administrator,
    request: HttpRequest,
    path: web::Path<(String, String)>,
) -> Result<HttpResponse, Problem> {
    let id = id(path);
    let view = state.tool_admin.write(&id, None, expected(&request)?).await?;
    record(&state, &caller, AuditAction::ToolFactsRemove, &id, format!("version {}", view.version));
    Ok(answer(HttpResponse::Ok(), &view))
}

/// Approves the definition of a tool as it is now: later ones are held against it, and a withheld tool is there again.
#[utoipa::path(
    operation_id = "approve_definition",
    tag = "administration",
    request_body = ApprovalBody,
    params(("server" = String, Path, description = "The server's name"), ("tool" = String, Path, description = "The tool's own name")),
    responses(
        (status = 200, description = "Everything about the tool", body = Object),
        (status = 400, description = "Not JSON"),
        (status = 404, description = "No server lists such a tool, or the caller does not administer"),
        (status = 409, description = "Nothing is compared: `definitions.changes` is `off`"),
        (status = 412, description = "The definition is another one than the fingerprint says. Look at it first."),
        (status = 413, description = "The body is too large"),
        (status = 422, description = "No fingerprint, or one of another form")
    )
)]
#[post("/v1/admin/tools/{server}/{tool:.+}/approve")]
pub async fn approve(
    state: web::Data<State>,
    caller: Administrator,
    path: web::Path<(String, String)>,
    body: Body,
) -> Result<HttpResponse, Problem> {
    let ApprovalBody { fingerprint } = read_json(&body.0)?;
    let id = id(path);
    let view = state.tool_admin.approve(&id, &fingerprint).await?;
    tracing::info!(tool = %id, fingerprint = fingerprint.trim(), "definition approved");
    record(&state, &caller, AuditAction::DefinitionApprove, &id, fingerprint.trim().to_owned());
    Ok(answer(HttpResponse::Ok(), &view))
}

fn record(state: &State, caller: &Administrator, action: AuditAction, id: &ToolId, subject: String) {
    state.audit.record(AuditEntry { tool: Some(id.clone()), ..AuditEntry::of_change(&caller.0, action, subject) });
}

fn answer(mut response: HttpResponseBuilder, view: &ToolView) -> HttpResponse {
    let etag = format!("\"{}\"", view.version);
    response.insert_header((header::ETAG, etag)).insert_header((header::CACHE_CONTROL, "no-store")).json(view)
}

fn id(path: web::Path<(String, String)>) -> ToolId {
    let (server, tool) = path.into_inner();
    ToolId::new(server.as_str(), tool)
}

fn unknown() -> Problem {
    Problem::new(Code::NotFound, "There never was such a tool. GET /v1/admin/tools lists what there is.")
}

//! The tools: what is known about them, what an admin writes about them, and whether they still are what they were.
#![expect(unreachable_pub, unused_qualifications, reason = "the route macros repeat visibility and paths on an inner function")]

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, delete, get, post, put, web};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::expected;
use crate::domain::access::tool_facts::{TagSource, WrittenFacts};
use crate::domain::catalog::definition::{Change, Difference};
use crate::domain::catalog::hidden_text::HiddenText;
use crate::domain::catalog::tool::ToolId;
use crate::http::body::Body;
use crate::http::caller::Administrator;
use crate::http::described::described;
use crate::http::problem::{Code, Problem, read_json};
use crate::http::query::Query;
use crate::http::state::State;
use crate::service::catalog::definitions::DefinitionState;
use crate::service::catalog::tool_admin::{
    DuplicateGroup, DuplicateTool, Duplicates, LookalikeTool, TagView, ToolFilter, ToolPage, ToolView,
};
use crate::service::ports::{AuditAction, AuditEntry};

pub(in crate::http) const DEFAULT_LIMIT: usize = 100;
pub(in crate::http) const MAX_LIMIT: usize = 1_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
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
    /// How many tools.
    limit: Option<usize>,
    /// How many are skipped; `next` of the part before.
    offset: Option<usize>,
}

/// What an admin writes about a tool. What is left out is not written.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct ToolFactsBody {
    /// Rules can go by them.
    #[schema(required = false)]
    tags: Vec<String>,
    /// Words and phrases by which the tool is found beside its own.
    #[schema(required = false)]
    synonyms: Vec<String>,
    /// Published, searched and shown in the place of the server's.
    description: Option<String>,
    /// Offered in every chat.
    #[schema(required = false)]
    pinned: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ApprovalBody {
    /// `definition.fingerprint` of what was looked at.
    fingerprint: String,
}

described! {
    ToolPage =>
    struct ToolPageBody {
        /// In the order of servers and tools.
        tools: Vec<ToolViewBody>,
        total: usize,
        /// The offset of the next part, if there is one.
        next: Option<usize>,
    }
}

described! {
    ToolView =>
    /// Everything about one tool.
    struct ToolViewBody {
        server: String,
        /// The server's name for it.
        tool: String,
        /// `false`: it is withheld, or its server does not list it now.
        published: bool,
        /// The published name.
        name: Option<String>,
        title: Option<String>,
        /// As it is published.
        description: Option<String>,
        /// cl100k tokens of its definition.
        tokens: Option<u32>,
        tags: Vec<TagBody>,
        synonyms: Vec<String>,
        /// Whether an admin pinned it.
        pinned: bool,
        /// What an admin wrote.
        written: Option<WrittenFactsBody>,
        /// Of what an admin wrote; 0: nothing ever.
        version: u64,
        definition: DefinitionStatusBody,
        /// Characters that models are not shown.
        hidden_text: Vec<HiddenTextBody>,
        /// What differs from the approved definition. Only of a single tool.
        #[serde(skip_serializing_if = "Option::is_none")]
        difference: Option<DifferenceBody>,
        /// As its server sent it. Only of a single tool.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Object>)]
        raw: Option<Value>,
    }
}

described! {
    TagView =>
    struct TagBody {
        tag: String,
        source: TagSourceBody,
    }
}

described! {
    TagSource =>
    /// Where a tag comes from: the `tool` itself, the `server_file`, a `rule` of the settings, or an `admin`.
    #[serde(rename_all = "snake_case")]
    enum TagSourceBody {
        Tool,
        ServerFile,
        Rule,
        Admin,
    }
}

described! {
    WrittenFacts =>
    /// What an admin wrote about a tool.
    struct WrittenFactsBody {
        tags: Vec<String>,
        synonyms: Vec<String>,
        /// In place of the server's.
        description: Option<String>,
        pinned: bool,
    }
}

/// How the definition of a tool compares with the one that was seen first, or approved last.
#[derive(Serialize, ToSchema)]
struct DefinitionStatusBody {
    /// `null`: its server does not list it now, or nothing is compared.
    state: Option<DefinitionStateBody>,
    /// Of what its server sends now. An approval names it.
    fingerprint: Option<String>,
    first_seen: Option<String>,
    /// When another definition was seen first.
    changed_at: Option<String>,
    approved_at: Option<String>,
}

described! {
    DefinitionState =>
    /// `new`: its server added it later, and nobody approved it. `withheld`: it differs or is new, and is not published.
    #[serde(rename_all = "snake_case")]
    enum DefinitionStateBody {
        Same,
        New,
        Changed,
        Withheld,
    }
}

described! {
    HiddenText =>
    /// Hidden characters at one place of a definition.
    struct HiddenTextBody {
        /// JSON Pointer (RFC 6901) into the definition.
        pointer: String,
        /// The first ones, such as `U+200B`, each once.
        code_points: Vec<String>,
        /// How many characters there are.
        characters: usize,
    }
}

described! {
    Difference =>
    /// What differs between two definitions.
    struct DifferenceBody {
        changes: Vec<ChangeBody>,
        /// How many more there are.
        more: usize,
    }
}

described! {
    Change =>
    /// A value that differs. Texts stand as they are, other values as JSON; both are shortened.
    struct ChangeBody {
        /// JSON Pointer (RFC 6901) into the definition.
        pointer: String,
        /// `null`: it was not there.
        before: Option<String>,
        /// `null`: it is not there any more.
        after: Option<String>,
    }
}

described! {
    Duplicates =>
    /// Near duplicates, and names that look alike.
    struct DuplicatesBody {
        groups: Vec<DuplicateGroupBody>,
        /// Tools with different names that people read as the same one.
        lookalikes: Vec<Vec<LookalikeToolBody>>,
    }
}

described! {
    DuplicateGroup =>
    struct DuplicateGroupBody {
        /// Whether all have the same name on their servers.
        same_name: bool,
        /// Whether all have the same description and input schema.
        same_definition: bool,
        tools: Vec<DuplicateToolBody>,
    }
}

described! {
    DuplicateTool =>
    struct DuplicateToolBody {
        server: String,
        tool: String,
        /// The published name.
        name: String,
        summary: String,
    }
}

described! {
    LookalikeTool =>
    struct LookalikeToolBody {
        server: String,
        /// With every character that is hidden or not ASCII as `\u{200b}`.
        tool: String,
        /// The published name.
        name: String,
    }
}

/// All tools, those too that are withheld, and those that are away and about which something is written.
#[utoipa::path(
    operation_id = "list_tools",
    tag = "administration",
    params(ToolParameters),
    responses(
        (status = 200, description = "A part of the list", body = ToolPageBody),
        (status = 404, description = "The caller does not administer"),
        (status = 422, description = "A value that does not fit")
    )
)]
#[get("/v1/admin/tools")]
pub async fn list(state: web::Data<State>, _caller: Administrator, query: Query<ToolParameters>) -> Result<HttpResponse, Problem> {
    let query = query.0;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Problem::invalid("limit", format!("limit is 1 to {MAX_LIMIT}.")));
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
        (status = 200, description = "Near duplicates, and names that look alike", body = DuplicatesBody),
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
        (status = 200, description = "Everything about the tool, with `raw` and, of a changed one, the `difference`", body = ToolViewBody),
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
        (status = 200, description = "Everything about the tool", body = ToolViewBody),
        (status = 404, description = "There never was such a tool, or the caller does not administer"),
        (status = 412, description = "Something else is written than the ETag says"),
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
        (status = 200, description = "Everything about the tool", body = ToolViewBody),
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
        (status = 200, description = "Everything about the tool", body = ToolViewBody),
        (status = 404, description = "No server lists such a tool, or the caller does not administer"),
        (status = 409, description = "Nothing is compared: `definitions.changes` is `off`"),
        (status = 412, description = "The definition is another one than the fingerprint says. Look at it first."),
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

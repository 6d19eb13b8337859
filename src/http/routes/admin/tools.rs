//! The tools: their state, their metadata, and approvals of their definitions.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, delete, get, post, put, web};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{expected, tool_of, versioned};
use crate::domain::access::tool_facts::{TagSource, ToolOverride};
use crate::domain::catalog::definition::{Change, Difference};
use crate::domain::catalog::hidden_text::HiddenText;
use crate::domain::catalog::tool::ToolId;
use crate::http::body::Body;
use crate::http::caller::Administrator;
use crate::http::described::described;
use crate::http::problem::{Answer, Code, Problem, limit, read_json};
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
    /// Whether its definition differs from the first one seen or the last one approved.
    changed: Option<bool>,
    /// Whether its server added it later, and nobody has approved it yet.
    new: Option<bool>,
    /// Text in its names, title, description or synonyms.
    text: Option<String>,
    /// Number of tools.
    limit: Option<usize>,
    /// Number of tools to skip; `next` of the previous part.
    offset: Option<usize>,
}

/// Metadata of a tool. Omitted members are unset.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct ToolFactsBody {
    /// Rules can use them.
    #[schema(required = false)]
    tags: Vec<String>,
    /// Additional words and phrases that searches match.
    #[schema(required = false)]
    synonyms: Vec<String>,
    /// Replaces the server's description for publishing, search and display.
    description: Option<String>,
    /// Offered in every chat.
    #[schema(required = false)]
    pinned: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ApprovalBody {
    /// `definition.fingerprint` of the reviewed definition.
    fingerprint: String,
}

described! {
    struct ToolPageBody of ToolPage {
        /// In the order of servers and tools.
        tools: Vec<ToolViewBody>,
        total: usize,
        /// The offset of the next part, if there is one.
        next: Option<usize>,
    }

    /// All data about one tool.
    struct ToolViewBody of ToolView {
        server: String,
        /// The server's name for it.
        tool: String,
        /// `false`: it is withheld, or its server does not list it now.
        published: bool,
        /// The published name.
        name: Option<String>,
        title: Option<String>,
        /// As published.
        description: Option<String>,
        /// cl100k tokens of its definition.
        tokens: Option<u32>,
        tags: Vec<TagBody>,
        synonyms: Vec<String>,
        /// Whether an admin pinned it.
        pinned: bool,
        /// Metadata set by an admin.
        written: Option<WrittenFactsBody>,
        /// Version of the metadata; 0: never set.
        version: u64,
        definition: DefinitionStatusBody,
        /// Characters hidden from models.
        hidden_text: Vec<HiddenTextBody>,
        /// The differences from the approved definition. Only in responses about one tool.
        difference unless "Option::is_none": Option<DifferenceBody>,
        /// As its server sent it. Only in responses about one tool.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Object>)]
        raw: Option<Value>,
    }

    struct TagBody of TagView {
        tag: String,
        source: TagSourceBody,
    }

    /// The source of a tag: the `tool` itself, the `server_file`, a `rule` of the settings, or an `admin`.
    #[serde(rename_all = "snake_case")]
    enum TagSourceBody of TagSource {
        Tool,
        ServerFile,
        Rule,
        Admin,
    }

    /// Metadata of a tool, set by an admin.
    struct WrittenFactsBody of ToolOverride {
        tags: Vec<String>,
        synonyms: Vec<String>,
        /// Replaces the server's description.
        description: Option<String>,
        pinned: bool,
    }
}

/// The comparison of a tool's definition with the first one seen, or the last one approved.
#[derive(Serialize, ToSchema)]
struct DefinitionStatusBody {
    /// `null`: its server does not list it now, or definitions are not compared.
    state: Option<DefinitionStateBody>,
    /// Fingerprint of the server's current definition, for an approval.
    fingerprint: Option<String>,
    first_seen: Option<String>,
    /// When the changed definition was first seen.
    changed_at: Option<String>,
    approved_at: Option<String>,
}

described! {
    /// `new`: its server added it later, and nobody has approved it yet. `withheld`: it is changed or new, and not published.
    #[serde(rename_all = "snake_case")]
    enum DefinitionStateBody of DefinitionState {
        Same,
        New,
        Changed,
        Withheld,
    }

    /// Hidden characters at one place of a definition.
    struct HiddenTextBody of HiddenText {
        /// JSON Pointer (RFC 6901) into the definition.
        pointer: String,
        /// The first distinct ones, such as `U+200B`.
        code_points: Vec<String>,
        /// Number of characters.
        characters: usize,
    }

    /// The differences between two definitions.
    struct DifferenceBody of Difference {
        changes: Vec<ChangeBody>,
        /// Number of further differences.
        more: usize,
    }

    /// A changed value. Strings are unchanged, other values are JSON; both are shortened.
    struct ChangeBody of Change {
        /// JSON Pointer (RFC 6901) into the definition.
        pointer: String,
        /// `null`: the value is new.
        before: Option<String>,
        /// `null`: the value was removed.
        after: Option<String>,
    }

    /// Near duplicates, and names that look alike.
    struct DuplicatesBody of Duplicates {
        groups: Vec<DuplicateGroupBody>,
        /// Tools with different names that look the same to people.
        lookalikes: Vec<Vec<LookalikeToolBody>>,
    }

    struct DuplicateGroupBody of DuplicateGroup {
        /// Whether all have the same name on their servers.
        same_name: bool,
        /// Whether all have the same description and input schema.
        same_definition: bool,
        tools: Vec<DuplicateToolBody>,
    }

    struct DuplicateToolBody of DuplicateTool {
        server: String,
        tool: String,
        /// The published name.
        name: String,
        summary: String,
    }

    struct LookalikeToolBody of LookalikeTool {
        server: String,
        /// Every hidden or non-ASCII character is escaped, such as `\u{200b}`.
        tool: String,
        /// The published name.
        name: String,
    }
}

/// Lists all tools, including withheld ones, and unlisted ones with metadata.
#[utoipa::path(
    params(ToolParameters),
    responses(
        (status = 200, description = "A part of the list", body = ToolPageBody),
        (status = 422, description = "An invalid value")
    )
)]
#[get("/v1/admin/tools")]
pub async fn list_tools(state: web::Data<State>, _caller: Administrator, query: Query<ToolParameters>) -> Answer {
    let query = query.0;
    let limit = limit(query.limit, DEFAULT_LIMIT, 1..=MAX_LIMIT)?;
    let ToolParameters { server, tag, pinned, changed, new, text, offset, .. } = query;
    let filter = ToolFilter { server, tag, pinned, changed, new, text };
    let page = state.tool_admin.list(&filter, offset.unwrap_or_default(), limit);
    Ok(HttpResponse::Ok().insert_header((header::CACHE_CONTROL, "no-store")).json(page))
}

/// Lists tools of different servers with the same or nearly the same definitions.
#[utoipa::path(responses((status = 200, description = "Near duplicates, and names that look alike", body = DuplicatesBody)))]
#[get("/v1/admin/tools/duplicates")]
pub async fn list_duplicates(state: web::Data<State>, _caller: Administrator) -> Answer {
    let found = web::block(move || state.tool_admin.duplicates()).await;
    let found = found.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    Ok(HttpResponse::Ok().json(found))
}

/// Returns all data about one tool.
#[utoipa::path(
    params(("server" = String, Path, description = "The server's name"), ("tool" = String, Path, description = "The tool's own name")),
    responses(
        (status = 200, description = "All data about the tool, with `raw` and, for a changed one, the `difference`", body = ToolViewBody),
        (status = 404, description = "No such tool ever existed, or the caller is not an administrator")
    )
)]
#[get("/v1/admin/tools/{server}/{tool:.+}")]
pub async fn show_tool_facts(state: web::Data<State>, _caller: Administrator, path: web::Path<(String, String)>) -> Answer {
    let view = state.tool_admin.show(&tool_of(path)).await?.ok_or_else(unknown)?;
    Ok(versioned(view.version, &view))
}

/// Replaces the metadata of a tool. It is in force before the response, and searches use it a moment later. It survives
/// updates of the tool and absences of its server.
#[utoipa::path(
    request_body = ToolFactsBody,
    params(
        ("server" = String, Path, description = "The server's name"),
        ("tool" = String, Path, description = "The tool's own name"),
        ("If-Match" = Option<String>, Header, description = "The ETag of the metadata to replace; after another change, the request has no effect")
    ),
    responses(
        (status = 200, description = "All data about the tool", body = ToolViewBody),
        (status = 404, description = "No such tool ever existed, or the caller is not an administrator"),
        (status = 412, description = "The metadata has changed since that ETag"),
        (status = 422, description = "An invalid text, with the reason")
    )
)]
#[put("/v1/admin/tools/{server}/{tool:.+}")]
pub async fn replace_tool_facts(
    state: web::Data<State>,
    caller: Administrator,
    request: HttpRequest,
    path: web::Path<(String, String)>,
    body: Body,
) -> Answer {
    let written: ToolOverride = read_json(&body.0)?;
    let id = tool_of(path);
    let view = state.tool_admin.write(&id, Some(written), expected(&request)?).await?;
    record(&state, &caller, AuditAction::ToolFactsReplace, &id, format!("version {}", view.version));
    Ok(versioned(view.version, &view))
}

/// Deletes the metadata of a tool.
#[utoipa::path(
    params(
        ("server" = String, Path, description = "The server's name"),
        ("tool" = String, Path, description = "The tool's own name"),
        ("If-Match" = Option<String>, Header, description = "The ETag of the metadata to delete; after another change, the request has no effect")
    ),
    responses(
        (status = 200, description = "All data about the tool", body = ToolViewBody),
        (status = 404, description = "The tool has no metadata, or the caller is not an administrator"),
        (status = 412, description = "The metadata has changed since that ETag")
    )
)]
#[delete("/v1/admin/tools/{server}/{tool:.+}")]
pub async fn remove_tool_facts(
    state: web::Data<State>,
    caller: Administrator,
    request: HttpRequest,
    path: web::Path<(String, String)>,
) -> Answer {
    let id = tool_of(path);
    let view = state.tool_admin.write(&id, None, expected(&request)?).await?;
    record(&state, &caller, AuditAction::ToolFactsRemove, &id, format!("version {}", view.version));
    Ok(versioned(view.version, &view))
}

/// Approves the current definition of a tool. Later ones are compared with it, and a withheld tool is published again.
#[utoipa::path(
    request_body = ApprovalBody,
    params(("server" = String, Path, description = "The server's name"), ("tool" = String, Path, description = "The tool's own name")),
    responses(
        (status = 200, description = "All data about the tool", body = ToolViewBody),
        (status = 404, description = "No server lists such a tool, or the caller is not an administrator"),
        (status = 409, description = "Definitions are not compared: `definitions.changes` is `off`"),
        (status = 412, description = "The definition does not match the fingerprint. Review it first."),
        (status = 422, description = "No fingerprint, or an invalid one")
    )
)]
#[post("/v1/admin/tools/{server}/{tool:.+}/approve")]
pub async fn approve_definition(state: web::Data<State>, caller: Administrator, path: web::Path<(String, String)>, body: Body) -> Answer {
    let ApprovalBody { fingerprint } = read_json(&body.0)?;
    let id = tool_of(path);
    let view = state.tool_admin.approve(&id, &fingerprint).await?;
    tracing::info!(tool = %id, fingerprint = fingerprint.trim(), "definition approved");
    record(&state, &caller, AuditAction::DefinitionApprove, &id, fingerprint.trim().to_owned());
    Ok(versioned(view.version, &view))
}

fn record(state: &State, caller: &Administrator, action: AuditAction, id: &ToolId, subject: String) {
    state.audit.record(AuditEntry { tool: Some(id.clone()), ..AuditEntry::of_change(&caller.0, action, subject) });
}

fn unknown() -> Problem {
    Problem::new(Code::NotFound, "No such tool ever existed. GET /v1/admin/tools lists the tools.")
}

//! The tools, for administrators: their states, their metadata and the approval of their definitions.

use std::collections::BTreeMap;

use actix_web::{HttpRequest, HttpResponse, delete, get, post, put, web};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{ManagedByBody, expected, tool_of, uncached, versioned};
use crate::domain::access::principal::Principal;
use crate::domain::access::tool_facts::{TagSource, ToolOverride};
use crate::domain::catalog::definition::{Change, Difference};
use crate::domain::catalog::hidden_text::HiddenText;
use crate::domain::catalog::shape::{Shape, ShapeProblem};
use crate::domain::catalog::texts::findability::HardToFind;
use crate::domain::catalog::tool::ToolId;
use crate::http::blocking::blocking;
use crate::http::body::Body;
use crate::http::caller::Administrator;
use crate::http::described::described;
use crate::http::problem::{Answer, Code, Problem, limit, read_definition, read_json};
use crate::http::query::Query;
use crate::http::state::State;
use crate::service::catalog::definitions::DefinitionState;
use crate::service::catalog::tool_admin::{
    DuplicateGroup, DuplicateTool, Duplicates, LookalikeTool, TagView, ToolFilter, ToolPage, ToolView,
};
use crate::service::ports::{AuditAction, AuditEntry};
use crate::service::selection::trial::{TextTrial, TrialChange, TrialError};

pub(in crate::http) const DEFAULT_LIMIT: usize = 100;
pub(in crate::http) const MAX_LIMIT: usize = 1_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ToolParameters {
    server: Option<String>,
    tag: Option<String>,
    /// `true`: only tools that a file or an admin has pinned. `false`: only other tools.
    pinned: Option<bool>,
    /// `true`: only tools whose definition has changed since it was approved or first seen. `false`: only other tools.
    changed: Option<bool>,
    /// `true`: only tools that a known server has added and nobody has approved yet. `false`: only other tools.
    new: Option<bool>,
    /// `true`: only tools that are switched off. `false`: only other tools.
    disabled: Option<bool>,
    /// Only tools whose names, title, description or synonyms contain this text.
    text: Option<String>,
    /// Maximum number of tools to return.
    limit: Option<usize>,
    /// Number of tools to skip: the value of `next` in the previous response.
    offset: Option<usize>,
}

/// A tool's metadata. Absent members are reset.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct ToolFactsBody {
    /// Tags, to which rules can refer.
    #[schema(required = false)]
    tags: Vec<String>,
    /// Additional words and phrases by which searches find the tool.
    #[schema(required = false)]
    synonyms: Vec<String>,
    /// A description that replaces the server's own everywhere.
    description: Option<String>,
    /// Whether the tool is offered in every chat. `false` is rejected if `selection.pinned` pins the tool.
    #[schema(required = false)]
    pinned: bool,
    #[schema(required = false)]
    shape: ShapeBody,
}

/// What callers see and send of a tool's parameters, and whether the tool is switched off. Absent members are reset.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct ShapeBody {
    /// Top-level parameters by name.
    #[schema(required = false)]
    parameters: BTreeMap<String, ParameterShapeBody>,
    /// Whether the tool is switched off for everybody. It then looks like a tool that doesn't exist.
    #[schema(required = false)]
    disabled: bool,
}

/// What happens to a parameter: exactly one of these members.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct ParameterShapeBody {
    /// `true`: nobody sees or sends the parameter.
    hidden: Option<bool>,
    /// The value that the server always gets. Nobody sees or sends the parameter.
    fixed: Option<Value>,
    /// The value that the server gets if a call lacks the parameter.
    default: Option<Value>,
}

/// Tells `false` from an absent member, which leaves a pin in the settings alone.
#[derive(Deserialize)]
struct Pin {
    pinned: Option<bool>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ApprovalBody {
    /// The `definition.fingerprint` that was reviewed.
    fingerprint: String,
}

/// What makes a tool hard to find, and a text that may help.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct HardToFindBody {
    reasons: Vec<WeaknessBody>,
    /// A description from the tool's own definition, which says what the tool does and what it needs. `null` if there is nothing to add.
    proposal: Option<String>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct WeaknessBody {
    /// `short`: the description has only a few words. `long`: it is very long. `no_verb`: neither the name nor the first sentence says
    /// what the tool does. `like_sibling`: another tool of the server has nearly the same text.
    reason: String,
    /// The other tool, for `like_sibling`.
    #[schema(required = false)]
    tool: Option<String>,
}

described! {
    struct ToolPageBody of ToolPage {
        /// The tools, sorted by server and tool.
        tools: Vec<ToolViewBody>,
        total: usize,
        /// The `offset` of the next page, if there is one.
        next: Option<usize>,
    }

    /// Everything that is known about one tool.
    struct ToolViewBody of ToolView {
        server: String,
        /// The tool's name on its server.
        tool: String,
        /// `false` if the tool is withheld or switched off, or if its server doesn't list it at the moment.
        published: bool,
        /// Whether a file or an admin has switched the tool off.
        disabled: bool,
        /// The tool's public name.
        name: Option<String>,
        title: Option<String>,
        /// The published description.
        description: Option<String>,
        /// cl100k tokens of the published definition.
        tokens: Option<u32>,
        tags: Vec<TagBody>,
        synonyms: Vec<String>,
        /// Whether a file (also in `selection.pinned`) or an admin has pinned the tool.
        pinned: bool,
        /// Metadata that a file or an admin has set.
        written: Option<WrittenFactsBody>,
        /// Where this metadata is managed.
        managed_by: Option<ManagedByBody>,
        /// Version of the metadata that was set over the API; 0 means that it was never set.
        version: u64,
        definition: DefinitionStatusBody,
        /// The parts of `written.shape` that don't fit the server's definition, for example after a change of the server.
        shape_problems: Vec<ShapeProblemBody>,
        /// What makes the tool hard to find for searches. `null` if nothing does, or if the tool isn't published.
        #[schema(value_type = Option<HardToFindBody>)]
        hard_to_find: Option<HardToFind>,
        /// Hidden characters in the definition. They are removed before a model reads it.
        hidden_text: Vec<HiddenTextBody>,
        /// The differences from the approved definition. Present only if the response describes a single tool.
        difference unless "Option::is_none": Option<DifferenceBody>,
        /// The definition as the server sent it. Present only if the response describes a single tool.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Object>)]
        raw: Option<Value>,
    }

    struct ShapeProblemBody of ShapeProblem {
        /// The parameter; `null` for the shape as a whole.
        parameter: Option<String>,
        /// What is wrong and what to do.
        message: String,
    }

    /// What other metadata of a tool would change.
    struct TextTrialBody of TextTrial {
        /// Number of different messages of the last week that were tried.
        tried: usize,
        /// Number of selections of the last week whose messages are not stored.
        without_text: usize,
        /// Whether messages were left out, because there are more than 200 or because the trial took too long.
        is_cut: bool,
        changes: Vec<TrialChangeBody>,
    }

    /// A message whose selection would change. Tools are named by their public names.
    struct TrialChangeBody of TrialChange {
        /// The number of the event.
        event: u64,
        principal: String,
        message: String,
        added: Vec<String>,
        gone: Vec<String>,
    }

    struct TagBody of TagView {
        tag: String,
        source: TagSourceBody,
    }

    /// Where a tag comes from: the `tool` itself, the `server_file`, a `rule` in the settings (`[[tag]]`), the tool's entry
    /// in the `settings` (`[[tool]]`), or an `admin`.
    #[serde(rename_all = "snake_case")]
    enum TagSourceBody of TagSource {
        Tool,
        ServerFile,
        Rule,
        Settings,
        Admin,
    }

    /// Metadata that a file or an admin has set for a tool.
    struct WrittenFactsBody of ToolOverride {
        tags: Vec<String>,
        synonyms: Vec<String>,
        /// A description that replaces the server's own.
        description: Option<String>,
        pinned: bool,
        /// What callers see and send of the parameters. Absent if nothing differs from the server's definition.
        #[serde(skip_serializing_if = "Shape::is_empty")]
        #[schema(value_type = ShapeBody)]
        shape: Shape,
    }
}

/// The state of a tool's definition, compared with the last approved definition or, if none was approved, the first
/// one.
#[derive(Serialize, ToSchema)]
struct DefinitionStatusBody {
    /// `null` if the tool's server doesn't list it at the moment, or if definitions are not compared.
    state: Option<DefinitionStateBody>,
    /// Fingerprint of the current definition, to send for an approval.
    fingerprint: Option<String>,
    first_seen: Option<String>,
    /// When the changed definition was first seen.
    changed_at: Option<String>,
    approved_at: Option<String>,
}

described! {
    /// `new` means that a known server has added the tool and nobody has approved it yet. `withheld` means that the
    /// tool is changed or new, and not published.
    #[serde(rename_all = "snake_case")]
    enum DefinitionStateBody of DefinitionState {
        Same,
        New,
        Changed,
        Withheld,
    }

    /// Hidden characters in one part of a definition.
    struct HiddenTextBody of HiddenText {
        /// JSON Pointer (RFC 6901) to a part of the definition.
        pointer: String,
        /// The first distinct characters among them, such as `U+200B`.
        code_points: Vec<String>,
        /// Number of hidden characters.
        characters: usize,
    }

    /// The differences between two definitions.
    struct DifferenceBody of Difference {
        changes: Vec<ChangeBody>,
        /// Number of differences that are not listed.
        more: usize,
    }

    /// A changed value. Strings are plain text, and all other values are JSON. Long values are shortened.
    struct ChangeBody of Change {
        /// JSON Pointer (RFC 6901) to a part of the definition.
        pointer: String,
        /// `null` if the value was added.
        before: Option<String>,
        /// `null` if the value was removed.
        after: Option<String>,
    }

    /// Near duplicates, and names that look alike.
    struct DuplicatesBody of Duplicates {
        groups: Vec<DuplicateGroupBody>,
        /// Groups of tools whose names differ, but look the same to people.
        lookalikes: Vec<Vec<LookalikeToolBody>>,
    }

    struct DuplicateGroupBody of DuplicateGroup {
        /// Whether all these tools have the same name on their servers.
        same_name: bool,
        /// Whether all these tools have the same description and input schema.
        same_definition: bool,
        tools: Vec<DuplicateToolBody>,
    }

    struct DuplicateToolBody of DuplicateTool {
        server: String,
        tool: String,
        /// The tool's public name.
        name: String,
        summary: String,
    }

    struct LookalikeToolBody of LookalikeTool {
        server: String,
        /// The name, with hidden and non-ASCII characters escaped, such as `\u{200b}`.
        tool: String,
        /// The tool's public name.
        name: String,
    }
}

/// Lists all tools. The list includes withheld tools. It also includes tools that have metadata, but that no server
/// lists at the moment.
#[utoipa::path(
    params(ToolParameters),
    responses(
        (status = 200, description = "One page of the list", body = ToolPageBody),
        (status = 422, description = "A value is invalid")
    )
)]
#[get("/v1/admin/tools")]
pub async fn list_tools(state: web::Data<State>, _caller: Administrator, query: Query<ToolParameters>) -> Answer {
    let query = query.0;
    let limit = limit(query.limit, DEFAULT_LIMIT, 1..=MAX_LIMIT)?;
    let ToolParameters { server, tag, pinned, changed, new, disabled, text, offset, .. } = query;
    let filter = ToolFilter { server, tag, pinned, changed, new, disabled, text };
    let page = state.tool_admin.list(&filter, offset.unwrap_or_default(), limit);
    Ok(uncached(&page))
}

/// Lists tools of different servers that have equal or nearly equal definitions.
#[utoipa::path(responses((status = 200, description = "Near duplicates, and names that look alike", body = DuplicatesBody)))]
#[get("/v1/admin/tools/duplicates")]
pub async fn list_duplicates(state: web::Data<State>, _caller: Administrator) -> Answer {
    let found = blocking(move || state.tool_admin.duplicates()).await?;
    Ok(HttpResponse::Ok().json(found))
}

/// Returns everything that is known about one tool.
#[utoipa::path(
    params(("server" = String, Path, description = "The server's name"), ("tool" = String, Path, description = "The tool's name on its server")),
    responses(
        (status = 200, description = "Everything that is known about the tool, with `raw` and, if it has changed, the `difference`", body = ToolViewBody),
        (status = 404, description = "The tool has never existed, or the caller is not an administrator")
    )
)]
#[get("/v1/admin/tools/{server}/{tool:.+}")]
pub async fn show_tool_facts(state: web::Data<State>, _caller: Administrator, path: web::Path<(String, String)>) -> Answer {
    let view = state.tool_admin.show(&tool_of(path)).await?.ok_or_else(unknown)?;
    Ok(versioned(view.version, &view))
}

/// Replaces the metadata of a tool. The change takes effect before the response is sent, and in searches within a
/// second. The metadata remains when the tool changes or its server is unavailable.
#[utoipa::path(
    request_body = ToolFactsBody,
    params(
        ("server" = String, Path, description = "The server's name"),
        ("tool" = String, Path, description = "The tool's name on its server"),
        ("If-Match" = Option<String>, Header, description = "The ETag of the metadata to replace; if the metadata has changed since, the request has no effect")
    ),
    responses(
        (status = 200, description = "Everything that is known about the tool", body = ToolViewBody),
        (status = 404, description = "The tool has never existed, or the caller is not an administrator"),
        (status = 409, description = "A file defines the metadata, or `pinned` is `false` for a tool in `selection.pinned`; change it there"),
        (status = 412, description = "The metadata has changed since that ETag"),
        (status = 422, description = "A text is invalid, or the shape doesn't fit the tool's definition; the error contains the reason")
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
    let (written, id): (ToolOverride, _) = (read_definition(&body.0)?, tool_of(path));
    if let Pin { pinned: Some(false) } = read_json(&body.0)? {
        check_unpin(&state, &id)?;
    }
    let view = write(&state, &caller.0, &id, Some(written), expected(&request)?).await?;
    Ok(versioned(view.version, &view))
}

/// Tries metadata of a tool on the messages of the last week, and changes nothing. The response lists the messages whose selection would
/// change. It needs their texts (`learning.message_text`). At most 200 different messages are tried, for at most 20 seconds. Language
/// models are not asked.
#[utoipa::path(
    request_body = ToolFactsBody,
    params(("server" = String, Path, description = "The server's name"), ("tool" = String, Path, description = "The tool's name on its server")),
    responses(
        (status = 200, description = "The messages whose selection would change", body = TextTrialBody),
        (status = 404, description = "The tool is not published, or the caller is not an administrator"),
        (status = 422, description = "A text is invalid; the error contains the reason")
    )
)]
#[post("/v1/admin/tools/{server}/{tool:.+}/try")]
pub async fn try_tool_facts(state: web::Data<State>, _caller: Administrator, path: web::Path<(String, String)>, body: Body) -> Answer {
    let written: ToolOverride = read_definition(&body.0)?;
    Ok(uncached(&try_on_messages(&state, &tool_of(path), written).await?))
}

/// Tries metadata of a tool on the messages of the last week.
pub(in crate::http) async fn try_on_messages(state: &State, id: &ToolId, written: ToolOverride) -> Result<TextTrial, Problem> {
    state.text_trials.run(id, written, &state.activity).await.map_err(|error| match error {
        TrialError::Text(error) => Problem::from(error),
        TrialError::Store(error) => Problem::from(error),
        TrialError::Embed(error) => Problem::new(Code::Internal, format!("The texts can't be embedded now: {error}. Try again.")),
    })
}

/// Deletes the metadata of a tool.
#[utoipa::path(
    params(
        ("server" = String, Path, description = "The server's name"),
        ("tool" = String, Path, description = "The tool's name on its server"),
        ("If-Match" = Option<String>, Header, description = "The ETag of the metadata to delete; if the metadata has changed since, the request has no effect")
    ),
    responses(
        (status = 200, description = "Everything that is known about the tool", body = ToolViewBody),
        (status = 404, description = "The tool has no metadata, or the caller is not an administrator"),
        (status = 409, description = "A file defines the metadata; remove it there"),
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
    let view = write(&state, &caller.0, &tool_of(path), None, expected(&request)?).await?;
    Ok(versioned(view.version, &view))
}

/// Approves the current definition of a tool. A withheld tool is published again. Later definitions are compared with
/// the approved one.
#[utoipa::path(
    request_body = ApprovalBody,
    params(("server" = String, Path, description = "The server's name"), ("tool" = String, Path, description = "The tool's name on its server")),
    responses(
        (status = 200, description = "Everything that is known about the tool", body = ToolViewBody),
        (status = 404, description = "No server lists this tool, or the caller is not an administrator"),
        (status = 409, description = "Definitions are not compared: `definitions.changes` is `off`; with `managed_by_file`, a file approves the definition"),
        (status = 412, description = "The definition does not match the fingerprint. Review it first."),
        (status = 422, description = "The fingerprint is missing or invalid")
    )
)]
#[post("/v1/admin/tools/{server}/{tool:.+}/approve")]
pub async fn approve_definition(state: web::Data<State>, caller: Administrator, path: web::Path<(String, String)>, body: Body) -> Answer {
    let ApprovalBody { fingerprint } = read_json(&body.0)?;
    let view = approve(&state, &caller.0, &tool_of(path), &fingerprint).await?;
    Ok(versioned(view.version, &view))
}

/// Sets or deletes the metadata of a tool, and records who did.
pub(in crate::http) async fn write(
    state: &State,
    administrator: &Principal,
    id: &ToolId,
    written: Option<ToolOverride>,
    expected: Option<u64>,
) -> Result<ToolView, Problem> {
    let action = if written.is_some() { AuditAction::ToolFactsReplace } else { AuditAction::ToolFactsRemove };
    let view = state.tool_admin.write(id, written, expected).await?;
    record(state, administrator, action, id, format!("version {}", view.version));
    Ok(view)
}

/// Checks that the settings don't pin a tool that is to be unpinned.
pub(in crate::http) fn check_unpin(state: &State, id: &ToolId) -> Result<(), Problem> {
    state.tool_admin.check_unpin(id).map_err(|error| Problem { parameter: Some("pinned".into()), ..Problem::from(error) })
}

/// Approves the current definition of a tool, and records who did.
pub(in crate::http) async fn approve(
    state: &State,
    administrator: &Principal,
    id: &ToolId,
    fingerprint: &str,
) -> Result<ToolView, Problem> {
    let view = state.tool_admin.approve(id, fingerprint).await?;
    tracing::info!(tool = %id, fingerprint = fingerprint.trim(), "definition approved");
    record(state, administrator, AuditAction::DefinitionApprove, id, fingerprint.trim().to_owned());
    Ok(view)
}

fn record(state: &State, administrator: &Principal, action: AuditAction, id: &ToolId, subject: String) {
    state.audit.record(AuditEntry { tool: Some(id.clone()), ..AuditEntry::of_change(administrator, action, subject) });
}

pub(in crate::http) fn unknown() -> Problem {
    Problem::new(Code::NotFound, "No such tool ever existed. GET /v1/admin/tools lists the tools.")
}

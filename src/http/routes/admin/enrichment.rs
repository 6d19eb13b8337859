//! Enrichment texts for tools, written by a language model or an admin: shows and changes them.

use actix_web::{HttpResponse, delete, get, put, web};
use serde::Deserialize;
use serde::de::IgnoredAny;
use utoipa::ToSchema;

use super::part::Part;
use super::{ManagedByBody, tool_of};
use crate::domain::selection::enrichment::Enrichment;
use crate::http::body::Body;
use crate::http::caller::Administrator;
use crate::http::problem::{Answer, Code, Problem, read_json};
use crate::http::query::Query;
use crate::http::state::State;
use crate::service::ports::{AuditAction, AuditEntry};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EnrichmentBody {
    /// One sentence that says in plain words what the tool does; may be empty. The former name `context` is deprecated.
    #[serde(alias = "context")]
    function: String,
    /// Words and short phrases that people use for what the tool does.
    #[serde(default)]
    tags: Vec<String>,
    /// Example messages that need the tool. Each adds one vector to the index.
    #[serde(default)]
    queries: Vec<String>,
}

/// Finds a member with the former name of `function`.
#[derive(Deserialize)]
struct FormerBody {
    context: Option<IgnoredAny>,
}

/// The enrichment texts of one tool.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct EnrichmentEntryBody {
    /// The tool's public name.
    name: String,
    server: String,
    tool: String,
    /// Who wrote the texts: `model`, `admin`, or `file` for the settings file.
    source: String,
    /// Name of the language model that wrote the texts.
    model: Option<String>,
    /// Where the texts are managed; `null` if a language model wrote them.
    managed_by: Option<ManagedByBody>,
    function: String,
    tags: Vec<String>,
    /// Only an administrator writes these.
    queries: Vec<String>,
    /// Deprecated names in the request that set the texts; absent if there are none.
    warnings: Option<Vec<String>>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct EnrichmentPageBody {
    enrichment: Vec<EnrichmentEntryBody>,
    /// Number of tools that have such texts.
    total: usize,
    /// Number of all tools.
    tools: usize,
    /// Whether searches use the texts of the language model, which requires that at least 95 % of the tools have texts.
    /// Searches always use the texts of administrators.
    model_texts_used: bool,
    /// The `offset` of the next page, if there is one.
    next: Option<usize>,
}

/// Lists the tools that have texts from a language model or an admin.
#[utoipa::path(
    params(Part),
    responses(
        (status = 200, description = "Sorted by server and tool", body = EnrichmentPageBody),
        (status = 422, description = "A value is invalid")
    )
)]
#[get("/v1/admin/enrichment")]
pub async fn list_enrichment(_caller: Administrator, state: web::Data<State>, part: Result<Query<Part>, Problem>) -> Answer {
    let part = Part::of(part)?;
    Ok(HttpResponse::Ok().json(state.enrichment.list(part.offset, part.limit).await?))
}

/// Returns the enrichment texts of one tool.
#[utoipa::path(
    params(("server" = String, Path, description = "The server's name"), ("tool" = String, Path, description = "The tool's name on its server")),
    responses(
        (status = 200, description = "The enrichment texts of the tool", body = EnrichmentEntryBody),
        (status = 404, description = "The tool doesn't exist or has no such texts, or the caller is not an administrator")
    )
)]
#[get("/v1/admin/enrichment/{server}/{tool:.+}")]
pub async fn show_enrichment(_caller: Administrator, state: web::Data<State>, path: web::Path<(String, String)>) -> Answer {
    let entry = state.enrichment.get(&tool_of(path)).await?;
    entry.map(|entry| HttpResponse::Ok().json(entry)).ok_or_else(nothing)
}

/// Sets the enrichment texts of one tool. No language model overwrites them. When the tool's definition changes, they
/// no longer apply.
#[utoipa::path(
    params(("server" = String, Path, description = "The server's name"), ("tool" = String, Path, description = "The tool's name on its server")),
    request_body = EnrichmentBody,
    responses(
        (status = 200, description = "The texts; searches use them within a second", body = EnrichmentEntryBody),
        (status = 404, description = "The tool doesn't exist, or the caller is not an administrator"),
        (status = 409, description = "A file defines the texts; change it there"),
        (status = 422, description = "A text is invalid")
    )
)]
#[put("/v1/admin/enrichment/{server}/{tool:.+}")]
pub async fn replace_enrichment(caller: Administrator, state: web::Data<State>, path: web::Path<(String, String)>, body: Body) -> Answer {
    let EnrichmentBody { function, tags, queries } = read_json(&body.0)?;
    let is_former = serde_json::from_slice::<FormerBody>(&body.0).is_ok_and(|body| body.context.is_some());
    let enrichment = Enrichment::new(&function, &tags, &queries).map_err(|problem| {
        let parameter = match (Enrichment::new(&function, &[], &[]), Enrichment::new("", &tags, &[])) {
            (Err(_), _) if is_former => "context",
            (Err(_), _) => "function",
            (Ok(_), Err(_)) => "tags",
            (Ok(_), Ok(_)) => "queries",
        };
        Problem::invalid(parameter, format!("The body has {problem}."))
    })?;
    let id = tool_of(path);
    let mut entry = state.enrichment.put(&id, enrichment).await?.ok_or_else(Problem::not_found)?;
    if is_former {
        entry.warn("`context` is deprecated: send the sentence as `function`");
    }
    state.audit.record(AuditEntry::of_change(&caller.0, AuditAction::EnrichmentReplace, id.to_string()));
    Ok(HttpResponse::Ok().json(entry))
}

/// Deletes the current enrichment texts of a tool. After an admin's texts are deleted, a language model's texts apply
/// again. After a language model's texts are deleted, the model writes new ones.
#[utoipa::path(
    params(("server" = String, Path, description = "The server's name"), ("tool" = String, Path, description = "The tool's name on its server")),
    responses(
        (status = 204, description = "The texts are deleted; searches stop using them within a second"),
        (status = 404, description = "The tool doesn't exist or has no such texts, or the caller is not an administrator"),
        (status = 409, description = "A file defines the texts; remove it there")
    )
)]
#[delete("/v1/admin/enrichment/{server}/{tool:.+}")]
pub async fn remove_enrichment(caller: Administrator, state: web::Data<State>, path: web::Path<(String, String)>) -> Answer {
    let id = tool_of(path);
    if !state.enrichment.remove(&id).await? {
        return Err(nothing());
    }
    state.audit.record(AuditEntry::of_change(&caller.0, AuditAction::EnrichmentRemove, id.to_string()));
    Ok(HttpResponse::NoContent().finish())
}

fn nothing() -> Problem {
    Problem::new(Code::NotFound, "The tool has no description by a model or an admin. GET /v1/admin/enrichment lists them.")
}

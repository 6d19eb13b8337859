//! Descriptions of tools by language models and admins: reads and changes them.

use actix_web::{HttpResponse, delete, get, put, web};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::tool_of;
use crate::domain::selection::enrichment::{Enrichment, MOST_QUERIES};
use crate::http::body::Body;
use crate::http::caller::Administrator;
use crate::http::problem::{Answer, Code, Problem, read_json};
use crate::http::query::Query;
use crate::http::state::State;
use crate::service::ports::{AuditAction, AuditEntry};

pub(in crate::http) const MOST: usize = 1_000;
pub(in crate::http) const DEFAULT_LIMIT: usize = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Part {
    /// Number of entries to return.
    #[serde(default = "default_limit")]
    limit: usize,
    /// Number of entries to skip; `next` of the previous part.
    #[serde(default)]
    #[param(default = 0)]
    offset: usize,
}

fn default_limit() -> usize {
    DEFAULT_LIMIT
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EnrichmentBody {
    /// The tool's purpose in a sentence. Empty: none.
    context: String,
    /// Example messages that need the tool.
    queries: Vec<String>,
}

/// The description of one tool.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct EnrichmentEntryBody {
    /// The published name.
    name: String,
    server: String,
    tool: String,
    /// `model` or `admin`.
    source: String,
    /// The language model that wrote it.
    model: Option<String>,
    context: String,
    queries: Vec<String>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone")]
struct EnrichmentPageBody {
    enrichment: Vec<EnrichmentEntryBody>,
    /// Number of described tools.
    total: usize,
    /// Number of all tools.
    tools: usize,
    /// The offset of the next part, if there is one.
    next: Option<usize>,
}

/// Lists the tools with descriptions by a model or an admin, with their author.
#[utoipa::path(
    params(Part),
    responses(
        (status = 200, description = "In the order of servers and tools", body = EnrichmentPageBody),
        (status = 422, description = "An invalid value")
    )
)]
#[get("/v1/admin/enrichment")]
pub async fn list_enrichment(_caller: Administrator, state: web::Data<State>, part: Result<Query<Part>, Problem>) -> Answer {
    let detail = format!("limit is 1 to {MOST}, offset a whole number from 0.");
    let invalid = |parameter| Problem { parameter, ..Problem::new(Code::InvalidRequest, detail) };
    let part = match part {
        Ok(Query(part)) if (1..=MOST).contains(&part.limit) => part,
        Ok(_) => return Err(invalid(Some("limit".into()))),
        Err(problem) => return Err(invalid(problem.parameter)),
    };
    Ok(HttpResponse::Ok().json(state.enrichment.list(part.offset, part.limit).await?))
}

/// Returns the description of one tool.
#[utoipa::path(
    params(("server" = String, Path, description = "The server's name"), ("tool" = String, Path, description = "The tool's own name")),
    responses(
        (status = 200, description = "The description", body = EnrichmentEntryBody),
        (status = 404, description = "No such tool, no description, or the caller is not an administrator")
    )
)]
#[get("/v1/admin/enrichment/{server}/{tool:.+}")]
pub async fn show_enrichment(_caller: Administrator, state: web::Data<State>, path: web::Path<(String, String)>) -> Answer {
    let entry = state.enrichment.get(&tool_of(path)).await?;
    entry.map(|entry| HttpResponse::Ok().json(entry)).ok_or_else(nothing)
}

/// Sets the description of one tool. No language model overwrites it. A changed tool counts as another tool.
#[utoipa::path(
    params(("server" = String, Path, description = "The server's name"), ("tool" = String, Path, description = "The tool's own name")),
    request_body = EnrichmentBody,
    responses(
        (status = 200, description = "The description; searches use it a moment later", body = EnrichmentEntryBody),
        (status = 404, description = "No such tool, or the caller is not an administrator"),
        (status = 422, description = "An invalid text")
    )
)]
#[put("/v1/admin/enrichment/{server}/{tool:.+}")]
pub async fn replace_enrichment(caller: Administrator, state: web::Data<State>, path: web::Path<(String, String)>, body: Body) -> Answer {
    let EnrichmentBody { context, queries } = read_json(&body.0)?;
    let enrichment = Enrichment::new(&context, &queries, MOST_QUERIES).map_err(|problem| {
        let fits_alone = Enrichment::new(&context, &[], MOST_QUERIES).is_ok();
        Problem::invalid(if fits_alone { "queries" } else { "context" }, format!("The body has {problem}."))
    })?;
    let id = tool_of(path);
    let entry = state.enrichment.put(&id, enrichment).await?.ok_or_else(Problem::not_found)?;
    state.audit.record(AuditEntry::of_change(&caller.0, AuditAction::EnrichmentReplace, id.to_string()));
    Ok(HttpResponse::Ok().json(entry))
}

/// Deletes the current description of a tool. After an admin's, a language model's counts again. After a model's, the model writes
/// a new one.
#[utoipa::path(
    params(("server" = String, Path, description = "The server's name"), ("tool" = String, Path, description = "The tool's own name")),
    responses(
        (status = 204, description = "The description is deleted; searches stop using it a moment later"),
        (status = 404, description = "No such tool, no description, or the caller is not an administrator")
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

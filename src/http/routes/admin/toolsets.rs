//! Toolsets, for administrators: shows and changes them.

use actix_web::{HttpResponse, delete, get, put, web};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::ManagedByBody;
use crate::domain::access::principal::Principal;
use crate::domain::access::toolset::ToolsetDefinition;
use crate::http::body::Body;
use crate::http::caller::Administrator;
use crate::http::described::described;
use crate::http::member::misfit;
use crate::http::problem::{Answer, Problem, read_definition};
use crate::http::state::State;
use crate::service::ports::{AuditAction, AuditEntry};
use crate::service::toolsets::toolsets::ToolsetView;

/// The definition of a toolset. The members contain patterns, as in rules. At least one condition or `always` is
/// required.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone: it is read where the settings' own are")]
struct ToolsetDefinitionBody {
    /// The purpose of the toolset.
    description: Option<String>,
    /// Patterns for server names. If there are several conditions, all must match. A condition matches if one of its
    /// patterns does. In `annotations`, all entries must match.
    servers: Option<Vec<String>>,
    tools: Option<Vec<String>>,
    tags: Option<Vec<String>>,
    annotations: Option<Vec<String>>,
    /// Patterns for tools to exclude.
    exclude: Option<Vec<String>>,
    /// Patterns for tools to include regardless of all conditions. Every document and selection of this toolset
    /// contains these tools.
    always: Option<Vec<String>>,
}

#[derive(Serialize, ToSchema)]
struct ToolsetsBody {
    #[schema(value_type = Vec<ToolsetBody>)]
    toolsets: Vec<ToolsetView>,
}

described! {
    /// A toolset and its tools.
    struct ToolsetBody of ToolsetView {
        name: String,
        #[serde(flatten)]
        definition: ToolsetConditionsBody,
        /// Where the toolset was defined: `settings` or `api`.
        source: String,
        managed_by: ManagedByBody,
        /// Public names of its current tools, including tools that some callers may not see.
        members: Vec<String>,
        warnings unless "Vec::is_empty": Vec<String>,
    }

    struct ToolsetConditionsBody of ToolsetDefinition {
        description unless "String::is_empty": String,
        servers unless "Vec::is_empty": Vec<String>,
        tools unless "Vec::is_empty": Vec<String>,
        tags unless "Vec::is_empty": Vec<String>,
        annotations unless "Vec::is_empty": Vec<String>,
        exclude unless "Vec::is_empty": Vec<String>,
        always unless "Vec::is_empty": Vec<String>,
    }
}

/// Lists all toolsets with their tools.
#[utoipa::path(responses((status = 200, description = "Sorted by name", body = ToolsetsBody)))]
#[get("/v1/admin/toolsets")]
pub async fn list_all_toolsets(state: web::Data<State>, _caller: Administrator) -> HttpResponse {
    HttpResponse::Ok().json(ToolsetsBody { toolsets: state.toolsets.list() })
}

/// Returns one toolset.
#[utoipa::path(
    params(("name" = String, Path, description = "The toolset's name")),
    responses((status = 200, description = "The toolset", body = ToolsetBody), (status = 404, description = "The toolset doesn't exist, or the caller is not an administrator"))
)]
#[get("/v1/admin/toolsets/{name}")]
pub async fn show_toolset(state: web::Data<State>, _caller: Administrator, name: web::Path<String>) -> Answer {
    Ok(HttpResponse::Ok().json(state.toolsets.get(&name)?))
}

/// Adds or replaces a toolset. The change takes effect before the response is sent.
#[utoipa::path(
    request_body = ToolsetDefinitionBody,
    params(("name" = String, Path, description = "Name of the toolset: 1 to 64 letters, digits, `-` and `_`")),
    responses(
        (status = 200, description = "The toolset was replaced", body = ToolsetBody),
        (status = 201, description = "The toolset is new", body = ToolsetBody),
        (status = 409, description = "The toolset is defined in the settings; change it there"),
        (status = 422, description = "A value is invalid")
    )
)]
#[put("/v1/admin/toolsets/{name}")]
pub async fn replace_toolset(state: web::Data<State>, caller: Administrator, name: web::Path<String>, body: Body) -> Answer {
    let (view, is_new) = replace(&state, &caller.0, &name, &body.0, None).await?;
    let mut response = if is_new { HttpResponse::Created() } else { HttpResponse::Ok() };
    Ok(response.json(view))
}

/// Deletes a toolset. Its address stops working before the response is sent. Keys that are limited to this toolset can
/// then use no tools. Rules that name it no longer match its tools, so tools that only such a rule blocks become available.
/// `GET /v1/admin/policy` then has a warning for each rule that matches no tool.
#[utoipa::path(
    params(("name" = String, Path, description = "The toolset's name")),
    responses(
        (status = 204, description = "The toolset is deleted"),
        (status = 404, description = "The toolset doesn't exist, or the caller is not an administrator"),
        (status = 409, description = "The toolset is defined in the settings; remove it there")
    )
)]
#[delete("/v1/admin/toolsets/{name}")]
pub async fn remove_toolset(state: web::Data<State>, caller: Administrator, name: web::Path<String>) -> Answer {
    remove(&state, &caller.0, &name, None).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Adds or replaces the toolset that a JSON body defines, and records who did. `expected` is the version that the change is based on.
/// Returns whether the toolset is new.
pub(in crate::http) async fn replace(
    state: &State,
    administrator: &Principal,
    name: &str,
    body: &[u8],
    expected: Option<&str>,
) -> Result<(ToolsetView, bool), Problem> {
    let value: Value = read_definition(body)?;
    let replaced = state.toolsets.replace(name, &value, expected).await;
    let (view, is_new) = replaced.map_err(|error| Problem::from(error).naming(misfit::<ToolsetDefinition>(body)))?;
    tracing::info!(toolset = %view.name, members = view.members.len(), "toolset replaced");
    state.audit.record(AuditEntry::of_change(administrator, AuditAction::ToolsetReplace, view.name.to_string()));
    Ok((view, is_new))
}

/// Deletes a toolset, and records who did.
pub(in crate::http) async fn remove(state: &State, administrator: &Principal, name: &str, expected: Option<&str>) -> Result<(), Problem> {
    state.toolsets.remove(name, expected).await?;
    tracing::info!(toolset = name, "toolset removed");
    state.audit.record(AuditEntry::of_change(administrator, AuditAction::ToolsetRemove, name.to_owned()));
    Ok(())
}

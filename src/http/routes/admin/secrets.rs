//! Lets administrators delete users' secrets.

use actix_web::{HttpResponse, delete, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::access::principal::PrincipalId;
use crate::http::caller::Administrator;
use crate::http::problem::{Answer, Problem};
use crate::http::state::State;
use crate::service::ports::{AuditAction, AuditEntry, Forgotten};

#[derive(Serialize, ToSchema)]
struct RemovedSecretsBody {
    /// Number of secrets.
    removed: u64,
    /// Number of sums of the caller's usage.
    usage_removed: u64,
    /// Number of pieces of evidence that the caller's messages taught.
    learned: u64,
    /// Number of sign-ins to MCP servers that were ended, and revoked at their authorization servers as far as these support that.
    sign_ins: u64,
    /// Number of switches that the caller had switched off, such as the selection of tools.
    switches: u64,
}

/// Deletes all secrets of a user or a named key, ends and revokes all sign-ins, and closes the connections that use them. Also
/// deletes the sums of their usage (`usage.by`) and their own switches, and forgets what their messages taught.
#[utoipa::path(
    params(("principal" = String, Path, description = "`user:ID` or `key:NAME`")),
    responses(
        (status = 200, description = "The numbers of deleted secrets, sums and sign-ins", body = RemovedSecretsBody),
        (status = 422, description = "The value is neither `user:ID` nor `key:NAME`")
    )
)]
#[delete("/v1/admin/secrets/{principal}")]
pub async fn forget_secrets(state: web::Data<State>, caller: Administrator, principal: web::Path<String>) -> Answer {
    let owner = PrincipalId::of_owner(&principal)
        .ok_or_else(|| Problem::invalid("principal", format!("`{principal}` has no secrets: write user:ID or key:NAME.")))?;
    // Comes first, so that a failure leaves the secrets as they are.
    let usage_removed = state.costs.forget(&owner).await?;
    let learned = state.learning.forget(&Forgotten::Caller(owner.clone())).await?;
    let switches = state.switches.forget(&owner).await?;
    let removed = state.secrets.forget(&owner).await?;
    let sign_ins = state.secrets.forget_sign_ins(&owner).await?;
    tracing::info!(
        owner = owner.as_str(),
        removed,
        usage_removed,
        learned,
        sign_ins,
        switches,
        "secrets, usage, learning, switches and sign-ins of a caller deleted"
    );
    state.audit.record(AuditEntry::of_change(&caller.0, AuditAction::SecretsForget, owner.as_str().to_owned()));
    Ok(HttpResponse::Ok().json(RemovedSecretsBody { removed, usage_removed, learned, sign_ins, switches }))
}

//! Lets administrators see which secrets users have stored, and delete them.

use actix_web::{HttpResponse, delete, get, web};
use serde::Serialize;
use utoipa::ToSchema;

use super::part::Part;
use super::{time, uncached};
use crate::domain::access::principal::{Principal, PrincipalId};
use crate::http::caller::Administrator;
use crate::http::problem::{Answer, Problem};
use crate::http::query::Query;
use crate::http::state::State;
use crate::service::paging::next_offset;
use crate::service::ports::{AuditAction, AuditEntry, Forgotten, StoredSecret};

/// A stored secret, without its value.
#[derive(Serialize, ToSchema)]
struct StoredSecretBody {
    /// The user or the key that has stored it: `user:ID` or `key:NAME`.
    principal: String,
    server: String,
    name: String,
    updated_at: String,
}

impl From<StoredSecret> for StoredSecretBody {
    fn from(StoredSecret { place, updated_at }: StoredSecret) -> Self {
        Self {
            principal: place.owner.as_str().to_owned(),
            server: place.server.to_string(),
            name: place.name.as_str().to_owned(),
            updated_at: time(updated_at),
        }
    }
}

#[derive(Serialize, ToSchema)]
struct StoredSecretsBody {
    secrets: Vec<StoredSecretBody>,
    /// Number of all stored secrets.
    total: usize,
    /// The `offset` of the next page, if there is one.
    next: Option<usize>,
}

/// What was deleted of one caller.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct RemovedSecretsBody {
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

/// Lists the secrets that users and named keys have stored, without their values.
#[utoipa::path(
    params(Part),
    responses(
        (status = 200, description = "Sorted by principal, server and name", body = StoredSecretsBody),
        (status = 422, description = "A value is invalid")
    )
)]
#[get("/v1/admin/secrets")]
pub async fn list_all_secrets(state: web::Data<State>, _caller: Administrator, part: Result<Query<Part>, Problem>) -> Answer {
    let part = Part::of(part)?;
    let (secrets, total) = state.secrets.stored(part.offset, part.limit).await?;
    let (secrets, total) = (secrets.into_iter().map(StoredSecretBody::from).collect(), usize::try_from(total).unwrap_or(usize::MAX));
    let body = StoredSecretsBody { secrets, total, next: next_offset(part.offset, part.limit, total) };
    Ok(uncached(&body))
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
    Ok(HttpResponse::Ok().json(forget(&state, &caller.0, &principal).await?))
}

/// Deletes what belongs to one caller, and records who did.
///
/// # Errors
/// The name is of no user or key, or the store fails.
pub(in crate::http) async fn forget(state: &State, administrator: &Principal, principal: &str) -> Result<RemovedSecretsBody, Problem> {
    let owner = PrincipalId::of_owner(principal)
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
    state.audit.record(AuditEntry::of_change(administrator, AuditAction::SecretsForget, owner.as_str().to_owned()));
    Ok(RemovedSecretsBody { removed, usage_removed, learned, sign_ins, switches })
}

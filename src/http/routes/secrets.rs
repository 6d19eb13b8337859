//! Callers' secrets for MCP servers. Callers can set and delete values, but never read them.

use std::time::SystemTime;

use actix_web::{HttpResponse, delete, get, put, web};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::ServerName;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::problem::{Answer, Code, Problem, read_json};
use crate::http::routes::admin::time;
use crate::http::state::State;
use crate::service::access::secrets::{KnownSecret, MAX_BYTES, SecretState};
use crate::service::ports::{AuditAction, AuditEntry};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SecretValueBody {
    /// The secret's value. Its length limits are in bytes. For an HTTP server, it must be a single line of ASCII,
    /// because it becomes a header.
    #[schema(value_type = String, format = Password)]
    value: SecretString,
}

/// A secret's data, without its value.
#[derive(Serialize, ToSchema)]
struct KeptSecretBody {
    server: String,
    name: String,
    /// `set`: the secret is stored. `missing`: the secret is not stored, but the server needs it. `unreadable`: the
    /// service no longer has the key that encrypted the secret, so the caller must store it again.
    state: &'static str,
    /// Whether the server's current configuration uses this secret.
    needed: bool,
    updated_at: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct KeptSecretsBody {
    secrets: Vec<KeptSecretBody>,
}

/// Stores a secret of the caller for a server, in encrypted form. An existing value is replaced.
#[utoipa::path(
    tag = "secrets",
    params(("server" = String, Path, description = "The server that needs the secret"), ("name" = String, Path, description = "The secret's name")),
    request_body = SecretValueBody,
    responses(
        (status = 200, description = "The secret is stored", body = KeptSecretBody),
        (status = 403, description = "The caller is neither a user nor a named key"),
        (status = 404, description = "The server doesn't exist"),
        (status = 422, description = "The server doesn't need this secret, or the value is invalid"),
        (status = 501, description = "The service has no key with which to encrypt secrets")
    )
)]
#[put("/v1/secrets/{server}/{name}")]
pub async fn give_secret(state: web::Data<State>, caller: Caller, path: web::Path<(String, String)>, body: Body) -> Answer {
    let (server, name) = path.into_inner();
    let server = ServerName::new(server);
    let body: SecretValueBody = read_json(&body.0).map_err(|problem| match problem.code {
        // The parser's error could quote the secret.
        Code::InvalidRequest => Problem::invalid("value", "Send {\"value\": \"…\"}: one text, and nothing else."),
        _ => Problem::new(Code::NotJson, "Send {\"value\": \"…\"}."),
    })?;
    check_length(&body.value)?;
    if !state.current.shows_server(&caller.0, &server) {
        return Err(Problem::not_found());
    }
    let updated_at = Some(time(store(&state, &caller.0, (&server, &name), &body.value).await?));
    Ok(HttpResponse::Ok().json(KeptSecretBody { server: server.to_string(), name, state: "set", needed: true, updated_at }))
}

fn check_length(value: &SecretString) -> Result<(), Problem> {
    let is_fine = (1..=MAX_BYTES).contains(&value.expose_secret().len());
    if is_fine { Ok(()) } else { Err(Problem::invalid("value", format!("A secret has 1 to {MAX_BYTES} bytes."))) }
}

/// Stores a secret of an owner for a server that the owner may see.
///
/// # Errors
/// The server takes no such secret, the value is invalid, or the store fails.
pub(in crate::http) async fn store(
    state: &State,
    owner: &Principal,
    (server, name): (&ServerName, &str),
    value: &SecretString,
) -> Result<SystemTime, Problem> {
    check_length(value)?;
    let updated_at = state.secrets.put(owner, server, name, value).await?;
    tracing::info!(%server, "secret stored");
    state.audit.record(AuditEntry::of_change(owner, AuditAction::SecretReplace, format!("{server}/{name}")));
    Ok(updated_at)
}

/// Deletes a secret of an owner.
///
/// # Errors
/// There is no such secret, or the store fails.
pub(in crate::http) async fn remove(state: &State, owner: &Principal, (server, name): (&ServerName, &str)) -> Result<(), Problem> {
    state.secrets.remove(owner, server, name).await?;
    tracing::info!(%server, "secret deleted");
    state.audit.record(AuditEntry::of_change(owner, AuditAction::SecretRemove, format!("{server}/{name}")));
    Ok(())
}

/// Lists the caller's stored secrets, and the secrets that servers still need. The response never contains a value.
#[utoipa::path(
    tag = "secrets",
    responses(
        (status = 200, description = "Sorted by server and name", body = KeptSecretsBody),
        (status = 403, description = "The caller is neither a user nor a named key"),
        (status = 501, description = "The service has no key with which to encrypt secrets")
    )
)]
#[get("/v1/secrets")]
pub async fn list_secrets(state: web::Data<State>, caller: Caller) -> Answer {
    let known = state.secrets.list(&caller.0, |server| state.current.shows_server(&caller.0, server)).await?;
    Ok(HttpResponse::Ok().json(KeptSecretsBody { secrets: known.into_iter().map(KeptSecretBody::from).collect() }))
}

/// Deletes a secret of the caller, and closes the connections that used it.
#[utoipa::path(
    tag = "secrets",
    params(("server" = String, Path, description = "The server that needs the secret"), ("name" = String, Path, description = "The secret's name")),
    responses(
        (status = 204, description = "The secret is deleted"),
        (status = 403, description = "The caller is neither a user nor a named key"),
        (status = 404, description = "The secret doesn't exist")
    )
)]
#[delete("/v1/secrets/{server}/{name}")]
pub async fn remove_secret(state: web::Data<State>, caller: Caller, path: web::Path<(String, String)>) -> Answer {
    let (server, name) = path.into_inner();
    remove(&state, &caller.0, (&ServerName::new(server), &name)).await?;
    Ok(HttpResponse::NoContent().finish())
}

impl From<KnownSecret> for KeptSecretBody {
    fn from(known: KnownSecret) -> Self {
        let state = match known.state {
            SecretState::Set => "set",
            SecretState::Missing => "missing",
            SecretState::Unreadable => "unreadable",
        };
        Self {
            server: known.server.to_string(),
            name: known.name.to_string(),
            state,
            needed: known.is_taken,
            updated_at: known.updated_at.map(time),
        }
    }
}

//! Named API keys, for administrators.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use actix_web::http::header;
use actix_web::{HttpResponse, HttpResponseBuilder, delete, get, post, web};
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ManagedByBody, time};
use crate::domain::access::api_key::{ApiKey, KeyId, KeyProperties, KeyRole};
use crate::domain::access::management::ManagedBy;
use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::catalog::tool::ServerName;
use crate::http::body::Body;
use crate::http::caller::Administrator;
use crate::http::problem::{Answer, Problem, read_json};
use crate::http::state::State;
use crate::service::access::keys::KeyError;
use crate::service::ports::{AuditAction, AuditEntry, Forgotten};

/// Maximum number of servers, toolsets and groups of a key.
pub(in crate::http) const MOST_NAMES: usize = 1_000;
const SECONDS_A_DAY: u64 = 24 * 60 * 60;

/// The properties of a new key.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewKeyBody {
    /// Name of the key: 1 to 64 letters, digits, `-`, `_` and `.`. Rules refer to the key as `key:NAME`.
    name: String,
    /// The servers that the key may use. By default, it may use all servers.
    servers: Option<BTreeSet<String>>,
    /// The toolsets that the key may use; all other tools are hidden. By default, it may use all tools.
    toolsets: Option<BTreeSet<String>>,
    /// The groups of callers with this key. If a trusted key has groups, its users keep only those of their own groups that are among
    /// these. They don't get the other ones.
    #[serde(default)]
    groups: BTreeSet<String>,
    /// Whether callers with this key may name the user on whose behalf they call.
    #[serde(default)]
    trusted: bool,
    /// `viewer` for a key that may read all admin routes and the console, and that calls no tools. It can't be combined with `servers`,
    /// `toolsets`, `groups` and `trusted`. By default, the key is one of a caller.
    role: Option<String>,
    /// Expiry as an RFC 3339 time, such as `2027-01-31T00:00:00Z`. By default, the key never expires.
    expires_at: Option<String>,
    expires_in_days: Option<u32>,
}

/// The new expiry of a key. Without any member, the expiry stays the same.
#[derive(Deserialize, ToSchema, Default)]
#[serde(deny_unknown_fields)]
struct EndBody {
    /// Expiry as an RFC 3339 time, such as `2027-01-31T00:00:00Z`.
    expires_at: Option<String>,
    expires_in_days: Option<u32>,
}

/// A key's data, without its secret.
#[derive(Serialize, ToSchema)]
struct KeyBody {
    id: String,
    name: String,
    /// The key's state: `active`, `expired`, `revoked`, or `overridden` by a key in a file with the same name or the same
    /// secret.
    state: &'static str,
    #[schema(value_type = ManagedByBody)]
    managed_by: ManagedBy,
    /// The servers that the key may use; `null` means all servers.
    servers: Option<Vec<String>>,
    /// The toolsets that the key may use; `null` means all tools.
    toolsets: Option<Vec<String>>,
    groups: Vec<String>,
    trusted: bool,
    /// `viewer`, or `null` for a caller's key.
    role: Option<&'static str>,
    /// `null` if a file defines the key.
    created_at: Option<String>,
    expires_at: Option<String>,
    revoked_at: Option<String>,
    /// When the key was last used, rounded to the hour. For a key in a file, uses before the start of the service don't
    /// count.
    last_used_at: Option<String>,
}

/// A new key with its secret, which is shown only once.
#[derive(Serialize, ToSchema)]
struct SecretBody {
    /// The secret, for `Authorization: Bearer …`. The service can't show it again.
    key: String,
    #[serde(flatten)]
    record: KeyBody,
}

#[derive(Serialize, ToSchema)]
struct KeysBody {
    keys: Vec<KeyBody>,
}

/// Creates a key. Only this response contains the key's secret.
#[utoipa::path(
    request_body = NewKeyBody,
    responses(
        (status = 201, description = "The key with its secret", body = SecretBody),
        (status = 409, description = "A key with this name already exists; with `managed_by_file`, a file defines it"),
        (status = 422, description = "A value is invalid, or a server or toolset is unknown")
    )
)]
#[post("/v1/admin/keys")]
pub async fn create_key(state: web::Data<State>, caller: Administrator, body: Body) -> Answer {
    let (key, secret) = create(&state, &caller.0, &body.0).await?;
    Ok(shown_once(&state, HttpResponse::Created(), &key, &secret))
}

/// Creates the key that a JSON body describes, and records who did. Returns its secret, which is not stored.
pub(in crate::http) async fn create(state: &State, administrator: &Principal, body: &[u8]) -> Result<(ApiKey, SecretString), Problem> {
    let body: NewKeyBody = read_json(body)?;
    let count = |names: &Option<BTreeSet<String>>| names.as_ref().map_or(0, BTreeSet::len);
    let names = [("servers", count(&body.servers)), ("toolsets", count(&body.toolsets)), ("groups", body.groups.len())];
    if names.iter().map(|(_, count)| count).sum::<usize>() > MOST_NAMES {
        let longest = names.into_iter().max_by_key(|(_, count)| *count).map_or("groups", |(name, _)| name);
        return Err(Problem::invalid(longest, format!("At most {MOST_NAMES} servers, toolsets and groups.")));
    }
    let toolsets: Option<BTreeSet<ToolsetName>> =
        body.toolsets.map(|names| names.iter().map(|name| ToolsetName::from(name.as_str())).collect());
    state.toolsets.check_names(toolsets.iter().flatten())?;
    let servers: Option<BTreeSet<ServerName>> =
        body.servers.map(|names| names.iter().map(|name| ServerName::from(name.as_str())).collect());
    state.tool_admin.check_servers(servers.iter().flatten()).map_err(|reason| Problem::invalid("servers", format!("{reason}.")))?;
    let role = |name: String| {
        let known = KeyRole::NAMES.join(", ");
        KeyRole::of_name(&name).ok_or_else(|| Problem::invalid("role", format!("There is no role `{name}`; known: {known}.")))
    };
    let role = body.role.map(role).transpose()?;
    let end = EndBody { expires_at: body.expires_at, expires_in_days: body.expires_in_days };
    let NewKeyBody { name, groups, trusted, .. } = body;
    let new = KeyProperties { name, servers, toolsets, groups, trusted, role, expires_at: end.time()? };
    let (key, secret) = state.keys.create(new).await.map_err(|error| end.problem(error))?;
    tracing::info!(key = key.id.as_str(), name = key.name, "API key created");
    state.audit.record(AuditEntry::of_change(administrator, AuditAction::KeyCreate, key.name.clone()));
    Ok((key, secret))
}

/// Lists all keys without their secrets, including expired and revoked keys.
#[utoipa::path(responses((status = 200, description = "Keys in files, then the others, oldest first", body = KeysBody)))]
#[get("/v1/admin/keys")]
pub async fn list_keys(state: web::Data<State>, _caller: Administrator) -> HttpResponse {
    HttpResponse::Ok().json(KeysBody { keys: state.keys.list().iter().map(|key| KeyBody::of(key, &state)).collect() })
}

/// Replaces the secret of a key. The old secret stops working.
#[utoipa::path(
    params(("id" = String, Path, description = "The id of the key")),
    request_body(content = EndBody, description = "The key's new expiry; optional"),
    responses(
        (status = 200, description = "The key with its new secret", body = SecretBody),
        (status = 404, description = "The key doesn't exist or is revoked, or the caller is not an administrator"),
        (status = 409, description = "A file defines the key; change it there"),
        (status = 422, description = "The key has expired, and the request sets no new expiry")
    )
)]
#[post("/v1/admin/keys/{id}/rotate")]
pub async fn rotate_key(state: web::Data<State>, caller: Administrator, id: web::Path<String>, body: Body) -> Answer {
    let end: EndBody = if body.0.is_empty() { EndBody::default() } else { read_json(&body.0)? };
    let rotated = state.keys.rotate(&KeyId::new(id.into_inner()), end.time()?).await;
    let (key, secret) = rotated.map_err(|error| end.problem(error))?;
    tracing::info!(key = key.id.as_str(), name = key.name, "API key rotated");
    state.audit.record(AuditEntry::of_change(&caller.0, AuditAction::KeyRotate, key.name.clone()));
    Ok(shown_once(&state, HttpResponse::Ok(), &key, &secret))
}

/// Revokes a key at once and permanently.
#[utoipa::path(
    params(("id" = String, Path, description = "The id of the key")),
    responses(
        (status = 200, description = "The key's data", body = KeyBody),
        (status = 404, description = "The key doesn't exist, or the caller is not an administrator"),
        (status = 409, description = "A file defines the key; remove it there")
    )
)]
#[delete("/v1/admin/keys/{id}")]
pub async fn revoke_key(state: web::Data<State>, caller: Administrator, id: web::Path<String>) -> Answer {
    let key = revoke(&state, &caller.0, KeyId::new(id.into_inner())).await?;
    Ok(HttpResponse::Ok().json(KeyBody::of(&key, &state)))
}

/// Revokes a key, and records who did.
pub(in crate::http) async fn revoke(state: &State, administrator: &Principal, id: KeyId) -> Result<ApiKey, Problem> {
    let sign_ins = match state.keys.list().into_iter().find(|key| key.id == id) {
        Some(key) => state.connections.of(&PrincipalId::of_key(&key.name)).await?,
        None => Vec::new(),
    };
    let (key, is_new) = state.keys.revoke(&id).await?;
    if is_new {
        tracing::info!(key = key.id.as_str(), name = key.name, "API key revoked");
        state.audit.record(AuditEntry::of_change(administrator, AuditAction::KeyRevoke, key.name.clone()));
    }
    if is_new {
        // What it taught belongs to its id, which no other key has.
        state.learning.forget(&Forgotten::Key(key.id.clone())).await?;
    }
    // A later key may reuse this name; its data must survive a repeated revocation. A key in a file may have the name too.
    if is_new && !state.keys.is_name_in_file(&key.name) {
        let owner = PrincipalId::of_key(&key.name);
        state.secrets.disconnect(&owner);
        state.connections.part(sign_ins).await;
        state.sessions.forget(&owner);
        state.switches.refresh().await?;
        state.loading.chats.forget(&owner).await;
    }
    Ok(key)
}

fn shown_once(state: &State, mut builder: HttpResponseBuilder, key: &ApiKey, secret: &SecretString) -> HttpResponse {
    // Prevents clients and proxies from storing the secret.
    builder.insert_header((header::CACHE_CONTROL, "no-store"));
    builder.json(SecretBody { key: secret.expose_secret().to_owned(), record: KeyBody::of(key, state) })
}

impl EndBody {
    fn time(&self) -> Result<Option<SystemTime>, Problem> {
        let invalid = |detail: &str| Problem::invalid("expires_at", detail);
        match (&self.expires_at, self.expires_in_days) {
            (None, None) => Ok(None),
            (Some(text), None) => {
                let at: Timestamp = text.parse().map_err(|_| invalid("expires_at is a time such as 2027-01-31T00:00:00Z."))?;
                Ok(Some(at.into()))
            }
            (None, Some(days)) => Ok(Some(SystemTime::now() + Duration::from_secs(u64::from(days.min(36_500)) * SECONDS_A_DAY))),
            (Some(_), Some(_)) => Err(invalid("Give expires_at or expires_in_days, not both.")),
        }
    }

    /// Converts the error of a key. For an invalid expiry, it names the member that set the expiry.
    fn problem(&self, error: KeyError) -> Problem {
        match error {
            KeyError::Invalid { parameter: "expires_at", reason } if self.expires_in_days.is_some() => {
                KeyError::Invalid { parameter: "expires_in_days", reason }.into()
            }
            error => error.into(),
        }
    }
}

impl KeyBody {
    fn of(key: &ApiKey, state: &State) -> Self {
        let managed_by = key.managed_by();
        Self {
            id: key.id.as_str().to_owned(),
            name: key.name.clone(),
            state: state.keys.state(key, SystemTime::now()).name(),
            managed_by,
            servers: key.servers.as_ref().map(|servers| servers.iter().map(ToString::to_string).collect()),
            toolsets: key.toolsets.as_ref().map(|toolsets| toolsets.iter().map(ToString::to_string).collect()),
            groups: key.groups.iter().cloned().collect(),
            trusted: key.trusted,
            role: key.role.map(KeyRole::name),
            created_at: (managed_by == ManagedBy::Api).then(|| time(key.created_at)),
            expires_at: key.expires_at.map(time),
            revoked_at: key.revoked_at.map(time),
            last_used_at: key.last_used_at.map(time),
        }
    }
}

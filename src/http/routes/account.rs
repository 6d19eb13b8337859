//! A person's own page, beyond sign-ins: the switch of the selection, what was learned from the person, and secrets.
//!
//! Like the pages for sign-ins, these know a person only by the session that a link opened. They change nothing but the data of the
//! session's owner.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use secrecy::{ExposeSecret, SecretString};

use crate::domain::access::principal::{Principal, User};
use crate::domain::access::switches::UserSwitch;
use crate::domain::catalog::tool::ServerName;
use crate::domain::learning::scope::Scope;
use crate::http::body::Body;
use crate::http::pages::account::{Account, Own};
use crate::http::pages::browser::{Fields, html, see};
use crate::http::pages::connections::POLICY;
use crate::http::problem::{Code, Problem};
use crate::http::routes::secrets;
use crate::http::routes::visit::Visit;
use crate::http::state::State;
use crate::service::access::connections::PAGE;
use crate::service::access::secrets::{KnownSecret, SecretError};
use crate::service::ports::{AuditAction, AuditEntry, ConnectVisit, Forgotten, VisitCaller};
use crate::settings::LearningMode;

/// Registers the pages.
pub(in crate::http) fn configure_pages(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/ui/me/selection").route(web::post().to(switch)))
        .service(web::resource("/ui/me/forget").route(web::get().to(ask_to_forget)).route(web::post().to(forget)))
        .service(web::resource("/ui/me/secret").route(web::post().to(store_secret)))
        .service(web::resource("/ui/me/secret/remove").route(web::post().to(remove_secret)));
}

/// The page of the request's session.
pub(super) async fn show(visit: &Visit<'_>, done: &str) -> HttpResponse {
    match visit.entered().await {
        Ok((session, form_token)) => page(visit, &session, &form_token, done, None).await.unwrap_or_else(|problem| visit.failed(&problem)),
        Err(response) => response,
    }
}

/// The page of a session. `refused` is a secret that was not stored, with the reason.
async fn page(
    visit: &Visit<'_>,
    session: &ConnectVisit,
    form_token: &SecretString,
    done: &str,
    refused: Option<(&str, &str, &Problem)>,
) -> Result<HttpResponse, Problem> {
    let state = visit.state;
    let known = state.connections.list(&session.owner, &session.servers).await?;
    let own = match owner(session) {
        None => None,
        Some(owner) => {
            let own = own_scope(session, &owner);
            let learned = (state.learning.mode() != LearningMode::Off).then(|| state.learning.tools_of(&own));
            let view = state.current.view(&with_rights(state, session, &owner));
            let usable = learned.iter().flatten().map(|learned| &learned.tool).filter(|tool| view.tool(tool).is_some());
            Some(Own {
                selects: !state.switches.is_off(&owner.id, UserSwitch::Narrowing),
                usable: usable.cloned().collect(),
                learned,
                is_stored: state.learning.keeps(&own).await?,
                secrets: secrets_of(state, session, &owner).await?,
                refused: refused.map(|(server, name, problem)| (server, name, problem.detail.as_str())),
            })
        }
    };
    let status = refused.map_or(StatusCode::OK, |(.., problem)| problem.code.status());
    let account = Account { person: &session.person, form_token: form_token.expose_secret(), known: &known, own, done };
    Ok(html(status, POLICY, visit.pages().account(&account)))
}

/// The secrets of a person; `None` if the service can store none.
async fn secrets_of(state: &State, session: &ConnectVisit, owner: &Principal) -> Result<Option<Vec<KnownSecret>>, Problem> {
    match state.secrets.list(owner, |server| session.caller.secret_servers.contains(server)).await {
        Ok(known) => Ok(Some(known)),
        Err(SecretError::NoKey) => Ok(None),
        Err(error) => Err(Problem::from(error)),
    }
}

/// The person of a session; `None` if it belongs to an administrator, for all users.
fn owner(session: &ConnectVisit) -> Option<Principal> {
    Principal::of_owner(&session.owner, user(session, ""))
}

/// What the person taught with the key with which the link was requested. With another key, it may be another person.
fn own_scope(session: &ConnectVisit, owner: &Principal) -> Scope {
    Scope::own(session.caller.key.as_ref().map(|key| key.id.as_str()), &owner.id)
}

/// The person with the present rights of the key with which the link was requested. A toolset in the request's path doesn't count.
fn with_rights(state: &State, session: &ConnectVisit, owner: &Principal) -> Principal {
    let key = session.caller.key.as_ref().map(|key| key.presented().and_then(|key| state.keys.of(&key)));
    match (owner.user_id(), key) {
        (Some(id), Some(Some(key))) => state.admission.on_behalf_of(&Principal::api_key(&key), user(session, id)),
        // Only the service key names users, beside named keys.
        (Some(id), None) => state.admission.on_behalf_of(&Principal::service_key(), user(session, id)),
        (None, Some(Some(key))) => Principal::api_key(&key),
        // Without a key, the owner has access to no server.
        _ => owner.clone(),
    }
}

fn user(session: &ConnectVisit, id: &str) -> User {
    let VisitCaller { email, name, groups, .. } = session.caller.clone();
    User { id: id.to_owned(), email, name, groups }
}

/// The session, its person, and the fields of a form.
async fn posted(visit: &Visit<'_>, body: &Body) -> Result<(ConnectVisit, Principal, Fields), HttpResponse> {
    let (session, given) = visit.posted(body).await?;
    match owner(&session) {
        Some(owner) => Ok((session, owner, given)),
        None => Err(visit.failed(&Problem::not_found())),
    }
}

async fn switch(state: web::Data<State>, request: HttpRequest, body: Body) -> HttpResponse {
    let visit = Visit::new(&state, &request);
    let (_, owner, given) = match posted(&visit, &body).await {
        Ok(posted) => posted,
        Err(response) => return response,
    };
    let is_on = match given.text("selection") {
        "on" => true,
        "off" => false,
        _ => return visit.failed(&Problem::invalid("selection", "selection is `on` or `off`.")),
    };
    if let Err(error) = state.switches.set(&owner.id, UserSwitch::Narrowing, is_on).await {
        return visit.failed(&Problem::from(error));
    }
    let action = if is_on { AuditAction::SwitchOn } else { AuditAction::SwitchOff };
    state.audit.record(AuditEntry::of_change(&owner, action, UserSwitch::Narrowing.name().to_owned()));
    see(&state, &format!("{PAGE}?done=saved"))
}

async fn ask_to_forget(state: web::Data<State>, request: HttpRequest) -> HttpResponse {
    let visit = Visit::new(&state, &request);
    match visit.entered().await {
        Ok((session, _)) if owner(&session).is_none() => visit.failed(&Problem::not_found()),
        Ok((session, form_token)) => html(StatusCode::OK, POLICY, visit.pages().forget(&session.person, form_token.expose_secret())),
        Err(response) => response,
    }
}

async fn forget(state: web::Data<State>, request: HttpRequest, body: Body) -> HttpResponse {
    let visit = Visit::new(&state, &request);
    let (session, owner, _) = match posted(&visit, &body).await {
        Ok(posted) => posted,
        Err(response) => return response,
    };
    match state.learning.forget(&Forgotten::Own(own_scope(&session, &owner))).await {
        Ok(removed) => {
            tracing::info!(owner = owner.id.as_str(), removed, "what was learned from a caller was forgotten at its request");
            let subject = owner.id.as_str().to_owned();
            state.audit.record(AuditEntry::of_change(&owner, AuditAction::LearningForget, subject));
            see(&state, &format!("{PAGE}?done=forgotten"))
        }
        Err(error) => visit.failed(&Problem::from(error)),
    }
}

async fn store_secret(state: web::Data<State>, request: HttpRequest, body: Body) -> HttpResponse {
    let visit = Visit::new(&state, &request);
    let (session, owner, mut given) = match posted(&visit, &body).await {
        Ok(posted) => posted,
        Err(response) => return response,
    };
    // As it was entered, with spaces around it.
    let value = SecretString::from(given.take("value").unwrap_or_default());
    let (server, name) = (ServerName::new(given.text("server")), given.text("name"));
    let stored = if session.caller.secret_servers.contains(&server) {
        secrets::store(&state, &owner, (&server, name), &value).await
    } else {
        Err(Problem::not_found())
    };
    let Err(problem) = stored else { return see(&state, &format!("{PAGE}?done=saved")) };
    if problem.code != Code::InvalidRequest || problem.parameter.as_deref() != Some("value") {
        return visit.failed(&problem);
    }
    let form_token = match visit.entered().await {
        Ok((_, form_token)) => form_token,
        Err(response) => return response,
    };
    let shown = page(&visit, &session, &form_token, "", Some((server.as_str(), name, &problem))).await;
    shown.unwrap_or_else(|problem| visit.failed(&problem))
}

async fn remove_secret(state: web::Data<State>, request: HttpRequest, body: Body) -> HttpResponse {
    let visit = Visit::new(&state, &request);
    let (_, owner, given) = match posted(&visit, &body).await {
        Ok(posted) => posted,
        Err(response) => return response,
    };
    let server = ServerName::new(given.text("server"));
    match secrets::remove(&state, &owner, (&server, given.text("name"))).await {
        Ok(()) => see(&state, &format!("{PAGE}?done=removed")),
        Err(problem) => visit.failed(&problem),
    }
}

//! Sign-ins to MCP servers: the caller's list with a link, and the pages that the link opens.
//!
//! The pages know a person only by the session that a link opened. They read neither keys nor headers of users.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, get, web};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::catalog::tool::ServerName;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::pages::browser::{Fields, html, see, with_cookie};
use crate::http::pages::connections::POLICY;
use crate::http::problem::{Answer, Code, Problem};
use crate::http::routes::account;
use crate::http::routes::admin::time;
use crate::http::routes::visit::{COOKIE, Visit};
use crate::http::state::State;
use crate::service::access::connections::{AuthorizationAnswer, CALLBACK, CLIENT_METADATA, ConnectionError, PAGE, SESSION};
use crate::service::ports::{AuditAction, AuditEntry};

/// Maximum length of a parameter of an authorization server's answer, in bytes.
const MAX_PARAMETER: usize = 4096;

#[derive(Serialize, ToSchema)]
struct ConnectionBody {
    server: String,
    /// `ready`: calls run in the caller's name. `sign_in`: the caller must sign in first.
    connection: &'static str,
    /// Why a former sign-in ended, or why the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The authorization server of the sign-in.
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<String>,
    connected_at: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct ConnectionsBody {
    connections: Vec<ConnectionBody>,
    /// The caller's page: sign-ins, secrets, what was learned from the caller, and the switch of the selection. The link is for one
    /// person, works once, and expires after ten minutes. Absent without `http.public_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
}

/// Lists the servers that the caller can sign in to. Administrators get those that all users share.
#[utoipa::path(
    tag = "connections",
    responses(
        (status = 200, description = "Sorted by server", body = ConnectionsBody),
        (status = 403, description = "The caller is neither a user, nor a named key, nor an administrator")
    )
)]
#[get("/v1/connections")]
pub async fn list_connections(state: web::Data<State>, caller: Caller) -> Answer {
    let needed = "Sign-ins belong to a user or a named key, and this request belongs to neither: name the user with a trusted key, or send \
                  a key created with `toolsieve keys create`.";
    let (owner, servers) = state.connections.managed(&caller.0).ok_or_else(|| Problem::new(Code::UserNeeded, needed))?;
    let known = state.connections.list(&owner, &servers).await?;
    // The page of an administrator contains nothing but sign-ins.
    let has_page = !known.is_empty() || PrincipalId::of_owner(owner.as_str()).is_some();
    let link = if has_page { link(&state, &caller.0, known.is_empty()).await? } else { None };
    let connections = known
        .into_iter()
        .map(|known| ConnectionBody {
            server: known.server.to_string(),
            connection: known.state.name(),
            reason: known.reason,
            issuer: known.issuer,
            scopes: known.scopes,
            connected_at: known.connected_at.map(time),
        })
        .collect();
    Ok(HttpResponse::Ok().json(ConnectionsBody { connections, link }))
}

/// The link to the caller's page. Without sign-ins, a service that has no links has none.
async fn link(state: &State, caller: &Principal, is_optional: bool) -> Result<Option<String>, Problem> {
    match state.connections.link(caller, None).await {
        Err(ConnectionError::NotSetUp(_)) if is_optional => Ok(None),
        link => Ok(link?),
    }
}

/// Registers the pages.
pub(in crate::http) fn configure_pages(config: &mut web::ServiceConfig) {
    config
        .service(web::resource(PAGE).route(web::get().to(show)))
        .service(web::resource("/ui/me/enter").route(web::post().to(enter)))
        .service(web::resource("/ui/me/connect").route(web::post().to(connect)))
        .service(web::resource("/ui/me/disconnect").route(web::post().to(disconnect)))
        .service(web::resource(CALLBACK).route(web::get().to(callback)))
        .service(web::resource(CLIENT_METADATA).route(web::get().to(client_metadata)));
}

/// Shows the list in a session, or asks the person of a link to confirm.
async fn show(state: web::Data<State>, request: HttpRequest) -> HttpResponse {
    let visit = Visit::new(&state, &request);
    if let Some(link) = parameter(&mut Fields::of_query(&request), "link") {
        match state.connections.visit(&link).await {
            Ok(Some(of_link)) => {
                let server = of_link.server.as_ref().map(ServerName::as_str);
                return html(StatusCode::OK, POLICY, visit.pages().confirm(&of_link.person, server, &link));
            }
            Ok(None) => {}
            Err(error) => return visit.failed(&Problem::from(error)),
        }
    }
    account::show(&visit, Fields::of_query(&request).text("done")).await
}

/// Uses a link: opens a session, and goes on to the server that the link is about.
async fn enter(state: web::Data<State>, request: HttpRequest, body: Body) -> HttpResponse {
    let visit = Visit::new(&state, &request);
    let link = parameter(&mut Fields::of(&body.0), "link").unwrap_or_default();
    let (cookie, session) = match state.connections.enter(&link).await {
        Ok(Some(entered)) => entered,
        Ok(None) => return visit.no_session(),
        Err(error) => return visit.failed(&Problem::from(error)),
    };
    let response = match session.server.clone() {
        Some(server) => visit.begin(&session, &server).await,
        None => see(&state, PAGE),
    };
    with_cookie(response, COOKIE.set(&state, &request, cookie.expose_secret(), SESSION))
}

async fn connect(state: web::Data<State>, request: HttpRequest, body: Body) -> HttpResponse {
    let visit = Visit::new(&state, &request);
    match visit.posted(&body).await {
        Ok((session, given)) => visit.begin(&session, &server(given)).await,
        Err(response) => response,
    }
}

async fn disconnect(state: web::Data<State>, request: HttpRequest, body: Body) -> HttpResponse {
    let visit = Visit::new(&state, &request);
    let (session, server) = match visit.posted(&body).await {
        Ok((session, given)) => (session, server(given)),
        Err(response) => return response,
    };
    match state.connections.disconnect(&session.owner, &server).await {
        Ok(ended) => {
            if ended {
                state.audit.record(AuditEntry::of_owner(&session.owner, AuditAction::SignOut, server.to_string()));
            }
            see(&state, PAGE)
        }
        Err(error) => visit.failed(&Problem::from(error)),
    }
}

/// The redirect URI: completes the sign-in that began in this session.
async fn callback(state: web::Data<State>, request: HttpRequest) -> HttpResponse {
    let visit = Visit::new(&state, &request);
    let session = match visit.session().await {
        Ok(Some((_, session))) => session,
        Ok(None) => return visit.no_session(),
        Err(problem) => return visit.failed(&problem),
    };
    let mut given = Fields::of_query(&request);
    let answer = AuthorizationAnswer {
        state: parameter(&mut given, "state").unwrap_or_default(),
        code: parameter(&mut given, "code").map(SecretString::from),
        error: parameter(&mut given, "error"),
        issuer: parameter(&mut given, "iss"),
    };
    match state.connections.complete(&session, answer).await {
        Ok(server) => {
            state.audit.record(AuditEntry::of_owner(&session.owner, AuditAction::SignIn, server.to_string()));
            html(StatusCode::OK, POLICY, visit.pages().done(server.as_str()))
        }
        Err(error) => visit.not_signed_in(error),
    }
}

/// The service as an OAuth client, for authorization servers that read it from its address.
async fn client_metadata(state: web::Data<State>) -> HttpResponse {
    let Some(url) = &state.public_url else { return HttpResponse::NotFound().finish() };
    HttpResponse::Ok().json(json!({
        "client_id": format!("{url}{CLIENT_METADATA}"),
        "client_name": "Toolsieve",
        "redirect_uris": [format!("{url}{CALLBACK}")],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
    }))
}

fn server(mut given: Fields) -> ServerName {
    ServerName::new(parameter(&mut given, "server").unwrap_or_default())
}

/// A parameter of a query or a form, unless it is too long.
fn parameter(fields: &mut Fields, name: &str) -> Option<String> {
    fields.take(name).filter(|value| value.len() <= MAX_PARAMETER)
}

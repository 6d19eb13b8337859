//! Sign-ins to MCP servers: the caller's list with a link, and the pages that the link opens.
//!
//! The pages know a person only by the session that a link opened. They read neither keys nor headers of users.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, get, web};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::domain::catalog::tool::ServerName;
use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::pages::browser::{Fields, SessionCookie, base, html, see, with_cookie};
use crate::http::pages::connections as pages;
use crate::http::problem::{Answer, Code, Problem};
use crate::http::routes::admin::time;
use crate::http::state::State;
use crate::service::access::connections::{AuthorizationAnswer, CALLBACK, CLIENT_METADATA, ConnectionError, PAGE, SESSION, SignInError};
use crate::service::ports::{AuditAction, AuditEntry, ConnectVisit, StoreError};

/// The session's cookie. `Lax`, because the authorization server sends the person back from another site, and with `Strict` the
/// callback would get no cookie. Forms of other sites don't carry a `Lax` cookie, and pages change something only by a form.
const COOKIE: SessionCookie = SessionCookie { name: "toolsieve_me", path: "/ui", same_site: "Lax" };
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
    /// The page on which the caller signs in. It is for one person, works once, and expires after ten minutes. Absent if no
    /// server needs a sign-in.
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
    let link = if known.is_empty() { None } else { state.connections.link(&caller.0, None).await? };
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
    let base = base(&state);
    if let Some(link) = parameter(&mut Fields::of_query(&request), "link") {
        match state.connections.visit(&link).await {
            Ok(Some(visit)) => {
                let server = visit.server.as_ref().map(ServerName::as_str);
                return html(StatusCode::OK, pages::POLICY, pages::confirm(&base, &visit.person, server, &link));
            }
            Ok(None) => {}
            Err(error) => return failed(&base, &Problem::from(error)),
        }
    }
    match session(&state, &request).await {
        Ok(Some((cookie, session))) => match state.connections.list(&session.owner, &session.servers).await {
            Ok(known) => {
                html(StatusCode::OK, pages::POLICY, pages::list(&base, &session.person, &known, COOKIE.form_token(&cookie).expose_secret()))
            }
            Err(error) => failed(&base, &Problem::from(error)),
        },
        Ok(None) => no_session(&base),
        Err(problem) => failed(&base, &problem),
    }
}

/// Uses a link: opens a session, and goes on to the server that the link is about.
async fn enter(state: web::Data<State>, request: HttpRequest, body: Body) -> HttpResponse {
    let base = base(&state);
    let link = parameter(&mut Fields::of(&body.0), "link").unwrap_or_default();
    let (cookie, session) = match state.connections.enter(&link).await {
        Ok(Some(entered)) => entered,
        Ok(None) => return no_session(&base),
        Err(error) => return failed(&base, &Problem::from(error)),
    };
    let response = match session.server.clone() {
        Some(server) => begin(&state, &session, &server).await,
        None => see(&state, PAGE),
    };
    with_cookie(response, COOKIE.set(&state, &request, cookie.expose_secret(), SESSION))
}

async fn connect(state: web::Data<State>, request: HttpRequest, body: Body) -> HttpResponse {
    match posted(&state, &request, &body).await {
        Ok((session, server)) => begin(&state, &session, &server).await,
        Err(response) => response,
    }
}

async fn disconnect(state: web::Data<State>, request: HttpRequest, body: Body) -> HttpResponse {
    let (session, server) = match posted(&state, &request, &body).await {
        Ok(posted) => posted,
        Err(response) => return response,
    };
    match state.connections.disconnect(&session.owner, &server).await {
        Ok(ended) => {
            if ended {
                state.audit.record(AuditEntry::of_owner(&session.owner, AuditAction::SignOut, server.to_string()));
            }
            see(&state, PAGE)
        }
        Err(error) => failed(&base(&state), &Problem::from(error)),
    }
}

/// The redirect URI: completes the sign-in that began in this session.
async fn callback(state: web::Data<State>, request: HttpRequest) -> HttpResponse {
    let base = base(&state);
    let session = match session(&state, &request).await {
        Ok(Some((_, session))) => session,
        Ok(None) => return no_session(&base),
        Err(problem) => return failed(&base, &problem),
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
            let text = format!("You are connected to {server}. Go back to the chat, and ask again.");
            html(StatusCode::OK, pages::POLICY, pages::message(&base, "Connected", &text, true))
        }
        Err(error) => not_signed_in(&base, error),
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

async fn begin(state: &State, session: &ConnectVisit, server: &ServerName) -> HttpResponse {
    match state.connections.begin(session, server).await {
        Ok(to) => html(StatusCode::OK, pages::POLICY, pages::go_on(&base(state), server.as_str(), &to)),
        Err(error) => not_signed_in(&base(state), error),
    }
}

/// The session and the server of a form. Forms of other sites lack the session's own token.
async fn posted(state: &State, request: &HttpRequest, body: &Body) -> Result<(ConnectVisit, ServerName), HttpResponse> {
    let base = base(state);
    let (cookie, session) = match session(state, request).await {
        Ok(Some(found)) => found,
        Ok(None) => return Err(no_session(&base)),
        Err(problem) => return Err(failed(&base, &problem)),
    };
    let mut given = Fields::of(&body.0);
    if !COOKIE.allows(&cookie, given.text("csrf")) {
        let text = "This form is outdated. Open your connections again.";
        return Err(html(StatusCode::FORBIDDEN, pages::POLICY, pages::message(&base, "Not done", text, true)));
    }
    Ok((session, ServerName::new(parameter(&mut given, "server").unwrap_or_default())))
}

/// The session of the request's cookie.
async fn session(state: &State, request: &HttpRequest) -> Result<Option<(String, ConnectVisit)>, Problem> {
    let Some(cookie) = COOKIE.values(request.headers()).next() else { return Ok(None) };
    Ok(state.connections.session(cookie).await?.map(|session| (cookie.to_owned(), session)))
}

/// A parameter of a query or a form, unless it is too long.
fn parameter(fields: &mut Fields, name: &str) -> Option<String> {
    fields.take(name).filter(|value| value.len() <= MAX_PARAMETER)
}

fn no_session(base: &str) -> HttpResponse {
    let text = "The link is used, expired or incomplete. Ask in the chat again, and open the new link in this browser.";
    html(StatusCode::FORBIDDEN, pages::POLICY, pages::message(base, "This link is no longer valid", text, false))
}

fn failed(base: &str, problem: &Problem) -> HttpResponse {
    html(problem.code.status(), pages::POLICY, pages::message(base, problem.code.title(), &problem.detail, true))
}

fn not_signed_in(base: &str, error: SignInError) -> HttpResponse {
    let status = match &error {
        SignInError::Connection(ConnectionError::Store(StoreError::Away { .. })) => StatusCode::SERVICE_UNAVAILABLE,
        SignInError::NotFound => StatusCode::NOT_FOUND,
        SignInError::Unknown | SignInError::OtherIssuer | SignInError::Refused(_) => StatusCode::FORBIDDEN,
        SignInError::Failed(_) => StatusCode::BAD_GATEWAY,
        SignInError::Connection(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let text = match error {
        SignInError::Connection(error) => Problem::from(error).detail,
        error => format!("{error}. Nothing was stored."),
    };
    html(status, pages::POLICY, pages::message(base, "Not signed in", &text, true))
}

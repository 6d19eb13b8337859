//! Signs administrators in and out.

use actix_web::http::StatusCode;
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, web};
use maud::html;

use super::layout::{plain, respond};
use super::session::{ConsoleSession, no_cookie};
use super::text::{Texts, texts};
use super::{CONSOLE, LOGIN};
use crate::domain::access::api_key::KeyRole;
use crate::http::address;
use crate::http::area::is_console;
use crate::http::body::Body;
use crate::http::caller::{Caller, Guess};
use crate::http::pages::browser::{Fields, base, see, with_cookie};
use crate::http::state::State;
use crate::service::ports::{AuditAction, AuditEntry};

/// What the audit log names.
const SUBJECT: &str = "console";

pub(super) async fn show(state: web::Data<State>, caller: Caller, request: HttpRequest) -> HttpResponse {
    if state.console.of(request.headers(), &state.keys).is_some() || (caller.0.administers && state.admission.needs_no_key()) {
        return see(&state, destination(Fields::of_query(&request).text("to")));
    }
    form(&state, &request, StatusCode::OK, (None, Fields::of_query(&request).text("to")))
}

/// Opens a session for the admin key, or for the key of a viewer.
pub(super) async fn sign_in(state: web::Data<State>, request: HttpRequest, body: Body) -> HttpResponse {
    let fields = Fields::of(&body.0);
    match admit(&state, &request, fields.text("key")) {
        Ok(session) => {
            let cookie = session.cookie(&state, &request);
            with_cookie(see(&state, destination(fields.text("to"))), cookie)
        }
        Err((status, text)) => form(&state, &request, status, (Some(text), fields.text("to"))),
    }
}

/// Opens a session for this key, and records it.
///
/// # Errors
/// The status and the text for a wrong key.
pub(super) fn admit(state: &State, request: &HttpRequest, key: &str) -> Result<ConsoleSession, (StatusCode, &'static str)> {
    let is_admin = state.admission.is_admin_key(key);
    let viewer = if is_admin { None } else { state.keys.find(key).filter(|key| key.role == Some(KeyRole::Viewer)) };
    if !is_admin && viewer.is_none() {
        let texts = texts(request.headers());
        let client = address::client(request.peer_addr(), request.headers(), &state.trusted_proxies);
        let is_limited = state.wrong_keys.count(client).is_some();
        if is_limited {
            request.extensions_mut().insert(Guess);
        }
        return Err(if is_limited { (StatusCode::TOO_MANY_REQUESTS, &texts.too_many) } else { (StatusCode::FORBIDDEN, &texts.wrong_key) });
    }
    let session = state.console.open(viewer);
    state.audit.record(AuditEntry::of_change(&session.principal(), AuditAction::SignIn, SUBJECT.to_owned()));
    tracing::info!(principal = session.principal().id.as_str(), "somebody has signed in to the console");
    Ok(session)
}

pub(super) async fn sign_out(state: web::Data<State>, request: HttpRequest, body: Body) -> HttpResponse {
    if let Some(session) = state.console.of(request.headers(), &state.keys)
        && session.allows(Fields::of(&body.0).text("token"))
    {
        state.console.end(&session);
        state.audit.record(AuditEntry::of_change(&session.principal(), AuditAction::SignOut, SUBJECT.to_owned()));
    }
    let cookie = no_cookie(&state, &request);
    with_cookie(see(&state, LOGIN), cookie)
}

/// The page after the sign-in. Only pages of the console count, because a link from elsewhere may have named it.
fn destination(to: &str) -> &str {
    let path = to.split('?').next().unwrap_or_default();
    let is_plain = to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') && !path.contains("//");
    if is_plain && is_console(path) { to } else { CONSOLE }
}

fn form(state: &State, request: &HttpRequest, status: StatusCode, (error, to): (Option<&str>, &str)) -> HttpResponse {
    let texts = texts(request.headers());
    let body = if let Some(why) = why_not(state, texts) {
        html! { p { (why) } }
    } else {
        html! {
            form.columns method="post" action={ (base(state)) (LOGIN) } {
                input type="hidden" name="to" value=(to);
                @if let Some(error) = error { p.all.bad role="alert" { (error) } }
                label.all for="key" { (texts.admin_key) small { (texts.sign_in_hint) } }
                input.all #key name="key" type="password" autocomplete="current-password" required autofocus;
                p.all { button { (texts.sign_in) } }
            }
        }
    };
    respond(status, plain(state, texts, &texts.sign_in, &body))
}

/// Why nobody can sign in with a key; `None` if somebody can.
fn why_not<'a>(state: &State, texts: &'a Texts) -> Option<&'a str> {
    if state.admission.has_admin_key() || state.keys.list().iter().any(|key| key.role == Some(KeyRole::Viewer)) {
        None
    } else if state.admission.needs_no_key() {
        Some(&texts.open_directly)
    } else {
        Some(&texts.no_admin_key)
    }
}

#[cfg(test)]
mod tests {
    use super::{CONSOLE, destination};

    #[test]
    fn a_sign_in_leads_only_to_pages_of_the_console() {
        for to in ["/ui/tools?text=a+b&offset=50", "/ui/tool?server=a&tool=%2F%2Fb", "/ui"] {
            assert_eq!(destination(to), to);
        }
        for to in
            ["", "https://evil.example/ui", "//evil.example/ui", "/ui//evil.example", "/ui/\\evil", "/ui/a\r\nb", "/uix", "/ui/me", "ui"]
        {
            assert_eq!(destination(to), CONSOLE, "{to}");
        }
    }
}

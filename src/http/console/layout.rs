//! The frame of every page: head, navigation and security headers.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use maud::{DOCTYPE, Markup, html};
use secrecy::ExposeSecret;

use super::session::{ConsoleSession, base};
use super::text::Texts;
use super::{CONSOLE, ICON, LOGIN, STYLE_SHEET};
use crate::http::problem::Problem;
use crate::http::state::State;

/// The pages load their style sheet, send forms to this service, and do nothing else.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
);

/// The pages of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Overview,
    Playground,
    /// A page outside the navigation.
    Elsewhere,
}

/// A page for a signed-in administrator.
pub(super) fn page(state: &State, session: &ConsoleSession, texts: &Texts, place: Place, title: &str, body: &Markup) -> Markup {
    let base = base(state);
    let links = [(Place::Overview, CONSOLE, &texts.overview), (Place::Playground, "/ui/playground", &texts.playground)];
    let navigation = html! {
        nav aria-label=(texts.console) {
            @for (of, path, name) in links {
                a href={ (base) (path) } aria-current=[(of == place).then_some("page")] { (name) }
            }
        }
        form method="post" action={ (base) "/ui/logout" } { (token(session)) button { (texts.sign_out) } }
    };
    frame(&base, texts, title, &navigation, body)
}

/// A page without navigation, for those who are not signed in.
pub(super) fn plain(state: &State, texts: &Texts, title: &str, body: &Markup) -> Markup {
    frame(&base(state), texts, title, &html! {}, body)
}

/// The hidden field without which no form of the console counts.
pub(super) fn token(session: &ConsoleSession) -> Markup {
    html! { input type="hidden" name="token" value=(session.form_token().expose_secret()); }
}

fn frame(base: &str, texts: &Texts, title: &str, navigation: &Markup, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang=(texts.language) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " – " (texts.console) }
                link rel="stylesheet" href={ (base) (STYLE_SHEET) };
                link rel="icon" type="image/svg+xml" href={ (base) (ICON) };
            }
            body {
                header { a.skip href="#content" { (texts.skip) } strong { (texts.console) } (navigation) }
                main #content { h1 { (title) } (body) }
            }
        }
    }
}

pub(super) fn respond(status: StatusCode, page: Markup) -> HttpResponse {
    HttpResponseBuilder::new(status)
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        // With `no-referrer`, browsers would send forms without their origin.
        .insert_header((header::REFERRER_POLICY, "same-origin"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .body(page.into_string())
}

/// A redirect to a page of the console.
pub(super) fn see(state: &State, path: &str) -> HttpResponse {
    let to = format!("{}{path}", base(state));
    HttpResponse::SeeOther().insert_header((header::LOCATION, to)).insert_header((header::CACHE_CONTROL, "no-store")).finish()
}

/// The page for a request that failed.
pub(super) fn failed(state: &State, session: &ConsoleSession, texts: &Texts, problem: &Problem) -> HttpResponse {
    let body = html! { p.bad role="alert" { (problem.detail) } };
    respond(problem.code.status(), page(state, session, texts, Place::Elsewhere, &texts.failed, &body))
}

/// The session of a request, with its cookie if it is new. A service without keys opens one for the people on its machine. `None`:
/// the person must sign in.
pub(super) fn entered(state: &State, request: &HttpRequest, administers: bool) -> Option<(ConsoleSession, Option<HeaderValue>)> {
    if let Some(session) = state.console.of(request.headers()) {
        return Some((session, None));
    }
    let is_open = administers && state.admission.needs_no_key();
    is_open.then(|| {
        let session = state.console.open();
        let cookie = session.cookie(state, request);
        (session, cookie)
    })
}

pub(super) fn to_login(state: &State) -> HttpResponse {
    see(state, LOGIN)
}

/// Adds the cookie of a new session.
pub(super) fn with_cookie(mut response: HttpResponse, cookie: Option<HeaderValue>) -> HttpResponse {
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

//! Visits that begin with a form. What somebody entered survives the end of the session.
//!
//! If the session has ended, the page asks for the key again, and keeps what was entered. After the sign-in, it shows what will be
//! sent, and sends it only when the person presses the button.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};

use super::layout::{Visit, form_token, plain, respond};
use super::login::admit;
use super::parts::short;
use super::session::ConsoleSession;
use super::text::{Texts, texts};
use crate::http::body::Body;
use crate::http::pages::browser::{Fields, base, with_cookie};
use crate::http::problem::{Code, Problem};
use crate::http::state::State;

/// The field with the key. No other form has it.
const KEY: &str = "sign_in_key";
/// Maximum number of characters of a field that the page shows. Longer ones are sent as a whole.
const SHOWN: usize = 500;

impl<'a> Visit<'a> {
    /// Begins a visit with a form. `page` is the path of the page with this form.
    ///
    /// # Errors
    /// A page that keeps what was entered: it asks for the key or, if the form is from another session, for a confirmation.
    #[expect(clippy::result_large_err, reason = "the error is the response of the page")]
    pub(super) fn with_form(state: &'a State, request: &HttpRequest, body: &Body, page: &str) -> Result<(Self, Fields), HttpResponse> {
        let (texts, fields) = (texts(request.headers()), Fields::of(&body.0));
        let Some(session) = state.console.of(request.headers(), &state.keys) else { return Err(ended(state, request, fields, page)) };
        let visit = Self::of(state, texts, session);
        if !visit.may_change() {
            Err(visit.failed(&Problem::new(Code::ReadOnlyKey, texts.read_only.clone())))
        } else if visit.session().allows(fields.text("token")) {
            Ok((visit, fields))
        } else {
            Err(of_another_session(&visit, request, fields, page))
        }
    }
}

/// Asks for the key, or opens a session with it.
fn ended(state: &State, request: &HttpRequest, mut fields: Fields, page: &str) -> HttpResponse {
    let texts = texts(request.headers());
    fields.take("token");
    let Some(key) = fields.take(KEY) else {
        return respond(StatusCode::FORBIDDEN, plain(state, texts, &texts.sign_in, &ask(state, request, &fields, None)));
    };
    match admit(state, request, key.trim()) {
        Err((status, error)) => respond(status, plain(state, texts, &texts.sign_in, &ask(state, request, &fields, Some(error)))),
        Ok(session) => {
            let form = confirm(state, request, &session, &fields, (&texts.signed_in_again, page));
            with_cookie(respond(StatusCode::OK, plain(state, texts, &texts.sign_in, &form)), session.cookie(state, request))
        }
    }
}

/// Shows what a form from another session contains, which this session may send.
fn of_another_session(visit: &Visit<'_>, request: &HttpRequest, mut fields: Fields, page: &str) -> HttpResponse {
    let texts = visit.texts;
    fields.take("token");
    let form = confirm(visit.state, request, visit.session(), &fields, (&texts.outdated_form, page));
    respond(StatusCode::FORBIDDEN, plain(visit.state, texts, &texts.failed, &form))
}

/// The form that sends what was entered, with the token of this session. The person sees it before.
fn confirm(state: &State, request: &HttpRequest, session: &ConsoleSession, fields: &Fields, (why, page): (&str, &str)) -> Markup {
    let (texts, base) = (texts(request.headers()), base(state));
    html! {
        form.columns method="post" action={ (base) (request.path()) } {
            (form_token(session))
            p.all.notice role="status" { (why) }
            (kept(texts, fields))
            p.all.buttons { button { (texts.send_again) } a href={ (base) (page) } { (texts.discard) } }
        }
    }
}

fn ask(state: &State, request: &HttpRequest, fields: &Fields, error: Option<&str>) -> Markup {
    let texts = texts(request.headers());
    html! {
        form.columns method="post" action={ (base(state)) (request.path()) } {
            p.all.notice role="status" { (texts.session_ended) }
            @if let Some(error) = error { p.all.bad role="alert" { (error) } }
            label.all for=(KEY) { (texts.admin_key) small { (texts.sign_in_hint) } }
            input.all id=(KEY) name=(KEY) type="password" autocomplete="current-password" required autofocus;
            (kept(texts, fields))
            p.all { button { (texts.sign_in) } }
        }
    }
}

/// What was entered, for the eye and for the next request.
fn kept(texts: &Texts, fields: &Fields) -> Markup {
    let pairs = fields.pairs();
    html! {
        @for (name, value) in &pairs { input type="hidden" name=(name) value=(value); }
        section.all {
            h2 { (texts.entered) }
            dl.facts {
                @for (name, value) in pairs.iter().filter(|(name, value)| !value.is_empty() && *name != "version") {
                    dt { code { (short(name, 100)) } } dd.said { (short(value, SHOWN)) }
                }
            }
        }
    }
}

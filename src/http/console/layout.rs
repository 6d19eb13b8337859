//! The frame of every page, and the visit of an administrator, with whom every page begins.

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderValue;
use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};
use secrecy::ExposeSecret;

use super::session::ConsoleSession;
use super::text::{Texts, reason, texts};
use super::{ACCESS, ACTIVITY, CONSOLE, LEARNING, LOGIN, PLAYGROUND, SCRIPT, SERVERS, TOOLS};
use crate::http::caller::Caller;
use crate::http::pages::browser::{self, address, base, see, with_cookie};
use crate::http::pages::dress::Page;
use crate::http::problem::Problem;
use crate::http::state::State;

/// Pages load their style sheet, send forms to this service, and do nothing else.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
);

/// Pages with the console's own script. It reads from this service only.
const SCRIPTED: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; \
     frame-ancestors 'none'; base-uri 'none'",
);

/// The pages of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Overview,
    Servers,
    Tools,
    Access,
    Activity,
    Learning,
    Playground,
    /// A page outside the navigation.
    Elsewhere,
}

/// A request of a signed-in administrator for a page.
pub(super) struct Visit<'a> {
    pub(super) state: &'a State,
    pub(super) texts: &'static Texts,
    session: ConsoleSession,
    /// The cookie of a session that began with this request.
    cookie: Option<HeaderValue>,
    has_script: bool,
}

impl<'a> Visit<'a> {
    /// The visit of somebody who has signed in before.
    pub(super) fn of(state: &'a State, texts: &'static Texts, session: ConsoleSession) -> Self {
        Self { state, texts, session, cookie: None, has_script: false }
    }

    /// Lets the page load the console's script.
    #[must_use]
    pub(super) fn with_script(self) -> Self {
        Self { has_script: true, ..self }
    }

    /// Begins a visit that changes nothing. A service without keys opens a session for the people on its machine.
    ///
    /// # Errors
    /// The redirect to the sign-in, which leads back to this page.
    #[expect(clippy::result_large_err, reason = "the error is the response of the page")]
    pub(super) fn begin(state: &'a State, caller: &Caller, request: &HttpRequest) -> Result<Self, HttpResponse> {
        let texts = texts(request.headers());
        if let Some(session) = state.console.of(request.headers(), &state.keys) {
            return Ok(Self::of(state, texts, session));
        }
        if !caller.0.administers || !state.admission.needs_no_key() {
            let asked = request.uri().path_and_query().map_or(CONSOLE, |asked| asked.as_str());
            return Err(to_login(state, asked));
        }
        let session = state.console.open(None);
        let cookie = session.cookie(state, request);
        Ok(Self { cookie, ..Self::of(state, texts, session) })
    }

    pub(super) fn session(&self) -> &ConsoleSession {
        &self.session
    }

    /// Whether the person may change something.
    pub(super) fn may_change(&self) -> bool {
        self.session.may_change()
    }

    /// A path of the console, as browsers see it.
    pub(super) fn at(&self, path: &str) -> String {
        format!("{}{path}", base(self.state))
    }

    /// A path of the console with a query.
    pub(super) fn link(&self, path: &str, query: &[(&str, &str)]) -> String {
        self.at(&address(path, query))
    }

    /// The hidden field without which no form of the console counts.
    pub(super) fn token(&self) -> Markup {
        form_token(&self.session)
    }

    pub(super) fn page(self, place: Place, title: &str, body: &Markup) -> HttpResponse {
        self.page_with(StatusCode::OK, place, title, body)
    }

    pub(super) fn page_with(self, status: StatusCode, place: Place, title: &str, body: &Markup) -> HttpResponse {
        let texts = self.texts;
        let links = [
            (Place::Overview, CONSOLE, &texts.overview),
            (Place::Servers, SERVERS, &texts.servers),
            (Place::Tools, TOOLS, &texts.tools),
            (Place::Access, ACCESS, &texts.access),
            (Place::Activity, ACTIVITY, &texts.activity),
            (Place::Learning, LEARNING, &texts.learning),
            (Place::Playground, PLAYGROUND, &texts.playground),
        ];
        let navigation = html! {
            nav aria-label=(texts.console) {
                @for (of, path, name) in links {
                    a href=(self.at(path)) aria-current=[(of == place).then_some("page")] { (name) }
                }
            }
            @if !self.may_change() { span.quiet { (texts.viewer) } }
            form method="post" action=(self.at("/ui/logout")) { (self.token()) button { (texts.sign_out) } }
        };
        let head = html! { @if self.has_script { script src=(self.at(SCRIPT)) defer {} } };
        let page = frame(&base(self.state), texts, title, &head, &navigation, body);
        let policy = if self.has_script { SCRIPTED } else { POLICY };
        with_cookie(browser::html(status, policy, page.into_string()), self.cookie)
    }

    /// The page for a request that failed.
    pub(super) fn failed(self, problem: &Problem) -> HttpResponse {
        let (texts, body) = (self.texts, html! { p.bad role="alert" { (reason(self.texts, problem)) } });
        self.page_with(problem.code.status(), Place::Elsewhere, &texts.failed, &body)
    }
}

/// The hidden field without which no form of a session counts.
pub(super) fn form_token(session: &ConsoleSession) -> Markup {
    html! { input type="hidden" name="token" value=(session.form_token().expose_secret()); }
}

/// A page without navigation, for those who are not signed in.
pub(super) fn plain(state: &State, texts: &Texts, title: &str, body: &Markup) -> Markup {
    frame(&base(state), texts, title, &html! {}, &html! {}, body)
}

fn frame(base: &str, texts: &Texts, title: &str, head: &Markup, navigation: &Markup, body: &Markup) -> Markup {
    let page = Page { base, language: &texts.language, of: &texts.console, title, skip: &texts.skip };
    page.with(head, navigation, body)
}

pub(super) fn respond(status: StatusCode, page: Markup) -> HttpResponse {
    browser::html(status, POLICY, page.into_string())
}

/// The sign-in, which leads on to `asked`.
fn to_login(state: &State, asked: &str) -> HttpResponse {
    see(state, &address(LOGIN, &[("to", if asked == CONSOLE { "" } else { asked })]))
}

//! A visit to one of a person's pages. Only its session says who the person is.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};
use secrecy::SecretString;

use crate::domain::catalog::tool::ServerName;
use crate::http::body::Body;
use crate::http::pages::browser::{Fields, SessionCookie, base, html};
use crate::http::pages::connections::{POLICY, Pages, texts};
use crate::http::problem::Problem;
use crate::http::state::State;
use crate::service::access::connections::{ConnectionError, SignInError};
use crate::service::ports::{ConnectVisit, StoreError};

/// The session's cookie. `Lax`, because the authorization server sends the person back from another site, and with `Strict` the
/// callback would get no cookie. Forms of other sites don't carry a `Lax` cookie, and pages change something only by a form.
pub(super) const COOKIE: SessionCookie = SessionCookie { name: "toolsieve_me", path: "/ui", same_site: "Lax" };

/// Maximum number of cookies of a request that are looked up.
const MAX_COOKIES: usize = 4;

/// A request for one of the pages.
pub(super) struct Visit<'a> {
    pub(super) state: &'a State,
    request: &'a HttpRequest,
    base: Cow<'a, str>,
}

impl<'a> Visit<'a> {
    pub(super) fn new(state: &'a State, request: &'a HttpRequest) -> Self {
        Self { state, request, base: base(state) }
    }

    pub(super) fn pages(&self) -> Pages<'_> {
        Pages { base: &self.base, texts: texts(self.request.headers()) }
    }

    /// The session of the request's cookie, which may stand behind cookies of other programs.
    pub(super) async fn session(&self) -> Result<Option<(String, ConnectVisit)>, Problem> {
        for cookie in COOKIE.values(self.request.headers()).take(MAX_COOKIES) {
            if let Some(session) = self.state.connections.session(cookie).await? {
                return Ok(Some((cookie.to_owned(), session)));
            }
        }
        Ok(None)
    }

    /// The cookie and its session. Otherwise, the page that says what is missing.
    async fn known(&self) -> Result<(String, ConnectVisit), HttpResponse> {
        match self.session().await {
            Ok(found) => found.ok_or_else(|| self.no_session()),
            Err(problem) => Err(self.failed(&problem)),
        }
    }

    /// The session of the request's cookie, and the token of its forms. Otherwise, the page that says what is missing.
    pub(super) async fn entered(&self) -> Result<(ConnectVisit, SecretString), HttpResponse> {
        let (cookie, session) = self.known().await?;
        Ok((session, COOKIE.form_token(&cookie)))
    }

    /// The session and the fields of a form. Forms of other sites lack the session's own token.
    pub(super) async fn posted(&self, body: &Body) -> Result<(ConnectVisit, Fields), HttpResponse> {
        let (cookie, session) = self.known().await?;
        let given = Fields::of(&body.0);
        if !COOKIE.allows(&cookie, given.text("csrf")) {
            let pages = self.pages();
            return Err(html(StatusCode::FORBIDDEN, POLICY, pages.message(&pages.texts.not_done, &pages.texts.outdated, true)));
        }
        Ok((session, given))
    }

    pub(super) async fn begin(&self, session: &ConnectVisit, server: &ServerName) -> HttpResponse {
        match self.state.connections.begin(session, server).await {
            Ok(to) => html(StatusCode::OK, POLICY, self.pages().go_on(server.as_str(), &to)),
            Err(error) => self.not_signed_in(error),
        }
    }

    pub(super) fn no_session(&self) -> HttpResponse {
        let pages = self.pages();
        html(StatusCode::FORBIDDEN, POLICY, pages.message(&pages.texts.invalid_link, &pages.texts.invalid_link_text, false))
    }

    pub(super) fn failed(&self, problem: &Problem) -> HttpResponse {
        html(problem.code.status(), POLICY, self.pages().message(problem.code.title(), &problem.detail, true))
    }

    pub(super) fn not_signed_in(&self, error: SignInError) -> HttpResponse {
        let status = match &error {
            SignInError::Connection(ConnectionError::Store(StoreError::Away { .. })) => StatusCode::SERVICE_UNAVAILABLE,
            SignInError::NotFound => StatusCode::NOT_FOUND,
            SignInError::Unknown | SignInError::OtherIssuer | SignInError::Refused(_) => StatusCode::FORBIDDEN,
            SignInError::Failed(_) => StatusCode::BAD_GATEWAY,
            SignInError::Connection(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let pages = self.pages();
        let text = match error {
            SignInError::Connection(error) => Problem::from(error).detail,
            error => format!("{error}. {}", pages.texts.nothing_stored),
        };
        html(status, POLICY, pages.message(&pages.texts.not_signed_in, &text, true))
    }
}

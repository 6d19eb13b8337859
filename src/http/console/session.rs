//! Sessions of the console: who is signed in, by a cookie. Only the pages below `/ui` read the cookie.
//!
//! Sessions are in memory. They end with the process, after an hour without a request, and after eight hours at the latest.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::{HeaderMap, HeaderValue};
use moka::sync::Cache;
use secrecy::{ExposeSecret, SecretString};

use super::CONSOLE;
use crate::domain::access::authorization::{hash_of, random_text};
use crate::http::pages::browser::SessionCookie;
use crate::http::state::State;

const COOKIE: SessionCookie = SessionCookie { name: "toolsieve_ui", path: CONSOLE, same_site: "Strict" };
const LONGEST: Duration = Duration::from_hours(8);
const IDLE: Duration = Duration::from_hours(1);
/// Maximum number of sessions. The least recently used one gives way.
const SESSIONS: u64 = 1_000;

/// The sessions by the hashes of their cookies.
pub(crate) struct ConsoleSessions(Cache<String, ()>);

/// A signed-in administrator.
pub(super) struct ConsoleSession {
    cookie: String,
}

impl Default for ConsoleSessions {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(SESSIONS).time_to_live(LONGEST).time_to_idle(IDLE).build())
    }
}

impl ConsoleSessions {
    /// Whether the headers contain the cookie of a session.
    pub(in crate::http) fn has(&self, headers: &HeaderMap) -> bool {
        self.of(headers).is_some()
    }

    pub(super) fn of(&self, headers: &HeaderMap) -> Option<ConsoleSession> {
        let cookie = COOKIE.values(headers).find(|cookie| self.0.get(&hash_of(cookie)).is_some())?;
        Some(ConsoleSession { cookie: cookie.to_owned() })
    }

    pub(super) fn open(&self) -> ConsoleSession {
        let cookie = random_text(&rand::random());
        self.0.insert(hash_of(cookie.expose_secret()), ());
        ConsoleSession { cookie: cookie.expose_secret().to_owned() }
    }

    pub(super) fn end(&self, session: &ConsoleSession) {
        self.0.invalidate(&hash_of(&session.cookie));
    }
}

impl ConsoleSession {
    /// The token that the forms of this session contain.
    pub(super) fn form_token(&self) -> SecretString {
        COOKIE.form_token(&self.cookie)
    }

    pub(super) fn allows(&self, form_token: &str) -> bool {
        COOKIE.allows(&self.cookie, form_token)
    }

    /// The header that gives the browser the cookie.
    pub(super) fn cookie(&self, state: &State, request: &HttpRequest) -> Option<HeaderValue> {
        COOKIE.set(state, request, &self.cookie, LONGEST)
    }
}

/// The header that removes the cookie.
pub(super) fn no_cookie(state: &State, request: &HttpRequest) -> Option<HeaderValue> {
    COOKIE.set(state, request, "", Duration::ZERO)
}

//! Sessions of the console: who is signed in, by a cookie. Only the pages below `/ui` read the cookie.
//!
//! Sessions are in memory. They end with the process, after an hour without a request, and after eight hours at the latest.

use std::sync::Arc;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::{HeaderMap, HeaderValue};
use moka::sync::Cache;
use secrecy::{ExposeSecret, SecretString};

use super::CONSOLE;
use crate::domain::access::api_key::{ApiKey, KeyRole, Presented};
use crate::domain::access::authorization::{hash_of, random_text};
use crate::domain::access::principal::Principal;
use crate::http::pages::browser::SessionCookie;
use crate::http::state::State;
use crate::service::access::keys::Keys;

const COOKIE: SessionCookie = SessionCookie { name: "toolsieve_ui", path: CONSOLE, same_site: "Strict" };
const LONGEST: Duration = Duration::from_hours(8);
const IDLE: Duration = Duration::from_hours(1);
/// Maximum number of sessions. The least recently used one gives way.
const SESSIONS: u64 = 1_000;

/// The sessions by the hashes of their cookies, with the key of a viewer.
pub(crate) struct ConsoleSessions(Cache<String, Option<Presented>>);

/// A signed-in administrator or viewer.
#[derive(Clone)]
pub(in crate::http) struct ConsoleSession {
    cookie: String,
    /// `None` for an administrator.
    viewer: Option<Arc<ApiKey>>,
}

impl Default for ConsoleSessions {
    fn default() -> Self {
        Self(Cache::builder().max_capacity(SESSIONS).time_to_live(LONGEST).time_to_idle(IDLE).build())
    }
}

impl ConsoleSessions {
    /// The session of the cookie in the headers. A viewer's session ends with its key.
    pub(in crate::http) fn of(&self, headers: &HeaderMap, keys: &Keys) -> Option<ConsoleSession> {
        COOKIE.values(headers).find_map(|cookie| {
            let viewer = match self.0.get(&hash_of(cookie))? {
                None => None,
                Some(presented) => Some(keys.of(&presented).filter(|key| key.role == Some(KeyRole::Viewer))?),
            };
            Some(ConsoleSession { cookie: cookie.to_owned(), viewer })
        })
    }

    /// Whether a session has not ended yet. Asking doesn't prolong it.
    pub(super) fn lasts(&self, session: &ConsoleSession, keys: &Keys) -> bool {
        let is_good = |key: &ApiKey| keys.is_good(&Presented { id: key.id.clone(), hash: key.hash });
        self.0.contains_key(&hash_of(&session.cookie)) && session.viewer.as_ref().is_none_or(|key| is_good(key))
    }

    /// Opens a session for an administrator, or for the viewer with this key.
    pub(super) fn open(&self, viewer: Option<Arc<ApiKey>>) -> ConsoleSession {
        let cookie = random_text(&rand::random());
        let presented = viewer.as_ref().map(|key| Presented { id: key.id.clone(), hash: key.hash });
        self.0.insert(hash_of(cookie.expose_secret()), presented);
        ConsoleSession { cookie: cookie.expose_secret().to_owned(), viewer }
    }

    pub(super) fn end(&self, session: &ConsoleSession) {
        self.0.invalidate(&hash_of(&session.cookie));
    }
}

impl ConsoleSession {
    pub(in crate::http) fn principal(&self) -> Principal {
        self.viewer.as_ref().map_or_else(Principal::admin_key, |key| Principal::api_key(key))
    }

    /// Whether the session may change something.
    pub(super) fn may_change(&self) -> bool {
        self.viewer.is_none()
    }

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

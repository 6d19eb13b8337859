//! Sessions of the console: who is signed in, by a cookie. Only the pages below `/ui` read the cookie.
//!
//! Sessions are in memory. They end with the process, after an hour without a request, and after eight hours at the latest.

use std::borrow::Cow;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use moka::sync::Cache;
use secrecy::{ExposeSecret, SecretString};

use super::CONSOLE;
use crate::domain::access::authorization::{hash_of, random_text};
use crate::http::state::State;

const COOKIE: &str = "toolsieve_ui";
/// Maximum length of a cookie that is looked up, in bytes.
const MAX_COOKIE: usize = 128;
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
        let cookies = headers.get_all(header::COOKIE).filter_map(|value| value.to_str().ok());
        let ours = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut ours = ours.filter(|(name, value)| *name == COOKIE && value.len() <= MAX_COOKIE);
        let (_, cookie) = ours.find(|(_, cookie)| self.0.get(&hash_of(cookie)).is_some())?;
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
    /// The token that the forms of this session contain. Pages of other sites don't know it.
    pub(super) fn form_token(&self) -> SecretString {
        SecretString::from(hash_of(&format!("console form\n{}", self.cookie)))
    }

    pub(super) fn allows(&self, form_token: &str) -> bool {
        // Both are hashes of secrets, so the time of the comparison reveals nothing.
        hash_of(form_token) == hash_of(self.form_token().expose_secret())
    }

    /// The header that gives the browser the cookie.
    pub(super) fn cookie(&self, state: &State, request: &HttpRequest) -> Option<HeaderValue> {
        set_cookie(state, request, &self.cookie, LONGEST)
    }
}

/// The header that removes the cookie.
pub(super) fn no_cookie(state: &State, request: &HttpRequest) -> Option<HeaderValue> {
    set_cookie(state, request, "", Duration::ZERO)
}

fn set_cookie(state: &State, request: &HttpRequest, value: &str, age: Duration) -> Option<HeaderValue> {
    let is_public_secure = state.public_url.as_ref().is_some_and(|url| url.starts_with("https://"));
    let secure = if is_public_secure || request.app_config().secure() { "; Secure" } else { "" };
    let (path, age) = (format!("{}{CONSOLE}", base(state)), age.as_secs());
    HeaderValue::try_from(format!("{COOKIE}={value}; Path={path}; Max-Age={age}; HttpOnly; SameSite=Strict{secure}")).ok()
}

/// The path below which browsers reach the service, without a slash at its end.
pub(super) fn base(state: &State) -> Cow<'static, str> {
    let path = state.public_url.as_ref().and_then(|url| url::Url::parse(url).ok()).map(|url| url.path().trim_end_matches('/').to_owned());
    path.map_or(Cow::Borrowed(""), Cow::Owned)
}

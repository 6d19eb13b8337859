//! What all pages for browsers share: addresses, cookies, forms and responses.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use secrecy::{ExposeSecret, SecretString};

use crate::domain::access::authorization::hash_of;
use crate::http::state::State;

/// Maximum length of a cookie that is looked up, in bytes.
const MAX_COOKIE: usize = 128;
/// `Retry-After` of a page for a request that may succeed later, in seconds.
const RETRY_SECONDS: u64 = 3;

/// The cookie that identifies a session of pages.
pub(in crate::http) struct SessionCookie {
    pub(in crate::http) name: &'static str,
    /// The path below which browsers send it, below the service's root.
    pub(in crate::http) path: &'static str,
    /// `Strict` or `Lax`.
    pub(in crate::http) same_site: &'static str,
}

impl SessionCookie {
    /// The values that a request contains. Other programs on the same host may set cookies with the same name.
    pub(in crate::http) fn values<'a>(&self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
        let name = self.name;
        let cookies = headers.get_all(header::COOKIE).filter_map(|value| value.to_str().ok());
        let pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.filter(move |(given, value)| *given == name && value.len() <= MAX_COOKIE).map(|(_, value)| value)
    }

    /// The header that gives the browser the cookie.
    pub(in crate::http) fn set(&self, state: &State, request: &HttpRequest, value: &str, age: Duration) -> Option<HeaderValue> {
        let Self { name, path, same_site } = self;
        let is_public_secure = state.public_url.as_ref().is_some_and(|url| url.starts_with("https://"));
        let secure = if is_public_secure || request.app_config().secure() { "; Secure" } else { "" };
        let (base, age) = (base(state), age.as_secs());
        HeaderValue::try_from(format!("{name}={value}; Path={base}{path}; Max-Age={age}; HttpOnly; SameSite={same_site}{secure}")).ok()
    }

    /// The token that the forms of a session contain. Pages of other sites don't know it.
    pub(in crate::http) fn form_token(&self, value: &str) -> SecretString {
        SecretString::from(hash_of(&format!("form of {}\n{value}", self.name)))
    }

    /// Whether a form belongs to the session with this cookie.
    pub(in crate::http) fn allows(&self, value: &str, form_token: &str) -> bool {
        // Both are hashes of secrets, so the time of the comparison reveals nothing.
        hash_of(form_token) == hash_of(self.form_token(value).expose_secret())
    }
}

/// The fields of a form or a query. If one occurs twice, none counts. Browsers send every line break as two characters (`\r\n`). Here it is
/// one.
#[derive(Default)]
pub(in crate::http) struct Fields(HashMap<String, String>);

impl Fields {
    pub(in crate::http) fn of(text: &[u8]) -> Self {
        let (mut found, mut twice) = (HashMap::new(), Vec::new());
        for (name, value) in url::form_urlencoded::parse(text) {
            if found.insert(name.clone().into_owned(), value.replace("\r\n", "\n")).is_some() {
                twice.push(name.into_owned());
            }
        }
        for name in twice {
            found.remove(&name);
        }
        Self(found)
    }

    /// The fields of a request's query.
    pub(in crate::http) fn of_query(request: &HttpRequest) -> Self {
        Self::of(request.query_string().as_bytes())
    }

    /// The value of a field, without the spaces around it; empty if the field is missing.
    pub(in crate::http) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |value| value.trim())
    }

    /// The value of a field as it was sent, with the spaces around it.
    pub(in crate::http) fn raw(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of a field, if it is not empty.
    pub(in crate::http) fn given(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// The parts of a field between commas.
    pub(in crate::http) fn list(&self, name: &str) -> Vec<&str> {
        self.text(name).split(',').map(str::trim).filter(|part| !part.is_empty()).collect()
    }

    /// The lines of a field, without empty ones.
    pub(in crate::http) fn lines(&self, name: &str) -> Vec<&str> {
        self.text(name).lines().map(str::trim).filter(|line| !line.is_empty()).collect()
    }

    /// A number; 0 if the field is missing or no number.
    pub(in crate::http) fn number(&self, name: &str) -> usize {
        self.text(name).parse().unwrap_or_default()
    }

    /// All fields, sorted by name, with the values as they were sent.
    pub(in crate::http) fn pairs(&self) -> Vec<(&str, &str)> {
        let mut pairs: Vec<(&str, &str)> = self.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        pairs.sort_unstable();
        pairs
    }

    pub(in crate::http) fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    pub(in crate::http) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }
}

/// The path below which browsers reach the service, without a slash at its end.
pub(in crate::http) fn base(state: &State) -> Cow<'_, str> {
    base_of(state.public_url.as_deref(), &state.publish.layout().root_path)
}

/// The path of the public address. Without one, mcpo's `--root-path` says where a proxy publishes the service.
fn base_of<'a>(public_url: Option<&str>, root_path: &'a str) -> Cow<'a, str> {
    let path = public_url.and_then(|url| url::Url::parse(url).ok()).map(|url| url.path().trim_end_matches('/').to_owned());
    path.filter(|path| !path.is_empty()).map_or(Cow::Borrowed(root_path), Cow::Owned)
}

/// A path with a query. Empty values are left out.
pub(in crate::http) fn address(path: &str, query: &[(&str, &str)]) -> String {
    let mut given = query.iter().filter(|(_, value)| !value.is_empty()).peekable();
    if given.peek().is_none() {
        return path.to_owned();
    }
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish();
    format!("{path}?{query}")
}

/// A page. Browsers don't store it.
pub(in crate::http) fn html(status: StatusCode, policy: HeaderValue, page: String) -> HttpResponse {
    let mut response = HttpResponseBuilder::new(status);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.insert_header((header::RETRY_AFTER, RETRY_SECONDS));
    }
    response
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, policy))
        // Addresses may contain links and codes. With `no-referrer`, browsers would send forms without their origin.
        .insert_header((header::REFERRER_POLICY, "same-origin"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .body(page)
}

/// A redirect to another page of the service.
pub(in crate::http) fn see(state: &State, path: &str) -> HttpResponse {
    let to = format!("{}{path}", base(state));
    HttpResponse::SeeOther().insert_header((header::LOCATION, to)).insert_header((header::CACHE_CONTROL, "no-store")).finish()
}

/// Adds the cookie of a new session.
pub(in crate::http) fn with_cookie(mut response: HttpResponse, cookie: Option<HeaderValue>) -> HttpResponse {
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::{Fields, address, base_of};

    #[test]
    fn a_field_that_occurs_twice_does_not_count() {
        let mut found = Fields::of(b"state=a&code=b%20c&state=d&iss=https%3A%2F%2Fa.example&list=a%2C%20b,&lines=a%2C%20b%0D%0A%0D%0Ac");
        assert_eq!(found.take("code").as_deref(), Some("b c"));
        assert_eq!(found.take("iss").as_deref(), Some("https://a.example"));
        assert_eq!(found.take("state"), None);
        assert_eq!((found.list("list"), found.lines("lines")), (vec!["a", "b"], vec!["a, b", "c"]));
    }

    /// Regression test: a text with line breaks was another text after it was saved unchanged.
    #[test]
    fn a_line_break_is_one_character() {
        let found = Fields::of(b"text=+a%0D%0A%0D%0Ab%0Ac%0D%0A&return=a%0Db");
        assert_eq!((found.raw("text"), found.text("text")), (Some(" a\n\nb\nc\n"), "a\n\nb\nc"));
        assert_eq!(found.text("return"), "a\rb");
    }

    #[test]
    fn pages_are_below_the_public_address_or_the_root_path() {
        for (public_url, root_path, expected) in [
            (None, "", ""),
            (None, "/toolsieve", "/toolsieve"),
            (Some("https://chat.example.org"), "", ""),
            (Some("https://chat.example.org"), "/toolsieve", "/toolsieve"),
            (Some("https://chat.example.org/tools/"), "", "/tools"),
            (Some("https://chat.example.org/tools"), "/toolsieve", "/tools"),
        ] {
            assert_eq!(base_of(public_url, root_path), expected, "{public_url:?} {root_path}");
        }
    }

    #[test]
    fn addresses_contain_only_what_is_given() {
        assert_eq!(address("/ui", &[("a", "")]), "/ui");
        assert_eq!(address("/ui", &[("a", ""), ("b", "x&y=z é")]), "/ui?b=x%26y%3Dz+%C3%A9");
    }
}

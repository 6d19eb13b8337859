//! Parts of the service that need no key, and those in which something else replaces it.

use actix_web::http::Method;

use crate::http::console::CONSOLE;
use crate::service::access::connections::{CALLBACK, CLIENT_METADATA, PAGE};

/// Paths that never need a key.
const PUBLIC: [&str; 2] = ["/healthz", "/readyz"];
/// The prefix of signed links to files.
const SIGNED: &str = "/v1/files/";

/// Whether the request needs no key.
pub(super) fn is_public(method: &Method, path: &str) -> bool {
    PUBLIC.contains(&path) || is_page(path) || (matches!(*method, Method::GET | Method::HEAD) && is_signed_link(path))
}

/// Whether a path is a page for sign-ins. A signed link and its session replace the key.
pub(super) fn is_page(path: &str) -> bool {
    [PAGE, CALLBACK, CLIENT_METADATA].contains(&path) || path.strip_prefix(PAGE).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a path belongs to the console, whose sessions replace the key.
pub(super) fn is_console(path: &str) -> bool {
    path.strip_prefix(CONSOLE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) && !is_page(path)
}

/// Whether a path is a signed link to a file. The signature replaces the key.
pub(super) fn is_signed_link(path: &str) -> bool {
    path.strip_prefix(SIGNED).is_some_and(|id| !id.is_empty() && !id.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::is_public;

    #[test]
    fn public_is_what_the_design_says_and_nothing_else() {
        let is = |method: &str, path| is_public(&method.parse().unwrap(), path);
        for path in ["/healthz", "/readyz"] {
            assert!(is("GET", path) && is("HEAD", path), "{path}");
        }
        assert!(is("GET", "/v1/files/abc") && is("HEAD", "/v1/files/abc"));
        for (method, path) in [
            ("POST", "/v1/files/abc"),
            ("PUT", "/v1/files/abc"),
            ("GET", "/v1/files/"),
            ("GET", "/v1/files"),
            ("GET", "/v1/files/a/b"),
            ("GET", "/v1/files/../admin/keys"),
            ("GET", "/toolsets/a/healthz"),
            ("GET", "/s/a/v1/files/abc"),
            ("GET", "/healthz/"),
            ("GET", "/"),
            ("GET", "/metrics"),
        ] {
            assert!(!is(method, path), "{method} {path}");
        }
    }
}

//! Pages for browsers: what they share, and their security headers: what a page may load, who may embed it, and no content
//! sniffing.

pub(crate) mod plot;
pub(crate) mod texts;
pub(crate) mod browser;
pub(crate) mod dress;
pub(crate) mod connections;
pub(crate) mod account;

use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// The policy for pages that set no policy. They may load nothing.
const NOTHING: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
/// The policy for pages that need only inline styles.
pub(super) const STYLED: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);
/// The policy for the document viewer. It may run its own scripts, which set styles, and call this service. It can't
/// load images from addresses in a tool's definition.
pub(super) const VIEWER: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; \
     connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);
const REFERRER_POLICY: HeaderName = header::REFERRER_POLICY;

/// Adds all security headers that the response doesn't set itself.
pub(super) fn protect(headers: &mut HeaderMap) {
    add(headers, header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    add(headers, REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let is_page = headers.get(header::CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.as_bytes().to_ascii_lowercase();
        [&b"text/html"[..], b"application/xhtml", b"image/svg"].iter().any(|page| kind.starts_with(page))
    });
    if is_page {
        add(headers, header::CONTENT_SECURITY_POLICY, NOTHING);
        // For browsers that don't support `frame-ancestors`.
        add(headers, header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    }
}

fn add(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    if !headers.contains_key(&name) {
        headers.insert(name, value);
    }
}

//! Headers that isolate pages: what they may load, who may frame them, and no content sniffing.

pub(crate) mod plot;

use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// The policy of a page without its own: it may load nothing.
const NOTHING: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
/// The policy of pages with inline styles only.
pub(super) const STYLED: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);
/// The policy of the document viewer: its own scripts, the styles that they write, and calls to this service. It never fetches an
/// image that a definition names.
pub(super) const VIEWER: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; \
     connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);
const REFERRER_POLICY: HeaderName = header::REFERRER_POLICY;

/// Adds the headers that an answer does not set itself.
pub(super) fn protect(headers: &mut HeaderMap) {
    add(headers, header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    add(headers, REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let is_page = headers.get(header::CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.as_bytes().to_ascii_lowercase();
        [&b"text/html"[..], b"application/xhtml", b"image/svg"].iter().any(|page| kind.starts_with(page))
    });
    if is_page {
        add(headers, header::CONTENT_SECURITY_POLICY, NOTHING);
        // For browsers without support for frame-ancestors.
        add(headers, header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    }
}

fn add(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    if !headers.contains_key(&name) {
        headers.insert(name, value);
    }
}

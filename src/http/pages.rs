//! Headers that keep pages to themselves: what they may load, who may frame them, and that nothing is guessed.

pub mod plot;

use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// What a page without a policy of its own may do: nothing but be read.
const NOTHING: HeaderValue = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
/// Of pages that bring their style along and nothing else.
pub(super) const STYLED: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);
/// Of the viewer of documents: its own scripts, the styles that those write, and calls to this service. No image that a
/// definition names is ever fetched.
pub(super) const VIEWER: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; \
     connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);
const REFERRER_POLICY: HeaderName = header::REFERRER_POLICY;

/// Adds what an answer does not say itself.
pub(super) fn protect(headers: &mut HeaderMap) {
    add(headers, header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    add(headers, REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let is_page = headers.get(header::CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.as_bytes().to_ascii_lowercase();
        [&b"text/html"[..], b"application/xhtml", b"image/svg"].iter().any(|page| kind.starts_with(page))
    });
    if is_page {
        add(headers, header::CONTENT_SECURITY_POLICY, NOTHING);
        // For browsers that do not know frame-ancestors.
        add(headers, header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    }
}

fn add(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    if !headers.contains_key(&name) {
        headers.insert(name, value);
    }
}

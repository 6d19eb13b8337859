//! Decides which web pages may call the service. For each request that could change something, browsers send the page's
//! origin. For other requests, they report whether the request is cross-site. Requests from other sites' pages are
//! rejected on every route, even with a key, unless the settings name the site. So other sites can't use keys that a
//! browser has stored.

use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap};
use url::Url;

use crate::http::area::{is_console, is_page, is_signed_link};

/// A header that browsers set and pages can't change.
const SITE: &str = "sec-fetch-site";

/// Where a request comes from, as far as the service can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A program, or one of the service's own pages.
    Own,
    /// A page of a site that the settings allow by name.
    Named,
    /// A page of an unknown site, if the settings allow all sites. Keys that its browser has stored are ignored.
    Any,
    Foreign,
}

/// The sites whose pages may call the service.
#[derive(Clone, Debug)]
pub(crate) struct Origins {
    named: Vec<String>,
    public: Option<String>,
    any: bool,
    /// Whether the service itself uses TLS. Pages of the same host without TLS then count as another site.
    is_secure: bool,
}

impl Origins {
    pub(crate) fn new(cors_origins: &[String], public_url: Option<&Url>, is_secure: bool) -> Self {
        Self {
            named: cors_origins.to_vec(),
            public: public_url.map(|url| url.origin().ascii_serialization()),
            any: cors_origins.iter().any(|origin| origin == "*"),
            is_secure,
        }
    }

    /// Determines where a request comes from. `path` is the path below the service's root.
    pub(super) fn of(&self, method: &Method, headers: &HeaderMap, path: &str) -> Standing {
        let standing = self.standing(headers);
        // A chat may show an image by its signed link. The link itself is the permission, so stored keys add nothing.
        // An authorization server sends people back to the page for sign-ins, which uses no keys. People follow links to the console, and
        // browsers don't send its cookie then.
        let is_open = || is_signed_link(path) || is_page(path) || is_console(path);
        let reads = || matches!(*method, Method::GET | Method::HEAD) && !headers.contains_key(header::ORIGIN) && is_open();
        if standing == Standing::Foreign && reads() { Standing::Any } else { standing }
    }

    fn standing(&self, headers: &HeaderMap) -> Standing {
        let foreign = if self.any { Standing::Any } else { Standing::Foreign };
        let Some(origin) = headers.get(header::ORIGIN) else {
            let is_cross = headers.get(SITE).is_some_and(|site| site.as_bytes().eq_ignore_ascii_case(b"cross-site"));
            return if is_cross { foreign } else { Standing::Own };
        };
        // A request with two origin headers is forged.
        let Some(origin) = origin.to_str().ok().filter(|_| headers.get_all(header::ORIGIN).count() == 1) else { return foreign };
        if self.public.as_deref() == Some(origin) || self.is_own(origin, headers) {
            return Standing::Own;
        }
        if self.named.iter().any(|named| named == origin) { Standing::Named } else { foreign }
    }

    /// Whether the origin is the host and port to which the request was sent.
    fn is_own(&self, origin: &str, headers: &HeaderMap) -> bool {
        let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
        let usual_port = match origin.split_once("://") {
            Some(("https", _)) => ":443",
            Some(("http", _)) if !self.is_secure => ":80",
            _ => return false,
        };
        let bare = |host: &str| host.strip_suffix(usual_port).unwrap_or(host).to_ascii_lowercase();
        origin.split_once("://").is_some_and(|(_, own)| !own.is_empty() && bare(own) == bare(host))
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};

    use super::{Origins, SITE, Standing};

    fn headers(host: &'static str, more: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static(host));
        for (name, value) in more {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_the_own_host_and_port_and_what_is_named_are_let_in() {
        let public = "https://tools.example.org/below".parse().unwrap();
        let named = ["https://chat.example.org".to_owned()];
        let origins = Origins::new(&named, Some(&public), false);
        for (host, origin, expected) in [
            ("127.0.0.1:8000", "http://127.0.0.1:8000", Standing::Own),
            ("localhost:8000", "http://LOCALHOST:8000", Standing::Own),
            ("[::1]:8000", "http://[::1]:8000", Standing::Own),
            ("tools.example.org", "https://tools.example.org", Standing::Own),
            ("10.0.0.1:8000", "https://tools.example.org", Standing::Own),
            ("10.0.0.1:443", "https://10.0.0.1", Standing::Own),
            ("10.0.0.1", "http://10.0.0.1:80", Standing::Own),
            ("10.0.0.1:8000", "https://chat.example.org", Standing::Named),
            ("localhost:8000", "http://localhost:3000", Standing::Foreign),
            ("localhost:8000", "http://127.0.0.1:8000", Standing::Foreign),
            ("localhost:8000", "http://localhost", Standing::Foreign),
            ("localhost", "https://localhost:80", Standing::Foreign),
            ("localhost:8000", "null", Standing::Foreign),
            ("localhost:8000", "file://", Standing::Foreign),
            ("localhost:8000", "", Standing::Foreign),
            ("", "http://", Standing::Foreign),
            ("localhost:8000", "https://chat.example.org.evil.example", Standing::Foreign),
        ] {
            let headers = headers(host, &[("origin", origin)]);
            assert_eq!(origins.standing(&headers), expected, "{origin} at {host}");
        }
        assert_eq!(origins.standing(&headers("a", &[("origin", "http://a"), ("origin", "http://b")])), Standing::Foreign);
    }

    #[test]
    fn a_browser_that_says_cross_site_is_believed() {
        let origins = Origins::new(&[], None, false);
        for (site, expected) in
            [("cross-site", Standing::Foreign), ("same-site", Standing::Own), ("same-origin", Standing::Own), ("none", Standing::Own)]
        {
            assert_eq!(origins.standing(&headers("a", &[(SITE, site)])), expected, "{site}");
        }
        assert_eq!(origins.standing(&headers("a", &[])), Standing::Own, "a program");
    }

    #[test]
    fn a_star_lets_all_in_and_takes_none_for_its_own() {
        let origins = Origins::new(&["*".to_owned()], None, false);
        for foreign in [("origin", "https://evil.example"), ("origin", "null"), (SITE, "cross-site")] {
            assert_eq!(origins.standing(&headers("a", &[foreign])), Standing::Any, "{foreign:?}");
        }
        assert_eq!(origins.standing(&headers("a", &[("origin", "http://a")])), Standing::Own);
    }

    #[test]
    fn with_tls_a_page_without_it_is_another_one() {
        let origins = Origins::new(&[], None, true);
        assert_eq!(origins.standing(&headers("a", &[("origin", "http://a")])), Standing::Foreign);
        assert_eq!(origins.standing(&headers("a", &[("origin", "https://a")])), Standing::Own);
    }
}

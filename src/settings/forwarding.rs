//! The server setting `client_header_forwarding`: which of a caller's headers an MCP server receives.

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderName};
use serde_json::Value;

use crate::settings::entry::Entry;
use crate::settings::json_text::{child, item};

const KEYS: [&str; 4] = ["enabled", "whitelist", "blacklist", "debug_headers"];
/// Headers that concern only this connection or request. Forwarding them would break the request to the server. So do all that MCP
/// defines, such as `Mcp-Method` and `Mcp-Param-Region`, which repeat parts of the body (specification 2026-07-28, "Transports").
const OWN: [&str; 18] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "origin",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-toolsieve-selection-id",
];
/// Headers with credentials. They are forwarded only if a pattern contains their full name.
const CREDENTIALS: [&str; 8] = [
    "authorization",
    "cookie",
    "proxy-authorization",
    "x-anthropic-api-key",
    "x-gemini-api-key",
    "x-llm-api-key",
    "x-openai-api-key",
    "x-openwebui-user-jwt",
];

/// Headers with credentials for this service or for proxies.
const NOT_OF_USERS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// Whether a header (in lower case) can't contain the token of a user that a server's entry exchanges.
pub(super) fn is_never_a_token(header: &str) -> bool {
    OWN.contains(&header) || NOT_OF_USERS.contains(&header)
}

/// Which headers a server receives. Names are case-insensitive, and a trailing `*` matches any suffix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderForwarding {
    /// Headers to forward. If the list is empty, all headers except credentials are forwarded.
    pub whitelist: Vec<String>,
    /// Headers that are never forwarded, even if the whitelist contains them.
    pub blacklist: Vec<String>,
    /// Whether to log the names of forwarded headers.
    pub debug: bool,
}

impl HeaderForwarding {
    /// Parses the setting. Returns `None` if it is missing, invalid or not enabled.
    pub(super) fn read(entry: &mut Entry<'_, '_>) -> Option<Self> {
        const KEY: &str = "client_header_forwarding";
        let path = child(entry.path(), KEY);
        let keys = entry.object(KEY)?;
        entry.check_known(&path, &keys, &KEYS);
        let mut switch = |name: &str| match keys.get(name) {
            None | Some(Value::Null) => false,
            Some(value) => entry.switch_of(&child(&path, name), value).unwrap_or_default(),
        };
        let (enabled, debug) = (switch("enabled"), switch("debug_headers"));
        let mut patterns = |name: &str| -> Vec<String> {
            let path = child(&path, name);
            match keys.get(name) {
                None | Some(Value::Null) => Vec::new(),
                Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
                    let texts = items.iter().enumerate().filter_map(|(position, text)| Some((item(&path, position), text.as_str()?)));
                    texts.filter_map(|(path, text)| entry.replaced(&path, text)).map(|text| text.to_lowercase()).collect()
                }
                Some(_) => entry.wrong_kind(&path, "a list of header names").unwrap_or_default(),
            }
        };
        let (whitelist, blacklist) = (patterns("whitelist"), patterns("blacklist"));
        for name in whitelist.iter().filter(|name| is_own(name)) {
            let remedy = "remove it: this header concerns only the caller's own connection";
            entry.warning(&child(&path, "whitelist"), format!("`{name}` is never forwarded"), remedy);
        }
        enabled.then_some(Self { whitelist, blacklist, debug })
    }

    pub fn passes(&self, header: &str) -> bool {
        let header = header.to_lowercase();
        let matches = |pattern: &String| pattern.strip_suffix('*').map_or(*pattern == header, |start| header.starts_with(start));
        if is_own(&header) || self.blacklist.iter().any(matches) {
            return false;
        }
        if CREDENTIALS.contains(&header.as_str()) {
            return self.whitelist.contains(&header);
        }
        self.whitelist.is_empty() || self.whitelist.iter().any(matches)
    }

    /// The headers to forward to the server. `tokens` names further headers with credentials, in lower case.
    pub fn select(&self, headers: &HeaderMap, tokens: &BTreeSet<String>) -> HeaderMap {
        let mut out = HeaderMap::new();
        let is_withheld =
            |name: &HeaderName| tokens.contains(name.as_str()) && !self.whitelist.iter().any(|listed| listed == name.as_str());
        for (name, value) in headers.iter().filter(|(name, _)| self.passes(name.as_str()) && !is_withheld(name)) {
            let mut value = value.clone();
            value.set_sensitive(true);
            out.append(name.clone(), value);
        }
        if self.debug {
            let names: Vec<&str> = out.keys().map(HeaderName::as_str).collect();
            tracing::debug!(headers = names.join(", "), "forwarded the caller's headers");
        }
        out
    }
}

fn is_own(header: &str) -> bool {
    header.starts_with("mcp-") || OWN.contains(&header)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http::{HeaderMap, HeaderValue};

    use super::HeaderForwarding;

    fn rules(whitelist: &[&str], blacklist: &[&str]) -> HeaderForwarding {
        let list = |names: &[&str]| names.iter().map(|name| name.to_lowercase()).collect();
        HeaderForwarding { whitelist: list(whitelist), blacklist: list(blacklist), debug: false }
    }

    #[test]
    fn the_blacklist_wins_and_a_star_ends_a_pattern() {
        let rules = rules(&["X-User-*", "X-Team"], &["x-user-secret*"]);
        for (header, passes) in [
            ("x-user-id", true),
            ("X-USER-ID", true),
            ("x-team", true),
            ("x-teams", false),
            ("x-user-secret-one", false),
            ("x-other", false),
        ] {
            assert_eq!(rules.passes(header), passes, "{header}");
        }
    }

    #[test]
    fn credentials_must_be_named_and_headers_of_the_connection_never_pass() {
        let everything = rules(&["*"], &[]);
        for header in [
            "authorization",
            "Cookie",
            "X-LLM-Api-Key",
            "x-openai-api-key",
            "X-OpenWebUI-User-Jwt",
            "host",
            "content-length",
            "Mcp-Session-Id",
            "Mcp-Param-Region",
            "connection",
        ] {
            assert!(!everything.passes(header) && !rules(&[], &[]).passes(header), "{header}");
        }
        assert!(everything.passes("x-anything") && rules(&[], &[]).passes("x-anything"));
        assert!(rules(&["Authorization"], &[]).passes("authorization"));
        assert!(!rules(&["auth*"], &[]).passes("authorization"));
        assert!(!rules(&["Authorization"], &["*"]).passes("authorization"));
        assert!(!rules(&["Host"], &[]).passes("host"));
    }

    #[test]
    fn selected_headers_are_kept_out_of_logs() {
        let headers: HeaderMap = [("x-user-id", "u1"), ("accept", "a")]
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .into_iter()
            .collect();
        let selected = rules(&[], &[]).select(&headers, &BTreeSet::new());
        assert_eq!(selected.len(), 1);
        assert!(selected["x-user-id"].is_sensitive() && selected["x-user-id"] == "u1");
    }

    #[test]
    fn a_header_with_users_tokens_passes_by_its_full_name_alone() {
        let headers: HeaderMap = [("x-user-token".parse().unwrap(), HeaderValue::from_static("token"))].into_iter().collect();
        let tokens = BTreeSet::from(["x-user-token".to_owned()]);
        for (whitelist, passes) in [(&[][..], false), (&["x-user-*"][..], false), (&["*"][..], false), (&["X-User-Token"][..], true)] {
            assert_eq!(rules(whitelist, &[]).select(&headers, &tokens).len(), usize::from(passes), "{whitelist:?}");
        }
    }
}

//! Metadata of MCP servers and of authorization servers: where they may stand, and to whom they belong (RFC 8414, RFC 9728).

use url::Url;

/// Possible addresses of metadata, starting with the one for the full path (RFC 8414 and RFC 9728, both section 3.1).
pub(crate) fn well_known(url: &Url, names: &[&str]) -> Vec<Url> {
    let path = url.path().trim_end_matches('/');
    let suffixes = if path.is_empty() { vec![""] } else { vec![path, ""] };
    let paths = suffixes.iter().flat_map(|suffix| names.iter().map(move |name| format!("/.well-known/{name}{suffix}")));
    paths.filter_map(|path| at(url, &path)).collect()
}

/// Another path of the same origin.
pub(crate) fn at(url: &Url, path: &str) -> Option<Url> {
    let mut url = url.join("/").ok()?;
    url.set_path(path);
    Some(url)
}

/// Compares issuers as text (RFC 8414, section 3.3), but ignores the slash of an empty path.
pub(crate) fn is_same_issuer(one: &str, other: &str) -> bool {
    !one.is_empty() && one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// Whether metadata of this resource belong to the server (RFC 9728, section 3.3): the resource is its URL or a parent of it.
pub(crate) fn covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let (above, path) = (resource.path().trim_end_matches('/'), server.path().trim_end_matches('/'));
    let is_above = path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    resource.origin() == server.origin() && is_above
}

/// A text of a server, for an error: at most 200 visible ASCII characters.
pub(crate) fn quoted(text: &str) -> String {
    let plain: String = text.chars().filter(char::is_ascii_graphic).take(200).collect();
    format!("`{plain}`")
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::{covers, is_same_issuer, quoted, well_known};

    #[test]
    fn a_quoted_text_is_short_and_in_one_line() {
        assert_eq!(quoted("https://a.example/x\n\u{1b}[31m\u{202e}é"), "`https://a.example/x[31m`");
        assert_eq!(quoted(&"a".repeat(5_000)).len(), 202);
    }

    #[test]
    fn metadata_is_looked_for_where_it_may_stand() {
        let addresses = |url: &str, names: &[&str]| -> Vec<String> {
            well_known(&Url::parse(url).unwrap(), names).iter().map(|url| url.as_str().replace("https://a.example", "")).collect()
        };
        assert_eq!(addresses("https://a.example/", &["x"]), ["/.well-known/x"]);
        assert_eq!(
            addresses("https://a.example/t/1/", &["x", "y"]),
            ["/.well-known/x/t/1", "/.well-known/y/t/1", "/.well-known/x", "/.well-known/y"]
        );
        assert_eq!(
            addresses("https://a.example/mcp?x=1", &["oauth-protected-resource"]),
            ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"]
        );
    }

    #[test]
    fn metadata_are_of_the_server_or_of_what_is_above_it() {
        let server = Url::parse("https://mcp.example/a/mcp").unwrap();
        for own in [
            "https://mcp.example/a/mcp",
            "https://mcp.example/a/mcp/",
            "https://mcp.example/a",
            "https://mcp.example",
            "https://mcp.example:443/",
        ] {
            assert!(covers(own, &server), "{own}");
        }
        for other in [
            "",
            "x",
            "https://mcp.example/b",
            "https://mcp.example/a/mc",
            "https://other.example/a/mcp",
            "http://mcp.example/a",
            "http://mcp.example/a/mcp",
            "https://mcp.example:8443/a/mcp",
        ] {
            assert!(!covers(other, &server), "{other}");
        }
        assert!(is_same_issuer("https://a.example/", "https://a.example") && is_same_issuer("https://a.example/x", "https://a.example/x"));
        assert!(
            !is_same_issuer("", "")
                && !is_same_issuer("https://a.example", "https://b.example")
                && !is_same_issuer("https://a.example/x", "https://a.example")
        );
    }
}

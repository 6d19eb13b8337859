//! Published names of tools, and names that the service reserves.

use std::sync::Arc;

use serde::Serialize;

use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::text::canonical::Fingerprint;
use crate::domain::text::named::name_text;

/// Maximum length of a function name that every provider accepts.
const MAX_LENGTH: usize = 64;
/// Length of the hash suffix: `_` and eight hexadecimal digits.
const SUFFIX_LENGTH: usize = 9;
const SEPARATOR: &str = "__";

/// First path segments of the service's own routes. A server with such a name would be unreachable.
pub const RESERVED_SERVER_NAMES: [&str; 10] = ["v1", "docs", "s", "mcp", "toolsets", "ui", "metrics", "healthz", "readyz", "openapi.json"];

/// The meta-tool that runs any other tool by name. It is defined here because tool descriptions mention it.
pub const RUN_TOOL: &str = "run_tool";

/// The published name of a tool: `^[a-zA-Z][a-zA-Z0-9_-]*$`, at most 64 characters, unique in a catalog.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct OperationId(Arc<str>);

impl OperationId {
    /// Builds `<server>__<tool>`.
    ///
    /// The name depends only on these two names, so it is the same in every document and on every replica, whatever other
    /// tools exist. If this form would be ambiguous, too long or invalid, a hash of both names is appended to keep it unique.
    pub fn of(id: &ToolId) -> Self {
        let server = id.server.as_str();
        let mut name = String::with_capacity(server.len() + SEPARATOR.len() + id.name.len() + SUFFIX_LENGTH);
        let mut exact = !server.contains(SEPARATOR) && !server.ends_with('_') && !id.name.starts_with('_');
        for character in server.chars().chain(SEPARATOR.chars()).chain(id.name.chars()) {
            if name.is_empty() && !character.is_ascii_alphabetic() {
                name.push('t');
                exact = false;
            }
            if character.is_ascii_alphanumeric() || character == '_' || character == '-' {
                name.push(character);
            } else {
                name.push('_');
                exact = false;
            }
        }
        if !exact || name.len() > MAX_LENGTH {
            name.truncate(MAX_LENGTH - SUFFIX_LENGTH);
            name.push('_');
            name.push_str(&hash(id));
        }
        Self(name.into())
    }
}

name_text!(OperationId);

/// Splits a published name into the parts that come from the server's and from the tool's name. `None` if the server's name is so long that
/// nothing comes from the tool's.
pub(in crate::domain) fn split<'a>(published: &'a str, server: &ServerName) -> Option<(&'a str, &'a str)> {
    let server = server.as_str();
    let letter_in_front = !server.starts_with(|first: char| first.is_ascii_alphabetic());
    // Each character of the server's name has become one byte.
    let end = server.chars().count() + usize::from(letter_in_front);
    let (of_server, rest) = published.split_at_checked(end)?;
    Some((of_server, rest.strip_prefix(SEPARATOR)?))
}

impl std::borrow::Borrow<str> for OperationId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

fn hash(id: &ToolId) -> String {
    let fingerprint = Fingerprint::of_text(&format!("{}\0{}", id.server, id.name));
    format!("{:08x}", fingerprint.prefix() >> 32)
}

#[cfg(test)]
mod tests {
    use super::{OperationId, split};
    use crate::domain::catalog::tool::ToolId;

    fn name(server: &str, tool: &str) -> String {
        OperationId::of(&ToolId::new(server, tool)).to_string()
    }

    #[test]
    fn plain_names_are_joined() {
        assert_eq!(name("github", "create_issue"), "github__create_issue");
        assert_eq!(name("google-calendar", "list-events"), "google-calendar__list-events");
    }

    #[test]
    fn the_parts_of_a_name_are_known_whatever_they_contain() {
        let long = "s".repeat(60);
        for (server, tool, expected) in [
            ("git", "push", Some(("git", "push"))),
            ("evil", "git__push", Some(("evil", "git__push"))),
            ("a__b", "c", Some(("a__b", "c_"))),
            ("a_", "b", Some(("a_", "b_"))),
            ("4chan", "read", Some(("t4chan", "read_"))),
            (&long, "read", None),
        ] {
            let name = name(server, tool);
            let found = split(&name, &server.into());
            assert_eq!(found.map(|(of_server, _)| of_server), expected.map(|(of_server, _)| of_server), "{name}");
            assert!(found.zip(expected).is_none_or(|((_, found), (_, begin))| found.starts_with(begin)), "{name}");
        }
    }

    #[test]
    fn every_other_name_is_valid_stable_and_distinct() {
        let cases = [
            ("a__b", "c"),
            ("a", "b__c"),
            ("a_", "b"),
            ("a", "_b"),
            ("4chan", "read"),
            ("a", "x.y"),
            ("a", "x/y"),
            ("a", "x_y"),
            ("日本", "時間"),
            ("日本", "天気"),
            ("", ""),
            ("a", &"long".repeat(40)),
            ("a", "{brace}"),
            ("_", "x"),
            ("-", "x"),
        ];
        let mut seen = std::collections::BTreeSet::new();
        for (server, tool) in cases {
            let name = name(server, tool);
            assert!(name.len() <= 64, "{name}");
            assert!(name.starts_with(|c: char| c.is_ascii_alphabetic()), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{name}");
            assert_eq!(name, self::name(server, tool));
            let (of_server, of_tool) = split(&name, &server.into()).unwrap();
            assert_eq!(format!("{of_server}__{of_tool}"), name);
            assert!(of_server.chars().count() <= server.chars().count() + 1, "{of_server}");
            assert!(seen.insert(name));
        }
    }
}

//! Published names of tools, and names that the service reserves.

use crate::domain::text::canonical::Fingerprint;

/// Maximum length of a function name that every provider accepts.
const MAX_LENGTH: usize = 64;
/// Length of the hash suffix: `_` and eight hexadecimal digits.
const SUFFIX_LENGTH: usize = 9;
const SEPARATOR: &str = "__";

/// First path segments of the service's own routes. A server with such a name would be unreachable.
pub const RESERVED_SERVER_NAMES: [&str; 10] = ["v1", "docs", "s", "mcp", "toolsets", "ui", "metrics", "healthz", "readyz", "openapi.json"];

/// The meta-tool that runs any other tool by name. It is defined here because tool descriptions mention it.
pub const RUN_TOOL: &str = "run_tool";

/// The published name of a tool, from the names of its server and its own.
pub(super) fn published(server: &str, tool: &str) -> String {
    let mut name = String::with_capacity(server.len() + SEPARATOR.len() + tool.len() + SUFFIX_LENGTH);
    let mut exact = !server.contains(SEPARATOR) && !server.ends_with('_') && !tool.starts_with('_');
    for character in server.chars().chain(SEPARATOR.chars()).chain(tool.chars()) {
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
        name.push_str(&hash(server, tool));
    }
    name
}

/// Splits a published name into the parts that come from the server's and from the tool's name. `None` if the server's name is so long that
/// nothing comes from the tool's.
pub(in crate::domain) fn split<'a>(published: &'a str, server: &str) -> Option<(&'a str, &'a str)> {
    let letter_in_front = !server.starts_with(|first: char| first.is_ascii_alphabetic());
    // Each character of the server's name has become one byte.
    let end = server.chars().count() + usize::from(letter_in_front);
    let (of_server, rest) = published.split_at_checked(end)?;
    Some((of_server, rest.strip_prefix(SEPARATOR)?))
}

fn hash(server: &str, tool: &str) -> String {
    let fingerprint = Fingerprint::of_text(&format!("{server}\0{tool}"));
    format!("{:08x}", fingerprint.prefix() >> 32)
}

#[cfg(test)]
mod tests {
    use super::{published, split};

    #[test]
    fn plain_names_are_joined() {
        assert_eq!(published("github", "create_issue"), "github__create_issue");
        assert_eq!(published("google-calendar", "list-events"), "google-calendar__list-events");
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
            let name = published(server, tool);
            let found = split(&name, server);
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
            let name = published(server, tool);
            assert!(name.len() <= 64, "{name}");
            assert!(name.starts_with(|c: char| c.is_ascii_alphabetic()), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{name}");
            assert_eq!(name, published(server, tool));
            let (of_server, of_tool) = split(&name, server).unwrap();
            assert_eq!(format!("{of_server}__{of_tool}"), name);
            assert!(of_server.chars().count() <= server.chars().count() + 1, "{of_server}");
            assert!(seen.insert(name));
        }
    }
}

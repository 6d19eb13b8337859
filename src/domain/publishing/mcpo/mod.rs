//! Names and descriptions as published by mcpo (0.0.20), for users who migrate.
//!
//! Names are identical wherever models accept them. Schemas are not; [`schema`] computes mcpo's for comparison.

pub(crate) mod schema;

use std::collections::{HashMap, HashSet};

use crate::domain::text::canonical::Fingerprint;

/// Maximum length of a function name that every provider accepts.
const MAX_LENGTH: usize = 64;

/// The operation ids of one server's tools, in the order of `tools`: `tool_<name>_post`.
///
/// mcpo replaces characters other than letters, digits and `_` with `_`, so two tools may get the same name. A name may also be
/// too long, or contain letters that providers reject. Such tools get a hash in their names. If several tools share a name, the
/// tool with exactly that spelling keeps it, otherwise the first by name.
pub(crate) fn operation_ids(tools: &[&str]) -> Vec<String> {
    let mut owners: HashMap<String, &str> = HashMap::new();
    for tool in tools.iter().copied() {
        let plain = plain(tool);
        let is_exact = |tool: &str| tool.bytes().all(is_word);
        owners
            .entry(plain)
            .and_modify(|owner| {
                if (!is_exact(tool), tool) < (!is_exact(owner), *owner) {
                    *owner = tool;
                }
            })
            .or_insert(tool);
    }
    let mut seen = HashSet::new();
    tools
        .iter()
        .map(|tool| {
            let plain = plain(tool);
            let is_theirs = owners.get(&plain) == Some(tool) && tool.is_ascii() && plain.len() <= MAX_LENGTH;
            if is_theirs && seen.insert(plain.clone()) { plain } else { hashed(tool) }
        })
        .collect()
}

fn plain(tool: &str) -> String {
    let word: String = tool.chars().map(|character| if u8::try_from(character).is_ok_and(is_word) { character } else { '_' }).collect();
    format!("tool_{word}_post")
}

/// The operation id that mcpo gives a tool, even if models reject it.
pub(crate) fn their_operation_id(tool: &str) -> String {
    let word: String =
        tool.chars().map(|character| if character.is_alphanumeric() || character == '_' { character } else { '_' }).collect();
    format!("tool_{word}_post")
}

fn hashed(tool: &str) -> String {
    let hash = format!("_{:08x}_post", Fingerprint::of_text(tool).prefix() >> 32);
    let mut name = plain(tool);
    name.truncate((name.len() - "_post".len()).min(MAX_LENGTH - hash.len()));
    name + &hash
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// mcpo's summary of an operation: title case, with spaces for `_`.
pub(crate) fn summary(tool: &str) -> String {
    let mut out = String::with_capacity(tool.len());
    let mut inside = false;
    for character in tool.replace('_', " ").chars() {
        let is_cased = character.is_uppercase() || character.is_lowercase();
        if !is_cased {
            out.push(character);
        } else if inside {
            out.extend(character.to_lowercase());
        } else {
            out.extend(character.to_uppercase());
        }
        inside = is_cased;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{operation_ids, summary};

    #[test]
    fn names_are_those_of_mcpo() {
        let names = operation_ids(&["get_current_time", "get-sum", "a.b/c"]);
        assert_eq!(names, ["tool_get_current_time_post", "tool_get_sum_post", "tool_a_b_c_post"]);
    }

    #[test]
    fn names_that_models_can_not_be_given_are_hashed_and_distinct() {
        let long = "x".repeat(80);
        let names = operation_ids(&["a-b", "a_b", "a.b", "時間", "天気", &long, &format!("{long}y"), ""]);
        assert_eq!(names[1], "tool_a_b_post", "the tool that is spelled like it");
        assert!(names[0] != names[1] && names[0].starts_with("tool_a_b_"), "{names:?}");
        let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
        for name in &names {
            assert!(name.len() <= 64 && name.bytes().all(super::is_word) && name.ends_with("_post"), "{name}");
        }
        assert_eq!(operation_ids(&["a.b", "a-b"]), operation_ids(&["a-b", "a.b"]).into_iter().rev().collect::<Vec<_>>());
    }

    #[test]
    fn summaries_are_those_of_mcpo() {
        for (name, expected) in [
            ("get_current_time", "Get Current Time"),
            ("get-sum", "Get-Sum"),
            ("listIssues", "Listissues"),
            ("v2x_API", "V2X Api"),
            ("_a__b", " A  B"),
        ] {
            assert_eq!(summary(name), expected);
        }
    }
}

//! What people are told to type or to trust exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Words such as `git__git_status`. Placeholders are in capitals.
fn published_names(text: &str) -> BTreeSet<String> {
    let is_part = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || matches!(character, '_' | '-');
    let words = text.split(|character: char| !is_part(character));
    words
        .filter(|word| word.split_once("__").is_some_and(|(server, tool)| !server.is_empty() && !tool.is_empty()))
        .map(str::to_owned)
        .collect()
}

/// L14: somebody who typed the README's example after the quickstart was told that there is no such tool.
#[test]
fn every_tool_that_is_named_is_one_of_the_quickstart() {
    let listed = text("tests/data/quickstart/tools.txt");
    let known: BTreeSet<String> = listed.lines().map(|line| line.replacen('/', "__", 1)).collect();
    for file in ["README.md", "src/settings/defaults.toml"] {
        let named = published_names(&text(file));
        assert!(named.contains("git__git_commit"), "{file} names no tool any more: {named:?}");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

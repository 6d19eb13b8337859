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

/// Every test function in `tests/it`, as `file::name`.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let file = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it")).unwrap().with_extension("");
            let module = file.to_str().unwrap().trim_end_matches("/mod").replace('/', "::");
            let source = fs::read_to_string(&path).unwrap();
            let mut is_test = false;
            for line in source.lines().map(str::trim) {
                is_test = is_test || line.starts_with("#[test]") || line.starts_with("#[tokio::test");
                let name = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "));
                if let (true, Some(name)) = (is_test, name.and_then(|rest| rest.split('(').next())) {
                    found.insert(format!("{module}::{name}"));
                    is_test = false;
                }
            }
        }
    }
    found
}

/// A promise that is held by a test which is gone is held by nothing.
#[test]
fn every_test_that_the_threat_model_names_exists() {
    let (known, security) = (tests(), text("SECURITY.md"));
    let table = security.lines().filter(|line| line.starts_with('|'));
    let named: BTreeSet<String> =
        table.flat_map(|line| line.split('`').skip(1).step_by(2)).filter(|word| word.contains("::")).map(str::to_owned).collect();
    assert!(named.len() > 20, "{named:?}");
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let rows = security.lines().filter(|line| line.matches(" | ").count() == 3);
    for row in rows.skip(2) {
        assert!(row.contains("::"), "no test holds this: {row}");
    }
}

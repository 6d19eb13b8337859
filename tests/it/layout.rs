//! How these tests are laid out: what several modules use stands in `harness`.

use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it")
}

/// Every source below `tests/it`: the path there, and the text.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(folder()).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

/// The module of `main.rs` that a path lies in.
fn module(path: &str) -> &str {
    path.split('/').next().unwrap().trim_end_matches(".rs")
}

/// The names after `crate::` in a line, those in braces too.
fn named(line: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for (at, _) in line.match_indices(concat!("crate", "::")) {
        let rest = &line[at + "crate::".len()..];
        let group = rest.strip_prefix('{').and_then(|rest| rest.split('}').next());
        let parts = group.map_or_else(|| vec![rest], |group| group.split(',').collect());
        names.extend(
            parts.iter().map(|part| part.trim_start().split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap()),
        );
    }
    names
}

#[test]
fn no_module_of_tests_uses_another() {
    let main = fs::read_to_string(folder().join("main.rs")).unwrap();
    let modules: Vec<&str> = main.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
    assert!(modules.len() > 40 && modules.contains(&"harness"), "{modules:?}");
    assert_eq!(named(concat!("use crate", "::{keys::KEY, harness};")), ["keys", "harness"]);
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let own = module(&path);
        assert!(own == "main" || modules.contains(&own), "{path} is in no module of main.rs: its tests never run");
        // From a file of a folder, the way to another module would be this.
        if text.contains(concat!("super::", "super::")) {
            broken.push(format!("{path} goes up two modules"));
        }
        for name in text.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(named) {
            if modules.contains(&name) && name != own && name != "harness" {
                broken.push(format!("{path} uses {name}: what both need belongs into harness"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Whether a line calls a function `sleep`, with or without the path to it.
fn sleeps(line: &str) -> bool {
    let calls = line.match_indices(concat!("sleep", "("));
    !line.starts_with("//")
        && calls.map(|(at, _)| &line[..at]).any(|before| before.is_empty() || before.ends_with([' ', ':', '(', '{', '|']))
}

/// What becomes so is waited for by `harness::wait`. A test that lets time pass says in a comment why time must pass.
#[test]
fn who_sleeps_says_why() {
    let with_sleep = |line: &&str| sleeps(&line.replace('@', "sleep(LONG)"));
    assert!(["tokio::time::@.await;", "@.await;", "async { @.await }", "select(@)", "Err(_) => @.await,"].iter().all(with_sleep));
    assert!(!["fn over@", "// @", "tool.@.await;"].iter().any(with_sleep));
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for pair in lines.windows(2).filter(|pair| sleeps(pair[1])) {
            if path != "harness/wait.rs" && !pair[0].starts_with("// ") {
                broken.push(format!("{path}: {}", pair[1]));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

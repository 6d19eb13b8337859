//! Any bytes, from outside: a corpus and mutations of it, the same ones in every run. `TOOLSIEVE_FUZZ_ROUNDS` makes more of them;
//! `tests/fuzz` hands the same functions to libFuzzer.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolsieve::adapters::mcp::fuzzing::exchange;
use toolsieve::domain;
use toolsieve::http::fuzzing::{bodies, messages};

use self::invariants::{arguments, result, schema, tools};

#[path = "../fuzz/invariants.rs"]
mod invariants;

/// Mutations of each file in a run.
const ROUNDS: usize = 400;
/// No mutation grows beyond this.
const LONGEST: usize = 16 << 10;
/// What is put in: what parsers have a branch for.
const TOKENS: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1e999",
    "0.1e-999",
    "12345678901234567890123",
    "\n",
    "\r\n",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "\u{200b}",
    "\\ud800",
    "\\u0000",
    "\"id\":7",
    "\"id\":\"7\"",
    "\"result\":{}",
    "\"error\":{}",
    "\"method\":\"tools/call\"",
    "\"type\":\"object\"",
    "\"$ref\":\"#\"",
    "\"anyOf\":[",
    "\"properties\":{",
    "\"enum\":[]",
    "\"items\":",
    "\"isError\":true",
    "\"structuredContent\":",
    "\"content\":[",
    "\"inputSchema\":{",
    "data: ",
];

/// Names that members get: what readers look for.
const NAMES: [&str; 24] = [
    "type",
    "properties",
    "items",
    "required",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "$defs",
    "$ref",
    "enum",
    "const",
    "additionalProperties",
    "name",
    "inputSchema",
    "content",
    "text",
    "structuredContent",
    "isError",
    "result",
    "error",
    "id",
    "arguments",
    "é\u{202e}",
];

/// The same numbers in every run (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap() % end.max(1)
    }
}

fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/fuzz").join(name);
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Somewhere in a tree of values: another value in the place of one, or one that goes, comes twice or is wrapped. What is left is JSON, so
/// that more than the parser meets it.
fn regrown(value: &mut Value, other: &Value, numbers: &mut Numbers) {
    let count = match value {
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => 0,
    };
    if count > 0 && numbers.below(4) > 0 {
        let at = numbers.below(count);
        match value {
            Value::Array(items) if numbers.below(6) == 0 => {
                let item = items[at].clone();
                items.insert(numbers.below(count), item);
            }
            Value::Array(items) if numbers.below(8) == 0 => drop(items.remove(at)),
            Value::Array(items) => regrown(&mut items[at], other, numbers),
            Value::Object(members) => {
                let name = members.keys().nth(at).cloned().unwrap_or_default();
                match numbers.below(10) {
                    0 => drop(members.shift_remove(&name)),
                    1 => {
                        let moved = members.shift_remove(&name).unwrap_or_default();
                        members.insert(NAMES[numbers.below(NAMES.len())].to_owned(), moved);
                    }
                    _ => regrown(members.get_mut(&name).unwrap(), other, numbers),
                }
            }
            _ => {}
        }
        return;
    }
    *value = match numbers.below(8) {
        0 => json!([value.take()]),
        1 => json!({ NAMES[numbers.below(NAMES.len())]: value.take() }),
        2 => part(other, numbers).clone(),
        3 => json!({"type": (["object", "array", "string", "integer", "null"][numbers.below(5)])}),
        4 => Value::String(TOKENS[numbers.below(TOKENS.len())].repeat(1 + numbers.below(40))),
        5 => json!([[], {}, "", 0, -1, 1.5, 9_007_199_254_740_993_u64, true, null, "\u{202e}x", "é"])[numbers.below(11)].take(),
        6 => json!({"$ref": (["#", "#/properties", "#/$defs/node", "nowhere"][numbers.below(4)])}),
        _ => Value::Null,
    };
}

/// Any part of a tree.
fn part<'a>(value: &'a Value, numbers: &mut Numbers) -> &'a Value {
    let inner: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    };
    if inner.is_empty() || numbers.below(4) == 0 { value } else { part(inner[numbers.below(inner.len())], numbers) }
}

/// Of a text of lines, one of which at least is JSON, the same with one of those grown anew.
fn regrown_line(original: &[u8], other: &[u8], numbers: &mut Numbers) -> Option<Vec<u8>> {
    let other = other.split(|byte| *byte == b'\n').find_map(|line| serde_json::from_slice(line).ok())?;
    if let Ok(mut whole) = serde_json::from_slice::<Value>(original) {
        (0..=numbers.below(3)).for_each(|_| regrown(&mut whole, &other, numbers));
        return serde_json::to_vec(&whole).ok();
    }
    let mut lines: Vec<Vec<u8>> = original.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let at = numbers.below(lines.len());
    let mut value: Value = serde_json::from_slice(&lines[at]).ok()?;
    (0..=numbers.below(3)).for_each(|_| regrown(&mut value, &other, numbers));
    lines[at] = serde_json::to_vec(&value).ok()?;
    Some(lines.join(&b'\n'))
}

/// A tree of values that has changed, or one to four changes of the text: a byte, a part that goes, comes twice or moves, a token, or the
/// rest of another file.
fn mutated(original: &[u8], others: &[(PathBuf, Vec<u8>)], numbers: &mut Numbers) -> Vec<u8> {
    if numbers.below(2) == 0 {
        let other = &others[numbers.below(others.len())].1;
        if let Some(bytes) = regrown_line(original, other, numbers).filter(|bytes| bytes.len() <= LONGEST) {
            return bytes;
        }
    }
    let mut bytes = original.to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len() + 1);
        let end = (at + 1 + numbers.below(24)).min(bytes.len());
        match numbers.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
            1 if at < end => drop(bytes.drain(at..end)),
            2 if at < end => {
                let part = bytes[at..end].repeat(1 + numbers.below(6));
                bytes.splice(at..at, part);
            }
            3 if at < end => {
                let part: Vec<u8> = bytes.drain(at..end).collect();
                let to = numbers.below(bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            4 => bytes.truncate(at),
            5 => {
                let other = &others[numbers.below(others.len())].1;
                let from = numbers.below(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let token = TOKENS[numbers.below(TOKENS.len())];
                bytes.splice(at..at, token.bytes());
            }
        }
    }
    bytes.truncate(LONGEST);
    bytes
}

/// Feeds the corpus and its mutations. What fails is printed whole, to become a file of the corpus.
fn feed(name: &str, check: fn(&[u8])) {
    let rounds = std::env::var("TOOLSIEVE_FUZZ_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    let files = corpus(name);
    for (number, (path, original)) in files.iter().enumerate() {
        check(original);
        let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15 ^ (number as u64 + 1));
        for round in 0..rounds {
            let bytes = mutated(original, &files, &mut numbers);
            let outcome = catch_unwind(AssertUnwindSafe(|| check(&bytes)));
            assert!(outcome.is_ok(), "round {round} of {}:\n{}", path.display(), bytes.escape_ascii());
        }
    }
}

#[test]
fn schemas_are_compiled_to_valid_ones() {
    feed("schema", schema);
}

#[test]
fn lists_of_tools_are_published_whole_and_never_stricter() {
    feed("tools", tools);
}

#[test]
fn results_become_json_of_bounded_size() {
    feed("results", result);
}

#[test]
fn arguments_that_were_repaired_fit() {
    feed("arguments", arguments);
}

#[test]
fn bodies_are_read_within_their_limits_or_refused() {
    feed("bodies", bodies);
}

#[test]
fn messages_of_clients_say_one_thing() {
    feed("messages", messages);
}

#[test]
fn what_servers_write_answers_a_call_once() {
    feed("exchange", exchange);
}

/// A corpus that no check lets past its first line would test nothing.
#[test]
fn mutations_are_the_same_in_every_run_and_differ_from_each_other() {
    let files = corpus("bodies");
    let (_, filter) = files.iter().find(|(path, _)| path.ends_with("filter.json")).unwrap();
    let made = || -> Vec<Vec<u8>> {
        let mut numbers = Numbers(1);
        (0..200).map(|_| mutated(filter, &files, &mut numbers)).collect()
    };
    let (one, two) = (made(), made());
    assert_eq!(one, two);
    let different: std::collections::HashSet<_> = one.iter().collect();
    assert!(different.len() > 150, "{}", different.len());
    let still_json = one.iter().filter(|bytes| serde_json::from_slice::<Value>(bytes).is_ok()).count();
    assert!(still_json > 40, "{still_json} of 200 are still JSON");
}

/// `tests/domain` compiles the domain alone, for its own tests and for the fuzz targets: each crate that the domain uses has to be one of
/// its dependencies.
#[test]
fn the_fuzz_targets_have_what_the_domain_uses() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = |manifest: &str| -> Vec<String> {
        let text = fs::read_to_string(root.join(manifest)).unwrap();
        let lines = text.lines().filter_map(|line| line.split_once(" = "));
        lines.map(|(name, _)| name.to_owned()).filter(|name| !name.contains(['"', ' '])).collect()
    };
    let (ours, theirs) = (named("Cargo.toml"), named("tests/domain/Cargo.toml"));
    assert!(named("tests/fuzz/Cargo.toml").contains(&"toolsieve-domain".to_owned()));
    let mut folders = vec![root.join("src/domain")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = fs::read_to_string(&path).unwrap();
            let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            if path.ends_with("tests.rs") {
                continue;
            }
            for name in &ours {
                let used =
                    code.contains(&format!("use {}::", name.replace('-', "_"))) || code.contains(&format!(" {}::", name.replace('-', "_")));
                assert!(!used || theirs.contains(name), "{} uses {name}, which tests/domain/Cargo.toml lacks", path.display());
            }
            assert!(!code.contains("env!(\"CARGO_MANIFEST_DIR\")"), "{}: tests/domain has another folder", path.display());
        }
    }
}

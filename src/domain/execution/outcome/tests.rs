//! Tests of results as data: every file below `tests/cases/results` is one case.
//!
//! `result` is the server's raw result, kept as text; `body` or `error` is the expected output. `declares_output`
//! or `content_first`, and `limit`, are passed to [`answer`] and [`body`], and `compact` calls [`compact`] between them. Files are
//! described without a link.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Part, StructuredContent, TextLimit, ToolAnswer, answer, body, compact};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "why")]
    _why: String,
    result: Box<RawValue>,
    #[serde(default)]
    declares_output: bool,
    #[serde(default)]
    content_first: bool,
    #[serde(default)]
    compact: bool,
    limit: Option<usize>,
    body: Option<Box<RawValue>>,
    error: Option<String>,
}

#[test]
fn cases() {
    // This file is also compiled by `tests/domain`, whose manifest is in another folder.
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let folder = above.map(|folder| folder.join("tests/cases/results")).find(|folder| folder.is_dir()).unwrap();
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 30, "{} cases", paths.len());
    let mut failed = Vec::new();
    for path in paths {
        let case: Case = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let expected = match (case.body, case.error) {
            (Some(body), None) => Ok(body.get().to_owned()),
            (None, Some(error)) => Err(error),
            _ => panic!("{path:?}: body or error"),
        };
        let returned = match (case.content_first, case.declares_output) {
            (true, _) => StructuredContent::Fallback,
            (false, true) => StructuredContent::Preferred,
            (false, false) => StructuredContent::Added,
        };
        let found = match answer(&case.result, returned) {
            ToolAnswer::Error(text) => Err(text),
            ToolAnswer::Result(parts) => {
                let described = parts.into_iter().map(|part| match part {
                    Part::Binary(binary) => Part::File(binary.description(&[]).into()),
                    part => part,
                });
                let described = if case.compact { compact(described.collect()) } else { described.collect() };
                Ok(body(described, case.limit.map(|bytes| TextLimit { bytes, setting: "the.setting" })))
            }
        };
        if found != expected {
            failed.push(format!("{}\n  expected {expected:?}\n  found    {found:?}", path.display()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn an_error_is_cut_where_it_is_too_long_for_a_message() {
    let long = serde_json::json!({"isError": true, "content": [{"type": "text", "text": "é".repeat(5_000)}]}).to_string();
    let long: Box<RawValue> = serde_json::from_str(&long).unwrap();
    let ToolAnswer::Error(text) = answer(&long, StructuredContent::Added) else { panic!("an error") };
    assert!(text.ends_with("é… (cut, 10000 bytes in all)") && text.chars().count() < 4_040, "{}", text.chars().count());
}

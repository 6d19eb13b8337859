//! Tests of arguments as data: every file below `tests/cases/arguments` is one case.
//!
//! `arguments` is the text as sent. The expected result is `valid`, `repaired` with its `repairs`, or `problems`.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{ArgumentsValidator, ArgumentsVerdict, object, unwrapped};
use crate::domain::text::json_text::JsonText;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "why")]
    _why: String,
    schema: Value,
    arguments: Box<RawValue>,
    #[serde(default)]
    valid: bool,
    repaired: Option<Box<RawValue>>,
    #[serde(default)]
    repairs: Vec<String>,
    #[serde(default)]
    problems: Vec<Value>,
}

#[test]
fn cases() {
    // This file is also compiled by `tests/domain`, whose manifest is in another folder.
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let folder = above.map(|folder| folder.join("tests/cases/arguments")).find(|folder| folder.is_dir()).unwrap();
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 20, "{} cases", paths.len());
    let mut failed = Vec::new();
    for path in paths {
        let case: Case = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let verdict = ArgumentsValidator::default().check(&(&case.schema).into(), case.arguments.get());
        let is_right = match &verdict {
            ArgumentsVerdict::Valid => case.valid,
            ArgumentsVerdict::Repaired { arguments, repairs } => {
                let repairs: Vec<String> = repairs.iter().map(ToString::to_string).collect();
                case.repaired.as_ref().is_some_and(|expected| expected.get() == arguments) && case.repairs == repairs
            }
            ArgumentsVerdict::Invalid(problems) => serde_json::to_value(problems).unwrap().as_array() == Some(&case.problems),
            ArgumentsVerdict::Unchecked { .. } => false,
        };
        if !is_right {
            failed.push(format!("{}\n  found {verdict:#?}", path.display()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_schema_that_is_itself_invalid_checks_nothing_and_says_so_once() {
    for schema in [json!({"type": 7}), json!({"$ref": "https://example.org/schema.json"}), json!({"properties": {"a": {"pattern": "("}}})] {
        let (validator, schema) = (ArgumentsValidator::default(), JsonText::of(&schema));
        let first = |verdict| matches!(verdict, ArgumentsVerdict::Unchecked { first: true, .. });
        assert!(first(validator.check(&schema, r#"{"a":1}"#)), "{schema}");
        let again = validator.check(&schema, r#"{"a":1}"#);
        assert!(matches!(&again, ArgumentsVerdict::Unchecked { first: false, reason } if !reason.is_empty()), "{again:?}");
    }
}

#[test]
fn a_schema_of_an_older_draft_that_does_not_say_so_is_used() {
    let tuple = json!({"properties": {"a": {"items": [{"type": "integer"}, {"type": "string"}]}}});
    let bounds = json!({"properties": {"a": {"minimum": 1, "exclusiveMinimum": true}}});
    for (schema, good, bad) in [(tuple, r#"{"a":[1,"x"]}"#, r#"{"a":["x",1]}"#), (bounds, r#"{"a":2}"#, r#"{"a":1}"#)] {
        let (validator, schema) = (ArgumentsValidator::default(), JsonText::of(&schema));
        assert_eq!(validator.check(&schema, good), ArgumentsVerdict::Valid);
        assert!(matches!(validator.check(&schema, bad), ArgumentsVerdict::Invalid(_)), "{schema}");
    }
}

#[test]
fn arguments_are_an_object_whatever_they_come_as() {
    let object = |sent| object(sent).map(|(text, repair)| (text.into_owned(), repair.is_some()));
    assert_eq!(object(" "), Ok(("{}".into(), false)));
    assert_eq!(object(r#" {"a":1e999} "#), Ok((r#"{"a":1e999}"#.into(), false)));
    assert_eq!(object(r#""{\"a\": 1e999}""#), Ok((r#"{"a": 1e999}"#.into(), true)));
    assert_eq!(object(r#""""#), Ok(("{}".into(), true)));
    for wrong in ["[1]", "null", "7", "true", r#""text""#, r#""{broken""#] {
        let problems = object(wrong).unwrap_err();
        assert!(problems[0].message.ends_with("expected an object") && problems[0].pointer.is_empty(), "{wrong}: {problems:?}");
    }
}

#[test]
fn only_a_lone_wrapper_is_taken_off() {
    let unwrap = |sent: &'static str| unwrapped(sent.into()).map(|(text, repair)| (text.into_owned(), repair.map(|it| it.pointer)));
    assert_eq!(unwrap(r#"{"arguments": {"x": 12345678901234567890123}}"#), Ok((r#"{"x": 12345678901234567890123}"#.into(), None)));
    assert_eq!(unwrap(r#"{"arguments": "{\"x\": 1}"}"#), Ok((r#"{"x": 1}"#.into(), Some("/arguments".into()))));
    assert_eq!(unwrap(r#"{"arguments": {"x": 1}, "y": 2}"#), Ok((r#"{"arguments": {"x": 1}, "y": 2}"#.into(), None)));
    assert_eq!(unwrap(r#"{"x": 1}"#), Ok((r#"{"x": 1}"#.into(), None)));
    assert_eq!(unwrap(r#"{"arguments": [1]}"#).unwrap_err()[0].pointer, "/arguments");
}

/// Regression test: a list of 21 numbers as strings was repaired, but one of 22 was rejected.
#[test]
fn a_list_is_repaired_however_long_it_is() {
    let schema = json!({"properties": {
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "rows": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        "note": {"type": "string"},
    }});
    let (validator, schema) = (ArgumentsValidator::default(), JsonText::of(&schema));
    let list = |count: usize, quote: &str| (0..count).map(|number| format!("{quote}1{number:022}{quote}")).collect::<Vec<_>>().join(", ");
    for count in [21, 22, 500, 5_000] {
        let sent = format!("{{\"note\": 7.50, \"numbers\": [{}]}}", list(count, "\"")).replace("7.50", "\"7.50\"");
        let ArgumentsVerdict::Repaired { arguments, repairs } = validator.check(&schema, &sent) else { panic!("{count}") };
        assert_eq!(arguments, format!("{{\"note\": \"7.50\", \"numbers\": [{}]}}", list(count, "")), "every digit is there");
        assert_eq!((repairs.len(), repairs[20].to_string().as_str()), (count, "/numbers/20=text-to-number"));
    }
    // If one item can't be repaired, the whole list is rejected with the original problems.
    let sent = format!("{{\"numbers\": [{}, \"no number\"]}}", list(30, "\""));
    let ArgumentsVerdict::Invalid(problems) = validator.check(&schema, &sent) else { panic!("repaired") };
    assert_eq!((problems.len(), problems[0].pointer.as_str()), (20, "/numbers/0"));
    // Strings that contain lists of strings.
    let row = "\"[\\\"1.50\\\", 2]\"";
    let sent = format!("{{\"rows\": [{}]}}", vec![row; 30].join(","));
    let ArgumentsVerdict::Repaired { arguments, repairs } = validator.check(&schema, &sent) else { panic!("rows") };
    assert_eq!((arguments, repairs.len()), (format!("{{\"rows\": [{}]}}", vec!["[1.50, 2]"; 30].join(",")), 60));
    // Work is bounded: lists beyond the limit are not repaired.
    let sent = format!("{{\"numbers\": [{}]}}", list(5_001, "\""));
    assert!(matches!(validator.check(&schema, &sent), ArgumentsVerdict::Invalid(_)));
}

//! Tests of arguments as data: every file below `tests/cases/arguments` is one case.
//!
//! `arguments` is the text as sent. The expected result is `valid`, `repaired` with its `repairs`, or `problems`.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{ArgumentProblem, ArgumentsValidator, ArgumentsVerdict, object, unwrapped};
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

fn invalid(schema: &Value, arguments: &str) -> Vec<ArgumentProblem> {
    match ArgumentsValidator::default().check(&schema.into(), arguments) {
        ArgumentsVerdict::Invalid(problems) => problems,
        other => panic!("{other:?}"),
    }
}

/// Definitions of which each is `form` of a reference to the next, and the last is `last`.
fn chain(length: usize, form: impl Fn(Value) -> Value, last: Value) -> Value {
    let mut definitions: serde_json::Map<String, Value> =
        (0..length).map(|at| (format!("D{at}"), form(json!({"$ref": format!("#/$defs/D{}", at + 1)})))).collect();
    definitions.insert(format!("D{length}"), last);
    json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/D0"}}, "$defs": definitions})
}

/// Regression: 25 definitions, each with two alternatives, took 18 GB and minutes to explain one wrong argument.
#[test]
fn alternatives_that_multiply_are_not_all_tried() {
    let text = json!({"type": "string", "minLength": 5});
    let (old, new) = ("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema");
    for (keyword, length, draft) in [("anyOf", 60, old), ("oneOf", 60, new), ("anyOf", 17, new), ("oneOf", 17, old), ("allOf", 60, new)] {
        let mut schema = chain(length, |next| json!({keyword: [next, next]}), text.clone());
        schema["$schema"] = draft.into();
        let problems = invalid(&schema, r#"{"x": "abc"}"#);
        assert_eq!((problems.len(), problems[0].pointer.as_str()), (1, ""), "{keyword} {length}: {problems:?}");
        assert!(problems[0].message.ends_with("send fewer at once"), "{problems:?}");
    }
    // Definitions within data can't be counted.
    let mut hidden = chain(25, |next| json!({"anyOf": [next, next]}), text.clone());
    hidden["default"] = hidden["$defs"].take();
    let hidden: Value = serde_json::from_str(&hidden.to_string().replace("#/$defs/", "#/default/")).unwrap();
    let verdict = ArgumentsValidator::default().check(&(&hidden).into(), r#"{"x": "abc"}"#);
    assert!(matches!(&verdict, ArgumentsVerdict::Unchecked { reason, .. } if reason.contains("refers to data")), "{verdict:?}");
    let few = chain(5, |next| json!({"anyOf": [next, {"type": "null"}]}), text);
    assert_eq!(invalid(&few, r#"{"x": "abc"}"#)[0].pointer, "/x");
}

/// Regression: 400 kB of arguments took a gigabyte, because each alternative of each item was explained.
#[test]
fn a_long_list_of_wrong_values_is_not_explained() {
    let block = |at: usize| json!({"type": "object", "properties": {"type": {"const": format!("b{at}")}}, "required": ["type", "text"]});
    let blocks = (0..10).map(block).collect::<Vec<_>>();
    let schema = json!({"properties": {"blocks": {"type": "array", "items": {"anyOf": blocks}}}});
    let sent = |count: usize| format!("{{\"blocks\": [{}]}}", vec!["{}"; count].join(","));
    assert_eq!(invalid(&schema, &sent(100))[0].pointer, "/blocks/0");
    let problems = invalid(&schema, &sent(50_000));
    assert!(problems.len() == 1 && problems[0].message.contains("too many values"), "{problems:?}");
    let good = vec![r#"{"type": "b3", "text": "a"}"#; 50_000].join(",");
    let verdict = ArgumentsValidator::default().check(&(&schema).into(), &format!("{{\"blocks\": [{good}]}}"));
    assert_eq!(verdict, ArgumentsVerdict::Valid);
}

/// Regression: such a schema was read as draft 7, in which the keyword means nothing.
#[test]
fn names_that_depend_on_each_other_are_checked() {
    let schema = json!({"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}, "unevaluatedProperties": false});
    assert_eq!(invalid(&schema, r#"{"a": 1}"#)[0].pointer, "/b");
    assert_eq!((super::older_draft(&schema), invalid(&schema, r#"{"c": 1}"#)[0].pointer.as_str()), (None, "/c"));
}

#[test]
fn one_wrong_value_beside_many_numbers_is_repaired() {
    let schema = json!({
        "properties": {
            "collection": {"type": "string"},
            "vectors": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
            "wait": {"type": "boolean"},
        },
        "required": ["collection", "vectors"],
    });
    let vectors = vec![format!("[{}]", vec!["0.125"; 1_536].join(",")); 60].join(",");
    let sent = format!(r#"{{"collection": "c", "vectors": [{vectors}], "wait": "true"}}"#);
    let verdict = ArgumentsValidator::default().check(&(&schema).into(), &sent);
    assert!(matches!(&verdict, ArgumentsVerdict::Repaired { repairs, .. } if repairs.len() == 1));
}

/// Regression: each text took milliseconds, and nothing ended the check.
#[test]
fn many_texts_for_a_slow_pattern_are_not_all_matched() {
    let schema = json!({"properties": {"list": {"items": {"pattern": "^((?=a)a|(?!b)a)*$"}}}});
    let texts: Vec<String> = (0..20_000).map(|at| format!("\"{}{at}b\"", "a".repeat(30))).collect();
    let problems = invalid(&schema, &format!("{{\"list\": [{}]}}", texts.join(",")));
    assert!(problems[0].message.contains("too many values") || problems[0].message.contains("too long"), "{problems:?}");
}

#[test]
fn beside_a_long_text_a_problem_is_explained_and_repaired() {
    let schema = json!({
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "integer"}},
        "required": ["path", "content", "mode"],
    });
    let content = "x".repeat(4_000_000);
    assert_eq!(invalid(&schema, &format!(r#"{{"path": 5, "content": "{content}", "mode": 1}}"#))[0].pointer, "/path");
    let sent = format!(r#"{{"path": "a", "content": "{content}", "mode": "1"}}"#);
    let verdict = ArgumentsValidator::default().check(&(&schema).into(), &sent);
    assert!(matches!(&verdict, ArgumentsVerdict::Repaired { repairs, .. } if repairs.len() == 1));
}

/// Regression: 60,000 unknown names took seconds, because each was compared with all problems before it.
#[test]
fn many_unknown_names_are_reported_in_part() {
    let schema = json!({"properties": {"title": {"type": "string"}}, "additionalProperties": false, "required": ["title"]});
    let names: Vec<String> = (0..100_000).map(|at| format!("\"name{at}\": 1")).collect();
    let problems = invalid(&schema, &format!("{{{}}}", names.join(",")));
    assert_eq!((problems.len(), problems[19].pointer.as_str()), (20, "/name19"));
}

/// Regression: each error within alternatives is kept with a copy of its value.
#[test]
fn a_large_value_is_not_copied_for_each_error() {
    let alternatives: Vec<Value> = (0..20).map(|at| json!({"required": [format!("a{at}"), format!("b{at}")]})).collect();
    let sent = format!("{{\"list\": [{}]}}", vec!["0"; 100_000].join(","));
    let problems = invalid(&json!({"anyOf": alternatives}), &sent);
    assert!(problems[0].message.contains("too many values"), "{problems:?}");
}

/// Regression: a chain of 2,000 references ended the process, because the stack was full.
#[test]
fn deep_chains_of_references_are_not_followed() {
    type Form = fn(Value) -> Value;
    let forms: [Form; 5] = [
        |next| next,
        |next| json!({"anyOf": [next, {"type": "null"}]}),
        |next| json!({"allOf": [next]}),
        |next| json!({"not": next}),
        |next| json!({"properties": {"a": next}}),
    ];
    for form in forms {
        let schema = chain(20_000, form, json!({"type": "string"}));
        let verdict = ArgumentsValidator::default().check(&(&schema).into(), r#"{"x": 1}"#);
        assert!(matches!(&verdict, ArgumentsVerdict::Unchecked { reason, .. } if reason.contains("1000 levels")), "{verdict:?}");
        // As deep as it may be.
        let schema = chain(240, form, json!({"type": "string"}));
        assert!(!matches!(ArgumentsValidator::default().check(&(&schema).into(), r#"{"x": 1}"#), ArgumentsVerdict::Unchecked { .. }));
    }
    // The chain begins again in each level of the arguments.
    let schema = chain(900, |next| next, json!({"properties": {"a": {"$ref": "#/$defs/D0"}}, "type": ["object", "string"]}));
    let nested = |levels: usize| format!("{{\"x\": {}1{}}}", "{\"a\": ".repeat(levels), "}".repeat(levels));
    assert_eq!(invalid(&schema, &nested(2))[0].pointer, "/x/a/a");
    assert!(invalid(&schema, &nested(50))[0].message.contains("too deep"));
    let alternatives = |next: Value| json!({"anyOf": [next, {"type": "null"}]});
    let schema = chain(300, alternatives, json!({"properties": {"a": {"$ref": "#/$defs/D0"}}, "type": ["object", "string"]}));
    assert_eq!(invalid(&schema, &nested(3)).len(), 1);
}

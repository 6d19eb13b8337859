//! What holds of every schema: nothing is forbidden that the server's own schema allows, equal sources have equal
//! forms, and the size has a bound.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use serde_json::{Map, Value, json};
use toolsieve::domain::catalog::schema::InputSchema;

use super::instances::Instances;

/// No published form is longer, as JSON text.
const MAX_PUBLISHED: usize = 1_000_000;

fn scalar() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!("a"),
        json!("b"),
        json!(""),
        json!(1),
        json!(2.5),
        json!(true),
        json!(null),
        json!([1]),
        json!({"k": 1}),
    ])
}

fn annotated(schema: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let notes = prop::sample::select(vec![
        json!({}),
        json!({"description": "what it is"}),
        json!({"title": "T", "default": null}),
        json!({"default": "d", "examples": ["e"]}),
        json!({"deprecated": true, "$comment": "c", "x-own": 1}),
        json!({"nullable": true}),
    ]);
    (schema, notes).prop_map(|(mut schema, notes)| {
        if let (Value::Object(schema), Value::Object(notes)) = (&mut schema, notes) {
            for (keyword, value) in notes {
                schema.entry(keyword).or_insert(value);
            }
        }
        schema
    })
}

fn text() -> impl Strategy<Value = Value> {
    (
        0_u64..4,
        0_u64..6,
        prop::sample::select(vec![
            json!({}),
            json!({"pattern": "^[a-c]+$"}),
            json!({"format": "date"}),
            json!({"contentEncoding": "base64"}),
        ]),
    )
        .prop_map(|(least, more, other)| {
            let mut schema = other;
            schema["type"] = "string".into();
            if least > 0 {
                schema["minLength"] = least.into();
                schema["maxLength"] = (least + more).into();
            }
            schema
        })
}

fn number() -> impl Strategy<Value = Value> {
    let bounds = prop::sample::select(vec![
        json!({}),
        json!({"minimum": 1, "maximum": 9}),
        json!({"exclusiveMinimum": 0, "exclusiveMaximum": 4.5}),
        json!({"minimum": -3, "multipleOf": 3}),
        json!({"maximum": 0}),
    ]);
    (bounds, prop::sample::select(vec!["integer", "number"])).prop_map(|(mut schema, kind)| {
        schema["type"] = kind.into();
        schema
    })
}

fn leaf() -> impl Strategy<Value = Value> {
    let listed = vec(scalar(), 1..4).prop_map(|values| json!({"enum": values}));
    let types = prop::sample::select(vec![
        json!({"type": ["string", "null"]}),
        json!({"type": ["integer", "array"]}),
        json!({"type": "boolean"}),
        json!({"type": "null"}),
        json!({"type": "array"}),
        json!({"type": "object"}),
        json!({}),
    ]);
    let reference =
        prop::sample::select(vec!["#/$defs/a", "#/$defs/b", "#/$defs/a/properties/x"]).prop_map(|reference| json!({"$ref": reference}));
    prop_oneof![
        3 => text(),
        3 => number(),
        2 => listed,
        1 => scalar().prop_map(|value| json!({"const": value})),
        2 => types,
        2 => reference.clone(),
        1 => reference.prop_map(|mut schema| { schema["description"] = "here".into(); schema }),
    ]
}

fn object(inner: impl Strategy<Value = Value> + Clone) -> impl Strategy<Value = Value> {
    let more = prop::sample::select(vec![
        json!({}),
        json!({"additionalProperties": false}),
        json!({"additionalProperties": true}),
        json!({"additionalProperties": {"type": "integer"}}),
        json!({"minProperties": 1}),
        json!({"maxProperties": 2}),
        json!({"dependentRequired": {"x": ["y"]}}),
        json!({"dependencies": {"y": ["x"]}}),
        json!({"patternProperties": {"^p": {"type": "string"}}}),
        json!({"propertyNames": {"pattern": "^[a-z]+$"}}),
        json!({"unevaluatedProperties": false}),
        json!({"not": {"required": ["x", "y", "z"]}}),
        json!({"if": {"required": ["x"]}, "then": {"required": ["y"]}}),
        json!({"if": {"properties": {"x": {"const": "a"}}}, "then": {"required": ["z"]}, "else": {"maxProperties": 1}}),
        json!({"dependentSchemas": {"x": {"required": ["z"]}}}),
    ]);
    (btree_map("[xyz]", inner, 0..4), vec("[xyz]", 0..2), more).prop_map(|(properties, required, more)| {
        let mut schema = more;
        schema["type"] = "object".into();
        // Names without a schema of their own are required too.
        schema["required"] = required.into_iter().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
        schema["properties"] = properties.into_iter().collect::<Map<_, _>>().into();
        schema
    })
}

fn array(inner: impl Strategy<Value = Value> + Clone) -> impl Strategy<Value = Value> {
    let more = prop::sample::select(vec![
        json!({}),
        json!({"minItems": 1, "maxItems": 2}),
        json!({"uniqueItems": true}),
        json!({"contains": {"type": "string"}}),
        json!({"contains": {"const": 1}, "minContains": 0, "maxContains": 1}),
    ]);
    let items = prop_oneof![
        3 => inner.clone().prop_map(|items| json!({"items": items})),
        1 => vec(inner.clone(), 1..3).prop_map(|items| json!({"prefixItems": items, "items": false})),
        1 => (vec(inner.clone(), 1..3), inner).prop_map(|(first, rest)| json!({"prefixItems": first, "items": rest})),
        1 => Just(json!({"items": true})),
    ];
    (more, items).prop_map(|(mut schema, items)| {
        schema["type"] = "array".into();
        if let (Value::Object(schema), Value::Object(items)) = (&mut schema, items) {
            schema.extend(items);
        }
        schema
    })
}

fn schema() -> impl Strategy<Value = Value> + Clone {
    let combined = |inner: BoxedStrategy<Value>| {
        let list = || vec(inner.clone(), 1..4);
        let with_null = inner.clone().prop_map(|one| json!([one, {"type": "null"}]));
        prop_oneof![
            2 => list().prop_map(|parts| json!({"anyOf": parts})),
            2 => list().prop_map(|parts| json!({"oneOf": parts})),
            2 => with_null.prop_map(|parts| json!({"anyOf": parts, "description": "or nothing"})),
            2 => vec(inner.clone(), 1..3).prop_map(|parts| json!({"allOf": parts})),
            1 => (list(), object(inner.clone())).prop_map(|(parts, mut base)| { base["anyOf"] = parts.into(); base }),
            1 => (list(), list()).prop_map(|(one, other)| json!({"anyOf": one, "allOf": [{"oneOf": other}]})),
            1 => (inner.clone(), object(inner)).prop_map(|(part, mut base)| { base["allOf"] = json!([part]); base }),
        ]
    };
    annotated(leaf())
        .boxed()
        .prop_recursive(4, 40, 4, move |inner| {
            prop_oneof![
                3 => annotated(object(inner.clone())),
                2 => annotated(array(inner.clone())),
                2 => annotated(combined(inner)),
            ]
        })
        .boxed()
}

/// A whole input: an object, some of it behind references, one of them to itself.
fn input() -> impl Strategy<Value = Value> {
    let alternatives = prop_oneof![
        4 => Just(json!({})),
        1 => vec(object(schema()), 2..4).prop_map(|parts| json!({"oneOf": parts})),
        1 => vec(object(schema()), 1..3).prop_map(|parts| json!({"allOf": parts})),
    ];
    (object(schema()), schema(), alternatives).prop_map(|(mut root, definition, alternatives)| {
        root["$defs"] = json!({
            "a": {"type": "object", "properties": {"x": definition, "again": {"$ref": "#/$defs/a"}, "list": {"type": "array", "items": {"$ref": "#/$defs/b"}}}},
            "b": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/a"}]}
        });
        if let (Value::Object(root), Value::Object(alternatives)) = (&mut root, alternatives) {
            root.extend(alternatives);
        }
        root
    })
}

/// Whether one alternative of the root that takes these arguments names them all.
fn is_meant(source: &Value, arguments: &Value) -> bool {
    let Some(alternatives) = source.get("oneOf").and_then(Value::as_array) else { return true };
    let names = |schema: &Value, name: &str| schema["properties"].get(name).is_some();
    alternatives.iter().any(|alternative| {
        let mut whole = alternative.clone();
        whole["$defs"] = source["$defs"].clone();
        jsonschema::is_valid(&whole, arguments)
            && arguments.as_object().into_iter().flatten().all(|(name, _)| names(alternative, name) || names(source, name))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_the_server_allows_is_allowed(source in input(), seed in any::<u64>()) {
        let schema = InputSchema::compile(&source);
        // A reference that leads nowhere makes the source itself unusable.
        let Ok(original) = jsonschema::validator_for(&source) else { return Ok(()) };
        let published = jsonschema::validator_for(&schema.published.value()).unwrap();
        for round in 0..8 {
            let arguments = Value::Object(Instances::of(&source, seed.wrapping_add(round)).arguments());
            if original.is_valid(&arguments) && is_meant(&source, &arguments) {
                let sent = if schema.wrapped { json!({"arguments": arguments}) } else { arguments };
                let problems: Vec<String> = published.iter_errors(&sent).map(|error| format!("{error} at {}", error.instance_path())).collect();
                prop_assert!(problems.is_empty(), "{:?}\nfor {}\nsource {}\npublished {}", problems, sent, source, schema.published);
            }
        }
    }

    #[test]
    fn forms_are_stable_and_bounded(source in input()) {
        let one = InputSchema::compile(&source);
        let two = InputSchema::compile(&source);
        prop_assert_eq!(one.published.to_string(), two.published.to_string());
        prop_assert_eq!((&one.hint, &one.losses), (&two.hint, &two.losses));
        prop_assert!(one.published.to_string().len() < MAX_PUBLISHED);
        prop_assert!(jsonschema::draft202012::meta::is_valid(&one.published.value()), "{}", one.published);
        let again = InputSchema::compile(&one.published.value());
        prop_assert_eq!(again.published.value(), one.published.value());
    }
}

/// Most generated instances are valid, or the law above says little.
#[test]
fn most_instances_count() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut valid, mut made) = (0, 0);
    for seed in 0..200 {
        let source = input().new_tree(&mut runner).unwrap().current();
        let Ok(original) = jsonschema::validator_for(&source) else { continue };
        made += 1;
        valid += u32::from(original.is_valid(&Value::Object(Instances::of(&source, seed).arguments())));
    }
    assert!(valid * 3 > made, "{valid} of {made} are valid");
}

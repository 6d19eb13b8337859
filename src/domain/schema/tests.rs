use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::domain::schema::InputSchema;

fn compile(source: Value) -> InputSchema {
    InputSchema::compile(Arc::new(source))
}

/// What must hold of every schema that is published.
fn assert_sound(schema: &Value) {
    let object = schema.as_object().expect("a schema is an object");
    assert!(object.contains_key("type") || object.contains_key("anyOf"), "no type: {schema}");
    assert!(!object.contains_key("$ref") && !object.contains_key("allOf") && !object.contains_key("oneOf"), "{schema}");
    assert!(object.values().all(|value| !value.is_null()), "null in {schema}");
    assert!(object.get("anyOf").is_none_or(|variants| variants.as_array().is_some_and(|it| it.len() > 1)), "one variant: {schema}");
    assert!(object.get("enum").is_none_or(|values| values.as_array().is_some_and(|it| !it.is_empty())), "empty enum: {schema}");
    let array = match &schema["type"] {
        Value::String(kind) => kind == "array",
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "array"),
        _ => false,
    };
    assert!(!array || schema["items"].is_object(), "array without items: {schema}");
    if let Some(items) = object.get("items") {
        assert_sound(items);
    }
    for variant in object.get("anyOf").and_then(Value::as_array).into_iter().flatten() {
        assert_sound(variant);
    }
    for property in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
        assert_sound(property.1);
    }
    for name in object.get("required").and_then(Value::as_array).into_iter().flatten() {
        assert!(schema["properties"].get(name.as_str().unwrap()).is_some(), "{name} dangles: {schema}");
    }
    if let Some(more @ Value::Object(_)) = object.get("additionalProperties") {
        assert_sound(more);
    }
}

/// What must hold of the root besides.
fn assert_sound_root(schema: &InputSchema) {
    assert_sound(&schema.published);
    assert_eq!(schema.published["type"], "object");
    assert!(schema.published["properties"].is_object() && schema.published.get("anyOf").is_none(), "{}", schema.published);
    assert!(schema.published.to_string().len() < 1_000_000);
}

#[test]
fn references_are_inlined_and_siblings_win() {
    let schema = compile(json!({
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/P", "description": "the person"}, "q": {"$ref": "#/properties/p"}},
        "required": ["p"],
        "$defs": {"P": {"type": "object", "description": "x", "properties": {"age": {"type": "integer", "minimum": 0}}}}
    }));
    assert_sound(&schema.published);
    assert_eq!(schema.published["properties"]["p"]["description"], "the person");
    assert_eq!(schema.published["properties"]["q"]["properties"]["age"]["minimum"], 0);
    assert_eq!(schema.published["required"], json!(["p"]));
}

#[test]
fn cycles_are_cut() {
    let schema = compile(json!({
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/Node"}, "self": {"$ref": "#"}},
        "$defs": {"Node": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}}
    }));
    assert_sound(&schema.published);
    assert_eq!(schema.published["properties"]["tree"]["properties"]["children"]["items"]["type"], "object");
    assert_eq!(schema.losses, ["recursion"]);
}

#[test]
fn what_freezes_open_webui_is_gone() {
    for nasty in [
        json!({"type": "object", "properties": {"a": true, "b": {"items": true, "type": "array"}, "c": {"anyOf": [true, {"type": "string"}]}}}),
        json!({"type": "object", "properties": null, "required": null}),
        json!({"type": "object", "properties": {"a": {"type": "string", "default": null, "description": null, "enum": ["x", null]}}}),
        json!({"type": "object", "properties": {"a": null, "b": 3, "c": {"type": "wrong"}, "d": {"type": []}}}),
        json!({"type": "object", "properties": {"a": {"allOf": [{"$ref": "#/properties/a"}]}}}),
        json!({}),
    ] {
        assert_sound(&compile(nasty).published);
    }
}

#[test]
fn alternatives_keep_what_they_can() {
    let schema = compile(json!({"type": "object", "properties": {
        "nullable": {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]},
        "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "constant": {"const": "z"},
        "mixed": {"enum": [1, "a"]}
    }}));
    assert_sound(&schema.published);
    let properties = &schema.published["properties"];
    assert_eq!(properties["nullable"], json!({"enum": ["a"], "type": ["string", "null"]}));
    assert_eq!(properties["either"], json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}));
    assert_eq!(properties["constant"], json!({"enum": ["z"], "type": "string"}));
    assert_eq!(properties["mixed"]["type"], json!(["integer", "string"]));
}

#[test]
fn a_root_of_alternatives_becomes_one_object() {
    let schema = compile(json!({"type": "object", "oneOf": [
        {"properties": {"id": {"type": "string"}, "dry": {"type": "boolean"}}, "required": ["id", "dry"]},
        {"properties": {"name": {"type": "string"}, "dry": {"type": "boolean"}}, "required": ["name", "dry"]}
    ]}));
    assert_sound(&schema.published);
    assert_eq!(schema.published["required"], json!(["dry"]));
    assert_eq!(schema.published["properties"].as_object().unwrap().len(), 3);
    assert_eq!(schema.hint.as_deref(), Some("Give one of these: (id, dry) or (name, dry)."));
    assert!(schema.published.get("description").is_none());
}

#[test]
fn free_form_input_is_wrapped_and_no_input_is_not() {
    assert!(compile(json!({"type": "object", "additionalProperties": true})).wrapped);
    assert!(compile(json!({"type": "string"})).wrapped);
    let none = compile(json!({"type": "object", "properties": {}}));
    assert!(!none.wrapped);
    assert_eq!(none.published["properties"], json!({}));
    assert!(!compile(json!({"type": "object"})).wrapped);
}

#[test]
fn references_that_multiply_each_other_stay_bounded() {
    let mut definitions = Map::new();
    for level in 0..20 {
        let next = format!("#/$defs/l{}", level + 1);
        definitions.insert(format!("l{level}"), json!({"type": "object", "properties": {"a": {"$ref": next}, "b": {"$ref": next}}}));
    }
    definitions.insert("l20".into(), json!({"type": "string"}));
    let schema = compile(json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/l0"}}, "$defs": definitions}));
    assert_sound(&schema.published);
    assert!(schema.published.to_string().len() < 1_000_000);
}

#[test]
fn a_property_of_several_root_variants_accepts_what_each_accepts() {
    let schema = compile(json!({"type": "object", "oneOf": [
        {"properties": {"action": {"type": "string", "const": "create"}, "at": {"type": "string"}, "same": {"type": "boolean"}}},
        {"properties": {"action": {"const": "delete"}, "at": {"type": "integer"}, "same": {"type": "boolean"}}},
        {"properties": {"action": {"const": 3}, "at": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}}}
    ]}));
    assert_sound_root(&schema);
    assert_eq!(schema.published["properties"]["action"], json!({"type": ["string", "integer"], "enum": ["create", "delete", 3]}));
    assert_eq!(schema.published["properties"]["at"], json!({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}]}));
    assert_eq!(schema.published["properties"]["same"], json!({"type": "boolean"}));
    assert_eq!(schema.hint, None);
}

#[test]
fn what_a_variant_says_itself_wins() {
    let schema = compile(json!({"properties": {"p": {
        "type": "object",
        "properties": {"kind": {"type": "string", "description": "any"}, "id": {"type": "string"}},
        "required": ["kind"],
        "anyOf": [
            {"properties": {"kind": {"const": "a", "description": "A"}}},
            {"type": "array", "items": {"type": "integer"}}
        ]
    }}}));
    assert_sound_root(&schema);
    let variants = &schema.published["properties"]["p"]["anyOf"];
    assert_eq!(variants[0]["properties"]["kind"], json!({"type": "string", "enum": ["a"], "description": "A"}));
    assert_eq!(variants[0]["properties"]["id"], json!({"type": "string"}));
    assert_eq!(variants[0]["required"], json!(["kind"]));
    assert_eq!(variants[1], json!({"type": "array", "items": {"type": "integer"}}));
}

#[test]
fn the_only_alternative_is_merged_with_what_is_beside_it() {
    let schema = compile(json!({
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "n": {"description": "out", "anyOf": [{"type": ["string", "integer"], "description": "in"}, {"type": "null"}]}
        },
        "anyOf": [{"properties": {"b": {"type": "string"}}, "required": ["b"]}, {"type": "null"}]
    }));
    assert_sound_root(&schema);
    let properties = schema.published["properties"].as_object().unwrap();
    assert_eq!(properties.keys().collect::<Vec<_>>(), ["a", "n", "b"]);
    assert_eq!(schema.published["required"], json!(["b"]));
    assert_eq!(properties["n"], json!({"type": ["string", "integer", "null"], "description": "out"}));
}

#[test]
fn null_among_variants_joins_a_list_of_types() {
    let schema = compile(json!({"properties": {
        "a": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}, {"type": "null"}]},
        "b": {"oneOf": [{"$ref": "#/$defs/none"}, {"type": "object", "properties": {}}, {"type": "array"}]},
        "c": {"anyOf": [{"type": "null"}]}
    }, "$defs": {"none": {"const": null}}}));
    assert_sound_root(&schema);
    let properties = &schema.published["properties"];
    assert_eq!(properties["a"]["anyOf"][1]["type"], json!(["string", "null"]));
    assert_eq!(properties["b"]["anyOf"][0]["type"], json!(["object", "null"]));
    assert_eq!(properties["c"], json!({"type": "null"}));
}

#[test]
fn a_long_text_is_not_copied_for_every_reference() {
    let started = Instant::now();
    for bytes in [1_000_000, 10_000] {
        let properties: Map<String, Value> = (0..2_000).map(|index| (format!("p{index}"), json!({"$ref": "#/$defs/D"}))).collect();
        let definitions = json!({"D": {"type": "string", "description": "x".repeat(bytes), "minLength": 1}});
        let schema = compile(json!({"type": "object", "properties": properties, "$defs": definitions}));
        assert_sound_root(&schema);
        assert_eq!(schema.losses, ["more text than is published"]);
        assert_eq!(schema.published["properties"]["p7"]["type"], "string");
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn long_lists_stay_bounded() {
    let started = Instant::now();
    let wide: Map<String, Value> = (0..10_000).map(|index| (format!("w{index}"), json!({}))).collect();
    let values: Vec<usize> = (0..300_000).collect();
    let links = |to: &str| (0..3_000).map(|index| (format!("p{index}"), json!({"$ref": to}))).collect::<Map<_, _>>();
    let variants: Vec<Value> = (0..4_000).map(|index| json!({"properties": {"k": {"const": index}, "v": {"minimum": index}}})).collect();
    for source in [
        json!({"properties": links("#/$defs/w"), "$defs": {"w": {"properties": wide}}}),
        json!({"properties": links("#/$defs/v"), "$defs": {"v": {"enum": values}}}),
        json!({"properties": links("#/$defs/a"), "$defs": {"a": {"anyOf": variants}}}),
        json!({"anyOf": variants}),
    ] {
        assert_sound_root(&compile(source));
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn free_form_input_behind_a_reference_or_all_of_is_wrapped() {
    let definitions =
        json!({"Args": {"type": "object", "additionalProperties": true}, "Env": {"patternProperties": {"^A": {"type": "string"}}}});
    for source in [
        json!({"$ref": "#/$defs/Args", "$defs": definitions}),
        json!({"allOf": [{"$ref": "#/$defs/Args"}], "$defs": definitions}),
        json!({"$ref": "#/$defs/Env", "$defs": definitions}),
        json!({"anyOf": [{"$ref": "#/$defs/Args"}, {"type": "object", "properties": {}}], "$defs": definitions}),
    ] {
        let schema = compile(source);
        assert_sound_root(&schema);
        assert!(schema.wrapped, "{}", schema.source);
    }
    let closed = compile(json!({"type": "object", "allOf": [{"additionalProperties": false, "properties": {}}]}));
    assert!(!closed.wrapped);
}

#[test]
fn a_reference_that_is_not_followed_keeps_what_is_known() {
    let schema = compile(json!({
        "type": "object",
        "properties": {"list": {"$ref": "#/$defs/List"}, "any": {"$ref": "#/$defs/Any"}, "far": {"$ref": "https://example.org/x", "description": "far"}},
        "$defs": {
            "List": {"type": "array", "items": {"$ref": "#/$defs/List", "description": "inner"}},
            "Any": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/Any"}}]}
        }
    }));
    assert_sound_root(&schema);
    let properties = &schema.published["properties"];
    assert_eq!(properties["list"]["items"]["type"], "array");
    assert_eq!(properties["list"]["items"]["description"], "inner");
    assert!(properties["any"]["anyOf"][1]["items"]["type"].is_array());
    assert_eq!(properties["far"]["description"], "far");
    assert!(properties["far"]["type"].is_array());
    assert_eq!(schema.losses, ["a reference that leads outside the schema", "recursion"]);
}

#[test]
fn nothing_is_lost_in_silence() {
    let one_of = json!([{"type": "string"}, {"type": "integer"}]);
    for property in [json!({"anyOf": one_of, "oneOf": one_of}), json!({"allOf": [{"anyOf": one_of}, {"anyOf": one_of}]})] {
        let schema = compile(json!({"type": "object", "properties": {"p": property}}));
        assert_sound_root(&schema);
        assert_eq!(schema.published["properties"]["p"], json!({"anyOf": one_of}));
        assert_eq!(schema.losses, ["alternatives beside other alternatives"]);
    }
    let schema = compile(json!({"allOf": [
        {"properties": {"p": {"type": "string", "minLength": 1}}, "required": ["p"]},
        {"properties": {"p": {"maxLength": 9, "description": "both"}, "q": {"required": true, "minimum": 1}}, "required": ["p"]}
    ]}));
    assert_sound_root(&schema);
    assert_eq!(schema.published["properties"]["p"], json!({"type": "string", "minLength": 1, "maxLength": 9, "description": "both"}));
    assert_eq!(schema.published["properties"]["q"], json!({"type": "number", "minimum": 1}));
    assert_eq!(schema.published["required"], json!(["p"]));
    assert!(schema.losses.is_empty());
}

fn odd_value() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1.5),
        json!("x"),
        json!([]),
        json!({}),
        json!([null]),
        json!(["a", 1, null]),
        json!(["a", "b"]),
    ])
}

fn any_schema() -> impl Strategy<Value = Value> {
    let reference = prop::sample::select(vec![
        "#",
        "#/$defs/a",
        "#/$defs/b",
        "#/properties/a",
        "#/anyOf/0",
        "#/allOf/0",
        "#/$defs/none",
        "x#y",
        "#/%24defs/c",
    ]);
    let kind = prop::sample::select(vec![
        json!("object"),
        json!("array"),
        json!("string"),
        json!("null"),
        json!("wrong"),
        json!(["string", "null"]),
        json!(["array", "object", "array"]),
        json!([]),
        json!(null),
    ]);
    let leaf = prop_oneof![
        3 => reference.prop_map(|reference| json!({"$ref": reference})),
        3 => kind.clone().prop_map(|kind| json!({"type": kind})),
        1 => odd_value(),
    ];
    leaf.prop_recursive(5, 60, 5, move |inner| {
        let named = || prop::collection::btree_map("[abc]", inner.clone(), 0..4).prop_map(|map| json!(map));
        let listed = || vec(inner.clone(), 0..4).prop_map(Value::Array);
        let plain = prop::sample::select(vec![
            "title",
            "description",
            "enum",
            "const",
            "default",
            "examples",
            "format",
            "minimum",
            "exclusiveMinimum",
            "minItems",
            "required",
            "properties",
            "items",
            "anyOf",
            "oneOf",
            "allOf",
            "$ref",
            "type",
            "additionalProperties",
            "patternProperties",
            "not",
        ]);
        let keyword = prop_oneof![
            4 => named().prop_map(|value| ("properties", value)),
            2 => named().prop_map(|value| ("$defs", value)),
            1 => named().prop_map(|value| ("patternProperties", value)),
            2 => listed().prop_map(|value| ("anyOf", value)),
            2 => listed().prop_map(|value| ("oneOf", value)),
            2 => listed().prop_map(|value| ("allOf", value)),
            1 => listed().prop_map(|value| ("items", value)),
            2 => inner.clone().prop_map(|value| ("items", value)),
            1 => inner.clone().prop_map(|value| ("additionalProperties", value)),
            2 => vec("[abc]", 0..3).prop_map(|names| ("required", json!(names))),
            2 => kind.clone().prop_map(|kind| ("type", kind)),
            3 => (plain, odd_value()),
            1 => inner.clone().prop_map(|value| ("$ref", value.get("$ref").cloned().unwrap_or_default())),
        ];
        vec(keyword, 0..6)
            .prop_map(|keywords| Value::Object(keywords.into_iter().map(|(keyword, value)| (keyword.to_owned(), value)).collect()))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_server_sends_is_published_soundly(source in any_schema()) {
        assert_sound_root(&compile(source));
    }
}

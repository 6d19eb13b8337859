use std::ops::Deref;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::domain::catalog::schema::parameters::{Changes, parameters};
use crate::domain::catalog::schema::{InputSchema, LossReason};
use crate::domain::execution::arguments::{ArgumentsValidator, ArgumentsVerdict};

/// A schema whose published form is parsed.
struct Compiled {
    published: Value,
    schema: InputSchema,
}

impl Deref for Compiled {
    type Target = InputSchema;

    fn deref(&self) -> &InputSchema {
        &self.schema
    }
}

/// Compiles a schema and checks the invariants of published schemas.
#[expect(clippy::needless_pass_by_value, reason = "most tests pass a literal")]
fn compile(source: Value) -> Compiled {
    let schema = InputSchema::compile(&source);
    let schema = Compiled { published: schema.published.value(), schema };
    assert_sound_root(&schema);
    schema
}

/// Checks the invariants of a published schema.
fn assert_sound(schema: &Value) {
    let object = schema.as_object().expect("a schema is an object");
    if *schema == json!({"properties": {}}) {
        return;
    }
    assert!(object.contains_key("type") || object.contains_key("anyOf"), "no type: {schema}");
    assert!(!object.contains_key("$ref") && !object.contains_key("allOf") && !object.contains_key("oneOf"), "{schema}");
    assert!(object.values().all(|value| !value.is_null()), "null in {schema}");
    assert!(!object.contains_key("nullable") && !object.contains_key("$defs") && !object.contains_key("definitions"), "{schema}");
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
    for keyword in ["additionalProperties", "propertyNames"] {
        if let Some(more @ Value::Object(_)) = object.get(keyword) {
            assert_sound(more);
        }
    }
    for property in object.get("patternProperties").and_then(Value::as_object).into_iter().flatten() {
        assert_sound(property.1);
    }
    for first in object.get("prefixItems").and_then(Value::as_array).into_iter().flatten() {
        assert_sound(first);
    }
}

/// Checks the invariants of a published root schema.
fn assert_sound_root(schema: &Compiled) {
    assert_sound(&schema.published);
    assert_eq!(schema.published["type"], "object");
    assert!(schema.published["properties"].is_object() && schema.published.get("anyOf").is_none(), "{}", schema.published);
    assert!(schema.published.to_string().len() < 1_000_000);
}

fn property(source: &Value) -> Value {
    compile(json!({"type": "object", "properties": {"p": source}})).published["properties"]["p"].clone()
}

fn losses(schema: &InputSchema) -> Vec<(&str, &str, LossReason, bool)> {
    schema.losses.iter().map(|loss| (loss.pointer.as_str(), loss.keyword.as_str(), loss.reason, loss.described)).collect()
}

#[test]
fn references_are_inlined_and_siblings_win() {
    let schema = compile(json!({
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/P", "description": "the person"}, "q": {"$ref": "#/properties/p"}},
        "required": ["p"],
        "$defs": {"P": {"type": "object", "description": "x", "properties": {"age": {"type": "integer", "minimum": 0}}}}
    }));
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
    let child = &schema.published["properties"]["tree"]["properties"]["children"]["items"];
    assert_eq!(*child, json!({"type": "object", "additionalProperties": true, "description": "The same structure as `tree`, nested."}));
    assert!(schema.published["properties"]["self"]["description"].as_str().unwrap().contains("all arguments together"));
    let place = "/properties/tree/properties/children/items";
    assert_eq!(losses(&schema), [("/properties/self", "$ref", LossReason::Recursive, true), (place, "$ref", LossReason::Recursive, true)]);
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
        compile(nasty);
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
    let properties = &schema.published["properties"];
    assert_eq!(properties["nullable"], json!({"enum": ["a", null], "type": ["string", "null"]}));
    assert_eq!(properties["either"], json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}));
    assert_eq!(properties["constant"], json!({"const": "z", "type": "string"}));
    assert_eq!(properties["mixed"]["type"], json!(["integer", "string"]));
}

#[test]
fn a_root_of_alternatives_becomes_one_object() {
    let schema = compile(json!({"type": "object", "oneOf": [
        {"properties": {"id": {"type": "string"}, "dry": {"type": "boolean"}}, "required": ["id", "dry"]},
        {"properties": {"name": {"type": "string"}, "dry": {"type": "boolean"}}, "required": ["name", "dry"]}
    ]}));
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
    compile(json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/l0"}}, "$defs": definitions}));
}

#[test]
fn a_property_of_several_root_variants_accepts_what_each_accepts() {
    let schema = compile(json!({"type": "object", "oneOf": [
        {"properties": {"action": {"type": "string", "const": "create"}, "at": {"type": "string"}, "same": {"type": "boolean"}}},
        {"properties": {"action": {"const": "delete"}, "at": {"type": "integer"}, "same": {"type": "boolean"}}},
        {"properties": {"action": {"const": 3}, "at": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}}}
    ]}));
    assert_eq!(schema.published["properties"]["action"], json!({"type": ["string", "integer"], "enum": ["create", "delete", 3]}));
    assert_eq!(schema.published["properties"]["at"], json!({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "boolean"}]}));
    assert_eq!(schema.published["properties"]["same"], json!({"type": "boolean"}));
    let hint = "Give one of these: (action? = \"create\", same?) or (action? = \"delete\", same?) or (action? = 3).";
    assert_eq!(schema.hint.as_deref(), Some(hint));
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
    let variants = &schema.published["properties"]["p"]["anyOf"];
    assert_eq!(variants[0]["properties"]["kind"], json!({"type": "string", "const": "a", "description": "A"}));
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
        assert!(schema.losses.iter().any(|loss| loss.reason == LossReason::TooLarge), "{:?}", schema.losses);
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
        compile(source);
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
    let properties = &schema.published["properties"];
    assert_eq!(properties["list"]["items"]["type"], "array");
    assert_eq!(properties["list"]["items"]["description"], "inner. The same structure as `list`, nested.");
    assert!(properties["any"]["anyOf"][1]["items"]["type"].is_array());
    assert_eq!(properties["far"]["description"], "far");
    assert!(properties["far"]["type"].is_array());
    assert_eq!(
        losses(&schema),
        [
            ("/properties/any/anyOf/1/items", "$ref", LossReason::Recursive, true),
            ("/properties/far", "$ref", LossReason::Unresolved, false),
            ("/properties/list/items", "$ref", LossReason::Recursive, true),
        ]
    );
}

/// Regression test: the published schema must not forbid what the source allows in a part that isn't published.
#[test]
fn properties_of_parts_that_are_not_published_are_not_forbidden() {
    let node = json!({"type": "object", "properties": {"v": {"type": "integer"},
        "next": {"$ref": "#/$defs/node", "unevaluatedProperties": false}}});
    let cyclic = compile(json!({"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}));
    let next = &cyclic.published["properties"]["root"]["properties"]["next"];
    assert_ne!(next["additionalProperties"], false, "{next}");
    let lost = compile(json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/gone", "unevaluatedProperties": false}}}));
    assert_ne!(lost.published["properties"]["a"]["additionalProperties"], false);
    let part = |pattern: &str| json!({"patternProperties": {pattern: {"type": "string"}}, "additionalProperties": false});
    let with_parts = |parts: Value| {
        let schema = json!({"type": "object", "properties": {"a": {"type": "object", "allOf": parts}}});
        compile(schema).published["properties"]["a"].clone()
    };
    let two = with_parts(json!([{"patternProperties": {"^a": {"type": "string"}}}, part("^b")]));
    assert_eq!(two["additionalProperties"], true, "{two}");
    let one = with_parts(json!([part("^a")]));
    assert_eq!(one["additionalProperties"], false, "{one}");
}

#[test]
fn nothing_is_lost_in_silence() {
    let one_of = json!([{"type": "string"}, {"type": "integer"}]);
    assert_eq!(property(&json!({"anyOf": one_of, "oneOf": one_of})), json!({"anyOf": one_of}));
    let schema = compile(json!({"properties": {"p": {"allOf": [{"anyOf": one_of}, {"oneOf": [{"const": "a"}, {"type": "integer"}]}]}}}));
    let text = "And one of these holds: \"a\"; or an integer.";
    assert_eq!(schema.published["properties"]["p"], json!({"anyOf": one_of, "description": text}));
    assert_eq!(losses(&schema), [("/properties/p", "anyOf", LossReason::SaidTwice, true)]);
    let schema = compile(json!({"allOf": [
        {"properties": {"p": {"type": "string", "minLength": 1}}, "required": ["p"]},
        {"properties": {"p": {"maxLength": 9, "description": "both"}, "q": {"required": true, "minimum": 1}}, "required": ["p"]}
    ]}));
    assert_eq!(schema.published["properties"]["p"], json!({"type": "string", "minLength": 1, "maxLength": 9, "description": "both"}));
    assert_eq!(schema.published["properties"]["q"], json!({"type": "number", "minimum": 1}));
    assert_eq!(schema.published["required"], json!(["p", "q"]));
    assert!(schema.losses.is_empty());
}

#[test]
fn old_drafts_say_the_same() {
    let draft_4 = property(&json!({"type": "number", "minimum": 1, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false}));
    assert_eq!(draft_4, json!({"type": "number", "maximum": 9, "exclusiveMinimum": 1}));
    let tuple = property(&json!({"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": false}));
    assert_eq!(tuple["prefixItems"], json!([{"type": "string"}, {"type": "integer"}]));
    assert_eq!(tuple["maxItems"], 2);
    let needs = property(&json!({"type": "object", "dependencies": {"a": ["b"]}, "properties": {"a": {"type": "string"}}}));
    assert_eq!(needs["dependentRequired"], json!({"a": ["b"]}));
    let old = compile(json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"p": {"$ref": "#/definitions/P", "description": "this one", "minLength": 9}},
        "definitions": {"P": {"type": "string", "minLength": 1}}
    }));
    assert_eq!(old.published["properties"]["p"], json!({"type": "string", "minLength": 1, "description": "this one"}));
    assert_eq!(
        property(&json!({"type": "string", "nullable": true, "enum": ["a"]})),
        json!({"type": ["string", "null"], "enum": ["a", null]})
    );
    assert_eq!(property(&json!({"type": "string", "example": "x"})), json!({"type": "string", "examples": ["x"]}));
}

/// Regression test: null was published as two alternatives, and as one when the published form was published again.
#[test]
fn null_with_conditions_for_other_values_is_null() {
    let inner = json!({"type": "object", "not": {"required": ["x"]}, "allOf": [{"type": "object", "nullable": true}]});
    let schema = compile(json!({
        "type": "object",
        "properties": {"x": {
            "type": "object",
            "properties": {"x": inner},
            "anyOf": [{"type": "object", "properties": {"x": {"type": "null"}}}],
        }},
    }));
    assert_eq!(schema.published["properties"]["x"]["properties"]["x"], json!({"type": "null"}));
    assert_eq!(compile(schema.published.clone()).published, schema.published);
}

#[test]
fn references_are_found_by_anchor_identifier_and_moved_definitions() {
    let schema = compile(json!({
        "$id": "https://example.org/tool",
        "properties": {
            "anchor": {"$ref": "#here"},
            "embedded": {"$ref": "address"},
            "absolute": {"$ref": "https://example.org/address#/$defs/zip"},
            "moved": {"$ref": "#/components/schemas/A"},
            "encoded": {"$ref": "#/%24defs/a~1b"}
        },
        "$defs": {
            "A": {"$anchor": "here", "type": "integer"},
            "a/b": {"type": "boolean"},
            "B": {"$id": "https://example.org/address", "type": "object", "properties": {"zip": {"$ref": "#/$defs/zip"}}, "$defs": {"zip": {"type": "string", "pattern": "^[0-9]+$"}}}
        }
    }));
    let properties = &schema.published["properties"];
    let zip = json!({"type": "string", "pattern": "^[0-9]+$"});
    assert_eq!(properties["anchor"], json!({"type": "integer"}));
    assert_eq!(properties["embedded"]["properties"]["zip"], zip);
    assert_eq!(properties["absolute"], zip);
    assert_eq!(properties["moved"], json!({"type": "integer"}));
    assert_eq!(properties["encoded"], json!({"type": "boolean"}));
    assert!(schema.losses.is_empty());
}

#[test]
fn what_has_a_form_is_kept() {
    let all = json!({"type": "object", "properties": {
        "text": {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a", "format": "email", "examples": ["a@b"], "default": "a@c", "title": "T", "description": "d", "readOnly": true},
        "number": {"type": "number", "minimum": 0, "exclusiveMaximum": 9.5, "multipleOf": 0.5, "enum": [0, 1.5]},
        "list": {"type": "array", "items": {"type": "string", "const": "x"}, "minItems": 1, "maxItems": 3, "uniqueItems": true, "contains": {"const": "x"}, "minContains": 2},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}, "patternProperties": {"^x-": {"type": "string"}}, "propertyNames": {"type": "string", "pattern": "^[a-z]"}, "minProperties": 1, "maxProperties": 5},
        "either": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "dependentRequired": {"a": ["b"]}, "not": {"required": ["c"]}},
        "if": {"type": "object", "properties": {"k": {"type": "string"}}, "if": {"properties": {"k": {"const": "x"}}}, "then": {"required": ["v"]}}
    }, "required": ["text"], "additionalProperties": false});
    let schema = compile(all.clone());
    assert_eq!(schema.published, all);
    assert_eq!(schema.losses, []);
    assert_eq!(schema.hint, None);
}

#[test]
fn what_has_no_form_is_said_in_words() {
    let schema = compile(json!({
        "type": "object",
        "description": "All about one.",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"not": {"$ref": "#/$defs/no"}}},
        "if": {"properties": {"a": {"const": "x"}}}, "then": {"required": ["b"]},
        "not": {"required": ["a", "b"]},
        "dependentRequired": {"a": ["b", "c"]},
        "minProperties": 1,
        "$defs": {"no": {"enum": [1, 2]}}
    }));
    let hint = schema.hint.clone().unwrap();
    for text in [
        "All about one.",
        "If `a` is \"x\", then `b` given.",
        "Not allowed: `a` and `b` given.",
        "`a` needs `b` and `c` too.",
        "at least 1",
    ] {
        assert!(hint.contains(text), "{text} is not in {hint}");
    }
    let c = schema.published["properties"]["c"]["description"].as_str().unwrap();
    assert!(c.starts_with("Not allowed: "), "{c}");
    let lost: Vec<&str> = schema.losses.iter().map(|loss| loss.keyword.as_str()).collect();
    assert_eq!(lost, ["dependentRequired", "if", "minProperties", "not", "not"]);
    assert!(schema.losses.iter().all(|loss| loss.described));
}

#[test]
fn anything_stays_anything() {
    let anything = json!({"type": ["string", "number", "boolean", "object", "array", "null"], "items": {"properties": {}}});
    for source in [json!({}), json!(true), json!({"$comment": "x"})] {
        assert_eq!(property(&source), anything);
    }
    assert_eq!(property(&json!({"type": "array"})), json!({"type": "array", "items": anything}));
    assert_eq!(property(&json!({"type": "object", "additionalProperties": {}})), json!({"type": "object", "additionalProperties": true}));
}

#[test]
fn a_required_name_without_a_schema_becomes_a_property() {
    let schema = compile(json!({"type": "object", "required": ["x"], "additionalProperties": {"type": "integer"}}));
    assert_eq!(schema.published["properties"]["x"], json!({"type": "integer"}));
    assert_eq!(schema.published["required"], json!(["x"]));
    assert!(schema.hint.as_ref().unwrap().contains("run_tool"));
}

#[test]
fn names_of_properties_are_never_changed() {
    let names = ["Binding.Alg", "$filter", "名前", "a b", "a/b~c", "__x", "", "type", "properties", "items", "anyOf", "$ref"];
    let properties: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    let schema = compile(json!({"type": "object", "properties": properties, "required": names}));
    assert_eq!(schema.published["properties"], Value::Object(properties));
    assert_eq!(schema.published["required"], json!(names));
}

#[test]
fn a_wrapper_keeps_what_is_known() {
    let schema = compile(json!({"type": "object", "additionalProperties": {"type": "number"}, "description": "Rates"}));
    let inner = json!({"type": "object", "additionalProperties": {"type": "number"}, "description": "Rates"});
    assert_eq!(schema.published["properties"]["arguments"], inner);
    assert!(schema.wrapped);
}

#[test]
fn the_stricter_bound_holds() {
    let both = property(
        &json!({"allOf": [{"type": ["integer", "string"], "minimum": 1, "maximum": 5}, {"type": "integer", "minimum": 3, "maximum": 9}]}),
    );
    assert_eq!(both, json!({"type": "integer", "minimum": 3, "maximum": 5}));
    let lists = property(&json!({"allOf": [{"enum": ["a", "b"]}, {"enum": ["b"]}]}));
    assert_eq!(lists, json!({"type": "string", "enum": ["b"]}));
}

fn one_of(words: &'static str) -> impl Strategy<Value = &'static str> + Clone {
    prop::sample::select(words.split(' ').collect::<Vec<_>>())
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
        json!({"a": ["b"]}),
        json!({"type": "string"}),
    ])
}

fn any_schema() -> impl Strategy<Value = Value> {
    let reference = one_of("# #/$defs/a #/$defs/b #/properties/a #/anyOf/0 #/allOf/0 #/$defs/none x#y #/%24defs/c");
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
        let plain = one_of(
            "title description enum const default examples format minimum exclusiveMinimum minItems required \
             properties items anyOf oneOf allOf $ref type additionalProperties patternProperties not if then \
             contains maxContains nullable prefixItems additionalItems dependentRequired dependencies \
             dependentSchemas propertyNames unevaluatedProperties multipleOf minProperties $id $anchor $dynamicRef \
             pattern",
        );
        let keyword = prop_oneof![
            4 => named().prop_map(|value| ("properties", value)),
            2 => named().prop_map(|value| ("$defs", value)),
            1 => named().prop_map(|value| ("patternProperties", value)),
            1 => named().prop_map(|value| ("dependencies", value)),
            1 => listed().prop_map(|value| ("prefixItems", value)),
            1 => inner.clone().prop_map(|value| ("not", value)),
            1 => inner.clone().prop_map(|value| ("if", value)),
            1 => inner.clone().prop_map(|value| ("then", value)),
            1 => inner.clone().prop_map(|value| ("contains", value)),
            1 => inner.clone().prop_map(|value| ("propertyNames", value)),
            1 => inner.clone().prop_map(|value| ("unevaluatedProperties", value)),
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
        let schema = compile(source);
        prop_assert!(jsonschema::draft202012::meta::is_valid(&schema.published), "{}", schema.published);
        // Publishing is idempotent.
        let again = compile(schema.published.clone());
        prop_assert_eq!(&again.published, &schema.published);
        prop_assert!(!again.wrapped);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn without_some_parameters_a_schema_is_published_soundly_too(source in any_schema(), picks in vec(vec(0..7_usize, 8), 12)) {
        let names: Vec<String> = parameters(&source).keys().map(|name| (*name).to_owned()).collect();
        let default = json!(1);
        let mut changes = Changes::default();
        for (number, name) in names.iter().enumerate() {
            match number % 4 {
                0 => drop(changes.without.insert(name.as_str(), None)),
                1 => drop(changes.without.insert(name.as_str(), Some(&default))),
                2 => drop(changes.defaults.insert(name.as_str(), &default)),
                _ => {}
            }
        }
        let schema = compile(changes.apply(&source));
        prop_assert!(jsonschema::draft202012::meta::is_valid(&schema.published), "{}", schema.published);
        let required: Vec<&str> = schema.published["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for name in changes.without.keys() {
            prop_assert!(schema.wrapped || schema.published["properties"].get(name).is_none(), "{name}: {}", schema.published);
            prop_assert!(!required.contains(name));
        }
        prop_assert!(changes.defaults.keys().all(|name| !required.contains(name)));
        let left = changes.apply(&source);
        prop_assert!(parameters(&left).keys().all(|name| !changes.without.contains_key(name)), "{left}");
        // What the server accepts with the added values, callers may send without them.
        let values = [json!(1), json!("a"), json!(true), json!([]), json!({}), json!(null)];
        for pick in &picks {
            let sent: Map<String, Value> = names
                .iter()
                .zip(pick)
                .filter_map(|(name, pick)| Some((name.clone(), values.get(*pick)?.clone())))
                .filter(|(name, _)| !changes.without.contains_key(name.as_str()))
                .collect();
            let mut whole = sent.clone();
            whole.extend(changes.without.iter().filter_map(|(name, value)| Some(((*name).to_owned(), (*value)?.clone()))));
            for (name, value) in &changes.defaults {
                whole.entry(*name).or_insert_with(|| (*value).clone());
            }
            let verdict = |schema: &Value, arguments: &Map<String, Value>| {
                ArgumentsValidator::default().check(&schema.into(), &json!(arguments).to_string())
            };
            if verdict(&source, &whole) == ArgumentsVerdict::Valid {
                let found = verdict(&left, &sent);
                prop_assert!(
                    matches!(found, ArgumentsVerdict::Valid | ArgumentsVerdict::Unchecked { .. }),
                    "{sent:?} for {left}: {found:?}"
                );
            }
        }
    }
}

/// Regression test: the last items of a list that two alternatives have in common changed when the result was published again.
#[test]
fn lists_of_alternatives_are_published_once() {
    let list = json!({"allOf": [{"type": "array", "prefixItems": [{"type": "string"}], "items": false}, {"enum": ["a"]}]});
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let schema = compile(json!({
        "type": "object",
        "properties": {"z": list},
        "oneOf": [{"type": "object", "properties": {"z": texts}}, {"type": "object", "properties": {}}]
    }));
    assert_eq!(schema.published["properties"]["z"]["items"], json!({"properties": {}}));
    assert_eq!(compile(schema.published.clone()).published, schema.published);
}

/// Regression test: the schema is invalid under the newest draft, so it's read as draft 7, which ignores siblings of `$ref`.
#[test]
fn a_changed_schema_is_read_under_the_draft_of_its_source() {
    let source = json!({"$ref": "#", "type": "array", "$defs": {"a": {"type": "wrong"}}});
    let changed = Changes::default().apply(&source);
    let validator = ArgumentsValidator::default();
    assert_eq!(validator.check(&(&source).into(), "{}"), ArgumentsVerdict::Valid);
    assert_eq!(ArgumentsValidator::default().check(&(&changed).into(), "{}"), ArgumentsVerdict::Valid, "{changed}");
}

/// Regression test: 198 tools of a real server put the enum of a string under `items`.
#[test]
fn values_that_stand_at_the_items_of_a_string_are_described_and_not_required() {
    let values = json!({"type": "string", "description": "The unit.", "items": {"enum": ["celsius", "kelvin"]}});
    let schema = compile(json!({"type": "object", "properties": {"unit": values}}));
    let unit = &schema.published["properties"]["unit"];
    let text = unit["description"].as_str().unwrap();
    assert!(text.starts_with("The unit.") && text.contains("celsius") && text.contains("kelvin"), "{unit}");
    assert!(unit.get("enum").is_none() && unit.get("items").is_none() && unit["type"] == "string", "{unit}");
    let list = json!({"type": "object", "properties": {"units": {"type": "array", "items": {"enum": ["celsius"]}}}});
    assert!(compile(list).published["properties"]["units"].get("description").is_none());
}

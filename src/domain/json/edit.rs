//! One value of a JSON text, by its pointer (RFC 6901): as it was written, replaced, or taken out.

use indexmap::IndexMap;
use serde_json::value::RawValue;

use crate::domain::json::{items, members, quoted};

/// What becomes of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// JSON text that takes its place.
    Replace(String),
    /// The member goes, with its name.
    Remove,
}

/// The value at a place, as it was written.
#[must_use]
pub fn at<'a>(json: &'a str, pointer: &str) -> Option<&'a str> {
    let mut value = json;
    for segment in segments(pointer) {
        value = match value.trim_start().as_bytes().first()? {
            b'{' => members(value)?.get(&segment)?.get(),
            b'[' => items(value)?.get(segment.parse::<usize>().ok()?)?.get(),
            _ => return None,
        };
    }
    Some(value)
}

/// The text with one value edited and every other byte as it was. `None`: there is no such value.
#[must_use]
pub fn edit(json: &str, pointer: &str, edit: &Edit) -> Option<String> {
    let (pointer, replacement) = match edit {
        Edit::Replace(value) => (pointer, value.clone()),
        Edit::Remove => {
            let (parent, _) = pointer.rsplit_once('/')?;
            (parent, without(at(json, parent)?, &segments(pointer).pop()?)?)
        }
    };
    let value = at(json, pointer)?;
    // Both are the same text, one a part of the other.
    let start = value.as_ptr() as usize - json.as_ptr() as usize;
    Some(format!("{}{replacement}{}", &json[..start], &json[start + value.len()..]))
}

fn without(object: &str, name: &str) -> Option<String> {
    let mut rest: IndexMap<String, &RawValue> = members(object)?;
    rest.shift_remove(name)?;
    let members: Vec<String> = rest.iter().map(|(name, value)| format!("{}:{}", quoted(name), value.get())).collect();
    Some(format!("{{{}}}", members.join(",")))
}

/// The names and numbers of a pointer, unescaped.
fn segments(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|segment| segment.replace("~1", "/").replace("~0", "~")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    const JSON: &str = r#" {"a": [1e999, {"b/c": 12345678901234567890123 }], "d": null , "e":1.0}"#;

    #[test]
    fn values_are_found_as_they_were_written() {
        assert_eq!(at(JSON, "/a/0"), Some("1e999"));
        assert_eq!(at(JSON, "/a/1/b~1c"), Some("12345678901234567890123"));
        assert_eq!(at(JSON, ""), Some(JSON));
        for nowhere in ["/x", "/a/2", "/a/b", "/e/f"] {
            assert_eq!(at(JSON, nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn an_edit_leaves_the_rest_alone() {
        let replaced = edit(JSON, "/d", &Edit::Replace("[7]".into()));
        assert_eq!(replaced.as_deref(), Some(r#" {"a": [1e999, {"b/c": 12345678901234567890123 }], "d": [7] , "e":1.0}"#));
        let removed = edit(JSON, "/d", &Edit::Remove);
        assert_eq!(removed.as_deref(), Some(r#"{"a":[1e999, {"b/c": 12345678901234567890123 }],"e":1.0}"#));
        let inner = edit(JSON, "/a/1/b~1c", &Edit::Remove);
        assert_eq!(inner.as_deref(), Some(r#" {"a": [1e999, {}], "d": null , "e":1.0}"#));
        assert_eq!(edit(JSON, "/x", &Edit::Remove), None);
        assert_eq!(edit("1", "", &Edit::Remove), None);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let name = prop_oneof![Just(String::new()), Just("~0/".to_owned()), Just("ü\"\\".to_owned()), "[a-c/~01]{1,2}"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 4, move |inner| {
            let member = (name.clone(), inner.clone());
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Value::from),
                prop::collection::vec(member, 0..4).prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    /// Every place of a value.
    fn places(value: &Value, here: &str, out: &mut Vec<String>) {
        out.push(here.to_owned());
        let below = |name: &str| format!("{here}/{}", name.replace('~', "~0").replace('/', "~1"));
        match value {
            Value::Object(members) => members.iter().for_each(|(name, inner)| places(inner, &below(name), out)),
            Value::Array(items) => items.iter().enumerate().for_each(|(index, inner)| places(inner, &below(&index.to_string()), out)),
            _ => {}
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn text_and_tree_agree_on_every_place(value in any_json(), is_pretty: bool) {
            let text = if is_pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
            let mut all = Vec::new();
            places(&value, "", &mut all);
            for place in all {
                let found: Value = serde_json::from_str(at(&text, &place).unwrap()).unwrap();
                prop_assert_eq!(Some(&found), value.pointer(&place));
                let mut expected = value.clone();
                *expected.pointer_mut(&place).unwrap() = Value::from("new");
                let edited: Value = serde_json::from_str(&edit(&text, &place, &Edit::Replace("\"new\"".into())).unwrap()).unwrap();
                prop_assert_eq!(edited, expected);
                let mut expected = value.clone();
                let removed = edit(&text, &place, &Edit::Remove).map(|text| serde_json::from_str::<Value>(&text).unwrap());
                let parent = place.rsplit_once('/').and_then(|(parent, name)| Some((expected.pointer_mut(parent)?.as_object_mut()?, name)));
                let is_gone = parent.is_some_and(|(members, name)| members.shift_remove(&name.replace("~1", "/").replace("~0", "~")).is_some());
                prop_assert_eq!(removed, is_gone.then_some(expected));
            }
        }
    }
}

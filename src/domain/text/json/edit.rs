//! Reads, replaces or removes one value of a JSON text, by pointer (RFC 6901). The rest of the text is kept.

use std::borrow::Cow;
use std::ops::Range;

use indexmap::IndexMap;

use super::splice::splice;
use crate::domain::text::json::{items, member, members, quoted};

/// An edit of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Replaces the value with this JSON text.
    Replace(String),
    /// Wraps the value in a list as its only item.
    Wrap,
    /// Removes the member, both name and value.
    Remove,
}

/// The JSON text of the value at a pointer.
pub fn at<'a>(json: &'a str, pointer: &str) -> Option<&'a str> {
    let mut value = json;
    for segment in segments(pointer) {
        value = match value.trim_start().as_bytes().first()? {
            b'{' => member(value, &segment)?.get(),
            b'[' => items(value)?.get(segment.parse::<usize>().ok()?)?.get(),
            _ => return None,
        };
    }
    Some(value)
}

/// Edits one value. Every other byte stays, except whitespace in an object that loses a member. `None` if the pointer has no
/// value.
pub fn edit(json: &str, pointer: &str, edit: &Edit) -> Option<String> {
    let (pointer, replacement) = match edit {
        Edit::Replace(value) => (pointer, value.clone()),
        Edit::Wrap => (pointer, wrapped(at(json, pointer)?)),
        Edit::Remove => {
            let (parent, _) = pointer.rsplit_once('/')?;
            (parent, without(at(json, parent)?, &segments(pointer).pop()?)?)
        }
    };
    let value = at(json, pointer)?;
    // `value` is a slice of `json`, so its offset is the difference of the pointers.
    let start = value.as_ptr() as usize - json.as_ptr() as usize;
    Some(format!("{}{replacement}{}", &json[..start], &json[start + value.len()..]))
}

/// Edits several values in one pass; no edit may be inside another. Every other byte stays, except whitespace in objects that
/// lose a member. `None` if a pointer has no value.
pub fn edit_all<'a>(json: &str, edits: impl IntoIterator<Item = (&'a str, &'a Edit)>) -> Option<String> {
    let mut edits: Vec<(Vec<String>, &Edit)> = edits.into_iter().map(|(pointer, edit)| (segments(pointer), edit)).collect();
    edits.sort_by(|(one, _), (other, _)| one.cmp(other));
    let edits: Vec<(&[String], &Edit)> = edits.iter().map(|(segments, edit)| (segments.as_slice(), *edit)).collect();
    edited(json, &edits).map(Cow::into_owned)
}

/// Applies edits, which must be sorted so that edits below the same member are adjacent.
fn edited<'a>(json: &'a str, edits: &[(&[String], &'a Edit)]) -> Option<Cow<'a, str>> {
    match edits {
        [] => return Some(json.into()),
        [([], Edit::Replace(value))] => return Some(value.into()),
        [([], Edit::Wrap)] => return Some(wrapped(json).into()),
        _ => {}
    }
    let below = |part: &[(&'_ [String], &'a Edit)], value: &'a str| {
        let part: Vec<(&[String], &Edit)> = part.iter().map(|(segments, edit)| (&segments[1..], *edit)).collect();
        edited(value, &part)
    };
    let mut parts = edits.chunk_by(|(one, _), (other, _)| one.first() == other.first());
    if edits.iter().any(|(segments, edit)| segments.len() == 1 && **edit == Edit::Remove) {
        let mut members: IndexMap<String, Cow<'_, str>> =
            members(json)?.into_iter().map(|(name, value)| (name.into_owned(), value.get().into())).collect();
        for part in parts {
            let name = part[0].0.first()?;
            match part {
                [([_], Edit::Remove)] => drop(members.shift_remove(name)?),
                part => {
                    let value = member(json, name)?.get();
                    members.insert(name.clone(), below(part, value)?);
                }
            }
        }
        let members: Vec<String> = members.iter().map(|(name, value)| format!("{}:{value}", quoted(name))).collect();
        return Some(format!("{{{}}}", members.join(",")).into());
    }
    let mut replaced: Vec<(Range<usize>, Cow<'_, str>)> = Vec::new();
    let mut replace = |part: &[(&'_ [String], &'a Edit)], value: &'a str| {
        // `value` is a slice of `json`, so its offset is the difference of the pointers.
        let start = value.as_ptr() as usize - json.as_ptr() as usize;
        replaced.push((start..start + value.len(), below(part, value)?));
        Some(())
    };
    match json.trim_start().as_bytes().first()? {
        b'{' => {
            let members = members(json)?;
            parts.try_for_each(|part| replace(part, members.get(part[0].0.first()?.as_str())?.get()))?;
        }
        b'[' => {
            let items = items(json)?;
            parts.try_for_each(|part| replace(part, items.get(part[0].0.first()?.parse::<usize>().ok()?)?.get()))?;
        }
        _ => return None,
    }
    replaced.sort_by_key(|(range, _)| range.start);
    splice(json, replaced).map(Cow::from)
}

fn wrapped(value: &str) -> String {
    format!("[{value}]")
}

fn without(object: &str, name: &str) -> Option<String> {
    let mut rest = members(object)?;
    rest.shift_remove(name)?;
    let members: Vec<String> = rest.iter().map(|(name, value)| format!("{}:{}", quoted(name), value.get())).collect();
    Some(format!("{{{}}}", members.join(",")))
}

/// The unescaped segments of a pointer.
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
        assert_eq!(edit("{\"a\": 1e999}", "/a", &Edit::Wrap).as_deref(), Some("{\"a\": [1e999]}"));
        let removed = edit(JSON, "/d", &Edit::Remove);
        assert_eq!(removed.as_deref(), Some(r#"{"a":[1e999, {"b/c": 12345678901234567890123 }],"e":1.0}"#));
        let inner = edit(JSON, "/a/1/b~1c", &Edit::Remove);
        assert_eq!(inner.as_deref(), Some(r#" {"a": [1e999, {}], "d": null , "e":1.0}"#));
        assert_eq!(edit(JSON, "/x", &Edit::Remove), None);
        assert_eq!(edit("1", "", &Edit::Remove), None);
    }

    #[test]
    fn several_edits_are_those_one_after_the_other() {
        let json = r#" {"a": [1e999, {"b/c": 1, "x" : null }, "t"], "d": null , "e":1.0}"#;
        let (replace, remove) = (|text: &str| Edit::Replace(text.to_owned()), Edit::Remove);
        let edits = [("/e", replace("2")), ("/a/2", replace("[3]")), ("/a/0", Edit::Wrap), ("/a/1/b~1c", replace("{}"))];
        let all = edit_all(json, edits.iter().map(|(pointer, edit)| (*pointer, edit)));
        assert_eq!(all.as_deref(), Some(r#" {"a": [[1e999], {"b/c": {}, "x" : null }, [3]], "d": null , "e":2}"#));
        let edits = [("/d", &remove), ("/a/1/x", &remove), ("/e", &replace("2"))];
        assert_eq!(edit_all(json, edits).as_deref(), Some(r#"{"a":[1e999, {"b/c":1}, "t"],"e":2}"#));
        assert_eq!(edit_all(json, []).as_deref(), Some(json));
        assert_eq!(edit_all(json, [("", &replace("7"))]).as_deref(), Some("7"));
        for nowhere in ["/x", "/a/3", "/a/x", "/e/f"] {
            assert_eq!(edit_all(json, [("/d", &replace("1")), (nowhere, &replace("1"))]), None, "{nowhere}");
        }
        assert_eq!(edit_all("[1, 2]", [("/0", &remove)]), None, "items keep their places");
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

    /// Collects the pointers of a value and everything in it.
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

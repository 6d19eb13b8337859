//! Works on JSON as text. Parsed trees round numbers, so values that must not change stay text. Edits leave every other byte
//! unchanged.

pub mod pointer;
mod splice;
mod edit;
mod scan;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use ahash::RandomState;
use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, Unexpected, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

pub use self::edit::{Edit, at, edit, edit_all};
pub use self::scan::end_of_string;
use self::scan::{Scan, Token};
use self::splice::splice;

/// The limit up to which every parser represents all integers exactly (RFC 8259, section 6).
const LARGEST_WHOLE: u64 = 1 << 53;
/// Number of decimal digits that every double preserves.
const SAFE_DIGITS: usize = 15;

/// The members of an object, as JSON text. Names without escapes are borrowed.
pub type Members<'a> = IndexMap<Cow<'a, str>, &'a RawValue, RandomState>;

/// The members of an object. If a name occurs twice, the last member counts.
#[must_use]
pub fn members(json: &str) -> Option<Members<'_>> {
    read_members(json).ok()
}

/// Like [`members`], with the parser's error.
pub(crate) fn read_members(json: &str) -> Result<Members<'_>, serde_json::Error> {
    let mut members = Members::default();
    each_member(json, |name, value| {
        members.insert(name, value);
    })?;
    Ok(members)
}

/// Reads a struct from an object only. Derived code also takes its members from an array, in their order.
///
/// # Errors
/// Everything but an object, and what `T` refuses.
pub fn from_object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Object<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = T;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(members))
        }
    }
    deserializer.deserialize_map(Object(PhantomData))
}

/// Reads a whole number that may also be written as `3.0` or `"3"`, as models do.
///
/// # Errors
/// Everything else but `null`.
pub fn whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    struct Whole;
    impl Visitor<'_> for Whole {
        type Value = Option<usize>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a whole number")
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
            usize::try_from(number).map(Some).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
            usize::try_from(number).map(Some).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
        }

        fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
            // Without a fraction, it is written as a whole number.
            number.to_string().parse().map(Some).map_err(|_| E::invalid_value(Unexpected::Float(number), &self))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            text.trim().parse().map(Some).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
        }
    }
    deserializer.deserialize_any(Whole)
}

/// One member of an object as JSON text. A text that does not contain the name is not parsed, because results can be long.
pub fn member<'a>(json: &'a str, name: &str) -> Option<&'a RawValue> {
    // The text may contain the name with `\u` escapes. Other escapes represent characters that plain names do not have.
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_plain && !json.contains(name) && !json.contains("\\u") {
        return None;
    }
    let mut found = None;
    each_member(json, |of, value| {
        if of == name {
            found = Some(value);
        }
    })
    .ok()?;
    found
}

/// Visits the members of an object in order.
fn each_member<'a>(json: &'a str, visit: impl FnMut(Cow<'a, str>, &'a RawValue)) -> Result<(), serde_json::Error> {
    struct Each<F>(F);
    #[derive(Deserialize)]
    struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

    impl<'a, F: FnMut(Cow<'a, str>, &'a RawValue)> Visitor<'a> for Each<F> {
        type Value = ();
        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }
        fn visit_map<A: MapAccess<'a>>(mut self, mut members: A) -> Result<(), A::Error> {
            while let Some((Name(name), value)) = members.next_entry()? {
                self.0(name, value);
            }
            Ok(())
        }
    }

    let mut reader = serde_json::Deserializer::from_str(json);
    (&mut reader).deserialize_map(Each(visit))?;
    reader.end()
}

/// The reason why a language model's answer is not the requested JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoObject {
    #[error("prose instead of JSON")]
    Prose,
    #[error("JSON in a code fence")]
    Fence,
    #[error("JSON of a different form")]
    Form,
}

/// Parses a language model's answer, which is one JSON object and nothing else.
pub fn object<T: DeserializeOwned>(answer: &str) -> Result<T, NoObject> {
    let answer = answer.trim();
    let value: Value =
        serde_json::from_str(answer).map_err(|_| if answer.starts_with("```") { NoObject::Fence } else { NoObject::Prose })?;
    if value.is_object() { serde_json::from_value(value).map_err(|_| NoObject::Form) } else { Err(NoObject::Form) }
}

/// The items of an array as JSON text.
pub fn items(json: &str) -> Option<Vec<&RawValue>> {
    serde_json::from_str(json).ok()
}

/// The decoded value of a JSON string.
pub fn text(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}

/// Replaces strings in names and values. `replacement` gets each string, and whether it is a name. Every other byte stays.
pub fn replace_texts(json: &str, replacement: impl Fn(&str, bool) -> Option<String>) -> String {
    let replaced = scan::strings(json).filter_map(|range| {
        let is_name = scan::is_name(json, &range);
        let new = replacement(&text(&json[range.clone()])?, is_name)?;
        Some((range, new))
    });
    splice(json, replaced).unwrap_or_else(|| json.to_owned())
}

/// Encodes a text as a JSON string.
pub fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Removes whitespace between tokens. Every other byte stays.
pub fn minified(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut copied = 0;
    let is_blank = |character: char| matches!(character, ' ' | '\t' | '\n' | '\r');
    for range in scan::strings(json) {
        out.extend(json[copied..range.start].chars().filter(|character| !is_blank(*character)));
        out.push_str(&json[range.clone()]);
        copied = range.end;
    }
    out.extend(json[copied..].chars().filter(|character| !is_blank(*character)));
    out
}

/// Whether every parser preserves this valid JSON text: it has no number that a double changes, and no object with duplicate
/// names (RFC 8259, sections 4 and 6).
pub fn survives_reading(json: &str) -> bool {
    first_unread(json, number_survives).is_none()
}

/// A name that occurs twice in one object of this valid JSON text, as written there with its quotes. Most parsers silently use the last
/// value.
pub fn repeated_name(json: &str) -> Option<&str> {
    first_unread(json, |_| true)
}

/// The first name that is repeated in its object, or number that doesn't survive.
fn first_unread(json: &str, survives: impl Fn(&str) -> bool) -> Option<&str> {
    let (mut names, mut starts): (Vec<&str>, Vec<usize>) = (Vec::new(), Vec::new());
    for token in Scan::new(json) {
        match token {
            Token::Open => starts.push(names.len()),
            Token::Close => {
                let start = starts.pop().unwrap_or_default();
                names[start..].sort_unstable();
                if let Some(pair) = names[start..].windows(2).find(|pair| pair[0] == pair[1]) {
                    return Some(pair[0]);
                }
                names.truncate(start);
            }
            Token::Name(name) => names.push(name),
            Token::Number { text, .. } if !survives(text) => return Some(text),
            Token::Number { .. } => {}
        }
    }
    None
}

/// Whether a double represents a JSON number exactly.
pub fn number_survives(number: &str) -> bool {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, ""));
    let is_whole = exponent.is_empty() && !mantissa.contains('.');
    if is_whole {
        let digits = mantissa.trim_start_matches('-');
        return digits.len() <= SAFE_DIGITS || digits.parse().is_ok_and(|whole: u64| whole <= LARGEST_WHOLE);
    }
    let Ok(double) = number.parse::<f64>() else { return false };
    if !double.is_finite() {
        return false;
    }
    let written = significant(mantissa);
    // The shortest digits of the double equal the written digits if the double represents the number.
    let read = format!("{double:e}");
    written == significant(read.split('e').next().unwrap_or_default())
}

/// The significant digits, without sign, decimal point, and leading and trailing zeros.
fn significant(mantissa: &str) -> String {
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.trim_matches('0').to_owned()
}

/// Parses JSON for inspection, not for forwarding: numbers beyond the largest double are clamped to it.
///
/// # Errors
/// The text is not valid JSON.
pub fn readable(json: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(json).or_else(|error| match bounded(json) {
        Cow::Owned(bounded) => serde_json::from_str(&bounded),
        Cow::Borrowed(_) => Err(error),
    })
}

/// Clamps numbers beyond the largest double to it, so that every parser accepts the text. For inspection, not for forwarding.
pub fn bounded(json: &str) -> Cow<'_, str> {
    let is_beyond = |number: &str| number.parse::<f64>().is_ok_and(f64::is_infinite);
    let largest = |number: &str| if number.starts_with('-') { "-1.7976931348623157e308" } else { "1.7976931348623157e308" };
    replace_numbers(json, |number| is_beyond(number).then(|| largest(number).to_owned()))
}

/// Replaces each number that a double would change with a string of its digits. For comparison, not for forwarding.
pub fn with_texts_for_numbers(json: &str) -> Cow<'_, str> {
    replace_numbers(json, |number| (!number_survives(number)).then(|| quoted(number)))
}

fn replace_numbers(json: &str, replacement: impl Fn(&str) -> Option<String>) -> Cow<'_, str> {
    let replaced = Scan::new(json).filter_map(|token| match token {
        Token::Number { text, start } => Some((start..start + text.len(), replacement(text)?)),
        _ => None,
    });
    splice(json, replaced).map_or(Cow::Borrowed(json), Cow::Owned)
}

/// Estimates the memory that a JSON text takes once it is parsed, in bytes. A parsed value takes much more than its text: an array of many
/// small arrays takes a hundred times as much.
pub fn parsed_size(json: &str) -> usize {
    json.len().saturating_add(tree_bytes(json.as_bytes()))
}

/// The nesting depth; 0 for a scalar.
pub fn depth(json: &str) -> usize {
    scan::depth(json)
}

/// About how much memory the parsed values of this text take, in bytes, without building them. Small values take many times the bytes
/// that they have in the text: `[0]` takes 400.
pub fn tree_bytes(json: &[u8]) -> usize {
    scan::tree_bytes(json)
}

/// Quotes the literals `NaN`, `Infinity` and `-Infinity`, which Python writes. `None` if there are none.
pub fn with_quoted_literals(json: &str) -> Option<String> {
    splice(json, scan::literals(json).into_iter().map(|literal| (literal.clone(), format!("\"{}\"", &json[literal]))))
}

/// Replaces lone surrogates, which are valid in JSON but rejected by many parsers.
pub fn without_lone_surrogates(json: String) -> String {
    mended_surrogates(&json).unwrap_or(json)
}

/// Like [`without_lone_surrogates`], for a borrowed text. `None` if there is nothing to replace.
pub fn mended_surrogates(json: &str) -> Option<String> {
    splice(json, scan::lone_surrogates(json).into_iter().map(|escape| (escape, "\\ufffd")))
}

/// Like [`mended_surrogates`], but only in the values of members with these names.
pub fn mended_in(json: &str, names: &[&str]) -> Option<String> {
    let mut name = None;
    let mended = scan::strings(json).filter_map(|range| {
        if scan::is_name(json, &range) {
            name = Some(range);
            return None;
        }
        let of: &Range<usize> = name.as_ref()?;
        // Another value may stand between the name and this string.
        let is_its_value = json[of.end..range.start].trim() == ":";
        if !is_its_value || !names.contains(&&json[of.start + 1..of.end - 1]) {
            return None;
        }
        let mended = mended_surrogates(&json[range.clone()])?;
        Some((range, mended))
    });
    splice(json, mended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_has_several_spellings() {
        #[derive(Deserialize)]
        struct Given {
            #[serde(default, deserialize_with = "whole_number")]
            limit: Option<usize>,
        }
        let read = |json: &str| serde_json::from_str::<Given>(json).map(|given| given.limit).map_err(|error| error.to_string());
        for (json, expected) in [
            (r"{}", None),
            (r#"{"limit": null}"#, None),
            (r#"{"limit": 3}"#, Some(3)),
            (r#"{"limit": 3.0}"#, Some(3)),
            (r#"{"limit": 1e1}"#, Some(10)),
            (r#"{"limit": " 3 "}"#, Some(3)),
        ] {
            assert_eq!(read(json), Ok(expected), "{json}");
        }
        for (json, found) in
            [("-1", "integer `-1`"), ("3.5", "floating point `3.5`"), ("\"three\"", "string \"three\""), ("[3]", "sequence")]
        {
            let error = read(&format!("{{\"limit\": {json}}}")).unwrap_err();
            assert!(error.contains(&format!("{found}, expected a whole number at line 1")), "{error}");
        }
        assert!(read(r#"{"limit": 1e300}"#).is_err());
    }

    #[test]
    fn a_member_is_found_in_every_spelling() {
        let found = |json| member(json, "isError").map(RawValue::get);
        assert_eq!(found(r#"{"content": [], "isError": true}"#), Some("true"));
        assert_eq!(found(r#"{"is\u0045rror": true}"#), Some("true"));
        assert_eq!(found(r#"{"isError": false, "isError": 1}"#), Some("1"));
        assert_eq!(found(r#"{"content": ["isError"]}"#), None);
        assert_eq!(found(r#"["isError"]"#), None);
        assert_eq!(found(r#"{"isError": 1} 2"#), None);
        assert_eq!(member(r#"{"b\"c\/d": 1}"#, "b\"c/d").map(RawValue::get), Some("1"));
    }

    #[test]
    fn a_name_is_repeated_in_one_object_only() {
        for (json, name) in [
            (r#"{"a": 1, "b": [{"a": 2}, {"a": 3}], "c": {"a": "a"}}"#, None),
            (r#"{"a": 1, "b": {"c": 1}, "a": 2}"#, Some(r#""a""#)),
            (r#"{"rules": [{"effect": "block", "tools": ["x"], "effect": "allow"}]}"#, Some(r#""effect""#)),
            ("[1, 1]", None),
        ] {
            assert_eq!(repeated_name(json), name, "{json}");
        }
    }

    #[test]
    fn names_without_escapes_are_borrowed() {
        let names: Vec<Cow<'_, str>> = members(r#"{"b": 1, "\n": 2, "b": 3}"#).unwrap().into_keys().collect();
        assert!(matches!(&names[..], [Cow::Borrowed("b"), Cow::Owned(escaped)] if escaped == "\n"));
    }

    #[test]
    fn blanks_go_and_texts_stay() {
        let json = "{ \"a b\" : [ 1.50 ,\n\t\"x \\\" y\" ],\r\n \"n\": null }";
        assert_eq!(minified(json), r#"{"a b":[1.50,"x \" y"],"n":null}"#);
        assert_eq!(minified("  12 "), "12");
    }

    #[test]
    fn numbers_that_a_double_holds_survive() {
        for number in ["0", "-7", "9007199254740992", "1.50", "0.1", "1e5", "-2.5E-3", "0.30000000000000004", "100.0", "0.0", "1.0e10"] {
            assert!(number_survives(number), "{number}");
        }
        for number in
            ["9007199254740993", "12345678901234567890123", "1e999", "-1e999", "3.14159265358979323846", "1e-999", "12345678901234567.89"]
        {
            assert!(!number_survives(number), "{number}");
        }
    }

    #[test]
    fn a_text_survives_if_all_of_it_does() {
        for json in
            [r#"{"a":{"b":1},"b":[1,{"a":2},{"a":3}]}"#, r#"["12345678901234567890","{\"a\":1e999}"]"#, "[]", r#"{"a":"x:y","b":"\\"}"#]
        {
            assert!(survives_reading(json), "{json}");
        }
        for json in [r#"{"a":1,"b":2,"a":3}"#, r#"[[{"n":1e999}]]"#, r#"{"x":{"q":1, "q" :1}}"#, r#"{"id":1234567890123456789}"#] {
            assert!(!survives_reading(json), "{json}");
        }
    }

    #[test]
    fn what_no_double_holds_can_be_looked_at() {
        assert_eq!(readable(r#"{"a":1e999,"b":"1e999"}"#).unwrap()["a"], serde_json::json!(f64::MAX));
        assert_eq!(readable("[-1e999]").unwrap()[0], serde_json::json!(f64::MIN));
        assert!(readable("{").is_err() && readable("[1e999").is_err());
        let written = r#"{"a": [1e999, -0.1], "b": 12345678901234567890123, "c": "1e999"}"#;
        assert_eq!(with_texts_for_numbers(written), r#"{"a": ["1e999", -0.1], "b": "12345678901234567890123", "c": "1e999"}"#);
    }

    #[test]
    fn a_parsed_text_is_larger_with_more_values() {
        let nested = format!("[{}[0]]", "[0],".repeat(10_000));
        assert!(parsed_size(&nested) > 60 * nested.len());
        let text = quoted(&"x".repeat(10_000));
        assert_eq!(parsed_size(&text), text.len());
    }

    #[test]
    fn depth_counts_lists_and_objects_alone() {
        for (json, deep) in [("7", 0), (r#""[[{""#, 0), ("[]", 1), (r#"{"a":[{}],"b":"\"[[[[[["}"#, 3), ("[[],[[]]]", 3)] {
            assert_eq!(depth(json), deep, "{json}");
        }
        assert_eq!(depth(&format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000))), 5_000);
    }

    #[test]
    fn a_tree_weighs_by_its_values_and_not_by_its_texts() {
        let long = format!("\"{}\"", "[{,\\\"".repeat(1_000));
        for (json, bytes) in [
            ("", 0),
            ("7", 0),
            (long.as_str(), 0),
            ("[]", 288),
            (r#"{"a,b": "[,{"}"#, 480),
            (r#"[{"a":1},{"b":"x\",y"}]"#, 288 + 2 * 480 + 112),
            ("[0, [0], [0]]", 3 * 288 + 2 * 112),
            ("\"never closed [,", 0),
        ] {
            assert_eq!(tree_bytes(json.as_bytes()), bytes, "{json}");
        }
        // A number in a list takes at least the size of a value, and the list at most twice its items.
        let numbers = format!("[{}]", ["123"; 1_000].join(","));
        let read: Value = serde_json::from_str(&numbers).unwrap();
        let least = read.as_array().unwrap().len() * size_of::<Value>();
        assert!((least..4 * least).contains(&tree_bytes(numbers.as_bytes())));
    }

    #[test]
    fn literals_of_python_are_put_in_quotes() {
        let quoted = with_quoted_literals(r#"{"NaN":NaN,"b":[-Infinity, Infinity],"c":"NaN"}"#);
        assert_eq!(quoted.as_deref(), Some(r#"{"NaN":"NaN","b":["-Infinity", "Infinity"],"c":"NaN"}"#));
        assert_eq!(with_quoted_literals(r#"{"a":"NaN"}"#), None);
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced_and_a_whole_one_is_not() {
        let mend = |json: &str| without_lone_surrogates(json.to_owned());
        assert_eq!(mend(r#""\ud83d\ude00 \ud83d x \ude00""#), r#""\ud83d\ude00 \ufffd x \ufffd""#);
        assert_eq!(mend(r#""\\ud83d é""#), r#""\\ud83d é""#);
        assert_eq!(mend(r#"{"a\uD83d":1}"#), r#"{"a\ufffd":1}"#);
    }
    #[test]
    fn half_a_surrogate_pair_is_replaced_in_some_members() {
        let mend = |json: &str| mended_in(json, &["title", "description"]);
        let mended = mend(r#"{"description" : "a\ud83d", "x": {"title":"\udc00", "y": "\ud83d"}}"#);
        assert_eq!(mended.as_deref(), Some(r#"{"description" : "a\ufffd", "x": {"title":"\ufffd", "y": "\ud83d"}}"#));
        for json in
            [r#"{"title": ["\ud83d"], "description": 1, "a": "\ud83d"}"#, r#"{"title": {"\ud83d": "title"}}"#, r#"["title", "\ud83d"]"#]
        {
            assert_eq!(mend(json), None, "{json}");
        }
    }
}

//! Finds the member of a JSON body that has the wrong type. `serde_json` reports only a line and a column, but callers
//! need the name.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer as _, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

/// Returns the path to the first member that can't be read as part of a `T`, such as `limit` or `messages[0].role`.
/// Returns `None` if the body is valid, or if no single member is at fault.
pub(super) fn misfit<T: de::DeserializeOwned>(body: &[u8]) -> Option<String> {
    misfit_in::<T>(serde_json::from_slice(body).ok()?)
}

/// Checks a value that has already been parsed, like [`misfit`].
pub(super) fn misfit_in<T: de::DeserializeOwned>(value: Value) -> Option<String> {
    T::deserialize(Member(value)).err().map(|Misfit(path)| path).filter(|path| !path.is_empty())
}

/// The path to the invalid member. It starts with this member, and each parent adds its own name in front.
#[derive(Debug)]
struct Misfit(String);

impl Misfit {
    fn within(self, parent: &str) -> Self {
        let separator = if self.0.is_empty() || self.0.starts_with('[') { "" } else { "." };
        Self(format!("{parent}{separator}{}", self.0))
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(String::new())
    }

    fn missing_field(field: &'static str) -> Self {
        Self(field.to_owned())
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self(field.to_owned())
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        Self(field.to_owned())
    }
}

/// A value in the body, as a deserializer.
struct Member(Value);

impl<'de> Deserializer<'de> for Member {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Object(members) => visitor.visit_map(Members { members: members.into_iter(), next: None }),
            Value::Array(items) => visitor.visit_seq(Items { items: items.into_iter(), read: 0 }),
            scalar => scalar.deserialize_any(visitor).map_err(de::Error::custom),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Misfit> {
        // This covers JSON that is kept as text, which only `serde_json` can read.
        self.0.deserialize_newtype_struct(name, visitor).map_err(de::Error::custom)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.0.deserialize_enum(name, variants, visitor).map_err(de::Error::custom)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

/// The members of an object. An error in a value gets the member's name. This includes errors that a type reports itself after it has
/// read the value, such as an enum without tags.
struct Members {
    members: serde_json::map::IntoIter,
    next: Option<(String, Value)>,
}

impl<'de> MapAccess<'de> for Members {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        self.next = self.members.next();
        let Some((name, _)) = &self.next else { return Ok(None) };
        seed.deserialize(name.clone().into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misfit> {
        let (name, value) = self.next.take().unwrap_or_default();
        seed.deserialize(Member(value)).map_err(|misfit| misfit.within(&name))
    }
}

/// The items of an array. An error in an item gets its index.
struct Items {
    items: std::vec::IntoIter<Value>,
    read: usize,
}

impl<'de> SeqAccess<'de> for Items {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misfit> {
        let Some(item) = self.items.next() else { return Ok(None) };
        let position = self.read;
        self.read += 1;
        seed.deserialize(Member(item)).map(Some).map_err(|misfit| misfit.within(&format!("[{position}]")))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::value::RawValue;

    use super::misfit;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "it is only read")]
    struct Outer {
        name: String,
        limit: Option<u8>,
        #[serde(default)]
        inner: Vec<Inner>,
        raw: Option<Box<RawValue>>,
        #[serde(default)]
        names: Option<OneOrMany>,
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "it is only read")]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "it is only read")]
    struct Inner {
        role: String,
        text: Option<String>,
    }

    #[test]
    fn the_member_that_does_not_fit_is_named() {
        for (body, expected) in [
            (r#"{"name": "a"}"#, None),
            (r#"{"name": "a", "limit": null, "inner": [{"role": "b"}], "raw": {"x": [1]}}"#, None),
            (r#"{"name": 1}"#, Some("name")),
            (r#"{"limit": 1}"#, Some("name")),
            (r#"{"name": "a", "limit": 256}"#, Some("limit")),
            (r#"{"name": "a", "limit": "1"}"#, Some("limit")),
            (r#"{"name": "a", "limits": 1}"#, Some("limits")),
            (r#"{"name": "a", "inner": 1}"#, Some("inner")),
            (r#"{"name": "a", "inner": [{"role": "b"}, {"role": "c", "text": 1}]}"#, Some("inner[1].text")),
            (r#"{"name": "a", "inner": [{}]}"#, Some("inner[0].role")),
            (r#"{"raw": [1]}"#, Some("name")),
            (r#"{"name": "a", "names": ["b"]}"#, None),
            // Regression: an enum without tags reports its error after it has read the value, and the member was not named.
            (r#"{"name": "a", "names": [1]}"#, Some("names")),
            ("1", None),
        ] {
            assert_eq!(misfit::<Outer>(body.as_bytes()).as_deref(), expected, "{body}");
        }
    }
}

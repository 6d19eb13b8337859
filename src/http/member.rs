//! Finds the member of a JSON body that has the wrong type. `serde_json` reports only a line and a column, but callers
//! need the name.

use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserializer, IntoDeserializer, Visitor};
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
            Value::Object(members) => {
                let members = members.into_iter().map(|(name, value)| (name.clone(), Placed { place: name, value }));
                visitor.visit_map(MapDeserializer::new(members))
            }
            Value::Array(items) => {
                let items = items.into_iter().enumerate().map(|(position, value)| Placed { place: format!("[{position}]"), value });
                visitor.visit_seq(SeqDeserializer::new(items))
            }
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

/// A value, with its name or index in its parent.
struct Placed {
    place: String,
    value: Value,
}

impl IntoDeserializer<'_, Misfit> for Placed {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! named_by_place {
    ($($method:ident($($argument:ident: $type:ty),*))*) => {
        $(fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, Misfit> {
            Member(self.value).$method($($argument,)* visitor).map_err(|misfit| misfit.within(&self.place))
        })*
    };
}

impl<'de> Deserializer<'de> for Placed {
    type Error = Misfit;

    named_by_place! {
        deserialize_any()
        deserialize_option()
        deserialize_newtype_struct(name: &'static str)
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
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
            ("1", None),
        ] {
            assert_eq!(misfit::<Outer>(body.as_bytes()).as_deref(), expected, "{body}");
        }
    }
}

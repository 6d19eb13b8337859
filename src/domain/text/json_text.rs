//! JSON that is kept as text. A parsed tree needs several times the memory, and a catalog has a definition per tool.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The compact text of a JSON value. Clones share it. Like the values, two texts are equal even if the members of their objects are in
/// another order.
#[derive(Clone)]
pub struct JsonText(Arc<str>);

impl JsonText {
    pub fn of(value: &Value) -> Self {
        Self(value.to_string().into())
    }

    /// Parses the text, which takes some microseconds per kilobyte.
    pub fn value(&self) -> Value {
        // The text was written from a value, or checked when it was read.
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Identifies the text by its memory address, as long as it is alive.
    pub fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.value() == other.value()
    }
}

impl fmt::Display for JsonText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<&Value> for JsonText {
    fn from(value: &Value) -> Self {
        Self::of(value)
    }
}

/// Serializers other than those of `serde_json` can't write it.
impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.0.to_string()).map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// Only the deserializers of `serde_json` can read it.
impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: Box<str> = Box::<RawValue>::deserialize(deserializer)?.into();
        Ok(Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::JsonText;

    #[test]
    fn a_value_is_the_same_after_it_was_text() {
        let values = json!([{"z": 1, "a": [1.5, -0.0, 1e300, u64::MAX, null, "\u{1F600}\"\\"]}, [], "", 0]);
        let texts: Vec<JsonText> = values.as_array().unwrap().iter().map(JsonText::of).collect();
        assert_eq!(texts.iter().map(JsonText::value).collect::<Value>().to_string(), values.to_string());
        let written = serde_json::to_string(&texts).unwrap();
        assert_eq!(written, values.to_string());
        assert_eq!(serde_json::from_str::<Vec<JsonText>>(&written).unwrap(), texts);
        assert!(serde_json::from_str::<Vec<JsonText>>("[{]").is_err());
        let [one, other, third] = [json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1}), json!({"a": 1})].map(|value| JsonText::of(&value));
        assert!(one == other && one.as_str() != other.as_str() && one != third);
    }
}

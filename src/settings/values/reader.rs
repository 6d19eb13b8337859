//! Converts values to their types.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use secrecy::SecretString;
use toml::Value;

use super::{Values, built_in};
use crate::settings::finding::{Findings, Location};

/// A section of the settings, each field with its value: `section! { pub struct X = read(reader) { pub field: Type = value, } }`.
/// A value may use earlier fields.
macro_rules! section {
    ($(#[$meta:meta])* pub struct $section:ident = $read:ident($reader:ident) {
        $($(#[$field_meta:meta])* pub $field:ident: $type:ty = $value:expr,)*
    }) => {
        $(#[$meta])*
        pub struct $section { $($(#[$field_meta])* pub $field: $type,)* }

        impl $section {
            pub(in crate::settings) fn $read($reader: &mut $crate::settings::values::Reader<'_>) -> Self {
                $(let $field = $value;)*
                Self { $($field,)* }
            }
        }
    };
}

pub(in crate::settings) use section;

/// Converts values to their types and checks their ranges. An invalid value is reported and replaced by the default, so
/// that later checks can continue.
pub(in crate::settings) struct Reader<'a> {
    values: &'a mut Values,
    findings: &'a mut Findings,
}

impl<'a> Reader<'a> {
    pub(in crate::settings) fn new(values: &'a mut Values, findings: &'a mut Findings) -> Self {
        Self { values, findings }
    }

    /// Notes a file that a reload reads again, so that it is watched.
    pub(in crate::settings) fn watch(&mut self, file: &Path) {
        self.findings.watched.insert(file.to_owned());
    }

    pub(in crate::settings) fn text(&mut self, key: &str) -> String {
        self.value(key).as_str().unwrap_or_default().to_owned()
    }

    /// Reads a text. An empty text means that the setting is not set.
    pub(in crate::settings) fn optional_text(&mut self, key: &str) -> Option<String> {
        Some(self.text(key)).filter(|text| !text.is_empty())
    }

    /// Reads a key that will be sent in a header. `remedy` is the suggested fix if a header can't contain it.
    pub(in crate::settings) fn header_key(&mut self, key: &str, remedy: &str) -> Option<SecretString> {
        let text = self.optional_text(key)?;
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            self.problem(key, "contains a space, a line break or a non-ASCII character, which a header can't carry", remedy);
        }
        Some(SecretString::from(text))
    }

    /// Reads one of several names. `unknown` is the message for any other name, and the suggested fix.
    pub(in crate::settings) fn choice<T: Default>(&mut self, key: &str, of_name: fn(&str) -> Option<T>, unknown: (&str, &str)) -> T {
        let name = self.text(key);
        of_name(&name).unwrap_or_else(|| {
            self.problem(key, unknown.0, unknown.1);
            T::default()
        })
    }

    pub(in crate::settings) fn switch(&mut self, key: &str) -> bool {
        self.value(key).as_bool().unwrap_or_default()
    }

    pub(in crate::settings) fn list(&mut self, key: &str) -> Vec<String> {
        let value = self.value(key);
        value.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
    }

    pub(in crate::settings) fn whole(&mut self, key: &str, range: RangeInclusive<usize>) -> usize {
        let number = |value: &Value| value.as_integer().and_then(|number| usize::try_from(number).ok());
        let value = self.value(key);
        if let Some(number) = number(&value).filter(|number| range.contains(number)) {
            return number;
        }
        self.problem(key, "out of range", format!("write a whole number from {} to {}", range.start(), range.end()));
        self.default(key).and_then(|value| number(&value)).unwrap_or(*range.start())
    }

    pub(in crate::settings) fn fraction(&mut self, key: &str, range: RangeInclusive<f64>) -> f64 {
        let value = self.value(key);
        if let Some(number) = value.as_float().filter(|number| range.contains(number)) {
            return number;
        }
        self.problem(key, "out of range", format!("write a number from {} to {}", range.start(), range.end()));
        self.default(key).and_then(|value| value.as_float()).unwrap_or(*range.start())
    }

    /// Reads a duration in whole milliseconds.
    pub(in crate::settings) fn milliseconds(&mut self, key: &str, range: RangeInclusive<usize>) -> Duration {
        Duration::from_millis(self.whole(key, range) as u64)
    }

    /// Reads a duration in whole seconds.
    pub(in crate::settings) fn seconds(&mut self, key: &str, range: RangeInclusive<usize>) -> Duration {
        Duration::from_secs(self.whole(key, range) as u64)
    }

    /// Reads a duration in whole days.
    pub(in crate::settings) fn days(&mut self, key: &str, range: RangeInclusive<usize>) -> Duration {
        Duration::from_secs(self.whole(key, range) as u64 * 24 * 60 * 60)
    }

    pub(in crate::settings) fn problem(&mut self, key: &str, message: impl Into<String>, remedy: impl Into<String>) {
        let place = self.place(key);
        self.findings.problem(place, message, remedy);
    }

    pub(in crate::settings) fn warning(&mut self, key: &str, message: impl Into<String>, remedy: impl Into<String>) {
        let place = self.place(key);
        self.findings.warning(place, message, remedy);
    }

    /// Whether the settings define an API key.
    pub(in crate::settings) fn has_api_keys(&self) -> bool {
        self.values.has_api_keys()
    }

    fn place(&self, key: &str) -> Location {
        self.values.entries.get(key).map_or_else(|| built_in(Some(key)), |entry| entry.place.clone())
    }

    fn value(&mut self, key: &str) -> Value {
        self.values.read.insert(key.to_owned());
        if let Some(entry) = self.values.entries.get(key) {
            return entry.value.clone();
        }
        self.problem(key, "has no default", "this build is broken: please report it");
        Value::Boolean(false)
    }

    fn default(&self, key: &str) -> Option<Value> {
        self.values.defaults.get(key).cloned()
    }
}

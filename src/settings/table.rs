//! Reads one table of a list, such as `[[key]]`, whose fields are fixed. Problems name the table by its number.

use serde_json::{Map, Value};

use crate::settings::finding::{Findings, Location, suggestion};
use crate::settings::values::switch_of;

/// A table, read field by field.
pub(super) struct Table<'a> {
    /// The table for messages, such as `key 2`.
    label: String,
    fields: &'a Map<String, Value>,
    place: &'a Location,
    findings: &'a mut Findings,
    /// Where the format is described.
    remedy: &'static str,
    is_sound: bool,
}

impl<'a> Table<'a> {
    /// Reports unknown fields. Returns `None` if the value is not a table.
    pub(super) fn new(
        label: String,
        value: &'a Value,
        place: &'a Location,
        known: &[&str],
        remedy: &'static str,
        findings: &'a mut Findings,
    ) -> Option<Self> {
        let Some(fields) = value.as_object() else {
            findings.problem(place.clone(), format!("{label}: it is not a table"), remedy);
            return None;
        };
        let mut table = Self { label, fields, place, findings, remedy, is_sound: true };
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            table.problem_with(format!("unknown field `{name}`"), suggestion(name, known));
        }
        Some(table)
    }

    /// The value, unless a problem was reported.
    pub(super) fn finish<T>(&self, value: T) -> Option<T> {
        self.is_sound.then_some(value)
    }

    pub(super) fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        self.fields.get(field)
    }

    pub(super) fn findings(&mut self) -> (&mut Findings, &Location) {
        (self.findings, self.place)
    }

    pub(super) fn problem(&mut self, message: impl AsRef<str>) {
        self.problem_with(message, self.remedy);
    }

    pub(super) fn problem_with(&mut self, message: impl AsRef<str>, remedy: impl Into<String>) {
        self.is_sound = false;
        self.findings.problem(self.place.clone(), format!("{}: {}", self.label, message.as_ref()), remedy);
    }

    pub(super) fn warning(&mut self, message: impl AsRef<str>, remedy: impl Into<String>) {
        self.findings.warning(self.place.clone(), format!("{}: {}", self.label, message.as_ref()), remedy);
    }

    /// Marks the table as unusable, after another part has reported the problem.
    pub(super) fn spoil(&mut self) {
        self.is_sound = false;
    }

    /// Reads a text.
    pub(super) fn text(&mut self, field: &str) -> Option<&'a str> {
        let text = self.get(field)?.as_str();
        if text.is_none() {
            self.problem(format!("`{field}` is not a text"));
        }
        text
    }

    /// Reads a text that must not be missing or empty.
    pub(super) fn required(&mut self, field: &str) -> Option<&'a str> {
        match self.get(field) {
            None => {
                self.problem(format!("`{field}` is missing"));
                None
            }
            Some(Value::String(text)) if text.trim().is_empty() => {
                self.problem(format!("`{field}` is empty"));
                None
            }
            Some(_) => self.text(field),
        }
    }

    /// Reads a list of texts.
    pub(super) fn texts(&mut self, field: &str) -> Option<Vec<&'a str>> {
        let items = self.get(field)?.as_array();
        let texts = items.and_then(|items| items.iter().map(Value::as_str).collect::<Option<Vec<&str>>>());
        if texts.is_none() {
            self.problem(format!("`{field}` is not a list of texts"));
        }
        texts
    }

    /// Reads a switch. A variable may have become a text such as `"true"`.
    pub(super) fn switch(&mut self, field: &str) -> Option<bool> {
        let value = match self.get(field)? {
            Value::Bool(value) => Some(*value),
            Value::String(text) => switch_of(text),
            _ => None,
        };
        if value.is_none() {
            self.problem(format!("`{field}` is neither true nor false"));
        }
        value
    }
}

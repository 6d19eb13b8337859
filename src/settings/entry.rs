//! Reads the values of a server's entry in the servers file, key by key: replaces variables, and collects findings with their lines.

use indexmap::IndexMap;
use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::settings::finding::{Findings, Location, suggestion};
use crate::settings::interpolate::{self, Environment};
use crate::settings::json_text::{JsonText, child, item};
use crate::settings::secret_file;

/// A servers file with its line numbers. It replaces variables and collects findings.
pub(super) struct File<'a> {
    pub(super) source: String,
    pub(super) json: &'a JsonText,
    pub(super) environment: &'a Environment,
    pub(super) findings: &'a mut Findings,
    /// Whether all servers are below a path prefix, so that their names can't clash with the service's own routes.
    pub(super) is_below_prefix: bool,
}

impl File<'_> {
    pub(super) fn place(&self, path: &str) -> Location {
        Location { source: self.source.clone(), line: self.json.line(path), column: None, key: Some(path.to_owned()) }
    }

    pub(super) fn problem(&mut self, path: &str, message: impl Into<String>, remedy: impl Into<String>) {
        let place = self.place(path);
        self.findings.problem(place, message, remedy);
    }

    pub(super) fn warning(&mut self, path: &str, message: impl Into<String>, remedy: impl Into<String>) {
        let place = self.place(path);
        self.findings.warning(place, message, remedy);
    }

    /// Replaces the variables in a text. Returns `None` if it reported a problem.
    pub(super) fn replaced(&mut self, path: &str, text: &str) -> Option<String> {
        let interpolated = interpolate::interpolate(text, self.environment, &mut self.findings.files).map(|interpolated| {
            for file in interpolated.open_files {
                self.warning(path, format!("{file}: {}", secret_file::OPEN), secret_file::CLOSE);
            }
            interpolated.text
        });
        match interpolated {
            Ok(text) if text.contains('\0') => {
                self.problem(path, "contains a NUL character", "remove it");
                None
            }
            Ok(text) => Some(text),
            Err(errors) => {
                for error in errors {
                    self.problem(path, error.to_string(), error.remedy());
                }
                None
            }
        }
    }
}

/// A server's entry, read key by key. `null` counts as absent for every key.
pub(super) struct Entry<'f, 'a> {
    pub(super) file: &'f mut File<'a>,
    pub(super) path: &'f str,
    pub(super) keys: &'f Map<String, Value>,
}

impl Entry<'_, '_> {
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.keys.get(key).filter(|value| !value.is_null())
    }

    /// Reads the first key of the two that is present.
    pub(super) fn first_of<T>(&mut self, keys: [&str; 2], read: impl FnOnce(&mut Self, &str) -> Option<T>) -> Option<T> {
        let key = keys.into_iter().find(|key| self.get(key).is_some())?;
        read(self, key)
    }

    pub(super) fn path(&self) -> &str {
        self.path
    }

    /// Reads an environment variable.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.file.environment.get(name)
    }

    pub(super) fn replaced(&mut self, path: &str, text: &str) -> Option<String> {
        self.file.replaced(path, text)
    }

    pub(super) fn problem(&mut self, path: &str, message: impl Into<String>, remedy: impl Into<String>) {
        self.file.problem(path, message, remedy);
    }

    pub(super) fn warning(&mut self, path: &str, message: impl Into<String>, remedy: impl Into<String>) {
        self.file.warning(path, message, remedy);
    }

    /// Reads an object.
    pub(super) fn object(&mut self, key: &str) -> Option<Map<String, Value>> {
        match self.get(key)? {
            Value::Object(keys) => Some(keys.clone()),
            _ => self.wrong_kind(&child(self.path, key), "an object"),
        }
    }

    /// Warns about unknown keys.
    pub(super) fn check_known(&mut self, path: &str, keys: &Map<String, Value>, known: &[&str]) {
        for key in keys.keys().filter(|key| !known.contains(&key.as_str())) {
            self.warning(&child(path, key), "unknown key, ignored", suggestion(key, known));
        }
    }

    pub(super) fn wrong_kind<T>(&mut self, path: &str, expected: &str) -> Option<T> {
        self.file.problem(path, "wrong type", format!("write {expected}"));
        None
    }

    pub(super) fn required(&mut self, key: &str, what: &str) -> Option<String> {
        let path = child(self.path, key);
        if self.get(key).is_none() {
            self.file.problem(self.path, format!("`{key}` is missing"), format!("add it: {what}"));
            return None;
        }
        let text = self.text(key)?;
        if text.trim().is_empty() {
            self.file.problem(&path, "empty", format!("write {what}"));
            return None;
        }
        Some(text)
    }

    /// A value whose variables are replaced, for values other than texts. A text such as `"${TIMEOUT}"` becomes the number
    /// or the switch that it then spells. Returns `None` if it reported a problem.
    pub(super) fn resolved(&mut self, path: &str, value: &Value) -> Option<Value> {
        match value {
            Value::String(text) if interpolate::has_variables(text) => {
                let text = self.file.replaced(path, text)?;
                let spelled = serde_json::from_str(text.trim()).ok();
                Some(spelled.filter(|value: &Value| value.is_number() || value.is_boolean()).unwrap_or(Value::String(text)))
            }
            value => Some(value.clone()),
        }
    }

    pub(super) fn value(&mut self, key: &str) -> Option<Value> {
        let value = self.get(key)?.clone();
        self.resolved(&child(self.path, key), &value)
    }

    pub(super) fn switch(&mut self, key: &str) -> Option<bool> {
        let value = self.get(key)?.clone();
        self.switch_of(&child(self.path, key), &value)
    }

    /// Reads a switch.
    pub(super) fn switch_of(&mut self, path: &str, value: &Value) -> Option<bool> {
        match self.resolved(path, value)? {
            Value::Bool(value) => Some(value),
            _ => self.wrong_kind(path, "true or false"),
        }
    }

    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        let path = child(self.path, key);
        match self.get(key)? {
            Value::String(text) => {
                let text = text.clone();
                self.file.replaced(&path, &text)
            }
            _ => self.wrong_kind(&path, "a text in quotes"),
        }
    }

    pub(super) fn texts(&mut self, key: &str) -> Option<Vec<String>> {
        let path = child(self.path, key);
        let Some(items) = self.get(key)?.as_array().cloned() else {
            return self.wrong_kind(&path, "a list of texts");
        };
        let texts: Vec<Option<String>> = items
            .iter()
            .enumerate()
            .map(|(position, value)| {
                let path = item(&path, position);
                match value {
                    Value::String(text) => self.file.replaced(&path, text),
                    _ => self.wrong_kind(&path, "a text in quotes"),
                }
            })
            .collect();
        texts.into_iter().collect()
    }

    /// Reads a map of texts, such as `env`. As in editors, a number counts as its text, and `null` as absent.
    pub(super) fn text_map(&mut self, key: &str) -> IndexMap<String, SecretString> {
        let path = child(self.path, key);
        let Some(value) = self.get(key) else { return IndexMap::new() };
        let Some(map) = value.as_object().cloned() else {
            self.wrong_kind::<()>(&path, "an object of texts");
            return IndexMap::new();
        };
        map.iter()
            .filter_map(|(name, value)| {
                let path = child(&path, name);
                let text = match value {
                    Value::String(text) => self.file.replaced(&path, text),
                    Value::Number(number) => Some(number.to_string()),
                    Value::Null => None,
                    _ => self.wrong_kind(&path, "a text in quotes"),
                };
                Some((name.clone(), SecretString::from(text?)))
            })
            .collect()
    }
}

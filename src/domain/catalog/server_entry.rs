//! A server's entry of an `mcpServers` map, with its secret values apart from the rest.
//!
//! Secret are the values of variables, headers and `listWith`, every `client_secret`, and an address with a password or a query. They
//! are stored encrypted, and never shown again.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use url::Url;

use crate::domain::text::json::pointer::escaped;

/// Stands in place of a secret value. In a new entry, it means the value that is already stored.
pub const STORED: &str = "(stored)";
/// Objects whose members are all secret.
const SECRET_MAPS: [&str; 4] = ["env", "headers", "listWith", "list_with"];
const CLIENT_SECRET: &str = "client_secret";
/// Members that decide which program receives the secret values.
const PROGRAM: [&str; 3] = ["command", "args", "cwd"];
/// Members that decide which authorization server receives a client's secret.
const SIGN_INS: [&str; 2] = ["auth", "oauth"];
const SWITCHES: [&str; 2] = ["enabled", "disabled"];

/// An entry. It has no `Debug`, because its values may be secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerEntry {
    /// The entry, with [`STORED`] in place of every secret value.
    pub shown: Map<String, Value>,
    /// The secret values, by their JSON Pointers.
    pub secrets: BTreeMap<String, String>,
}

/// The reason why a stored value can't be used again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepError {
    #[error("no value is stored here: write one")]
    Nothing(String),
    #[error("the stored value belongs to another address, program or sign-in: write the value again")]
    OtherReceiver(String),
}

impl KeepError {
    /// The JSON Pointer to the value.
    pub fn pointer(&self) -> &str {
        match self {
            Self::Nothing(pointer) | Self::OtherReceiver(pointer) => pointer,
        }
    }
}

impl ServerEntry {
    /// Takes the secret values out of an entry.
    pub fn split(entry: Map<String, Value>) -> Self {
        let mut split = Self { shown: entry, secrets: BTreeMap::new() };
        let Self { shown, secrets } = &mut split;
        for (name, value) in shown.iter_mut() {
            let pointer = format!("/{}", escaped(name));
            if SECRET_MAPS.contains(&name.as_str()) {
                for (name, value) in value.as_object_mut().into_iter().flatten() {
                    take(value, format!("{pointer}/{}", escaped(name)), secrets);
                }
            } else if name == "url" && value.as_str().is_some_and(has_secret) {
                take(value, pointer, secrets);
            } else {
                take_client_secrets(value, &pointer, secrets);
            }
        }
        split
    }

    /// The entry with its secret values.
    pub fn whole(&self) -> Value {
        let mut whole = Value::Object(self.shown.clone());
        for (pointer, secret) in &self.secrets {
            if let Some(value) = whole.pointer_mut(pointer) {
                *value = Value::String(secret.clone());
            }
        }
        whole
    }

    /// Whether every value that is shown as stored is there.
    pub fn is_complete(&self) -> bool {
        let split = Self::split(self.shown.clone());
        split.secrets.iter().all(|(pointer, value)| value != STORED || self.secrets.contains_key(pointer))
    }

    /// Replaces every [`STORED`] by the value that the former entry has there.
    ///
    /// # Errors
    /// There is no former value, or somebody else would receive it.
    pub fn keep(&mut self, former: Option<&Self>) -> Result<(), KeepError> {
        let mut kept = BTreeMap::new();
        for (pointer, _) in self.secrets.iter().filter(|(_, value)| *value == STORED) {
            let value = former.and_then(|former| former.secrets.get(pointer));
            kept.insert(pointer.clone(), value.ok_or_else(|| KeepError::Nothing(pointer.clone()))?.clone());
        }
        let first = kept.keys().next().cloned();
        self.secrets.extend(kept);
        match (first, former) {
            (Some(pointer), Some(former)) if !self.has_same_receiver(former) => Err(KeepError::OtherReceiver(pointer)),
            _ => Ok(()),
        }
    }

    /// Whether both entries send secret values to the same address, program and authorization server.
    pub fn has_same_receiver(&self, other: &Self) -> bool {
        self.has_same_server(other) && self.has_same(&SIGN_INS, other)
    }

    /// Whether both entries lead to the same address or program.
    pub fn has_same_server(&self, other: &Self) -> bool {
        let origin = |entry: &Value| entry["url"].as_str().and_then(|url| Url::parse(url).ok()).map(|url| url.origin());
        origin(&self.whole()) == origin(&other.whole()) && self.has_same(&PROGRAM, other)
    }

    fn has_same(&self, members: &[&str], other: &Self) -> bool {
        members.iter().all(|member| self.shown.get(*member) == other.shown.get(*member))
    }
}

/// Takes the switches out of an entry. Returns whether they enable the server; `None` if there are none.
///
/// # Errors
/// The name of a switch that is neither `true` nor `false`.
pub fn take_switches(entry: &mut Map<String, Value>) -> Result<Option<bool>, &'static str> {
    let mut enabled = None;
    for name in SWITCHES {
        match entry.shift_remove(name) {
            None | Some(Value::Null) => {}
            Some(Value::Bool(value)) => enabled = Some(enabled.unwrap_or(true) && (value == (name == "enabled"))),
            Some(_) => return Err(name),
        }
    }
    Ok(enabled)
}

/// The JSON Pointers to all texts with this part, in members and in their names.
pub fn pointers_to(entry: &Value, part: &str) -> Vec<String> {
    let mut found = Vec::new();
    find(entry, part, String::new(), &mut found);
    found
}

fn find(value: &Value, part: &str, pointer: String, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains(part) => found.push(pointer),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                find(item, part, format!("{pointer}/{at}"), found);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                find(member, part, format!("{pointer}/{}", escaped(name)), found);
            }
        }
        _ => {}
    }
}

fn take(value: &mut Value, pointer: String, secrets: &mut BTreeMap<String, String>) {
    let text = match value {
        Value::String(text) => std::mem::take(text),
        // As everywhere in these maps, a number counts as its text.
        Value::Number(number) => number.to_string(),
        _ => return,
    };
    *value = Value::String(STORED.to_owned());
    secrets.insert(pointer, text);
}

fn take_client_secrets(value: &mut Value, pointer: &str, secrets: &mut BTreeMap<String, String>) {
    for (name, value) in value.as_object_mut().into_iter().flatten() {
        let pointer = format!("{pointer}/{}", escaped(name));
        if name == CLIENT_SECRET {
            take(value, pointer, secrets);
        } else {
            take_client_secrets(value, &pointer, secrets);
        }
    }
}

/// Whether an address may contain a secret. [`STORED`] stands for such an address.
fn has_secret(url: &str) -> bool {
    url == STORED || Url::parse(url).is_ok_and(|url| !url.username().is_empty() || url.password().is_some() || url.query().is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{KeepError, STORED, ServerEntry, pointers_to, take_switches};

    fn entry(value: &Value) -> ServerEntry {
        ServerEntry::split(value.as_object().unwrap().clone())
    }

    #[test]
    fn secret_values_are_taken_out_and_put_back() {
        let value = json!({
            "url": "https://example.org/mcp?key=hush", "headers": {"A/b": "hush", "N": 5, "none": null},
            "auth": {"type": "oauth", "client_id": "me", "client_secret": "hush"}, "listWith": {"A/b": "hush"}, "tags": ["a"], "timeout": 5
        });
        let split = entry(&value);
        assert!(!json!(split.shown).to_string().contains("hush"), "{:?}", split.shown);
        assert_eq!(
            split.secrets.keys().collect::<Vec<_>>(),
            ["/auth/client_secret", "/headers/A~1b", "/headers/N", "/listWith/A~1b", "/url"]
        );
        assert_eq!((&split.shown["auth"]["client_id"], &split.shown["headers"]["none"]), (&json!("me"), &Value::Null));
        let mut whole = value;
        whole["headers"]["N"] = json!("5");
        assert_eq!(split.whole(), whole);
        assert!(split.is_complete());
        assert!(!ServerEntry { secrets: [].into(), ..split }.is_complete());
        let plain = entry(&json!({"url": "https://example.org/mcp", "env": "wrong", "headers": ["wrong"]}));
        assert!(plain.secrets.is_empty() && plain.is_complete());
    }

    #[test]
    fn a_stored_value_is_kept_for_the_same_receiver_alone() {
        let former = entry(&json!({"url": "https://example.org/a", "headers": {"A": "hush"}}));
        let mut same = entry(&json!({"url": "https://example.org/b", "headers": {"A": STORED, "B": "new"}}));
        assert_eq!(same.keep(Some(&former)), Ok(()));
        assert_eq!(same.whole()["headers"], json!({"A": "hush", "B": "new"}));
        let mut other = entry(&json!({"url": "https://evil.example", "headers": {"A": STORED}}));
        assert_eq!(other.keep(Some(&former)), Err(KeepError::OtherReceiver("/headers/A".into())));
        let mut missing = entry(&json!({"url": "https://example.org/a", "headers": {"B": STORED}}));
        assert_eq!(missing.keep(Some(&former)), Err(KeepError::Nothing("/headers/B".into())));
        assert_eq!(missing.keep(None), Err(KeepError::Nothing("/headers/B".into())));
        let signed_in = |issuer: &str, secret: &str| {
            let auth = json!({"type": "oauth", "issuer": issuer, "client_id": "me", "client_secret": secret});
            entry(&json!({"url": "https://example.org", "headers": {"A": "hush"}, "auth": auth}))
        };
        let (one, rotated, elsewhere) = (signed_in("a", "hush"), signed_in("a", "new"), signed_in("b", "hush"));
        assert!(one.has_same_receiver(&rotated) && !one.has_same_receiver(&elsewhere) && one.has_same_server(&elsewhere));
        let with_query = entry(&json!({"url": "https://example.org/?key=hush"}));
        let mut kept = entry(&json!({"url": STORED, "timeout": 5}));
        assert_eq!(kept.keep(Some(&with_query)), Ok(()));
        assert_eq!(kept.whole()["url"], "https://example.org/?key=hush");
    }

    #[test]
    fn switches_leave_the_entry() {
        let taken = |value: &Value| {
            let mut entry: Map<String, Value> = value.as_object().unwrap().clone();
            let enabled = take_switches(&mut entry);
            assert!(enabled.is_err() || entry.is_empty(), "{entry:?}");
            enabled
        };
        assert_eq!(taken(&json!({})), Ok(None));
        assert_eq!((taken(&json!({"disabled": true})), taken(&json!({"enabled": true}))), (Ok(Some(false)), Ok(Some(true))));
        assert_eq!(taken(&json!({"enabled": true, "disabled": true})), Ok(Some(false)));
        assert_eq!(taken(&json!({"disabled": "${OFF}"})), Err("disabled"));
    }

    #[test]
    fn every_text_is_found() {
        let value = json!({"a": ["x", "${Y}"], "b": {"c/d": "a$${b}", "e": 1}});
        assert_eq!(pointers_to(&value, "${"), ["/a/1", "/b/c~1d"]);
    }
}

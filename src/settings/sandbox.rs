//! The server setting `sandbox`: what a server process may read and write.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::settings::entry::Entry;
use crate::settings::json_text::{child, item};

const KEYS: [&str; 2] = ["read", "write"];
const EXPECTED: &str = "true, false, or an object such as {\"read\": [\"/srv/docs\"], \"write\": [\"/srv/notes\"]}";

/// What a sandboxed server may access, in addition to system folders, its working folder and its private folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxSettings {
    /// Absolute paths of files and folders that it may read.
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
}

impl SandboxSettings {
    /// Parses the setting. Returns `None` if there is no sandbox, or if it reported a problem.
    pub(super) fn read(entry: &mut Entry<'_, '_>, is_process: bool) -> Option<Self> {
        const KEY: &str = "sandbox";
        let path = child(entry.path(), KEY);
        let value = entry.get(KEY)?.clone();
        let value = entry.resolved(&path, &value)?;
        if !is_process {
            entry.warning(&path, "has no effect: this server is remote", "remove it");
            return None;
        }
        match value {
            Value::Bool(is_wanted) => is_wanted.then(Self::default),
            Value::Object(keys) => {
                entry.check_known(&path, &keys, &KEYS);
                let mut paths = |key| keys.get(key).map(|value| paths(entry, &child(&path, key), value)).unwrap_or_default();
                Some(Self { read: paths("read"), write: paths("write") })
            }
            _ => entry.wrong_kind(&path, EXPECTED),
        }
    }
}

fn paths(entry: &mut Entry<'_, '_>, path: &str, value: &Value) -> Vec<PathBuf> {
    let Some(values) = value.as_array() else {
        entry.wrong_kind::<()>(path, "a list of paths");
        return Vec::new();
    };
    let mut found = Vec::new();
    for (position, value) in values.iter().enumerate() {
        let path = item(path, position);
        let Some(text) = value.as_str() else {
            entry.wrong_kind::<()>(&path, "a text in quotes");
            continue;
        };
        let Some(text) = entry.replaced(&path, text) else { continue };
        let home = entry.variable("HOME").filter(|home| !home.is_empty());
        let folder = match (text.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => Path::new(home).join(rest),
            _ => PathBuf::from(&text),
        };
        if folder.is_absolute() {
            found.push(folder);
        } else {
            entry.problem(&path, "not an absolute path", "begin it with / or ~/");
        }
    }
    found
}

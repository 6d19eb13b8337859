//! The servers and messages of `tests/cases/languages` and `tests/cases/dialogues`, in 22 languages, as running servers and requests.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::stdio;

/// Servers that list the tools of `tests/cases/languages/servers.jsonl`. Their lists are in the folder, so keep this value.
pub(crate) struct Listed {
    pub(crate) servers: Value,
    _folder: TempDir,
}

/// A message, with the server and the tool that it needs, if it needs one.
pub(crate) struct Said {
    pub(crate) language: String,
    pub(crate) text: String,
    pub(crate) needs: Option<(String, String)>,
}

pub(crate) fn servers() -> Listed {
    let folder = tempfile::tempdir().unwrap();
    let mut servers = json!({});
    for line in lines("languages/servers.jsonl") {
        let (name, mut tools) = (line["server"].as_str().unwrap(), line["tools"].clone());
        for tool in tools.as_array_mut().unwrap() {
            tool["inputSchema"] = json!({"type": "object"});
        }
        let file = folder.path().join(format!("{name}.json"));
        std::fs::write(&file, tools.to_string()).unwrap();
        servers[name] = stdio(&[&format!("file={}", file.display())]);
    }
    Listed { servers, _folder: folder }
}

/// All single messages, ordered by language.
pub(crate) fn messages() -> Vec<Said> {
    let read = |line: &Value| {
        let text = |name: &str| line[name].as_str().map(str::to_owned);
        Said { language: text("lang").unwrap(), text: text("query").unwrap(), needs: text("server").zip(text("tool")) }
    };
    let mut messages: Vec<Said> = lines("languages/messages.jsonl").iter().map(read).collect();
    messages.sort_by(|one, other| one.language.cmp(&other.language));
    messages
}

/// The `messages` of requests whose last turn follows others.
pub(crate) fn conversations() -> Vec<Value> {
    let mut found = Vec::new();
    for dialogue in lines("dialogues/languages_held.jsonl") {
        for turn in dialogue["turns"].as_array().unwrap() {
            let mut messages = dialogue["messages"].clone();
            messages.as_array_mut().unwrap().push(json!({"role": "user", "content": turn["text"]}));
            found.push(messages);
        }
    }
    found
}

fn lines(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

//! What stands behind the service: MCP servers of our own, tokens for them, a Qdrant cluster, and a PostgreSQL server.

pub(crate) mod collector;
pub(crate) mod http;
pub(crate) mod listed;
pub(crate) mod postgres;
pub(crate) mod qdrant;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::process::built::example;

/// One server of the `mcpServers` map: our own over standard streams.
pub(crate) fn stdio(words: &[&str]) -> Value {
    json!({"command": example("test-stdio-server"), "args": words})
}

/// Four servers whose tools are told apart by their words.
pub(crate) fn four() -> Value {
    json!({"time": stdio(&["list=time"]), "mail": stdio(&["list=mail"]), "files": stdio(&["list=files"]), "one": stdio(&["list=small"])})
}

/// mcpo's folder of tokens below a home, with those of the server `remote`.
pub(crate) fn store_tokens(home: &Path, token: &Value) {
    let folder = home.join(".mcpo/tokens");
    fs::create_dir_all(&folder).unwrap();
    // python3 -c 'import hashlib; print(hashlib.md5(b"remote").hexdigest()[:8])'
    let stem = "2c18e486";
    fs::write(folder.join(format!("{stem}_tokens.json")), token.to_string()).unwrap();
    let client = json!({"client_id": "id-1", "client_secret": "secret-1", "redirect_uris": ["http://localhost:3030/callback"]});
    fs::write(folder.join(format!("{stem}_client.json")), client.to_string()).unwrap();
}

//! MCP clients without any SDK: messages of both eras as they are written.

pub(crate) mod bridge;
pub(crate) mod client;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::Running;

/// A request of JSON-RPC.
pub(crate) fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// What requests of the newer era say of themselves.
pub(crate) fn newer_era() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    })
}

/// One request of the newer era, without a client.
pub(crate) async fn rpc(service: &Running, path: &str, headers: &[(&'static str, &str)], method: &str, mut params: Value) -> Value {
    params["_meta"] = newer_era();
    let message = request(1, method, &params);
    let mut request = service.request(Method::POST, path).header("accept", "application/json, text/event-stream");
    request = request.header("mcp-protocol-version", "2026-07-28").header("mcp-method", method);
    if let Some(name) = params["name"].as_str() {
        request = request.header("mcp-name", name);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let text = request.json(&message).send().await.unwrap().text().await.unwrap();
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
}

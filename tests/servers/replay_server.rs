//! An MCP server over standard streams that lists the tools of a JSON file. It answers a call with the result that the file has for
//! the tool, otherwise with the arguments, as JSON text.
//!
//!     test-replay-server TOOLS.json [SERVER]
//!
//! The file holds a list of tools as `tools/list` gives them, or an object with such a list as `tools` and results by the names of
//! tools as `results`, or several of these by the names of servers.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test server may panic")]

use std::io::{BufRead as _, Write as _};

use serde_json::{Value, json};

fn answer(method: &str, params: &Value, tools: &Value, results: &Value) -> Option<Value> {
    match method {
        "initialize" => Some(json!({
            "protocolVersion": params.get("protocolVersion").cloned().unwrap_or_else(|| "2025-11-25".into()),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "replay", "version": "1"}
        })),
        "tools/list" => Some(json!({"tools": tools})),
        "tools/call" if results[params["name"].as_str()?].is_object() => Some(results[params["name"].as_str()?].clone()),
        "tools/call" => Some(json!({"content": [{"type": "text", "text": params["arguments"].to_string()}]})),
        "ping" => Some(json!({})),
        _ => None,
    }
}

fn main() {
    let path = std::env::args_os().nth(1).expect("the file with the tools");
    let listed: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let listed = std::env::args().nth(2).map_or(&listed, |server| &listed[server]);
    let tools = listed.get("tools").unwrap_or(listed);
    let results = listed.get("results").unwrap_or(&Value::Null);
    let mut stdout = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let (Some(id), Some(method)) = (message.get("id"), message.get("method").and_then(Value::as_str)) else { continue };
        let reply = match answer(method, &message["params"], tools, results) {
            Some(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            None => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}}),
        };
        stdout.write_all(format!("{reply}\n").as_bytes()).and_then(|()| stdout.flush()).unwrap();
    }
}

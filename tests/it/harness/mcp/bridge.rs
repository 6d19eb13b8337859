//! `toolsieve mcp-stdio`, the built binary, as an MCP client meets it.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::request;
use crate::harness::LONG;
use crate::harness::process::built::TOOLSIEVE;

pub(crate) struct Bridge {
    pub(crate) process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Bridge {
    pub(crate) fn start(url: &str, key: Option<&str>) -> Self {
        let mut command = Command::new(TOOLSIEVE);
        command.env_clear().args(["mcp-stdio", "--url", url]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(key) = key {
            command.env("TOOLSIEVE_API_KEY", key);
        }
        let mut process = command.kill_on_drop(true).spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, input, output }
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.write(&message.to_string()).await;
    }

    pub(crate) async fn write(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> Value {
        let line = timeout(LONG, self.output.next_line()).await.expect("nothing came").unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    pub(crate) async fn greet(&mut self, capabilities: Value) -> Value {
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}});
        self.send(&request(0, "initialize", &hello)).await;
        let welcome = self.next().await;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        welcome
    }

    /// Ends the input, and returns the exit status and what came last.
    pub(crate) async fn end(mut self) -> (Option<i32>, String) {
        drop(self.input);
        let mut rest = String::new();
        while let Some(line) = timeout(LONG, self.output.next_line()).await.unwrap().unwrap() {
            rest.push_str(&line);
        }
        (timeout(LONG, self.process.wait()).await.unwrap().unwrap().code(), rest)
    }
}

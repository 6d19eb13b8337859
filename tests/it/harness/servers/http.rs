//! MCP servers over HTTP, in processes of their own.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::harness::process::built::example;

/// Ends with this value.
pub(crate) struct HttpServer {
    pub(crate) process: Child,
    pub(crate) port: u16,
}

impl HttpServer {
    pub(crate) fn start(words: &[&str]) -> Self {
        Self::of("test-http-server", words)
    }

    /// One of the older transport.
    pub(crate) fn sse(words: &[&str]) -> Self {
        Self::of("test-sse-server", words)
    }

    /// Somebody else's, which listens there.
    pub(crate) fn foreign(process: Child, port: u16) -> Self {
        Self { process, port }
    }

    fn of(program: &str, words: &[&str]) -> Self {
        let mut process = Command::new(example(program)).args(words).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, port: line.trim().parse().unwrap() }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

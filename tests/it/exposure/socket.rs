//! A client that sends bytes as a test wants them, complete requests or not.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{LONG, Running};

/// A connection to the service.
pub(super) struct Socket(TcpStream);

impl Socket {
    pub(super) async fn connect(url: &str) -> Self {
        Self(TcpStream::connect(url.split_once("://").unwrap().1).await.unwrap())
    }

    pub(super) async fn to(service: &Running) -> Self {
        Self::connect(&service.url).await
    }

    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends what the service takes of it.
    pub(super) async fn sending(mut self, text: &str) -> Self {
        let _ = tokio::time::timeout(Duration::from_millis(100), self.0.write_all(text.as_bytes())).await;
        self
    }

    /// The next answer, head and body.
    pub(super) async fn answer(&mut self) -> String {
        let mut text = Vec::new();
        loop {
            if let Some(end) = text.windows(4).position(|end| end == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&text[..end]).to_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
                if text.len() >= end + 4 + length {
                    return String::from_utf8_lossy(&text).into_owned();
                }
            }
            let read = tokio::time::timeout(LONG, self.0.read_buf(&mut text)).await.expect("no answer").unwrap();
            assert!(read > 0, "closed without a whole answer: {}", String::from_utf8_lossy(&text));
        }
    }

    /// Waits until the service has ended the connection.
    pub(super) async fn ended(&mut self) {
        let mut rest = Vec::new();
        while let Ok(read) = tokio::time::timeout(LONG, self.0.read_buf(&mut rest)).await.expect("it is still open") {
            if read == 0 {
                return;
            }
        }
    }

    /// Sends these bytes again and again until the service has ended the connection.
    pub(super) async fn send_until_ended(&mut self, bytes: &[u8]) {
        let flood = async {
            while self.0.write_all(bytes).await.is_ok() {
                // A slow sender: each time passes before the next bytes.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LONG, flood).await.expect("it goes on reading");
    }
}

/// The first line of a request and its headers, without the empty line.
pub(super) fn head(method: &str, path: &str, key: Option<&str>, more: &str) -> String {
    let key = key.map_or_else(String::new, |key| format!("Authorization: Bearer {key}\r\n"));
    format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{key}{more}")
}

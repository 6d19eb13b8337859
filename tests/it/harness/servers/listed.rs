//! A server whose tools a test changes while the service runs.

use std::path::PathBuf;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::keys::{ADMIN, administer, with_key};
use crate::harness::wait::eventually;
use crate::harness::{Running, stdio};

/// What the server of a test lists; `relist` makes it say that this has changed.
pub(crate) struct Listed {
    file: PathBuf,
    _folder: TempDir,
}

impl Listed {
    pub(crate) fn new(tools: &[Value]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listed = Self { file: folder.path().join("tools.json"), _folder: folder };
        listed.write(tools);
        listed
    }

    pub(crate) fn write(&self, tools: &[Value]) {
        let relist = json!({"name": "relist", "description": "Lists again.", "inputSchema": {"type": "object"}});
        let tools: Vec<&Value> = std::iter::once(&relist).chain(tools).collect();
        std::fs::write(&self.file, json!(tools).to_string()).unwrap();
    }

    pub(crate) fn server(&self) -> Value {
        stdio(&[&format!("file={}", self.file.display())])
    }

    /// Changes what is listed and waits until the service has taken it over.
    pub(crate) async fn change(&self, service: &Running, tools: &[Value]) {
        let before = listed_at(service).await;
        self.write(tools);
        // The time of a listing has no fractions: two within one second look alike.
        let second = before.parse::<jiff::Timestamp>().unwrap().as_second();
        eventually("the next second", async || jiff::Timestamp::now().as_second() > second).await;
        with_key(service, Method::POST, "/files/relist", ADMIN).json(&json!({})).send().await.unwrap();
        eventually("the service lists the tools again", async || listed_at(service).await != before).await;
    }
}

/// When the server was listed last. It is stored a moment after the tools are there.
async fn listed_at(service: &Running) -> String {
    eventually("the server is listed", async || {
        let (_, servers) = administer(service, Method::GET, "/v1/admin/servers", &json!({})).await;
        servers["servers"][0]["listed_at"].as_str().map(str::to_owned).ok_or(servers)
    })
    .await
}

pub(crate) fn read(description: &str) -> Value {
    json!({"name": "read", "description": description, "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}})
}

pub(crate) fn other(name: &str) -> Value {
    json!({"name": name, "description": "Another one.", "inputSchema": {"type": "object"}})
}

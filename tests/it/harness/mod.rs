//! The real application in this process, on a free port, with real MCP servers of our own.

pub(crate) mod answers;
pub(crate) mod callers;
pub(crate) mod contracts;
pub(crate) mod data;
pub(crate) mod keys;
pub(crate) mod languages;
pub(crate) mod mcp;
pub(crate) mod process;
pub(crate) mod rules;
pub(crate) mod servers;
pub(crate) mod wait;

use std::sync::Arc;

use reqwest::{Client, Method, RequestBuilder, StatusCode};
use secrecy::SecretString;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use toolsieve::app::Application;
use toolsieve::service::catalog::reload::Reload;
use toolsieve::settings::{Environment, McpoSettings, Overrides, ServersSource, Settings, Sources};

pub(crate) use self::process::built::example;
pub(crate) use self::servers::stdio;
pub(crate) use self::wait::LONG;
use self::wait::{eventually, when};

/// A running application. Ends with this value.
pub(crate) struct Running {
    pub(crate) url: String,
    pub(crate) client: Client,
    pub(crate) key: Option<String>,
    pub(crate) folder: TempDir,
    pub(crate) reload: Arc<Reload>,
    stop: toolsieve::app::Stopper,
    task: JoinHandle<()>,
}

/// How the application is started.
#[derive(Default)]
pub(crate) struct Start {
    pub(crate) servers: Value,
    pub(crate) key: Option<&'static str>,
    pub(crate) folder: Option<TempDir>,
    /// Settings by the names of their environment variables.
    pub(crate) environment: Vec<(&'static str, &'static str)>,
    /// Read from `mcp.json` and `toolsieve.toml` in the folder, which can change; otherwise from memory.
    pub(crate) from_files: bool,
    /// The contents of `toolsieve.toml` at the start, if it is read from files.
    pub(crate) settings: String,
    /// As with mcpo's command line.
    pub(crate) mcpo: Option<McpoSettings>,
    /// Without [`FOR_TESTS`].
    pub(crate) as_users_get_it: bool,
}

/// Settings for tests. Their catalogs are small and are narrowed all the same, they compare results as JSON, and what one part of a test
/// calls doesn't change the ranking of the next.
pub(crate) const FOR_TESTS: [(&str, &str); 3] =
    [("TOOLSIEVE_SELECTION__NARROW_ABOVE_TOKENS", "0"), ("TOOLSIEVE_CALLS__COMPACT_RESULTS", "false"), ("TOOLSIEVE_LEARNING__MODE", "off")];

impl Running {
    /// Starts on these servers and waits until they are listed and searchable.
    pub(crate) async fn on(servers: Value) -> Self {
        let running = Start { servers, ..Start::default() }.start().await;
        running.settled().await;
        running
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        answer(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        answer(self.request(Method::POST, path).json(body)).await
    }

    /// Waits until `/readyz` fulfils the condition.
    pub(crate) async fn until(&self, condition: impl Fn(&Value) -> bool) -> Value {
        eventually("`/readyz` as the test wants it", async || when(self.get("/readyz").await.1, &condition)).await
    }

    /// Waits until every server is connected and every tool has a vector in the index.
    pub(crate) async fn settled(&self) -> Value {
        self.until(|body| {
            let connected = body["servers"].as_array().unwrap().iter().all(|server| server["phase"] == "connected");
            connected && body["ready"] == true && body["index"]["embedded"] == body["tools"] && body["index"]["documents"] == body["tools"]
        })
        .await
    }

    /// Writes the file of the servers; takes effect with a reload.
    pub(crate) fn configure(&self, servers: &Value) {
        let text = json!({"mcpServers": servers}).to_string();
        std::fs::write(self.folder.path().join("mcp.json"), text).unwrap();
    }

    pub(crate) fn stopper(&self) -> toolsieve::app::Stopper {
        self.stop.clone()
    }

    /// Stops and waits for the end; the folder stays for another start.
    pub(crate) async fn stop(self) -> TempDir {
        self.stop.stop(true).await;
        self.task.await.unwrap();
        self.folder
    }
}

impl Start {
    pub(crate) async fn start(self) -> Running {
        // One provider for every TLS client of the process; a later test finds it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = self.folder.unwrap_or_else(|| tempfile::tempdir().unwrap());
        let text = json!({"mcpServers": self.servers}).to_string();
        let environment = FOR_TESTS.into_iter().filter(|_| !self.as_users_get_it).chain(self.environment);
        let environment: Environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let (config, file) = (folder.path().join("mcp.json"), folder.path().join("toolsieve.toml"));
        let (servers, settings) = if self.from_files {
            std::fs::write(&config, text).unwrap();
            std::fs::write(&file, self.settings).unwrap();
            (ServersSource::File(config), Some(file))
        } else {
            (ServersSource::Text { name: "test".into(), text }, None)
        };
        let sources = Sources {
            servers,
            settings,
            environment,
            overrides: Overrides {
                port: Some(0),
                api_key: self.key.map(SecretString::from),
                data_dir: Some(folder.path().join("data")),
                ..Overrides::default()
            },
            mcpo: self.mcpo,
            never_listens: false,
        };
        let (settings, _) = Settings::load(&sources).unwrap_or_else(|problems| panic!("{problems}"));
        let application = Application::start(settings).await.unwrap();
        let (url, stop, reload) = (application.url(), application.handle(), application.reload());
        let task = tokio::spawn(async move { application.run().await.unwrap() });
        Running { url, client: Client::new(), key: self.key.map(str::to_owned), folder, reload, stop, task }
    }
}

async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let status = response.status();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

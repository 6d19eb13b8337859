//! A running service, as an administrator reaches it.

use std::time::Duration;

use clap::Args;
use reqwest::{Client, Method};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::cli::{Failure, runtime};

const JSON: &str = "application/json";
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where the service is, and the key of administration.
#[derive(Args)]
pub(super) struct ServiceAccess {
    /// The running service
    #[arg(long, value_name = "URL", env = "TOOLSIEVE_URL", default_value = "http://127.0.0.1:8000")]
    url: String,
    /// The key of administration (`access.admin_key`); a service without any key needs none
    #[arg(long, value_name = "KEY", env = "TOOLSIEVE_ADMIN_KEY", hide_env_values = true)]
    admin_key: Option<SecretString>,
}

impl ServiceAccess {
    /// Asks, and returns the answer of success.
    pub(super) fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let answer = runtime()?.block_on(self.send(method, path, body, None, JSON))?;
        read(&answer)
    }

    /// Asks for the same as a page for people.
    pub(super) fn page(&self, path: &str) -> Result<String, Failure> {
        runtime()?.block_on(self.send(Method::GET, path, None, None, "text/html"))
    }

    /// Replaces something, if this version of it still holds.
    pub(super) fn replace(&self, path: &str, body: &Value, version: u64) -> Result<Value, Failure> {
        let answer = runtime()?.block_on(self.send(Method::PUT, path, Some(body), Some(version), JSON))?;
        read(&answer)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        version: Option<u64>,
        accept: &'static str,
    ) -> Result<String, Failure> {
        let failed = |error: reqwest::Error| Failure::failed(format!("error: {}: {}", self.url, cause(&error)));
        let client = Client::builder().timeout(TIMEOUT).build().map_err(failed)?;
        let mut request = client.request(method, format!("{}{path}", self.url.trim_end_matches('/'))).header("Accept", accept);
        if let Some(key) = &self.admin_key {
            request = request.bearer_auth(key.expose_secret());
        }
        if let Some(version) = version {
            request = request.header("If-Match", format!("\"{version}\""));
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        let answer = response.text().await.map_err(failed)?;
        if status.is_success() {
            return Ok(answer);
        }
        let problem: Value = serde_json::from_str(&answer).unwrap_or_default();
        let detail = problem.get("detail").and_then(Value::as_str).unwrap_or("the service gave no reason");
        Err(Failure::failed(match (status.as_u16(), &self.admin_key) {
            (401, None) => "error: the service needs the key of administration: --admin-key, or TOOLSIEVE_ADMIN_KEY".to_owned(),
            (401, Some(_)) => "error: the service does not take this admin key".to_owned(),
            (404 | 405, _) if detail.contains("/openapi.json") => {
                "error: this key does not administer, or the service has no access.admin_key".to_owned()
            }
            _ => format!("error: {detail}"),
        }))
    }
}

fn read(answer: &str) -> Result<Value, Failure> {
    serde_json::from_str(answer).map_err(|error| Failure::failed(format!("error: the service answered something else than JSON: {error}")))
}

/// The innermost cause says what was wrong: a refused connection, a name that is not known.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

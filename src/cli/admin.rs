//! An HTTP client for commands that talk to a running service, with the admin key or a caller's key.

use std::time::Duration;

use clap::Args;
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

use crate::adapters::proxies;
use crate::cli::{Failure, Outcome, print, runtime, service_url};

const JSON: &str = "application/json";
const TIMEOUT: Duration = Duration::from_secs(30);

/// The service's address, and the admin key.
#[derive(Args)]
pub(super) struct ServiceAccess {
    /// Address of the running service
    #[arg(long, value_name = "URL", env = "TOOLSIEVE_URL", default_value = "http://127.0.0.1:8000", value_parser = service_url)]
    url: Url,
    /// Admin key (`access.admin_key`); not needed if the service has no keys
    #[arg(long, value_name = "KEY", env = "TOOLSIEVE_ADMIN_KEY", hide_env_values = true)]
    admin_key: Option<SecretString>,
}

/// Prints the service's response as text or JSON.
#[derive(Args)]
pub(super) struct Shown {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    access: ServiceAccess,
}

/// The service's address, and a caller's key. This caller owns everything that the command creates.
#[derive(Args)]
pub(super) struct CallerAccess {
    /// Address of the running service
    #[arg(long, value_name = "URL", env = "TOOLSIEVE_URL", default_value = "http://127.0.0.1:8000", value_parser = service_url)]
    url: Url,
    /// API key of the caller; not needed if the service has no keys
    #[arg(short, long, value_name = "KEY", env = "TOOLSIEVE_API_KEY", hide_env_values = true)]
    key: Option<SecretString>,
}

/// A request to the service's HTTP API.
struct ApiRequest<'a> {
    method: Method,
    path: &'a str,
    body: Option<&'a Value>,
    /// Sent as `If-Match`: the service rejects the request unless this is the current version.
    version: Option<u64>,
    accept: &'static str,
}

impl ServiceAccess {
    /// Sends the request, and returns the JSON body of a successful response. An empty body counts as `null`.
    pub(super) fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        read(&self.send(&ApiRequest { method, path, body, version: None, accept: JSON })?)
    }

    /// Fetches the resource at this path as an HTML page.
    pub(super) fn page(&self, path: &str) -> Result<String, Failure> {
        self.send(&ApiRequest { method: Method::GET, path, body: None, version: None, accept: "text/html" })
    }

    /// Replaces a resource. With a version, the service does so only if this version is still current.
    pub(super) fn replace(&self, path: &str, body: &Value, version: Option<u64>) -> Result<Value, Failure> {
        read(&self.send(&ApiRequest { method: Method::PUT, path, body: Some(body), version, accept: JSON })?)
    }

    fn send(&self, sent: &ApiRequest<'_>) -> Result<String, Failure> {
        let (status, answer) = runtime()?.block_on(send(&self.url, self.admin_key.as_ref(), sent))?;
        if status.is_success() {
            return Ok(answer);
        }
        let detail = detail(&answer);
        Err(match (status.as_u16(), &self.admin_key) {
            (401, None) => Failure::failed("error: the service needs the admin key: set --admin-key or TOOLSIEVE_ADMIN_KEY"),
            (401, Some(_)) => Failure::failed("error: the service rejected this admin key"),
            (404 | 405, _) if detail.contains("/openapi.json") => {
                Failure::failed("error: this key is not the admin key, or the service has no access.admin_key")
            }
            _ => refused(status, &detail),
        })
    }
}

impl Shown {
    /// Fetches a resource and prints it.
    pub(super) fn get(&self, path: &str, as_text: impl FnOnce(&Value) -> String) -> Outcome {
        self.ask(Method::GET, path, None, as_text).map(drop)
    }

    /// Sends a request, prints the answer and returns it. `as_text` may also write warnings.
    pub(super) fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        as_text: impl FnOnce(&Value) -> String,
    ) -> Result<Value, Failure> {
        let answer = self.access.ask(method, path, body)?;
        print(&if self.json { format!("{answer:#}") } else { as_text(&answer) })?;
        Ok(answer)
    }
}

impl CallerAccess {
    /// Sends the request, and returns the JSON body of a successful response. An empty body counts as `null`.
    pub(super) fn ask(&self, method: Method, path: &str, body: &Value) -> Result<Value, Failure> {
        let sent = ApiRequest { method, path, body: Some(body), version: None, accept: JSON };
        let (status, answer) = runtime()?.block_on(send(&self.url, self.key.as_ref(), &sent))?;
        if status.is_success() {
            return read(&answer);
        }
        Err(match (status.as_u16(), &self.key) {
            (401, None) => Failure::failed("error: the service needs a key: set --key or TOOLSIEVE_API_KEY"),
            (401, Some(_)) => Failure::failed("error: the service rejected this key"),
            _ => refused(status, &detail(&answer)),
        })
    }
}

/// Maps an error response to an exit code: invalid input counts as wrong usage (2), every other error as a failure (1).
fn refused(status: StatusCode, detail: &str) -> Failure {
    let message = format!("error: {detail}");
    match status.as_u16() {
        400 | 413 | 422 => Failure::invalid(message),
        _ => Failure::failed(message),
    }
}

fn detail(answer: &str) -> String {
    let problem: Value = serde_json::from_str(answer).unwrap_or_default();
    problem.get("detail").and_then(Value::as_str).unwrap_or("the service gave no reason").to_owned()
}

async fn send(url: &Url, key: Option<&SecretString>, sent: &ApiRequest<'_>) -> Result<(StatusCode, String), Failure> {
    let base = url.as_str().trim_end_matches('/');
    let failed = |error: reqwest::Error| Failure::failed(format!("error: {base}: {}{}", cause(&error), advice(url, &error)));
    let client = proxies::client_builder().timeout(TIMEOUT).build().map_err(failed)?;
    let mut request = client.request(sent.method.clone(), format!("{base}{}", sent.path)).header("Accept", sent.accept);
    if let Some(key) = key {
        request = request.bearer_auth(key.expose_secret());
    }
    if let Some(version) = sent.version {
        request = request.header("If-Match", format!("\"{version}\""));
    }
    if let Some(body) = sent.body {
        request = request.json(body);
    }
    let response = request.send().await.map_err(failed)?;
    let status = response.status();
    Ok((status, response.text().await.map_err(failed)?))
}

fn read(answer: &str) -> Result<Value, Failure> {
    if answer.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(answer).map_err(|error| Failure::failed(format!("error: the response of the service is not JSON: {error}")))
}

/// The advice if something listens at an `http://` address that doesn't speak HTTP: probably a service with TLS.
fn advice(url: &Url, error: &reqwest::Error) -> String {
    let has_no_response = error.is_request() && !error.is_connect() && !error.is_timeout();
    if url.scheme() != "http" || !has_no_response {
        return String::new();
    }
    let address = url.as_str().trim_end_matches('/').replacen("http:", "https:", 1);
    format!("; if the service uses TLS, its address is {address} (--url or TOOLSIEVE_URL)")
}

/// The innermost cause of an error, such as a refused connection or an unknown host.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use reqwest::Method;
    use url::Url;

    use super::{ApiRequest, JSON, send};

    /// Regression: the message was only "invalid HTTP version parsed".
    #[tokio::test]
    async fn an_http_address_of_a_service_with_tls_is_explained() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let read = client.read(&mut [0; 1024]).unwrap();
            // A TLS alert, as rustls sends it: a fatal unexpected message.
            client.write_all(&[21, 3, 3, 0, 2, 2, 10]).unwrap();
            read
        });
        let request = ApiRequest { method: Method::GET, path: "/v1/admin/keys", body: None, version: None, accept: JSON };
        let url = Url::parse(&format!("http://{address}")).unwrap();
        let message = send(&url, None, &request).await.unwrap_err().message;
        assert!(answering.join().unwrap() > 0);
        assert!(
            message.ends_with(&format!("if the service uses TLS, its address is https://{address} (--url or TOOLSIEVE_URL)")),
            "{message}"
        );
        // Nothing listens there any more.
        let message = send(&url, None, &request).await.unwrap_err().message;
        assert!(!message.contains("TLS"), "{message}");
    }
}

//! The proxies that the environment names, for clients of other services. Requests to this machine never use one: a proxy would look for
//! the service on its own machine, and could read the key.

use std::env;

use reqwest::{Client, ClientBuilder, NoProxy, Proxy};

/// Reads the address of a proxy.
type MakeProxy = fn(String) -> reqwest::Result<Proxy>;

const THIS_MACHINE: &str = "localhost,127.0.0.0/8,::1";

/// Begins a client that uses the proxies in `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY`, except for this machine and the hosts in
/// `NO_PROXY`.
pub(crate) fn client_builder() -> ClientBuilder {
    with_proxies(Client::builder(), |name| env::var(name).ok())
}

/// The variables of the environment that name a proxy.
pub(crate) fn variables() -> Vec<&'static str> {
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].into_iter().filter(|name| value(name, &|name| env::var(name).ok()).is_some()).collect()
}

fn with_proxies(mut builder: ClientBuilder, variable: impl Fn(&str) -> Option<String>) -> ClientBuilder {
    let exceptions = format!("{THIS_MACHINE},{}", value("NO_PROXY", &variable).unwrap_or_default());
    let kinds: [(&str, MakeProxy); 3] = [("HTTP_PROXY", Proxy::http), ("HTTPS_PROXY", Proxy::https), ("ALL_PROXY", Proxy::all)];
    for (name, proxy) in kinds {
        match value(name, &variable).map(proxy) {
            Some(Ok(proxy)) => builder = builder.proxy(proxy.no_proxy(NoProxy::from_string(&exceptions))),
            // The value may contain a password.
            Some(Err(_)) => tracing::warn!(variable = name, "ignoring a proxy whose address can't be read"),
            None => {}
        }
    }
    builder
}

/// The value of a variable in upper or lower case.
fn value(name: &str, variable: &impl Fn(&str) -> Option<String>) -> Option<String> {
    variable(name).or_else(|| variable(&name.to_ascii_lowercase())).filter(|value| !value.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A server that answers one request, and returns the first line of it.
    fn server() -> (String, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answering = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").unwrap();
            String::from_utf8_lossy(&request[..length]).lines().next().unwrap_or_default().to_owned()
        });
        (address, answering)
    }

    #[tokio::test]
    async fn only_requests_to_other_machines_use_the_proxy() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let ((proxy, proxied), (here, direct)) = (server(), server());
        let environment = |name: &str| (name == "http_proxy").then(|| format!("http://{proxy}"));
        let client = with_proxies(Client::builder(), environment).build().unwrap();
        client.get(format!("http://{here}/here")).send().await.unwrap();
        assert_eq!(direct.join().unwrap(), "GET /here HTTP/1.1");
        client.get("http://tools.example.org/there").send().await.unwrap();
        assert_eq!(proxied.join().unwrap(), "GET http://tools.example.org/there HTTP/1.1");
    }
}

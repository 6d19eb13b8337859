//! The proxies that the environment names, for clients of other services. Requests to this machine never use one: a proxy would look for
//! the service on its own machine, and could read the key.

use std::env;

use reqwest::{Client, ClientBuilder, NoProxy, Proxy};

/// Reads the address of a proxy.
type MakeProxy = fn(String) -> reqwest::Result<Proxy>;

/// The kinds of proxies that the client can use.
const SCHEMES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];
const THIS_MACHINE: &str = "localhost,127.0.0.0/8,::1";

/// Begins a client that uses the proxies in `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY`, except for this machine and the hosts in
/// `NO_PROXY`.
pub(crate) fn client_builder() -> ClientBuilder {
    with_proxies(Client::builder(), |name| env::var(name).ok())
}

/// The variables of the environment that name a proxy of a known kind.
pub(crate) fn variables() -> Vec<&'static str> {
    used(&|name| env::var(name).ok())
}

fn used(variable: &impl Fn(&str) -> Option<String>) -> Vec<&'static str> {
    let is_used = |name: &&str| value(name, variable).is_some_and(|address| has_known_scheme(&address));
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].into_iter().filter(is_used).collect()
}

fn with_proxies(mut builder: ClientBuilder, variable: impl Fn(&str) -> Option<String>) -> ClientBuilder {
    let exceptions = format!("{THIS_MACHINE},{}", value("NO_PROXY", &variable).unwrap_or_default());
    let kinds: [(&str, MakeProxy); 3] = [("HTTP_PROXY", Proxy::http), ("HTTPS_PROXY", Proxy::https), ("ALL_PROXY", Proxy::all)];
    for (name, proxy) in kinds {
        let Some(address) = value(name, &variable) else { continue };
        if !has_known_scheme(&address) {
            tracing::warn!(
                variable = name,
                "ignoring a proxy of an unknown kind: its address must begin with http://, https:// or socks5://"
            );
            continue;
        }
        if let Ok(proxy) = proxy(address) {
            builder = builder.proxy(proxy.no_proxy(NoProxy::from_string(&exceptions)));
        } else {
            // The value may contain a password.
            tracing::warn!(variable = name, "ignoring a proxy whose address can't be read");
        }
    }
    builder
}

/// Whether the client can use such a proxy. An address without a scheme is that of an HTTP proxy.
fn has_known_scheme(address: &str) -> bool {
    address.trim().split_once("://").is_none_or(|(scheme, _)| SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)))
}

/// The value of a variable in upper or lower case. An empty value counts as none.
fn value(name: &str, variable: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let filled = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    filled(name).or_else(|| filled(&name.to_ascii_lowercase()))
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

    /// Regression test: an empty variable in upper case hid the one in lower case.
    #[test]
    fn an_empty_variable_counts_as_none() {
        let environment = |name: &str| match name {
            "HTTP_PROXY" => Some(String::new()),
            "http_proxy" => Some("http://proxy:3128".to_owned()),
            _ => None,
        };
        assert_eq!(value("HTTP_PROXY", &environment).as_deref(), Some("http://proxy:3128"));
        assert_eq!(value("HTTPS_PROXY", &environment), None);
    }

    #[test]
    fn only_proxies_of_known_kinds_are_used() {
        assert!(["proxy:3128", "HTTP://proxy:3128", "socks5h://user:word@proxy"].into_iter().all(has_known_scheme));
        assert!(!has_known_scheme("ftp://proxy:3128"));
        let address = |name: &str| match name {
            "HTTP_PROXY" => Some("ftp://proxy:3128".to_owned()),
            "https_proxy" => Some("http://proxy:3128".to_owned()),
            _ => None,
        };
        assert_eq!(used(&address), ["HTTPS_PROXY"]);
    }

    /// Regression test: with a SOCKS proxy, all requests to other machines failed.
    #[tokio::test]
    async fn a_socks_proxy_gets_the_name_of_the_host() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap();
        let answering = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut requests = Vec::new();
            // No authentication, a connection to the host, and the request itself.
            let answers: [&[u8]; 3] = [&[5, 0], &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0], b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"];
            for answer in answers {
                let mut request = [0; 1024];
                let length = stream.read(&mut request).unwrap();
                requests.push(String::from_utf8_lossy(&request[..length]).into_owned());
                stream.write_all(answer).unwrap();
            }
            requests
        });
        let environment = |name: &str| (name == "ALL_PROXY").then(|| format!("socks5h://{proxy}"));
        let client = with_proxies(Client::builder(), environment).build().unwrap();
        client.get("http://tools.example.org/there").send().await.unwrap();
        let requests = answering.join().unwrap();
        assert!(requests[1].contains("tools.example.org") && requests[2].starts_with("GET /there"), "{requests:?}");
    }
}

//! Section `[http]`: the listening address, the service key and limits for requests.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnet::IpNet;
use secrecy::SecretString;
use url::Url;

use crate::settings::tls::Tls;
use crate::settings::values::{Reader, plain_url, section};

/// The suggested fix for a key that can't be sent in a header.
pub(super) const OWN_KEY: &str = "use letters, digits and punctuation only";
const EXPOSED: &str = "reachable from other machines without a key";

section! {
    /// The settings in section `[http]`.
    #[derive(Clone, Debug)]
    pub struct HttpSettings = read(reader) {
        pub host: IpAddr = host(reader),
        /// The port; 0 selects a free port.
        pub port: u16 = u16::try_from(reader.whole("http.port", 0..=65535)).unwrap_or_default(),
        /// The service key; `None` if callers need no key.
        pub api_key: Option<SecretString> = reader.header_key("http.api_key", OWN_KEY),
        /// Whether to allow any address without a key, not only loopback addresses.
        pub insecure: bool = reader.switch("http.insecure"),
        /// The service's public URL, for links.
        pub public_url: Option<Url> = public_url(reader),
        pub max_body_bytes: usize = reader.whole("http.max_body_bytes", 1024..=1 << 30),
        /// Maximum size of all request bodies together.
        pub max_bodies_bytes: usize = reader.whole("http.max_bodies_bytes", 1024..=1 << 40),
        /// How long a body may take to arrive. Larger bodies get more time.
        pub body_timeout: Duration = reader.seconds("http.body_timeout_seconds", 1..=3600),
        /// How long the service continues to accept connections after a stop signal.
        pub shutdown_delay: Duration = reader.seconds("http.shutdown_delay_seconds", 0..=600),
        /// How long running requests may continue after that.
        pub shutdown_timeout: Duration = reader.seconds("http.shutdown_timeout_seconds", 1..=3600),
        /// The name of this process in responses; `None` for a random one.
        pub replica: Option<String> = replica(reader),
        /// Proxies whose headers contain clients' addresses.
        pub trusted_proxies: Vec<IpNet> = trusted_proxies(reader),
        /// Origins of web pages that may call the service, as browsers send them, or `*`.
        pub cors_origins: Vec<String> = cors_origins(reader),
        /// The TLS certificate and its key; `None` for plain HTTP.
        pub tls: Option<Tls> = Tls::read(reader),
    }
}

fn replica(reader: &mut Reader<'_>) -> Option<String> {
    const KEY: &str = "http.replica";
    let name = reader.optional_text(KEY)?;
    if name.len() > 64 || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)) {
        reader.problem(KEY, "not a plain name", "write at most 64 letters, digits, dots, hyphens and underscores");
    }
    Some(name)
}

impl HttpSettings {
    /// Whether only this machine can reach the address.
    pub fn is_loopback(&self) -> bool {
        self.host.is_loopback()
    }

    pub(super) fn check_sizes(&self, reader: &mut Reader<'_>) {
        if self.max_bodies_bytes < self.max_body_bytes {
            reader.problem("http.max_bodies_bytes", "smaller than http.max_body_bytes", "write http.max_body_bytes or more");
        }
    }

    /// Checks that a public address requires a key. `has_other_key` shows whether there is a key other than
    /// [`HttpSettings::api_key`]. Without `listens`, a missing key is only a warning, because the service may get one that this process
    /// doesn't: from its unit or its container.
    pub(super) fn check_exposure(&self, has_other_key: bool, listens: bool, reader: &mut Reader<'_>) {
        if self.api_key.is_some() || has_other_key || self.is_loopback() {
            return;
        }
        if self.insecure {
            reader.warning(
                "http.insecure",
                "anyone who can reach the address can run every tool",
                "set a key: --api-key or TOOLSIEVE_API_KEY",
            );
        } else if listens {
            reader.problem("http.host", EXPOSED, "set a key in TOOLSIEVE_API_KEY, listen on 127.0.0.1, or allow it with --insecure");
        } else {
            reader.warning(
                "http.host",
                EXPOSED,
                "the service starts only with a key; ignore this if its unit or its container gives it one",
            );
        }
    }
}

fn host(reader: &mut Reader<'_>) -> IpAddr {
    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let text = reader.text("http.host");
    if text == "localhost" {
        return LOOPBACK;
    }
    text.trim_start_matches('[').trim_end_matches(']').parse().unwrap_or_else(|_| {
        reader.problem("http.host", "not an IP address", "write one such as 127.0.0.1, 0.0.0.0 or ::1, or localhost");
        LOOPBACK
    })
}

fn public_url(reader: &mut Reader<'_>) -> Option<Url> {
    let text = reader.optional_text("http.public_url")?;
    let url = plain_url(&text);
    if url.is_none() {
        reader.problem(
            "http.public_url",
            "not a plain http or https address",
            "write it as https://tools.example.org, without user, query and fragment",
        );
    }
    url
}

fn trusted_proxies(reader: &mut Reader<'_>) -> Vec<IpNet> {
    let texts = reader.list("http.trusted_proxies");
    let network = |text: &String| text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    let networks: Vec<IpNet> = texts.iter().filter_map(network).collect();
    if networks.len() < texts.len() {
        reader.problem(
            "http.trusted_proxies",
            "contains something that is neither an address nor a network",
            "write each as 10.0.0.7, 10.0.0.0/8, fd00::7 or fd00::/8",
        );
    }
    networks
}

fn cors_origins(reader: &mut Reader<'_>) -> Vec<String> {
    let origins = reader.list("http.cors_origins");
    let is_origin = |text: &str| {
        text == "*"
            || Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.origin().ascii_serialization() == text)
    };
    if !origins.iter().all(|origin| is_origin(origin)) {
        reader.problem(
            "http.cors_origins",
            "contains something that is not an origin",
            "write each as https://chat.example.org: scheme, host and port, no slash at the end; or *",
        );
    }
    origins
}

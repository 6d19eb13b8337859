//! Private addresses: which addresses belong to this machine or to a private network, and a client that avoids them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{ClientBuilder, redirect};
use tokio::net::lookup_host;
use url::{Host, Url};

/// Whether requests for an MCP server may reach private addresses: as configured, and otherwise if the server has one itself.
pub(crate) async fn allows_private(configured: Option<bool>, server: &Url) -> bool {
    match configured {
        Some(allows) => allows,
        None => is_private_host(server).await,
    }
}

/// A client that follows no redirects, and connects to private addresses only if they are allowed.
pub(crate) fn restricted(builder: ClientBuilder, allows_private: bool) -> ClientBuilder {
    let builder = builder.redirect(redirect::Policy::none());
    if allows_private { builder } else { builder.dns_resolver(Arc::new(PublicOnly)) }
}

/// Whether tokens sent to this URL are encrypted. The host of the MCP server, which gets the tokens anyway, needs no encryption.
pub(crate) fn is_encrypted(url: &Url, server: &Url) -> bool {
    url.scheme() == "https" || (url.scheme() == "http" && url.host() == server.host())
}

/// Whether the URL contains a private address. Names are checked when they are resolved.
pub(crate) fn has_private_address(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => is_private(address.into()),
        Some(Host::Ipv6(address)) => is_private(address.into()),
        Some(Host::Domain(_)) | None => false,
    }
}

/// Whether the host of a URL is private: by its address, or by all addresses of its name.
async fn is_private_host(url: &Url) -> bool {
    let Some(Host::Domain(name)) = url.host() else { return has_private_address(url) };
    match lookup_host((name, url.port_or_known_default().unwrap_or_default())).await {
        Ok(addresses) => are_private(addresses.map(|address| address.ip())),
        Err(_) => false,
    }
}

/// Whether all addresses of a name are private. One is not enough, because the owner of a public name can add one.
fn are_private(addresses: impl Iterator<Item = IpAddr>) -> bool {
    let mut addresses = addresses.peekable();
    addresses.peek().is_some() && addresses.all(is_private)
}

/// Resolves names to public addresses only. It runs on connecting, because a name may change its addresses after a check.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(public_addresses(name.as_str().to_owned()))
    }
}

async fn public_addresses(name: String) -> Result<Addrs, Box<dyn std::error::Error + Send + Sync>> {
    let found: Vec<SocketAddr> = lookup_host((name, 0)).await?.filter(|address| !is_private(address.ip())).collect();
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "its address is private").into());
    }
    Ok(Box::new(found.into_iter()))
}

/// Whether an address belongs to this machine, to a private network, or to no single host (RFC 6890).
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    // "This network" and shared address space (RFC 6598).
    let is_shared = first == 0 || (first == 100 && (64..128).contains(&second));
    is_shared
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_multicast()
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let [first, second, .., high, low] = address.segments();
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    let embedded = || is_private_v4(Ipv4Addr::new(a, b, c, d));
    // NAT64 (RFC 6052).
    let is_translated = first == 0x64 && second == 0xff9b;
    let is_own = address.is_loopback() || address.is_unspecified() || address.is_multicast();
    is_own
        || address.is_unique_local()
        || address.is_unicast_link_local()
        || ((is_translated || address.to_ipv4_mapped().is_some()) && embedded())
}

#[cfg(test)]
mod tests {
    use super::{are_private, is_private};

    #[test]
    fn private_addresses_are_known_in_every_spelling() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
        ] {
            assert!(is_private(address.parse().unwrap()), "{address}");
        }
        for address in ["1.1.1.1", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"] {
            assert!(!is_private(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_name_with_a_public_address_is_a_public_one() {
        for (addresses, expected) in [
            ("10.0.0.1", true),
            ("127.0.0.1 ::1", true),
            ("1.1.1.1 10.0.0.1", false),
            ("10.0.0.1 1.1.1.1", false),
            ("1.1.1.1", false),
            ("", false),
        ] {
            let found = addresses.split_whitespace().map(|address| address.parse().unwrap());
            assert_eq!(are_private(found), expected, "{addresses}");
        }
    }
}

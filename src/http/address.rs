//! Determines the client's address: the address of the peer, or, behind trusted proxies, the address in their headers.

use std::net::{IpAddr, SocketAddr};

use actix_web::http::header::{self, HeaderMap};
use ipnet::IpNet;

/// The header that most proxies set. Each proxy appends the address of its own peer.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// The client's address: the last address on the way that doesn't belong to a trusted proxy.
pub(super) fn client(peer: Option<SocketAddr>, headers: &HeaderMap, trusted: &[IpNet]) -> Option<IpAddr> {
    let is_trusted = |address: &IpAddr| trusted.iter().any(|network| network.contains(address));
    let peer = peer?.ip().to_canonical();
    if !is_trusted(&peer) {
        return Some(peer);
    }
    let mut nearest = peer;
    for hop in hops(headers).iter().rev() {
        // An invalid address ends the search, because anybody could have written the addresses before it.
        let Some(address) = hop else { break };
        nearest = *address;
        if !is_trusted(&nearest) {
            break;
        }
    }
    Some(nearest)
}

/// The addresses in the proxies' headers, from the most distant client to the nearest one.
fn hops(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let texts = |name: &str| headers.get_all(name).filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",");
    let list = texts(FORWARDED_FOR);
    if !list.is_empty() {
        return list.split(',').map(address).collect();
    }
    let list = texts(header::FORWARDED.as_str());
    let elements = list.split(',').filter(|element| !element.trim().is_empty());
    elements
        .map(|element| {
            let parameters = element.split(';').filter_map(|parameter| parameter.split_once('='));
            let (_, client) = parameters.map(|(name, value)| (name.trim(), value)).find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
            address(client.trim().trim_matches('"'))
        })
        .collect()
}

/// Parses an address in one of the forms `203.0.113.7`, `203.0.113.7:4711`, `2001:db8::1` and `[2001:db8::1]:4711`.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address: Option<IpAddr> = bare.unwrap_or(text).parse().ok();
    address.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip())).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};

    use super::client;

    #[test]
    fn only_trusted_proxies_are_believed() {
        let trusted = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        for (peer, header, value, expected) in [
            ("203.0.113.7:1", "x-forwarded-for", "198.51.100.1", "203.0.113.7"),
            ("10.0.0.1:1", "x-forwarded-for", "198.51.100.1", "198.51.100.1"),
            ("10.0.0.1:1", "x-forwarded-for", "1.1.1.1, 198.51.100.1, 10.0.0.2", "198.51.100.1"),
            ("10.0.0.1:1", "x-forwarded-for", "1.1.1.1, junk, 10.0.0.2", "10.0.0.2"),
            ("10.0.0.1:1", "x-forwarded-for", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
            ("10.0.0.1:1", "x-forwarded-for", "[2001:db8::1]:9", "2001:db8::1"),
            ("10.0.0.1:1", "forwarded", "for=1.1.1.1, for=\"[2001:db8::1]:9\";proto=https", "2001:db8::1"),
            ("10.0.0.1:1", "forwarded", "proto=https;For=198.51.100.1", "198.51.100.1"),
            ("10.0.0.1:1", "forwarded", "for=unknown", "10.0.0.1"),
            ("[fd00::1]:1", "x-forwarded-for", "198.51.100.1:80", "198.51.100.1"),
            ("[::ffff:10.0.0.1]:1", "x-forwarded-for", "::ffff:198.51.100.1", "198.51.100.1"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_static(header), HeaderValue::from_static(value));
            let found = client(Some(peer.parse().unwrap()), &headers, &trusted);
            assert_eq!(found, Some(expected.parse().unwrap()), "{header}: {value} from {peer}");
        }
    }
}

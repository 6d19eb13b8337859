//! Caches lists of function names by hash.
//!
//! Open WebUI offers the same functions with nearly every message. So callers send the names once, and afterwards only their
//! hash. Definitions are sent each time and not cached. The lists are only in memory. If a hash is unknown, after a restart or on
//! another replica, the caller sends the names again.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use thiserror::Error;

use crate::domain::access::api_key::KeyId;
use crate::domain::access::principal::Principal;
use crate::domain::text::canonical::Fingerprint;
use crate::service::selection::request::Offered;

/// Maximum size of all lists together, in bytes.
const HELD_BYTES: u64 = 32 * 1024 * 1024;
/// Maximum size of a list, in bytes. A larger one is used but not cached.
const LIST_BYTES: u32 = 4 * 1024 * 1024;
const IDLE: Duration = Duration::from_hours(1);

const PREFIX: &str = "sha256:";

/// A list belongs to the key that sent it. Callers without a named key share their lists.
type Key = (Option<KeyId>, Fingerprint);

pub(crate) struct OfferCache(Cache<Key, Arc<[Offered]>>);

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum OfferError {
    #[error("offer is `sha256:` and 64 hexadecimal digits in lower case")]
    Malformed,
    #[error("a name with a line break can't be part of an offer")]
    LineBreak,
    #[error("offer is not the SHA-256 of the names in tools, in their order, joined by line feeds")]
    Different,
    #[error("no names with this hash are known")]
    Unknown,
}

/// An offer, resolved from its names or its hash.
pub(crate) struct Known {
    pub offered: Arc<[Offered]>,
    /// Whether the hash alone is enough in further requests.
    pub is_remembered: bool,
}

impl Default for OfferCache {
    fn default() -> Self {
        let weight = |_: &Key, offered: &Arc<[Offered]>| weight(offered);
        Self(Cache::builder().max_capacity(HELD_BYTES).weigher(weight).time_to_idle(IDLE).build())
    }
}

impl OfferCache {
    /// Resolves an offer from its hash, and from names or definitions if the caller sent any.
    ///
    /// # Errors
    /// The hash is malformed or does not match the names; or there are no names, and none are cached.
    pub(crate) fn of(&self, principal: &Principal, offer: &str, sent: Arc<[Offered]>) -> Result<Known, OfferError> {
        self.resolve(principal, offer, sent, true)
    }

    /// Like [`Self::of`], but caches nothing.
    ///
    /// # Errors
    /// As for [`Self::of`].
    pub(crate) fn peek(&self, principal: &Principal, offer: &str, sent: Arc<[Offered]>) -> Result<Known, OfferError> {
        self.resolve(principal, offer, sent, false)
    }

    fn resolve(&self, principal: &Principal, offer: &str, sent: Arc<[Offered]>, remembers: bool) -> Result<Known, OfferError> {
        let hash = offer.strip_prefix(PREFIX).filter(|hash| is_hash(hash)).ok_or(OfferError::Malformed)?;
        let names = || sent.iter().filter(|offered| offered.description.is_none());
        if names().any(|offered| offered.name.contains('\n')) {
            return Err(OfferError::LineBreak);
        }
        let of_sent = Fingerprint::of_text(&names().map(|offered| offered.name.as_str()).collect::<Vec<_>>().join("\n"));
        let key = principal.key.as_ref().map(|key| key.id.clone());
        let is_same = of_sent.to_string() == hash;
        if names().next().is_some() && !is_same {
            return Err(OfferError::Different);
        }
        if is_same {
            let names: Arc<[Offered]> = if names().count() == sent.len() { Arc::clone(&sent) } else { names().cloned().collect() };
            let is_remembered = remembers && weight(&names) <= LIST_BYTES;
            if is_remembered {
                self.0.insert((key, of_sent), names);
            }
            return Ok(Known { offered: sent, is_remembered });
        }
        let hash = fingerprint(hash).ok_or(OfferError::Malformed)?;
        let names = self.0.get(&(key, hash)).ok_or(OfferError::Unknown)?;
        let offered = if sent.is_empty() { names } else { names.iter().chain(sent.iter()).cloned().collect() };
        Ok(Known { offered, is_remembered: true })
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn fingerprint(hexadecimal: &str) -> Option<Fingerprint> {
    let mut bytes = [0; 32];
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hexadecimal.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(Fingerprint::from_bytes(bytes))
}

fn weight(offered: &[Offered]) -> u32 {
    let bytes: usize = offered.iter().map(|offered| size_of::<Offered>() + offered.name.len()).sum();
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{LIST_BYTES, OfferCache, OfferError};
    use crate::domain::access::api_key::{KeyId, Presented};
    use crate::domain::access::principal::Principal;
    use crate::domain::text::canonical::Fingerprint;
    use crate::service::selection::request::Offered;

    fn names(names: &[&str]) -> Arc<[Offered]> {
        names.iter().map(|name| Offered { name: (*name).to_owned(), description: None }).collect()
    }

    fn hash(text: &str) -> String {
        format!("sha256:{}", Fingerprint::of_text(text))
    }

    fn caller(key: &str) -> Principal {
        let key = Presented { id: KeyId::new(key), hash: Fingerprint::of_text(key) };
        Principal { key: Some(key), ..Principal::service_key() }
    }

    #[test]
    fn names_are_sent_once() {
        let offers = OfferCache::default();
        let offer = hash("b\na");
        assert_eq!(offers.of(&caller("k"), &offer, names(&[])).err(), Some(OfferError::Unknown));
        assert!(offers.of(&caller("k"), &offer, names(&["b", "a"])).unwrap().is_remembered);
        let known = offers.of(&caller("k"), &offer, names(&[])).unwrap().offered;
        assert_eq!(known.iter().map(|offered| offered.name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    }

    #[test]
    fn another_key_does_not_know_them() {
        let offers = OfferCache::default();
        offers.of(&caller("k"), &hash("a"), names(&["a"])).unwrap();
        for other in [caller("l"), Principal::service_key()] {
            assert_eq!(offers.of(&other, &hash("a"), names(&[])).err(), Some(OfferError::Unknown));
        }
    }

    #[test]
    fn definitions_go_along_each_time() {
        let offers = OfferCache::default();
        let definition = Offered { name: "d".into(), description: Some("D".into()) };
        let sent: Arc<[Offered]> = names(&["a"]).iter().cloned().chain([definition.clone()]).collect();
        let all = |known: &Arc<[Offered]>| known.iter().map(|offered| offered.name.clone()).collect::<Vec<_>>();
        assert_eq!(all(&offers.of(&caller("k"), &hash("a"), sent).unwrap().offered), ["a", "d"]);
        assert_eq!(all(&offers.of(&caller("k"), &hash("a"), names(&[])).unwrap().offered), ["a"]);
        assert_eq!(all(&offers.of(&caller("k"), &hash("a"), [definition].into()).unwrap().offered), ["a", "d"]);
    }

    #[test]
    fn what_is_no_hash_of_the_names_is_refused() {
        let offers = OfferCache::default();
        let refused = |offer: &str, sent: &[&str]| offers.of(&caller("k"), offer, names(sent)).err();
        assert_eq!(refused(&hash("a\nb"), &["b", "a"]), Some(OfferError::Different), "the order counts");
        assert_eq!(refused(&hash("a\nb"), &["a\nb"]), Some(OfferError::LineBreak));
        for text in ["", "a", "sha256:", &hash("a").to_uppercase(), &hash("a")[..70], &hash("a").replace("sha256", "md5")] {
            assert_eq!(refused(text, &["a"]), Some(OfferError::Malformed), "{text}");
        }
    }

    #[test]
    fn what_is_too_long_is_used_and_not_remembered() {
        let (offers, long) = (OfferCache::default(), "n".repeat(LIST_BYTES as usize));
        let known = offers.of(&caller("k"), &hash(&long), names(&[&long])).unwrap();
        assert!(known.offered.len() == 1 && !known.is_remembered);
        assert_eq!(offers.of(&caller("k"), &hash(&long), names(&[])).err(), Some(OfferError::Unknown));
    }

    #[test]
    fn what_is_held_is_bounded() {
        let offers = OfferCache::default();
        for number in 0..200 {
            let name = format!("{number}{}", "n".repeat(1_000_000));
            offers.of(&caller("k"), &hash(&name), names(&[&name])).unwrap();
        }
        offers.0.run_pending_tasks();
        assert!(offers.0.weighted_size() <= super::HELD_BYTES, "{}", offers.0.weighted_size());
    }
}

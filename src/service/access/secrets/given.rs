//! Which secrets of their owners servers were called with.
//!
//! Another service on the store may change or delete a secret. It ends its own connections with the former value, but not those of this
//! service. So this service remembers what it has passed to a server, without the values, and compares it with what the store has.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moka::sync::Cache;

use crate::domain::access::principal::PrincipalId;
use crate::domain::access::secret::SecretName;
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::Parting;

/// Maximum number of callers and servers. More than any service has connections of single callers.
const REMEMBERED: u64 = 100_000;
/// Longer than a connection stays open without a call.
const IDLE: Duration = Duration::from_hours(24);

/// The secrets of an owner that a server gets, with the times of their last change. Sorted by name.
pub(super) type Stand = Vec<(SecretName, SystemTime)>;

pub(super) struct Given(Cache<(PrincipalId, ServerName), Arc<Stand>>);

impl Given {
    pub(super) fn new() -> Self {
        Self(Cache::builder().max_capacity(REMEMBERED).time_to_idle(IDLE).build())
    }

    /// Notes what a server gets now. Returns how its connections must end, if they were opened with something else.
    pub(super) fn note(&self, owner: &PrincipalId, server: &ServerName, now: Stand) -> Option<Parting> {
        let key = (owner.clone(), server.clone());
        let parting = self.0.get(&key).and_then(|before| parting(&before, &now));
        self.0.insert(key, Arc::new(now));
        parting
    }

    /// The same for what a call has read. What is older than what is known was read before it, and changes nothing.
    pub(super) fn note_call(&self, owner: &PrincipalId, server: &ServerName, read: Stand) -> Option<Parting> {
        let newest = |stand: &Stand| stand.iter().map(|(_, at)| *at).max();
        let known = self.0.get(&(owner.clone(), server.clone()));
        if known.is_some_and(|known| newest(&known) > newest(&read)) {
            return None;
        }
        self.note(owner, server, read)
    }

    /// Forgets what one server or all got, because their connections end anyway.
    pub(super) fn forget(&self, owner: &PrincipalId, server: Option<&ServerName>) {
        match server {
            Some(server) => self.0.invalidate(&(owner.clone(), server.clone())),
            None => self.0.iter().filter(|(key, _)| key.0 == *owner).for_each(|(key, _)| self.0.invalidate(&*key)),
        }
    }

    /// The owners and servers that are remembered, sorted.
    pub(super) fn all(&self) -> Vec<(PrincipalId, ServerName)> {
        let mut all: Vec<(PrincipalId, ServerName)> = self.0.iter().map(|(key, _)| (*key).clone()).collect();
        all.sort_unstable();
        all
    }
}

/// A removed secret ends connections at once, a changed one after their calls.
fn parting(before: &[(SecretName, SystemTime)], now: &[(SecretName, SystemTime)]) -> Option<Parting> {
    if before == now {
        return None;
    }
    let is_there = |name: &SecretName| now.iter().any(|(present, _)| present == name);
    Some(if before.iter().all(|(name, _)| is_there(name)) { Parting::AfterCalls } else { Parting::AtOnce })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{Given, Parting, PrincipalId, SecretName, ServerName, Stand};

    #[test]
    fn connections_with_other_secrets_end() {
        let (given, owner, server) = (Given::new(), PrincipalId::new("user:anna"), ServerName::new("mail"));
        let stand = |secrets: &[(&str, u64)]| -> Stand {
            secrets.iter().map(|(name, at)| (SecretName::new(name).unwrap(), SystemTime::UNIX_EPOCH + Duration::from_secs(*at))).collect()
        };
        for (now, expected) in [
            (stand(&[("token", 1)]), None),
            (stand(&[("token", 1)]), None),
            (stand(&[("token", 2)]), Some(Parting::AfterCalls)),
            (stand(&[("other", 1), ("token", 2)]), Some(Parting::AfterCalls)),
            (stand(&[("other", 1)]), Some(Parting::AtOnce)),
            (stand(&[]), Some(Parting::AtOnce)),
        ] {
            assert!(given.note(&owner, &server, now.clone()) == expected, "{now:?}");
        }
        assert_eq!(given.all(), [(owner.clone(), server.clone())]);
        // Two calls have read the store, one of them before a secret was added. Their order says nothing.
        given.note_call(&owner, &server, stand(&[("other", 3), ("token", 2)]));
        assert!(given.note_call(&owner, &server, stand(&[("token", 2)])).is_none());
        assert!(given.note_call(&owner, &server, stand(&[("other", 3), ("token", 2)])).is_none());
        given.note(&owner, &server, stand(&[("token", 1)]));
        given.forget(&owner, None);
        assert!(given.all().is_empty() && given.note(&owner, &server, stand(&[("token", 2)])).is_none());
    }
}

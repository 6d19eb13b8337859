//! What memory holds of sign-ins: copies of tokens, refreshed tokens that could not be stored, and who is looking for a token.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::{SignInToken, StoredConnection};

/// How long a copy in memory is used before the store is read again, because another replica may have ended the sign-in.
const COPY: Duration = Duration::from_secs(30);
/// How long a failed refresh is not repeated.
pub(super) const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// A copy of a token in memory, or the reason why there is none at the moment.
#[derive(Clone, Debug)]
pub(in crate::service::access) struct CachedToken {
    /// The token, and from when on it is refreshed.
    pub(super) result: Result<(SignInToken, Option<SystemTime>), String>,
    pub(super) read_at: Instant,
}

impl CachedToken {
    fn is_recent(&self, now: Instant) -> bool {
        let lasts = if self.result.is_ok() { COPY } else { AFTER_FAILURE };
        now.saturating_duration_since(self.read_at) < lasts
    }
}

pub(super) type Key = (PrincipalId, ServerName);

/// The copies in memory. Outdated ones don't stay, so that memory doesn't fill with the tokens of everybody who ever called: they are removed
/// when another is added, at most once in [`COPY`].
#[derive(Default)]
pub(in crate::service::access) struct Copies(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    copies: HashMap<Key, CachedToken>,
    purged_at: Option<Instant>,
}

impl Copies {
    /// The copy, if it is recent.
    pub(super) fn recent(&self, key: &Key) -> Option<CachedToken> {
        self.0.lock().copies.get(key).filter(|copy| copy.is_recent(Instant::now())).cloned()
    }

    pub(super) fn keep(&self, key: Key, copy: CachedToken) {
        let now = Instant::now();
        let mut kept = self.0.lock();
        if kept.purged_at.is_none_or(|at| now.saturating_duration_since(at) >= COPY) {
            kept.copies.retain(|_, copy| copy.is_recent(now));
            kept.purged_at = Some(now);
        }
        kept.copies.insert(key, copy);
    }

    pub(super) fn remove(&self, key: &Key) {
        self.0.lock().copies.remove(key);
    }

    pub(super) fn clear(&self) {
        self.0.lock().copies.clear();
    }
}

/// Lets one call of this process at a time look for a token, so that waiting calls neither poll the store nor exchange it too.
pub(in crate::service::access) struct Turns<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Turns<K> {
    pub(super) fn of(&self, key: &K) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(key.clone()).or_default())
    }
}

/// Refreshed tokens that could not be stored, such as on a full disk.
#[derive(Default)]
pub(in crate::service::access) struct Unsaved(Mutex<HashMap<Key, StoredConnection>>);

impl Unsaved {
    pub(super) fn get(&self, key: &Key) -> Option<StoredConnection> {
        self.0.lock().get(key).cloned()
    }

    pub(super) fn keep(&self, key: Key, connection: StoredConnection) {
        self.0.lock().insert(key, connection);
    }

    pub(super) fn remove(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outdated_copies_do_not_pile_up_and_recent_ones_stay() {
        let key = |number: usize| (PrincipalId::new(format!("user:{number}")), ServerName::new("mail"));
        let failed = |read_at| CachedToken { result: Err("unreachable".to_owned()), read_at };
        let (now, copies) = (Instant::now(), Copies::default());
        let outdated = now.checked_sub(AFTER_FAILURE).unwrap();
        for number in 0..100 {
            copies.keep(key(number), failed(outdated));
        }
        copies.0.lock().purged_at = now.checked_sub(COPY);
        for number in 100..200 {
            copies.keep(key(number), failed(now + Duration::from_mins(1)));
        }
        assert_eq!(copies.0.lock().copies.len(), 100);
        assert!((100..200).all(|number| copies.recent(&key(number)).is_some()));
    }
}

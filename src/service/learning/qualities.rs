//! How well each key's tools answer, by their last calls. Kept in memory only.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moka::sync::Cache;
use parking_lot::Mutex;

use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::evidence::Minute;
use crate::domain::learning::quality::{COUNTED, Calls, Quality};
use crate::domain::learning::scope::Scope;
use crate::service::ports::Forgotten;

/// Maximum number of tools, counted once per key: about 20 MiB.
const HELD: u64 = 10_000;

/// Keys never learn from each other's calls.
type Place = (Arc<str>, ToolId);

#[derive(Clone)]
pub(super) struct Qualities {
    calls: Cache<Place, Arc<Mutex<Calls>>>,
    hasher: ahash::RandomState,
}

impl Default for Qualities {
    fn default() -> Self {
        let calls = Cache::builder().max_capacity(HELD).time_to_idle(COUNTED).build();
        Self { calls, hasher: ahash::RandomState::new() }
    }
}

impl Qualities {
    pub(super) fn add(&self, caller: &Principal, tool: &ToolId, has_failed: bool, took: Duration) {
        let Some(key) = key_of(caller) else { return };
        let calls = self.calls.get_with((key, tool.clone()), Arc::default);
        calls.lock().add(self.person(caller), has_failed, took, Minute::of(SystemTime::now()));
    }

    /// For a caller, what the calls of a tool show.
    pub(super) fn of<'a>(&'a self, caller: &Principal) -> impl Fn(&ToolId) -> Option<Quality> + use<'a> {
        let (key, person, now) = (key_of(caller), self.person(caller), Minute::of(SystemTime::now()));
        move |tool| {
            let calls = self.calls.get(&(key.clone()?, tool.clone()))?;
            let calls = calls.lock();
            calls.quality(person, now)
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.entry_count() == 0 && self.calls.iter().next().is_none()
    }

    /// Forgets the calls of a caller, of a tool, or of a key. In a scope of several people, nothing is known about them.
    pub(super) fn forget(&self, forgotten: &Forgotten) {
        match forgotten {
            Forgotten::Before(_) => {}
            Forgotten::All => self.calls.invalidate_all(),
            Forgotten::Caller(id) => {
                let person = self.hasher.hash_one(id.as_str());
                self.calls.iter().for_each(|(_, calls)| calls.lock().forget(person));
            }
            Forgotten::Tool(tool) => self.forget_places(|(_, known)| known == tool),
            Forgotten::Key(key) => self.forget_places(|(known, _)| **known == *key.as_str()),
            Forgotten::Scope(scope) | Forgotten::Own(scope) => {
                if let Some(id) = scope.caller() {
                    let person = self.hasher.hash_one(id);
                    let of_key = self.calls.iter().filter(|(place, _)| place.0 == scope.key);
                    of_key.for_each(|(_, calls)| calls.lock().forget(person));
                }
            }
        }
    }

    fn forget_places(&self, is_forgotten: impl Fn(&Place) -> bool) {
        let places: Vec<Arc<Place>> = self.calls.iter().map(|(place, _)| place).filter(|place| is_forgotten(place)).collect();
        for place in places {
            self.calls.invalidate(&*place);
        }
    }

    fn person(&self, caller: &Principal) -> u64 {
        self.hasher.hash_one(caller.id.as_str())
    }
}

fn key_of(caller: &Principal) -> Option<Arc<str>> {
    Scope::of(caller).into_iter().next().map(|scope| scope.key)
}

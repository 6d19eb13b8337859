//! The memories of all scopes, behind locks that are held for microseconds.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::RwLock;

use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::evidence::{Evidence, EvidenceKind, Minute};
use crate::domain::learning::memory::{MOST, MOST_OF_ONE, Memory};
use crate::domain::learning::replay::Replay;
use crate::domain::learning::scope::{Audience, Scope};
use crate::domain::learning::vector::MessageVector;
use crate::domain::learning::votes::{Vote, VoteParameters};
use crate::service::ports::{Forgotten, LearnedUse};

const SHARDS: usize = 16;

/// One memory per scope. Scopes are spread over several locks, so that callers rarely wait for each other.
#[derive(Default)]
pub(super) struct Memories {
    hasher: ahash::RandomState,
    shards: [RwLock<HashMap<Scope, Memory>>; SHARDS],
}

impl Memories {
    fn shard(&self, scope: &Scope) -> &RwLock<HashMap<Scope, Memory>> {
        let number = self.hasher.hash_one(scope) % SHARDS as u64;
        &self.shards[usize::try_from(number).unwrap_or_default()]
    }

    pub(super) fn add(&self, one: &LearnedUse) {
        for scope in one.scopes.iter() {
            let most_of_one = if scope.is_own() { MOST } else { MOST_OF_ONE };
            let mut shard = self.shard(scope).write();
            Self::of(&mut shard, scope).add(&one.message, &one.principal, &one.evidence, most_of_one);
        }
    }

    /// Adds stored evidence, newest first. Old messages that don't fit are left out.
    pub(super) fn load(&self, newest_first: &[LearnedUse]) {
        for one in newest_first {
            for scope in one.scopes.iter() {
                let most_of_one = if scope.is_own() { MOST } else { MOST_OF_ONE };
                let mut shard = self.shard(scope).write();
                let memory = Self::of(&mut shard, scope);
                if !memory.is_full_for(&one.message.id, &one.principal, most_of_one) {
                    memory.insert(&one.message, &one.principal, &one.evidence, most_of_one);
                }
            }
        }
    }

    /// Adds evidence unless it is known. Returns whether something was new.
    pub(super) fn add_new(&self, one: &LearnedUse) -> bool {
        let is_new = |scope: &Scope| self.shard(scope).read().get(scope).is_none_or(|memory| !memory.knows(&one.message.id, &one.evidence));
        let scopes: Arc<[Scope]> = one.scopes.iter().filter(|scope| is_new(scope)).cloned().collect();
        let has_new = !scopes.is_empty();
        if has_new {
            self.add(&LearnedUse { scopes, ..one.clone() });
        }
        has_new
    }

    fn of<'a>(shard: &'a mut HashMap<Scope, Memory>, scope: &Scope) -> &'a mut Memory {
        shard.entry(scope.clone()).or_insert_with(|| if scope.is_own() { Memory::of_one() } else { Memory::default() })
    }

    /// Learns again in the scopes in which much has changed. Takes up to a tenth of a second per scope, without blocking readers.
    pub(super) fn refit(&self, is_wanted: impl Fn(&Memory) -> bool) {
        let mut due = Vec::new();
        self.each(|scope, memory| {
            if memory.gain().is_some() && is_wanted(memory) {
                due.push(scope.clone());
            }
        });
        for scope in due {
            // A copy, so that neither readers nor writers wait.
            let copy = self.shard(&scope).read().get(&scope).cloned();
            let refitted = copy.as_ref().map(Memory::refitted);
            if let (Some(refitted), Some(memory)) = (refitted, self.shard(&scope).write().get_mut(&scope)) {
                let before = memory.helps();
                memory.take(refitted);
                if memory.helps() != before {
                    log(&scope, memory);
                }
            }
        }
    }

    /// The same in the background, without waiting for it.
    pub(super) fn refit_soon(self: &Arc<Self>) {
        let memories = Arc::clone(self);
        tokio::task::spawn_blocking(move || memories.refit(Memory::is_due));
    }

    /// Replays each caller's own scope, and takes over the results. Ordered by scope.
    pub(super) fn replay(&self) -> Vec<(Scope, Replay)> {
        let mut scopes = Vec::new();
        self.each(|scope, _| scopes.push(scope.clone()));
        scopes.sort_unstable();
        let mut replays = Vec::new();
        for scope in scopes {
            // A copy, so that neither readers nor writers wait.
            let copy = self.shard(&scope).read().get(&scope).cloned();
            let Some(replay) = copy.as_ref().and_then(Memory::replay) else { continue };
            if let (Some(replayed), Some(memory)) = (replay.replayed, self.shard(&scope).write().get_mut(&scope)) {
                memory.judge(replayed, Minute::of(SystemTime::now()));
                let (before, after) = (format!("{:.3}", replayed.before), format!("{:.3}", replayed.after));
                tracing::info!(%scope, uses = replay.uses, before, after, helps = memory.helps(), "learning from use was replayed");
            }
            replays.push((scope, replay));
        }
        replays
    }

    /// Reads the memory of a scope.
    pub(super) fn with<T>(&self, scope: &Scope, read: impl FnOnce(&Memory) -> T) -> Option<T> {
        self.shard(scope).read().get(scope).map(read)
    }

    /// The votes of one scope.
    pub(super) fn votes(&self, scope: &Scope, message: &MessageVector, parameters: &VoteParameters) -> HashMap<ToolId, Vote> {
        self.shard(scope).read().get(scope).map(|memory| memory.votes(message, parameters)).unwrap_or_default()
    }

    /// The scopes in which a use is remembered.
    pub(super) fn holding(&self, one: &LearnedUse) -> Arc<[Scope]> {
        let is_held =
            |scope: &&Scope| self.shard(scope).read().get(*scope).is_some_and(|memory| memory.holds(&one.message.id, &one.evidence.tool));
        one.scopes.iter().filter(is_held).cloned().collect()
    }

    /// Forgets evidence. Returns how many pieces of messages were removed, over all scopes. Then, [`Self::refit`] is due.
    pub(super) fn forget(&self, forgotten: &Forgotten) -> usize {
        let mut removed = 0;
        for shard in &self.shards {
            let mut shard = shard.write();
            shard.retain(|scope, memory| {
                if forgotten.has_scope(scope) {
                    removed += memory.uses();
                    return false;
                }
                removed += memory.retain(|person: &str, evidence: &Evidence| !forgotten.has(scope, person, &evidence.tool, evidence.at));
                memory.rows() > 0
            });
        }
        removed
    }

    /// Forgets the scopes that were used least recently, until at most `most` vectors remain.
    pub(super) fn shrink_to(&self, most: usize) {
        let mut scopes: Vec<(Minute, Scope, usize)> = Vec::new();
        self.each(|scope, memory| scopes.push((memory.newest(), scope.clone(), memory.rows())));
        let mut rows: usize = scopes.iter().map(|(_, _, rows)| rows).sum();
        scopes.sort_unstable();
        for (_, scope, count) in scopes {
            if rows <= most {
                return;
            }
            self.shard(&scope).write().remove(&scope);
            rows -= count;
        }
    }

    /// Number of remembered messages. A message counts once per scope.
    pub(super) fn messages(&self) -> usize {
        let mut messages = 0;
        self.each(|_, memory| messages += memory.messages());
        messages
    }

    /// Number of remembered messages. A message counts once, also in several scopes.
    pub(super) fn distinct_messages(&self) -> usize {
        let mut messages = HashSet::new();
        self.each(|_, memory| messages.extend(memory.message_hashes()));
        messages.len()
    }

    /// Number of remembered vectors, of messages and of the words of calls. Each counts once per scope.
    pub(super) fn rows(&self) -> usize {
        let mut rows = 0;
        self.each(|_, memory| rows += memory.rows());
        rows
    }

    pub(super) fn each(&self, mut each: impl FnMut(&Scope, &Memory)) {
        for shard in &self.shards {
            shard.read().iter().for_each(|(scope, memory)| each(scope, memory));
        }
    }

    /// Calls `each` with all evidence of these scopes.
    pub(super) fn evidence(&self, is_wanted: impl Fn(&Scope) -> bool, mut each: impl FnMut(&Scope, &ToolId, EvidenceKind, Minute)) {
        self.each(|scope, memory| {
            if is_wanted(scope) {
                memory.evidence(|tool, kind, at| each(scope, tool, kind, at));
            }
        });
    }

    /// The scopes of a caller that are known by its id alone: its own, and those of all callers of the same keys.
    pub(super) fn scopes_of(&self, principal: &str) -> Vec<Scope> {
        let mut scopes = Vec::new();
        self.each(|scope, _| {
            if matches!(&scope.audience, Audience::Caller(id) if **id == *principal) {
                scopes.extend([scope.clone(), Scope { key: Arc::clone(&scope.key), audience: Audience::All }]);
            }
        });
        scopes
    }
}

/// Reports that learning starts or stops to help a scope.
fn log(scope: &Scope, memory: &Memory) {
    let gain = memory.gain().zip(memory.gain_error()).map(|(gain, error)| format!("{gain:+.3} ± {error:.3}"));
    if memory.helps() {
        tracing::info!(%scope, gain, "learning from use helps this scope");
    } else {
        tracing::info!(%scope, gain, "learning from use doesn't help this scope; with mode \"auto\" it changes nothing there");
    }
}

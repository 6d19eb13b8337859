//! The chats of all scopes, behind locks that are held for microseconds.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::co_use::{CoUse, FollowParameters, Follower, MOST_CHATS, MOST_CHATS_OF_ONE};
use crate::domain::learning::evidence::Minute;
use crate::domain::learning::proposals::{Proposals, proposals};
use crate::domain::learning::scope::Scope;
use crate::service::ports::{CalledInChat, Forgotten};

/// One memory of chats per scope.
#[derive(Default)]
pub(super) struct CoUses {
    scopes: RwLock<HashMap<Scope, Arc<RwLock<CoUse>>>>,
}

impl CoUses {
    fn of(&self, scope: &Scope) -> Option<Arc<RwLock<CoUse>>> {
        self.scopes.read().get(scope).cloned()
    }

    fn made(&self, scope: &Scope) -> Arc<RwLock<CoUse>> {
        self.of(scope).unwrap_or_else(|| {
            let make = || if scope.is_own() { CoUse::of_one() } else { CoUse::default() };
            Arc::clone(self.scopes.write().entry(scope.clone()).or_insert_with(|| Arc::new(RwLock::new(make()))))
        })
    }

    pub(super) fn add(&self, call: &CalledInChat) {
        for scope in call.scopes.iter() {
            let memory = self.made(scope);
            memory.write().add(&call.chat, &call.principal, &call.tool, Minute::of(call.at), most_of_one(scope));
        }
    }

    /// Adds a stored call where it is new.
    pub(super) fn add_new(&self, call: &CalledInChat) {
        let is_new = |scope: &&Scope| self.of(scope).is_none_or(|memory| memory.read().lacks(&call.chat, &call.tool));
        let scopes: Arc<[Scope]> = call.scopes.iter().filter(is_new).cloned().collect();
        self.add(&CalledInChat { scopes, ..call.clone() });
    }

    /// Adds stored calls, newest chat first. Old chats that don't fit are left out.
    pub(super) fn load(&self, newest_first: &[CalledInChat]) {
        for call in newest_first {
            for scope in call.scopes.iter() {
                let memory = self.made(scope);
                let mut memory = memory.write();
                if !memory.is_full_for(&call.chat, &call.principal, most_of_one(scope)) {
                    memory.add(&call.chat, &call.principal, &call.tool, Minute::of(call.at), most_of_one(scope));
                }
            }
        }
    }

    /// What mostly follows these tools in a scope.
    pub(super) fn followers(&self, scope: &Scope, anchors: &[ToolId], parameters: &FollowParameters) -> Vec<Follower> {
        self.of(scope).map(|memory| memory.read().followers(anchors, parameters)).unwrap_or_default()
    }

    /// The scopes in which a call is remembered.
    pub(super) fn holding(&self, call: &CalledInChat) -> Arc<[Scope]> {
        let is_held = |scope: &&Scope| self.of(scope).is_some_and(|memory| memory.read().holds(&call.chat, &call.tool));
        call.scopes.iter().filter(is_held).cloned().collect()
    }

    pub(super) fn forget(&self, forgotten: &Forgotten) {
        self.scopes.write().retain(|scope, memory| {
            if forgotten.has_scope(scope) {
                return false;
            }
            let mut memory = memory.write();
            memory.retain(|person: &str, tool: &ToolId, at: Minute| !forgotten.has(scope, person, tool, at));
            memory.chats() > 0
        });
    }

    /// Forgets the scopes that were used least recently, until at most `most` chats remain.
    pub(super) fn shrink_to(&self, most: usize) {
        let mut scopes: Vec<(Minute, Scope, usize)> = Vec::new();
        for (scope, memory) in self.scopes.read().iter() {
            let memory = memory.read();
            scopes.push((memory.newest(), scope.clone(), memory.chats()));
        }
        let mut chats: usize = scopes.iter().map(|(_, _, chats)| chats).sum();
        scopes.sort_unstable();
        for (_, scope, count) in scopes {
            if chats <= most {
                return;
            }
            self.scopes.write().remove(&scope);
            chats -= count;
        }
    }

    /// Number of remembered chats of each scope.
    pub(super) fn by_scope(&self) -> Vec<(Scope, usize)> {
        self.scopes.read().iter().map(|(scope, memory)| (scope.clone(), memory.read().chats())).collect()
    }

    /// The keys under which chats of a caller are remembered.
    pub(super) fn keys_of(&self, caller: &str) -> Vec<Arc<str>> {
        self.scopes.read().keys().filter(|scope| scope.caller() == Some(caller)).map(|scope| Arc::clone(&scope.key)).collect()
    }

    /// Number of remembered chats. A chat counts once per scope.
    pub(super) fn chats(&self) -> usize {
        self.scopes.read().values().map(|memory| memory.read().chats()).sum()
    }

    /// What is proposed from the chats of all callers. Each chat is in the own scope of exactly one.
    pub(super) fn proposals(&self, is_wanted: impl Fn(&ToolId) -> bool) -> Proposals {
        let own: Vec<Arc<RwLock<CoUse>>> =
            self.scopes.read().iter().filter(|(scope, _)| scope.is_own()).map(|(_, memory)| Arc::clone(memory)).collect();
        // Copies, so that neither readers nor writers wait.
        let copies: Vec<CoUse> = own.iter().map(|memory| memory.read().clone()).collect();
        proposals(copies.iter(), is_wanted)
    }
}

fn most_of_one(scope: &Scope) -> usize {
    if scope.is_own() { MOST_CHATS } else { MOST_CHATS_OF_ONE }
}

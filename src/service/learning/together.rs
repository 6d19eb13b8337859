//! Learns which tools chats call together, and how well tools answer.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::co_use::{FollowParameters, Follower};
use crate::domain::learning::evidence::Minute;
use crate::domain::learning::proposals::{Proposals, loaded_group};
use crate::domain::learning::quality::Quality;
use crate::domain::learning::scope::Scope;
use crate::domain::records::conversation::Conversation;
use crate::domain::text::canonical::Fingerprint;
use crate::service::learning::learn::Learning;
use crate::service::learning::writer::Taught;
use crate::service::ports::{CallOutcome, CalledInChat};

/// Length of the hash that replaces the id of a chat, in characters.
const SHORT: usize = 32;

impl Learning {
    /// Learns that a conversation called a tool with success.
    pub(in crate::service) fn learn_together(&self, caller: &Principal, conversation: &Conversation, tool: ToolId) {
        let scopes = Scope::of(caller);
        let Some(own) = scopes.first() else { return };
        let id = Fingerprint::of_text(&format!("{own}\n{}\n{}", conversation.kind.name(), conversation.id)).to_string();
        let id = &id[..SHORT.min(id.len())];
        let (chat, principal) = (id.into(), caller.id.as_str().into());
        let call = CalledInChat { chat, principal, scopes: scopes.into(), tool, at: SystemTime::now() };
        self.co_uses.add(&call);
        self.queue.push(Taught::Called(call));
    }

    /// Learns that a conversation loaded a group of tools.
    pub(in crate::service) fn learn_loaded(&self, caller: &Principal, conversation: &Conversation, group: &str) {
        self.learn_together(caller, conversation, loaded_group(group));
    }

    /// What mostly follows these tools in the chats from which the caller may learn: in its own chats, then in those of others. The most
    /// frequent comes first.
    pub(in crate::service) fn followers(&self, caller: &Principal, anchors: &[ToolId]) -> Vec<Follower> {
        let mut followers: Vec<Follower> = Vec::new();
        let now = Minute::of(SystemTime::now());
        for scope in Scope::of(caller) {
            let parameters = FollowParameters { people: self.people(&scope), half_life: self.settings.half_life, now };
            for follower in self.co_uses.followers(&scope, anchors, &parameters) {
                if followers.iter().all(|known| known.tool != follower.tool) {
                    followers.push(follower);
                }
            }
        }
        followers
    }

    /// What is proposed from the tools that all callers' chats called. `is_wanted` leaves out tools.
    pub fn proposals(&self, is_wanted: impl Fn(&ToolId) -> bool) -> Proposals {
        self.co_uses.proposals(is_wanted)
    }

    /// Notes how a call ended. What only the caller decides says nothing about the tool.
    pub(in crate::service) fn note_answer(&self, caller: &Principal, tool: &ToolId, outcome: CallOutcome, took: Duration) {
        let has_failed = match outcome {
            CallOutcome::Success => false,
            CallOutcome::ToolError | CallOutcome::Failed => true,
            CallOutcome::Rejected | CallOutcome::Cancelled | CallOutcome::Limited | CallOutcome::InputRequired => return,
        };
        self.qualities.add(caller, tool, has_failed, took);
    }

    /// How well tools answer a caller. `None` if nothing is known about any.
    pub(in crate::service) fn qualities(&self, caller: &Principal) -> Option<impl Fn(&ToolId) -> Option<Quality>> {
        (!self.qualities.is_empty()).then(|| self.qualities.of(caller))
    }

    /// The tools on which there is evidence in the caller's own scope.
    pub(in crate::service) fn tried(&self, caller: &Principal) -> HashSet<ToolId> {
        let mut tried = HashSet::new();
        if let Some(own) = Scope::of(caller).first() {
            self.memories.with(own, |memory| {
                memory.evidence(|tool, _, _| {
                    tried.insert(tool.clone());
                });
            });
        }
        tried
    }

    /// The share of messages for which an untried tool is offered, between 0 and 1.
    pub(in crate::service) fn explore(&self) -> f64 {
        self.settings.explore
    }
}

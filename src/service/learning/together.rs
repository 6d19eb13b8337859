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
use crate::service::learning::forgettings::Lesson;
use crate::service::learning::learn::Learning;
use crate::service::learning::writer::Taught;
use crate::service::ports::{CallOutcome, CalledInChat};

/// Length of the hash that replaces the id of a chat, in characters.
const SHORT: usize = 32;

impl Learning {
    /// Learns that a conversation called a tool with success. `since` is the number of forgettings before the call, or before the message
    /// that led to it.
    pub(in crate::service) fn learn_together(&self, caller: &Principal, conversation: &Conversation, tool: ToolId, since: u64) {
        let scopes = Scope::of(caller);
        let Some(own) = scopes.first() else { return };
        let id = Fingerprint::of_text(&format!("{own}\n{}\n{}", conversation.kind.name(), conversation.id)).to_string();
        let id = &id[..SHORT.min(id.len())];
        let (chat, principal) = (id.into(), caller.id.as_str().into());
        let call = CalledInChat { chat, principal, scopes: scopes.into(), tool, at: SystemTime::now() };
        let lesson = Lesson { person: &call.principal, scopes: &call.scopes, tool: &call.tool, at: Minute::of(call.at) };
        if self.forgettings.unless_forgotten(since, lesson, || self.co_uses.add(&call)).is_some() {
            self.queue.push(Taught::Called(call));
        }
    }

    /// Learns that a conversation loaded a group of tools.
    pub(in crate::service) fn learn_loaded(&self, caller: &Principal, conversation: &Conversation, group: &str, since: u64) {
        self.learn_together(caller, conversation, loaded_group(group), since);
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

    /// Notes how a call ended. What only the caller decides says nothing about the tool. `since` is the number of forgettings before the
    /// call.
    pub(in crate::service) fn note_answer(&self, caller: &Principal, tool: &ToolId, outcome: CallOutcome, took: Duration, since: u64) {
        let has_failed = match outcome {
            CallOutcome::Success => false,
            CallOutcome::ToolError | CallOutcome::Failed => true,
            CallOutcome::Rejected | CallOutcome::Cancelled | CallOutcome::Limited | CallOutcome::InputRequired => return,
        };
        let scopes = Scope::of(caller);
        let lesson = Lesson { person: caller.id.as_str(), scopes: &scopes, tool, at: Minute::of(SystemTime::now()) };
        self.forgettings.unless_forgotten(since, lesson, || self.qualities.add(caller, tool, has_failed, took));
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

#[cfg(test)]
pub(in crate::service) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, SystemTime};

    use async_trait::async_trait;
    use parking_lot::Mutex;
    use tokio_util::sync::CancellationToken;

    use super::Learning;
    use crate::domain::access::principal::Principal;
    use crate::domain::catalog::tool::ToolId;
    use crate::domain::learning::arguments::FilledParameters;
    use crate::domain::learning::evidence::{Evidence, EvidenceKind, Minute};
    use crate::domain::learning::scope::Scope;
    use crate::domain::learning::vector::MessageVector;
    use crate::domain::records::conversation::Conversation;
    use crate::service::ports::{
        CallOutcome, CalledInChat, EarlierUse, FilledCall, Forgotten, LearnedUse, LearningStore, StoreError, StoredScope,
    };
    use crate::settings::{LearnedArguments, LearningMode, LearningSettings};

    /// Counts what is stored.
    #[derive(Default)]
    pub(in crate::service) struct Counting {
        calls: Mutex<(usize, usize)>,
        /// Messages of another model.
        earlier: Mutex<Vec<EarlierUse>>,
        replaced: AtomicUsize,
    }

    impl Counting {
        /// With messages of another model that have these texts.
        pub(in crate::service) fn with_earlier(texts: &[&str]) -> Self {
            let evidence = Evidence { tool: ToolId::new("server", "tool"), kind: EvidenceKind::Called, at: Minute::of(SystemTime::now()) };
            let earlier = |text: &&str| EarlierUse {
                message: (*text).into(),
                text: Some((*text).to_owned()),
                rivals: [(ToolId::new("server", "other"), 2.0), (ToolId::new("server", "tool"), 1.0)].into(),
                principal: "user:a".into(),
                scopes: Scope::read("-/caller=user:a").into_iter().collect(),
                evidence: evidence.clone(),
            };
            Self { earlier: Mutex::new(texts.iter().map(earlier).collect()), ..Self::default() }
        }

        /// How often vectors were replaced.
        pub(in crate::service) fn replaced(&self) -> usize {
            self.replaced.load(Ordering::Relaxed)
        }
    }

    pub(in crate::service) fn settings() -> LearningSettings {
        LearningSettings {
            mode: LearningMode::Always,
            half_life: Duration::from_hours(24),
            group_people: 2,
            all_people: 2,
            explore: 0.0,
            arguments: LearnedArguments::Names,
            message_text: false,
        }
    }

    #[async_trait]
    impl LearningStore for Counting {
        async fn save_learned(&self, _: &str, _: &[LearnedUse]) -> Result<(), StoreError> {
            Ok(())
        }
        async fn learned(&self, _: &str, _: SystemTime, _: (usize, usize)) -> Result<Vec<LearnedUse>, StoreError> {
            Ok(Vec::new())
        }
        async fn learned_earlier(&self, _: &str, _: (usize, usize)) -> Result<Vec<EarlierUse>, StoreError> {
            Ok(self.earlier.lock().clone())
        }
        async fn replace_vectors(&self, _: &str, vectors: &[(Arc<str>, MessageVector)]) -> Result<(), StoreError> {
            self.earlier.lock().retain(|one| vectors.iter().all(|(id, _)| *id != one.message));
            self.replaced.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        async fn save_called(&self, calls: &[CalledInChat]) -> Result<(), StoreError> {
            self.calls.lock().0 += calls.len();
            Ok(())
        }
        async fn called(&self, _: SystemTime, _: (usize, usize)) -> Result<Vec<CalledInChat>, StoreError> {
            Ok(Vec::new())
        }
        async fn learned_scopes(&self) -> Result<Vec<StoredScope>, StoreError> {
            Ok(Vec::new())
        }
        async fn has_learned_from(&self, _: &Scope) -> Result<bool, StoreError> {
            Ok(false)
        }
        async fn save_filled(&self, calls: &[FilledCall]) -> Result<(), StoreError> {
            self.calls.lock().1 += calls.len();
            Ok(())
        }
        async fn filled(&self, _: Option<&ToolId>) -> Result<Vec<FilledParameters>, StoreError> {
            Ok(Vec::new())
        }
        async fn forget_learned(&self, _: &Forgotten) -> Result<u64, StoreError> {
            Ok(0)
        }
        async fn forget_again(&self, _: u64) -> Result<Vec<Forgotten>, StoreError> {
            Ok(Vec::new())
        }
    }

    /// Regression test: a call that was running while its key was revoked taught the key's chats all the same.
    #[tokio::test]
    async fn what_is_forgotten_during_a_call_is_not_learned_by_it() {
        let store = Arc::new(Counting::default());
        let stop = CancellationToken::new();
        let kept = ("model", Duration::from_hours(24));
        let (learning, writing) = Learning::start(Arc::clone(&store) as Arc<dyn LearningStore>, settings(), kept, stop.clone()).await;
        let (caller, chat, tool) = (Principal::service_key(), Conversation::chat("one"), ToolId::new("server", "tool"));
        let end = |since| {
            learning.learn_together(&caller, &chat, tool.clone(), since);
            learning.note_answer(&caller, &tool, CallOutcome::Success, Duration::from_secs(1), since);
            learning.learn_filled(&caller, &tool, &["to".to_owned()], since);
        };
        let since = learning.forgettings();
        learning.forget(&Forgotten::Caller(caller.id.clone())).await.unwrap();
        end(since);
        assert_eq!((learning.co_uses.chats(), learning.qualities.is_empty()), (0, true));
        end(learning.forgettings());
        assert!(learning.co_uses.chats() > 0 && !learning.qualities.is_empty());
        stop.cancel();
        writing.await.unwrap();
        assert_eq!(*store.calls.lock(), (1, 1), "only the second call");
    }

    /// Regression test: nobody saw what only chats had taught, although it counted.
    #[tokio::test]
    async fn scopes_of_chats_alone_are_shown() {
        let (stop, kept) = (CancellationToken::new(), ("model", Duration::from_hours(24)));
        let (learning, _) = Learning::start(Arc::new(Counting::default()), settings(), kept, stop).await;
        learning.learn_together(&Principal::service_key(), &Conversation::chat("one"), ToolId::new("server", "tool"), 0);
        let shown = learning.scopes().await.unwrap();
        let shown: Vec<(String, usize, usize, bool)> =
            shown.into_iter().map(|known| (known.scope.to_string(), known.messages, known.chats, known.on)).collect();
        assert_eq!(shown, ["-/caller=service-key", "-/all"].map(|scope| (scope.to_owned(), 0, 1, true)));
        assert_eq!(learning.state().map(|state| (state.scopes, state.on)), Some((2, 2)));
    }
}

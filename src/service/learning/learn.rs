//! Learns from uses, and lets remembered messages vote. What is learned is in memory at once, and stored soon after.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::catalog::tool::ToolId;
use crate::domain::learning::co_use::MOST_CHATS;
use crate::domain::learning::evidence::{Evidence, EvidenceKind, Minute};
use crate::domain::learning::memory::{MOST, Memory, RememberedMessage};
use crate::domain::learning::replay::Replay;
use crate::domain::learning::scope::{Audience, Scope};
use crate::domain::learning::vector::MessageVector;
use crate::domain::learning::verdict::Replayed;
use crate::domain::learning::votes::{Vote, VoteParameters, keep_most_raised};
use crate::service::learning::call_words::CallWords;
use crate::service::learning::co_uses::CoUses;
use crate::service::learning::earlier_uses::EarlierUses;
use crate::service::learning::forgettings::{Forgettings, Lesson};
use crate::service::learning::memories::Memories;
use crate::service::learning::open_message::OpenMessage;
use crate::service::learning::qualities::Qualities;
use crate::service::learning::writer::{MOST_CHATS_IN_MEMORY, MOST_IN_MEMORY, Taught, Writer};
use crate::service::ports::{Forgotten, LearnedUse, LearningStore, StoreError, StoredScope};
use crate::service::supervision::Supervised;
use crate::service::write_behind::{BatchWriter, Queue};
use crate::settings::{LearningMode, LearningSettings};

/// Number of messages that are read at the start.
pub(super) const MOST_READ: usize = 100_000;

/// Up to this many messages of a scope are learned from before the service starts. Larger scopes follow in the background.
const FITTED_AT_START: usize = 256;

/// The first replay comes soon after the start, because results are not stored.
const FIRST_REPLAY: Duration = Duration::from_mins(5);
const DAY: Duration = Duration::from_hours(24);

/// What use has taught.
#[derive(Clone)]
pub struct Learning {
    pub(super) memories: Arc<Memories>,
    /// Which tools chats call together.
    pub(super) co_uses: Arc<CoUses>,
    pub(super) qualities: Qualities,
    pub(super) queue: Queue<Taught>,
    pub(super) store: Arc<dyn LearningStore>,
    /// Embeds what calls are about; `None` if that teaches nothing.
    pub(super) words: Option<CallWords>,
    pub(super) forgettings: Forgettings,
    pub(super) earlier: Arc<EarlierUses>,
    /// Held while the store is written, so that forgotten evidence isn't stored afterwards.
    pub(super) writing: Arc<tokio::sync::Mutex<()>>,
    pub(super) settings: LearningSettings,
    pub(super) model: Arc<str>,
}

/// A finished call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used<'a> {
    pub(crate) tool: &'a ToolId,
    pub(crate) kind: EvidenceKind,
    /// The tool that was offered first, if the call surely belongs to its message.
    pub(crate) first: Option<&'a ToolId>,
}

/// A scope, for administrators.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedScope {
    pub scope: Scope,
    /// Number of messages in memory.
    pub messages: usize,
    /// Number of pieces of their evidence.
    pub uses: usize,
    /// Number of chats with calls.
    pub chats: usize,
    /// Number of stored messages, also of other models.
    pub stored: usize,
    /// Whether these uses count. What only chats taught always counts, unless learning is off.
    pub on: bool,
    /// The last replay, and its time.
    pub last_replay: Option<(SystemTime, Replayed)>,
}

/// A scope after a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayedScope {
    pub scope: Scope,
    pub replay: Replay,
    /// Whether these uses count.
    pub on: bool,
}

/// What learning does, in short.
#[derive(Clone, Debug, Serialize)]
pub struct LearningState {
    /// `auto` or `always`.
    pub mode: &'static str,
    /// Number of scopes.
    pub scopes: usize,
    /// Number of scopes whose uses count.
    pub on: usize,
    /// Number of scopes that were replayed since the start.
    pub replayed: usize,
    /// Mean nDCG@5 without learning in the last replay, over the replayed scopes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<f64>,
    /// The same with learning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<f64>,
}

/// Equal pieces of evidence on a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedEvidence {
    pub scope: Scope,
    pub kind: EvidenceKind,
    pub count: usize,
    /// The time of the newest piece.
    pub newest: SystemTime,
}

impl Learning {
    /// Reads what was learned, and starts the writer. After `stop`, it writes what is queued and ends. If learning is off, nothing is
    /// read, but stored data can still be forgotten.
    pub async fn start(
        store: Arc<dyn LearningStore>,
        settings: LearningSettings,
        (model, retention): (&str, Duration),
        stop: CancellationToken,
    ) -> (Self, JoinHandle<()>) {
        let (memories, co_uses, writing) = (Arc::<Memories>::default(), Arc::<CoUses>::default(), Arc::default());
        let forgettings = Forgettings::default();
        let model: Arc<str> = model.into();
        if settings.mode != LearningMode::Off {
            match store.learned(&model, SystemTime::UNIX_EPOCH, (MOST_READ, MOST)).await {
                Ok(uses) => {
                    memories.load(&uses);
                    memories.refit(|memory| memory.rows() <= FITTED_AT_START);
                    let rest = Arc::clone(&memories);
                    tokio::task::spawn_blocking(move || rest.refit(|memory| memory.rows() > FITTED_AT_START));
                }
                Err(error) => tracing::warn!(%error, "what was learned can't be read; learning starts anew"),
            }
            match store.called(SystemTime::UNIX_EPOCH, (MOST_CHATS_IN_MEMORY, MOST_CHATS)).await {
                Ok(calls) => co_uses.load(&calls),
                Err(error) => tracing::warn!(%error, "which tools chats called can't be read; this is learned anew"),
            }
            memories.shrink_to(MOST_IN_MEMORY);
            co_uses.shrink_to(MOST_CHATS_IN_MEMORY);
        }
        let writer = Writer {
            memories: Arc::clone(&memories),
            co_uses: Arc::clone(&co_uses),
            store: Arc::clone(&store),
            writing: Arc::clone(&writing),
            forgettings: forgettings.clone(),
            model: Arc::clone(&model),
            retention,
        };
        let (queue, task) = writer.start(stop);
        let (qualities, earlier) = (Qualities::default(), Arc::default());
        (Self { memories, co_uses, qualities, queue, store, words: None, forgettings, earlier, writing, settings, model }, task)
    }

    /// This, unless learning is off.
    pub fn if_on(&self) -> Option<Self> {
        (self.settings.mode != LearningMode::Off).then(|| self.clone())
    }

    /// The model whose vectors are compared.
    pub fn model(&self) -> &str {
        &self.model
    }

    pub fn mode(&self) -> LearningMode {
        self.settings.mode
    }

    /// How often something was forgotten since the start. What begins now teaches nothing that is forgotten before it ends.
    pub(in crate::service) fn forgettings(&self) -> u64 {
        self.forgettings.count()
    }

    /// Lets later calls and verdicts teach from a caller's message.
    pub(crate) fn open(&self, caller: &Principal, message: RememberedMessage) -> OpenMessage {
        OpenMessage { message, owner: Scope::of(caller).into_iter().next(), since: self.forgettings.count() }
    }

    /// Learns from a finished call after a message, for the caller or the user of the chat.
    pub(crate) fn learn_call(&self, caller: &Principal, message: &OpenMessage, used: &Used<'_>) {
        self.learn_used((&caller.id, &Scope::of(caller)), message, used);
    }

    /// Learns from a finished call, or from a verdict, for a caller with these scopes.
    pub(in crate::service) fn learn_used(&self, caller: (&PrincipalId, &[Scope]), message: &OpenMessage, used: &Used<'_>) {
        let Used { tool, kind, first } = *used;
        self.learn_for(caller, message, tool.clone(), kind);
        if let Some(first) = first.filter(|first| *first != tool && matches!(kind, EvidenceKind::Called | EvidenceKind::Found)) {
            self.learn_for(caller, message, first.clone(), EvidenceKind::PassedOver);
        }
    }

    /// Learns from what happened to a tool after a message. What was forgotten since the message isn't learned again.
    pub(in crate::service) fn learn(&self, principal: &Principal, message: &OpenMessage, tool: ToolId, kind: EvidenceKind) {
        self.learn_for((&principal.id, &Scope::of(principal)), message, tool, kind);
    }

    /// Learns for a caller with these scopes.
    pub(super) fn learn_for(&self, (caller, scopes): (&PrincipalId, &[Scope]), message: &OpenMessage, tool: ToolId, kind: EvidenceKind) {
        let Some(own) = scopes.first() else { return };
        let (since, message) = (message.since, message.of(own));
        let evidence = Evidence { tool, kind, at: Minute::of(SystemTime::now()) };
        let one = LearnedUse { message, principal: caller.as_str().into(), scopes: scopes.into(), evidence };
        let lesson = Lesson { person: &one.principal, scopes: &one.scopes, tool: &one.evidence.tool, at: one.evidence.at };
        if self.forgettings.unless_forgotten(since, lesson, || self.memories.add(&one)).is_some() {
            self.queue.push(Taught::Use(one));
        }
    }

    /// Learns again where much has changed. The writer does the same soon after each use.
    pub(crate) fn refit(&self) {
        self.memories.refit(Memory::is_due);
    }

    /// The votes of what a caller may learn from, for a message.
    pub(in crate::service) fn votes(&self, principal: &Principal, message: &MessageVector) -> HashMap<ToolId, Vote> {
        self.votes_of(&Scope::of(principal), message)
    }

    /// Number of people who must agree in a scope.
    pub(super) fn people(&self, scope: &Scope) -> usize {
        match scope.audience {
            Audience::Caller(_) => 1,
            Audience::Group(_) => self.settings.group_people,
            Audience::All => self.settings.all_people,
        }
    }

    /// The votes of the own scope, plus the stronger vote of the others.
    fn votes_of(&self, scopes: &[Scope], message: &MessageVector) -> HashMap<ToolId, Vote> {
        let (mut own, mut shared) = (HashMap::<ToolId, Vote>::new(), HashMap::<ToolId, Vote>::new());
        for scope in scopes {
            let votes = if scope.is_own() { &mut own } else { &mut shared };
            let parameters = VoteParameters {
                people: self.people(scope),
                half_life: self.settings.half_life,
                now: Minute::of(SystemTime::now()),
                must_help: self.settings.mode == LearningMode::Auto,
            };
            for (tool, vote) in self.memories.votes(scope, message, &parameters) {
                let known = votes.entry(tool).or_default();
                if vote.delta.abs() > known.delta.abs() {
                    *known = vote;
                }
            }
        }
        keep_most_raised(&mut shared);
        for (tool, vote) in shared {
            let known = own.entry(tool).or_default();
            *known = known.with(vote);
        }
        own
    }

    /// The votes for a message of a caller that is known only by its id. Its groups don't count.
    pub fn votes_for(&self, principal: &str, message: &MessageVector) -> HashMap<ToolId, Vote> {
        self.votes_of(&self.memories.scopes_of(principal), message)
    }

    /// The key under which everything is remembered that this caller taught: the id of a named key, or `-`. `None` if there are several, or
    /// if nothing is remembered.
    pub(crate) fn only_key_of(&self, caller: &PrincipalId) -> Option<Arc<str>> {
        let of_messages = self.memories.scopes_of(caller.as_str()).into_iter().map(|scope| scope.key);
        let keys: BTreeSet<Arc<str>> = of_messages.chain(self.co_uses.keys_of(caller.as_str())).collect();
        keys.first().filter(|_| keys.len() == 1).cloned()
    }

    /// All scopes for which something is in memory or in the store, ordered by name.
    ///
    /// # Errors
    /// The store fails.
    pub async fn scopes(&self) -> Result<Vec<LearnedScope>, StoreError> {
        let stored = self.store.learned_scopes().await?;
        let mut scopes: BTreeMap<Scope, LearnedScope> = BTreeMap::new();
        self.memories.each(|scope, memory| {
            let last_replay = memory.last_replay().map(|(at, replayed)| (at.time(), replayed));
            let (messages, uses, on) = (memory.messages(), memory.uses(), self.is_on(memory));
            let known = LearnedScope { scope: scope.clone(), messages, uses, chats: 0, stored: messages, on, last_replay };
            scopes.insert(scope.clone(), known);
        });
        let none = |scope: &Scope, on: bool| {
            let scope = scope.clone();
            LearnedScope { scope, messages: 0, uses: 0, chats: 0, stored: 0, on, last_replay: None }
        };
        for (scope, chats) in self.co_uses.by_scope() {
            scopes.entry(scope.clone()).or_insert_with(|| none(&scope, true)).chats = chats;
        }
        // What was learned just now may not be stored yet, and what was stored may not be in memory.
        for StoredScope { scope, messages, chats } in stored {
            let known = scopes.entry(scope.clone()).or_insert_with(|| none(&scope, false));
            known.stored = known.stored.max(usize::try_from(messages).unwrap_or(usize::MAX));
            known.chats = known.chats.max(usize::try_from(chats).unwrap_or(usize::MAX));
        }
        Ok(scopes.into_values().collect())
    }

    /// Whether something is stored that the caller of this scope taught with its key, also if it doesn't count now.
    ///
    /// # Errors
    /// The store fails.
    pub async fn keeps(&self, own: &Scope) -> Result<bool, StoreError> {
        self.store.has_learned_from(own).await
    }

    fn is_on(&self, memory: &Memory) -> bool {
        match self.settings.mode {
            LearningMode::Off => false,
            LearningMode::Always => true,
            LearningMode::Auto => memory.helps(),
        }
    }

    /// What learning does. `None` if it is off.
    pub(crate) fn state(&self) -> Option<LearningState> {
        if self.settings.mode == LearningMode::Off {
            return None;
        }
        let (mut scopes, mut on, mut figures) = (0, 0, Vec::new());
        self.memories.each(|_, memory| {
            scopes += 1;
            on += usize::from(self.is_on(memory));
            figures.extend(memory.last_replay().map(|(_, replayed)| (replayed.before, replayed.after)));
        });
        for (scope, _) in self.co_uses.by_scope() {
            // What only chats taught always counts.
            let is_more = usize::from(self.memories.with(&scope, |_| ()).is_none());
            (scopes, on) = (scopes + is_more, on + is_more);
        }
        let mean =
            |value: fn(&(f64, f64)) -> f64| (!figures.is_empty()).then(|| figures.iter().map(value).sum::<f64>() / figures.len() as f64);
        let (before, after) = (mean(|pair| pair.0), mean(|pair| pair.1));
        Some(LearningState { mode: self.settings.mode.name(), scopes, on, replayed: figures.len(), before, after })
    }

    /// Replays what callers' own scopes remember. With `mode = "auto"`, the result decides which of them count. A scope with too few
    /// uses stays as it is.
    pub async fn replay(&self) -> Vec<ReplayedScope> {
        let memories = Arc::clone(&self.memories);
        let replays = tokio::task::spawn_blocking(move || memories.replay()).await.unwrap_or_default();
        let shown = |(scope, replay): (Scope, Replay)| {
            let on = self.memories.with(&scope, |memory| self.is_on(memory)).unwrap_or_default();
            ReplayedScope { scope, replay, on }
        };
        replays.into_iter().map(shown).collect()
    }

    /// Replays every night, until `stop`.
    pub fn replay_nightly(&self, stop: CancellationToken) -> JoinHandle<()> {
        let learning = self.clone();
        tokio::spawn(async move {
            let mut part = Supervised::new("replays of learning");
            while part.panicked(learning.replay_repeatedly(&stop)).await {}
        })
    }

    async fn replay_repeatedly(&self, stop: &CancellationToken) {
        if self.settings.mode == LearningMode::Off {
            return;
        }
        let mut pause = FIRST_REPLAY;
        while stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
            self.replay().await;
            pause = DAY;
        }
    }

    /// Number of remembered messages. A message counts once per scope.
    pub fn messages(&self) -> usize {
        self.memories.messages()
    }

    /// Number of remembered messages. A message counts once, also in several scopes.
    pub fn distinct_messages(&self) -> usize {
        self.memories.distinct_messages()
    }

    /// Number of uses that were not stored since the start, because the store was slow or failed.
    pub fn lost(&self) -> u64 {
        self.queue.lost()
    }

    /// The evidence on a tool, in the scopes of this caller if one is given.
    pub fn evidence(&self, tool: &ToolId, principal: Option<&str>) -> Vec<LearnedEvidence> {
        let scopes = principal.map(|principal| self.memories.scopes_of(principal));
        let mut found: BTreeMap<(Scope, EvidenceKind), (usize, Minute)> = BTreeMap::new();
        let is_wanted = |scope: &Scope| scopes.as_ref().is_none_or(|scopes| scopes.contains(scope));
        self.memories.evidence(is_wanted, |scope, known, kind, at| {
            if known == tool {
                let (count, newest) = found.entry((scope.clone(), kind)).or_default();
                *count += 1;
                *newest = (*newest).max(at);
            }
        });
        let evidence = |((scope, kind), (count, newest)): ((Scope, EvidenceKind), (usize, Minute))| LearnedEvidence {
            scope,
            kind,
            count,
            newest: newest.time(),
        };
        found.into_iter().map(evidence).collect()
    }

    /// Forgets evidence, in memory and in the store. Returns the number of stored pieces. Other services follow with `refresh`.
    ///
    /// # Errors
    /// The store fails. Then the evidence is forgotten until the next start.
    pub async fn forget(&self, forgotten: &Forgotten) -> Result<u64, StoreError> {
        let _writing = self.writing.lock().await;
        self.forget_in_memory(forgotten);
        self.store.forget_learned(forgotten).await
    }

    /// Forgets what other services have forgotten with a later change than this one. In the store, this service may have stored some of it
    /// again meanwhile.
    pub(in crate::service) async fn refresh(&self, after: u64) -> Result<(), StoreError> {
        let _writing = self.writing.lock().await;
        for forgotten in self.store.forget_again(after).await? {
            self.forget_in_memory(&forgotten);
        }
        Ok(())
    }

    /// Only while nothing is stored: what is queued is not stored any more, because it isn't in memory, or because it was counted before.
    fn forget_in_memory(&self, forgotten: &Forgotten) {
        self.forgettings.note(forgotten);
        self.memories.forget(forgotten);
        self.memories.refit_soon();
        self.co_uses.forget(forgotten);
        self.qualities.forget(forgotten);
        self.earlier.forget(forgotten);
    }
}

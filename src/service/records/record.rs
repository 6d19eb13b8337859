//! Records events, written behind, and links each to the preceding selection.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use moka::sync::Cache;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::domain::access::api_key::KeyId;
use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::catalog::tool::{Tool, ToolId};
use crate::domain::learning::arguments::CallArguments;
use crate::domain::learning::evidence::EvidenceKind;
use crate::domain::learning::memory::RememberedMessage;
use crate::domain::learning::scope::Scope;
use crate::domain::learning::vector::MessageVector;
use crate::domain::records::conversation::Conversation;
use crate::service::caller::CallerContext;
use crate::service::leading::Leading;
use crate::service::learning::learn::{Learning, Used};
use crate::service::learning::open_message::OpenMessage;
use crate::service::ports::{
    Attribution, CallOutcome, EventMessage, EventStore, FollowedName, SelectionEvent, SelectionEventKind, Spool, SpoolState, StoreError,
    Unfollowed, Verdict,
};
use crate::service::records::last_selections::{LastSelection, LastSelections, Lesson, Place, key_of};
use crate::service::records::metrics::{Meters, SearchKind};
use crate::service::records::spooled_events;
use crate::service::records::spooling::{Kind, SaveBatch, Spooling};
use crate::service::write_behind::{BatchWriter, Queue};
use crate::settings::UsageSettings;

/// Maximum number of characters recorded per message, if texts are recorded.
const MAX_TEXT_CHARACTERS: usize = 4_000;

/// A call that ended.
pub(in crate::service) struct FinishedCall {
    pub(in crate::service) tool: ToolId,
    pub(in crate::service) outcome: CallOutcome,
    /// Whether the call says whether the tool was the right one.
    pub(in crate::service) teaches: bool,
    pub(in crate::service) took: Duration,
    /// The number of forgettings before it. What is forgotten while it runs isn't learned again.
    pub(in crate::service) since: u64,
    /// What the arguments teach; `None` for nothing.
    pub(in crate::service) arguments: Option<CallArguments>,
}

/// Queues events without waiting.
#[derive(Clone)]
pub struct Recorder {
    queue: Queue<SelectionEvent>,
    spooling: Arc<Spooling<SelectionEvent>>,
    last: LastSelections,
    meters: Arc<Meters>,
    keeps_text: bool,
    usage: Arc<ArcSwap<UsageSettings>>,
    learning: Option<Learning>,
    searches: LastSearches,
}

/// The last search of each conversation without a selection. A call after it is evidence.
type LastSearches = Cache<SearchKey, OpenMessage>;
/// With the id of the caller's key, if it has one: users of different keys never meet.
type SearchKey = (Option<KeyId>, PrincipalId, Conversation);

/// Maximum number of remembered searches.
const SEARCHES: u64 = 10_000;
/// How often to learn from other services.
const OTHERS: Duration = Duration::from_secs(5);
/// How long a call may follow a search.
const SEARCH_IDLE: Duration = Duration::from_hours(2);

impl Recorder {
    /// Starts the writer. After `stop`, it writes the queued events and ends. Without a spool, events are lost while the store is
    /// away. Only the leading service deletes old events.
    pub fn start(
        store: Arc<dyn EventStore>,
        spool: Option<Arc<dyn Spool>>,
        (retention, leading): (Retention, Leading),
        stop: CancellationToken,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let saving = Arc::clone(&store);
        let save: SaveBatch<SelectionEvent> = Box::new(move |batch, events| {
            let store = Arc::clone(&saving);
            Box::pin(async move { store.record_once(batch, events).await })
        });
        let kind = Kind { name: "record of use", save, encode: spooled_events::encode, decode: spooled_events::decode };
        let (spooling, _) = Spooling::start(kind, spool, stop.clone());
        let (queue, writing) = Writer { store, spooling: Arc::clone(&spooling), retention, leading }.start(stop);
        let searches = Cache::builder().max_capacity(SEARCHES).time_to_idle(SEARCH_IDLE).build();
        let (last, meters, usage) = (LastSelections::default(), Arc::default(), Arc::default());
        (Self { queue, spooling, last, meters, keeps_text: false, usage, learning: None, searches }, writing)
    }

    /// Also counts the events with these metrics.
    #[must_use]
    pub fn with_meters(self, meters: Arc<Meters>) -> Self {
        Self { meters, ..self }
    }

    /// Sets whether the texts of messages are recorded.
    #[must_use]
    pub fn with_texts(self, keeps_text: bool) -> Self {
        Self { keeps_text, ..self }
    }

    /// Sets whose usage is summed up separately, besides the sums over all callers.
    #[must_use]
    pub fn with_usage(self, usage: Arc<ArcSwap<UsageSettings>>) -> Self {
        Self { usage, ..self }
    }

    /// Also learns from the events.
    #[must_use]
    pub fn with_learning(self, learning: Option<Learning>) -> Self {
        Self { learning, ..self }
    }

    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Number of events dropped since the start, because the store was slow or failed.
    pub fn lost(&self) -> u64 {
        self.queue.lost() + self.spooling.lost()
    }

    /// What waits on the disk.
    pub(crate) fn spool(&self) -> SpoolState {
        self.spooling.state()
    }

    pub fn record(&self, event: SelectionEvent) {
        self.queue.push(event);
    }

    /// Records a selection, so that later events can refer to it.
    pub(in crate::service) fn record_selection(
        &self,
        mut event: SelectionEvent,
        principal: &Principal,
        (message, lesson): (Option<&str>, Lesson),
    ) {
        if let (Some(id), SelectionEventKind::Offered { tools, .. }) = (&event.selection, &mut event.kind) {
            *tools = self.last.shared(std::mem::take(tools));
            self.last.remember(principal, id, Place::of(event.chat.as_deref(), message).as_ref(), (tools, lesson));
        }
        self.record(event);
    }

    /// The selection that precedes an event: the one that the caller identifies, otherwise the last one of its message or chat.
    pub(super) fn followed(&self, caller: &CallerContext) -> Option<Arc<LastSelection>> {
        let place = Place::of(caller.chat.as_deref(), caller.message.as_deref());
        self.last.of(&caller.principal, caller.selection.as_deref(), place.as_ref())
    }

    /// Whether calls teach something.
    pub(in crate::service) fn learns(&self) -> bool {
        self.learning.is_some()
    }

    /// How often something was forgotten since the start.
    pub(in crate::service) fn forgettings(&self) -> u64 {
        self.learning.as_ref().map_or(0, Learning::forgettings)
    }

    /// What calls after a selection may teach. A message that depends on earlier turns (`leans`) teaches nothing by itself, so the chat's
    /// message before it counts.
    pub(in crate::service) fn lesson(
        &self,
        (principal, chat): (&Principal, Option<&str>),
        (id, vector, leans): (&str, Option<&[f32]>, bool),
        (first, rivals): (Option<ToolId>, Arc<[(ToolId, f32)]>),
    ) -> Lesson {
        let Some(learning) = &self.learning else { return Lesson::default() };
        let message = if leans {
            self.last.of(principal, None, Place::of(chat, None).as_ref()).and_then(|before| before.lesson.message.clone())
        } else {
            vector.and_then(MessageVector::of).map(|vector| learning.open(principal, RememberedMessage { id: id.into(), vector, rivals }))
        };
        if message.is_none() && !leans {
            tracing::debug!(selection = id, "the message has no vector, so it teaches nothing");
        }
        Lesson { message, first, since: learning.forgettings() }
    }

    /// Records a search with its results, best first. `vector` is the vector of its only query.
    pub(in crate::service) fn searched(
        &self,
        kind: SearchKind,
        caller: &CallerContext,
        (message, vector): (EventMessage, Option<Arc<[f32]>>),
        tools: Vec<ToolId>,
    ) {
        self.meters.search(kind);
        let followed = self.followed(caller);
        if let Some(learning) = &self.learning
            && followed.as_ref().is_none_or(|selection| selection.lesson.message.is_none())
            && let Some(vector) = vector.as_deref().and_then(MessageVector::of)
            && let Some(conversation) = caller.conversation()
        {
            let message = RememberedMessage { id: Uuid::now_v7().to_string().into(), vector, rivals: [].into() };
            self.searches.insert(search_key(&caller.principal, conversation), learning.open(&caller.principal, message));
        }
        let recovered = followed.as_ref().zip(tools.first()).is_some_and(|(selection, best)| !selection.offered(best));
        self.record(self.event(caller, followed.as_deref(), SelectionEventKind::Searched { message, tools, recovered }));
    }

    /// Records a finished call.
    pub(in crate::service) fn record_call(
        &self,
        caller: &CallerContext,
        FinishedCall { tool, outcome, teaches, took, since, arguments }: FinishedCall,
    ) {
        let followed = self.followed(caller);
        let mut arguments = arguments.filter(|_| outcome == CallOutcome::Success);
        let recovered = followed.as_ref().is_some_and(|selection| !selection.offered(&tool));
        self.meters.call(&tool, outcome, took, recovered);
        if teaches {
            let words = arguments.as_mut().and_then(|arguments| arguments.text.take());
            self.learn(caller, followed.as_deref(), (&tool, outcome), words);
        }
        if let Some(learning) = &self.learning {
            let person = person(caller, followed.as_deref());
            learning.note_answer(person, &tool, outcome, took, since);
            let since = self.begun(caller, followed.as_deref()).map_or(since, |begun| begun.min(since));
            if let Some(arguments) = arguments {
                learning.learn_filled(person, &tool, &arguments.filled, since);
            }
            if let Some(conversation) = caller.conversation().filter(|_| teaches && outcome == CallOutcome::Success) {
                learning.learn_together(person, &conversation, tool.clone(), since);
            }
        }
        self.record(self.event(caller, followed.as_deref(), SelectionEventKind::Called { tool, outcome, took, recovered }));
    }

    /// What the arguments of a call teach; `None` if they teach nothing.
    pub(in crate::service) fn read_arguments(&self, tool: &Tool, arguments: &str) -> Option<CallArguments> {
        self.learning.as_ref()?.read_arguments(tool, arguments)
    }

    /// Learns from a call. `words`: those of its arguments, if it had success.
    fn learn(
        &self,
        caller: &CallerContext,
        followed: Option<&LastSelection>,
        (tool, outcome): (&ToolId, CallOutcome),
        words: Option<String>,
    ) {
        let Some(learning) = &self.learning else { return };
        let of_search = || self.last_search(caller);
        let of_selection = followed.and_then(|selection| selection.lesson.message.clone());
        let is_of_search = of_selection.is_none();
        let kind = match outcome {
            CallOutcome::Success => EvidenceKind::Called,
            CallOutcome::Rejected => EvidenceKind::Invalid,
            CallOutcome::ToolError => EvidenceKind::Failed,
            CallOutcome::Failed | CallOutcome::Cancelled | CallOutcome::Limited | CallOutcome::InputRequired => return,
        };
        let Some(mut message) = of_selection.or_else(of_search) else {
            if let Some(name) = followed.is_none().then(|| followed_name(caller)).flatten() {
                learning.leave(&caller.principal, name, tool.clone(), kind);
            }
            return;
        };
        let kind = kind_of(kind, tool, followed);
        // Without a chat, nobody knows which of several calls belong to the message.
        if caller.chat.is_none() {
            message.message.rivals = [].into();
        }
        let is_sure = caller.chat.is_some() && !is_of_search;
        let first = followed.filter(|_| is_sure).and_then(|selection| selection.lesson.first.as_ref());
        let person = person(caller, followed);
        learning.learn_call(person, &message, &Used { tool, kind, first });
        if let Some(words) = words {
            learning.learn_words(person, &message, (tool, kind), words);
        }
    }

    /// Learns from a caller's verdict on a selection. Selections that no service has in memory teach nothing.
    pub(super) fn learn_verdict(&self, caller: &CallerContext, selection: &str, (tool, verdict): (&ToolId, Verdict)) {
        let Some(learning) = &self.learning else { return };
        let kind = match verdict {
            Verdict::Helpful => EvidenceKind::Helpful,
            Verdict::Wrong => EvidenceKind::Wrong,
            Verdict::Missing => EvidenceKind::Missing,
        };
        let Some(followed) = self.followed(caller) else {
            return learning.leave(&caller.principal, FollowedName::Selection(selection.to_owned()), tool.clone(), kind);
        };
        if let Some(message) = &followed.lesson.message {
            learning.learn(person(caller, Some(&followed)), message, tool.clone(), kind);
        }
    }

    /// Learns what other services on the same store learn, until somebody stops waiting for it. Returns at once if there can't be any.
    pub(crate) async fn learn_from_others(&self) {
        let Some(learning) = self.learning.as_ref().filter(|learning| learning.is_shared()) else { return };
        let (mut taken_over, mut has_failed) = (SystemTime::now(), false);
        loop {
            tokio::time::sleep(OTHERS).await;
            let begun = SystemTime::now();
            let done = async {
                self.learn_left(learning).await?;
                learning.take_over(taken_over).await
            };
            match done.await {
                Ok(()) => {
                    taken_over = begun;
                    has_failed = false;
                }
                Err(error) if has_failed => tracing::debug!(%error, "still nothing is learned from other services"),
                Err(error) => {
                    has_failed = true;
                    tracing::warn!(%error, "until the store can be read again, nothing is learned from other services");
                }
            }
        }
    }

    /// Learns from calls and verdicts at other services on selections of this one.
    async fn learn_left(&self, learning: &Learning) -> Result<(), StoreError> {
        let mut mine: HashMap<i64, (Unfollowed, Arc<LastSelection>)> = HashMap::new();
        for (number, left) in learning.left().await? {
            if let Some(selection) = self.last.left(&left).filter(|selection| selection.lesson.message.is_some()) {
                mine.insert(number, (left, selection));
            }
        }
        let numbers: Vec<i64> = mine.keys().copied().collect();
        for number in learning.take_left(&numbers).await? {
            let Some((left, selection)) = mine.remove(&number) else { continue };
            let Some(message) = &selection.lesson.message else { continue };
            let used =
                Used { tool: &left.tool, kind: kind_of(left.kind, &left.tool, Some(&selection)), first: selection.lesson.first.as_ref() };
            match selection.user.as_deref().filter(|_| left.vouches) {
                Some(user) => learning.learn_used((&user.id, &Scope::of(user)), message, &used),
                None => learning.learn_used((&left.principal, &left.scopes), message, &used),
            }
        }
        Ok(())
    }

    /// Records that a conversation loaded, unloaded or listed tools. Does nothing without a conversation.
    pub(in crate::service) fn of_conversation(&self, caller: &CallerContext, kind: SelectionEventKind) {
        if caller.conversation().is_some() {
            self.record(self.event(caller, None, kind));
        }
    }

    /// Learns that a conversation loaded a group of tools. `since` is the number of forgettings before the request.
    pub(in crate::service) fn loaded(&self, caller: &CallerContext, group: &str, since: u64) {
        if let (Some(learning), Some(conversation)) = (&self.learning, caller.conversation()) {
            let followed = self.followed(caller);
            let since = self.begun(caller, followed.as_deref()).map_or(since, |begun| begun.min(since));
            learning.learn_loaded(person(caller, followed.as_deref()), &conversation, group, since);
        }
    }

    /// The last search of a conversation without a selection.
    fn last_search(&self, caller: &CallerContext) -> Option<OpenMessage> {
        self.searches.get(&search_key(&caller.principal, caller.conversation()?))
    }

    /// The number of forgettings before the selection or the search that an event follows. A call after a forgetting must not teach again
    /// what the caller did before it.
    fn begun(&self, caller: &CallerContext, followed: Option<&LastSelection>) -> Option<u64> {
        let of_search = || self.last_search(caller).map(|message| message.since());
        followed.map(|selection| selection.lesson.since).or_else(of_search)
    }

    /// Creates an event for a caller, linked to the preceding selection.
    fn event(&self, caller: &CallerContext, followed: Option<&LastSelection>, kind: SelectionEventKind) -> SelectionEvent {
        SelectionEvent {
            at: SystemTime::now(),
            selection: followed.map(|selection| selection.id.to_string()),
            principal: caller.principal.id.as_str().to_owned(),
            key: caller.principal.key_id().map(str::to_owned),
            chat: caller.chat.clone(),
            conversation: caller.conversation(),
            attribution: self.attribution(&caller.principal),
            kind,
        }
    }

    /// The groups and the user to which a caller's events are attributed.
    pub(in crate::service) fn attribution(&self, principal: &Principal) -> Attribution {
        Attribution::of(principal, self.usage.load().by)
    }

    /// A message in the form in which it is recorded.
    pub(in crate::service) fn message(&self, text: &str) -> EventMessage {
        let end = text.char_indices().nth(MAX_TEXT_CHARACTERS).map_or(text.len(), |(at, _)| at);
        EventMessage { text: self.keeps_text.then(|| text[..end].to_owned()) }
    }
}

/// What a caller follows, for other services.
fn followed_name(caller: &CallerContext) -> Option<FollowedName> {
    let by_message = || Some(FollowedName::Message(caller.chat.clone()?, caller.message.clone()?));
    caller.selection.clone().map(FollowedName::Selection).or_else(by_message)
}

/// What a call says about a tool after a selection.
fn kind_of(kind: EvidenceKind, tool: &ToolId, followed: Option<&LastSelection>) -> EvidenceKind {
    let was_offered = followed.is_some_and(|selection| selection.offered(tool));
    if kind == EvidenceKind::Called && !was_offered { EvidenceKind::Found } else { kind }
}

fn search_key(principal: &Principal, conversation: Conversation) -> SearchKey {
    (key_of(principal), principal.id.clone(), conversation)
}

/// The person whose message a call or a verdict follows: the caller, unless it is a key that names no user, but named one when it selected.
fn person<'a>(caller: &'a CallerContext, followed: Option<&'a LastSelection>) -> &'a Principal {
    let named = followed.filter(|_| caller.principal.vouches).and_then(|selection| selection.user.as_deref());
    named.unwrap_or(&caller.principal)
}

/// How long each kind of record is kept.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    pub chats: Duration,
    pub events: Duration,
    /// How long sums over events are kept.
    pub usage: Duration,
}

struct Writer {
    store: Arc<dyn EventStore>,
    spooling: Arc<Spooling<SelectionEvent>>,
    retention: Retention,
    leading: Leading,
}

impl BatchWriter for Writer {
    type Item = SelectionEvent;

    const NAME: &str = "record of use";
    const CAPACITY: usize = 16_384;
    /// With many events per transaction, a call costs next to nothing.
    const BATCH: usize = 4_096;
    const GATHER: Duration = Duration::from_millis(500);

    fn report_lost(&self, lost: u64, _reason: Option<&StoreError>) {
        tracing::warn!(lost, "selection events were lost: the store fails or is too slow");
    }

    async fn save(&self, batch: &[SelectionEvent]) -> Result<(), Option<StoreError>> {
        // The log contains the reason already.
        if self.spooling.save(batch).await { Ok(()) } else { Err(None) }
    }

    async fn forget(&self) {
        if !self.leading.leads() {
            return;
        }
        let before = |age: Duration| SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        match self.store.forget_before(before(self.retention.chats), before(self.retention.events)).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "chats and events past their retention were removed"),
            Err(error) => tracing::warn!(error = %error, "old chats and events were not removed"),
        }
        if let Err(error) = self.store.forget_usage_before(before(self.retention.usage)).await {
            tracing::warn!(error = %error, "old usage was not removed");
        }
    }
}

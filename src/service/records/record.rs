//! Records events, written behind, and links each to the preceding selection.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::ToolId;
use crate::service::caller::CallerContext;
use crate::service::ports::{Attribution, CallOutcome, EventMessage, EventStore, SelectionEvent, SelectionEventKind};
use crate::service::records::last_selections::{LastSelection, LastSelections};
use crate::service::records::metrics::{Meters, SearchKind};
use crate::service::records::write_behind::{BatchWriter, Queue};
use crate::settings::UsageSettings;

/// Maximum number of characters recorded per message, if texts are recorded.
const MAX_TEXT_CHARACTERS: usize = 4_000;

/// Queues events without waiting.
#[derive(Clone)]
pub struct Recorder {
    queue: Queue<SelectionEvent>,
    last: LastSelections,
    meters: Arc<Meters>,
    keeps_text: bool,
    usage: Arc<ArcSwap<UsageSettings>>,
}

impl Recorder {
    /// Starts the writer. After `stop`, it writes the queued events and ends.
    pub fn start(store: Arc<dyn EventStore>, retention: Retention, stop: CancellationToken) -> (Self, tokio::task::JoinHandle<()>) {
        let (queue, writing) = Writer { store, retention }.start(stop);
        (Self { queue, last: LastSelections::default(), meters: Arc::default(), keeps_text: false, usage: Arc::default() }, writing)
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

    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Number of events dropped since the start, because the store was slow or failed.
    pub fn lost(&self) -> u64 {
        self.queue.lost()
    }

    pub fn record(&self, event: SelectionEvent) {
        self.queue.push(event);
    }

    /// Records a selection, so that later events can refer to it.
    pub(in crate::service) fn record_selection(&self, mut event: SelectionEvent, principal: &Principal) {
        if let (Some(id), SelectionEventKind::Offered { tools, .. }) = (&event.selection, &mut event.kind) {
            *tools = self.last.shared(std::mem::take(tools));
            self.last.remember(principal, id, event.chat.as_deref(), tools);
        }
        self.record(event);
    }

    /// The selection that precedes an event: the one that the caller identifies, otherwise the last one of its chat.
    pub(super) fn followed(&self, caller: &CallerContext) -> Option<Arc<LastSelection>> {
        self.last.of(&caller.principal, caller.selection.as_deref(), caller.chat.as_deref())
    }

    /// Records a search with its results, best first.
    pub(in crate::service) fn searched(&self, kind: SearchKind, caller: &CallerContext, message: EventMessage, tools: Vec<ToolId>) {
        self.meters.search(kind);
        let followed = self.followed(caller);
        let recovered = followed.as_ref().zip(tools.first()).is_some_and(|(selection, best)| !selection.offered(best));
        self.record(self.event(caller, followed.as_deref(), SelectionEventKind::Searched { message, tools, recovered }));
    }

    /// Records a finished call.
    pub(in crate::service) fn record_call(&self, caller: &CallerContext, tool: ToolId, outcome: CallOutcome, took: Duration) {
        let followed = self.followed(caller);
        let recovered = followed.as_ref().is_some_and(|selection| !selection.offered(&tool));
        self.meters.call(&tool, outcome, took, recovered);
        self.record(self.event(caller, followed.as_deref(), SelectionEventKind::Called { tool, outcome, took, recovered }));
    }

    /// Records that a conversation loaded, unloaded or listed tools. Does nothing without a conversation.
    pub(in crate::service) fn of_conversation(&self, caller: &CallerContext, kind: SelectionEventKind) {
        if caller.conversation().is_some() {
            self.record(self.event(caller, None, kind));
        }
    }

    /// Creates an event for a caller, linked to the preceding selection.
    fn event(&self, caller: &CallerContext, followed: Option<&LastSelection>, kind: SelectionEventKind) -> SelectionEvent {
        SelectionEvent {
            at: SystemTime::now(),
            selection: followed.map(|selection| selection.id.to_string()),
            principal: caller.principal.id.as_str().to_owned(),
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
    retention: Retention,
}

impl BatchWriter for Writer {
    type Item = SelectionEvent;

    const NAME: &str = "record of use";
    const CAPACITY: usize = 16_384;
    /// With many events per transaction, a call costs next to nothing.
    const BATCH: usize = 4_096;
    const GATHER: Duration = Duration::from_millis(500);

    fn report_lost(lost: u64) {
        tracing::warn!(lost, "selection events were lost: the store fails or is too slow");
    }

    async fn save(&self, batch: &[SelectionEvent]) -> bool {
        let saved = self.store.record(batch).await;
        saved.inspect_err(|error| tracing::warn!(error = %error, "selection events were not stored")).is_ok()
    }

    async fn forget(&self) {
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

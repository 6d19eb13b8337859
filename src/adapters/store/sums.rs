//! Computes what a batch of events adds to the sums per day and conversation, identically for every database.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::encoding::{DAY, to_millis};
use crate::domain::catalog::tool::ToolId;
use crate::domain::records::conversation::ConversationKind;
use crate::domain::records::costs::{CostCounts, CostScope, Purpose};
use crate::domain::records::usage::LatencyBucket;
use crate::domain::selection::experiment::Arm;
use crate::domain::text::canonical::Fingerprint;
use crate::service::ports::{CallOutcome, ConversationCounts, MessageCounts, SelectionEvent, SelectionEventKind, ToolCounts};

/// Sums per day, in order of key, so that adjacent rows are written together.
#[derive(Default)]
pub(super) struct DaySums<'a> {
    pub(super) days: BTreeMap<i64, MessageCounts>,
    pub(super) tools: BTreeMap<(i64, &'a ToolId), (ToolCounts, i64)>,
    pub(super) latencies: BTreeMap<(i64, &'a ToolId, LatencyBucket), u64>,
    pub(super) costs: BTreeMap<CostKey<'a>, CostCounts>,
}

/// The key of a sum of costs. The sums over all callers come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CostKey<'a> {
    pub(super) scope: CostScope,
    pub(super) day: i64,
    /// The group or user; empty for all callers, and for callers without a group.
    pub(super) name: &'a str,
    pub(super) purpose: Purpose,
    pub(super) is_own: bool,
    /// The model; empty if it is unknown.
    pub(super) model: &'a str,
}

impl<'a> DaySums<'a> {
    pub(super) fn of(events: &'a [SelectionEvent]) -> Self {
        let mut sums = Self::default();
        for event in events {
            let day = day(event.at);
            match &event.kind {
                SelectionEventKind::Offered { tools, tokens_before, tokens_after, tokens_saved, model, .. } => {
                    let saved = CostCounts { requests: 1, saved_tokens: *tokens_saved, ..CostCounts::default() };
                    sums.add_costs(event, Purpose::Chat, false, model.as_deref().unwrap_or_default(), &saved);
                    let counts = sums.days.entry(day).or_default();
                    counts.selections += 1;
                    counts.tokens_before += tokens_before;
                    counts.tokens_after += tokens_after;
                    for tool in tools.tools() {
                        sums.tools.entry((day, tool)).or_default().0.offered += 1;
                    }
                }
                SelectionEventKind::Searched { recovered, .. } => {
                    let counts = sums.days.entry(day).or_default();
                    counts.searches += 1;
                    counts.recovered_searches += u64::from(*recovered);
                }
                SelectionEventKind::Called { tool, outcome, took, recovered } => {
                    // The calls of all callers are counted by tool.
                    for (scope, name) in event.attribution.scopes() {
                        let key = CostKey { scope, day, name, purpose: Purpose::Chat, is_own: false, model: "" };
                        sums.costs.entry(key).or_default().calls += 1;
                    }
                    let (counts, called_at) = sums.tools.entry((day, tool)).or_default();
                    counts.called += 1;
                    counts.recovered += u64::from(*recovered);
                    *called_at = to_millis(event.at).max(*called_at);
                    match outcome {
                        CallOutcome::Success => counts.succeeded += 1,
                        CallOutcome::ToolError => counts.tool_errors += 1,
                        CallOutcome::Rejected
                        | CallOutcome::Failed
                        | CallOutcome::Cancelled
                        | CallOutcome::Limited
                        | CallOutcome::InputRequired => continue,
                    }
                    *sums.latencies.entry((day, tool, LatencyBucket::of(*took))).or_default() += 1;
                }
                SelectionEventKind::Answered { purpose, model, is_own, tokens } => {
                    let spent = CostCounts {
                        requests: 1,
                        estimated: u64::from(tokens.is_estimated),
                        input_tokens: tokens.input,
                        output_tokens: tokens.output,
                        ..CostCounts::default()
                    };
                    sums.add_costs(event, *purpose, *is_own, model, &spent);
                }
                SelectionEventKind::Loaded { .. } | SelectionEventKind::Unloaded { .. } | SelectionEventKind::Listed { .. } => {}
            }
        }
        sums
    }

    /// Adds to the sums over all callers, and to those of the event's groups and user.
    fn add_costs(&mut self, event: &'a SelectionEvent, purpose: Purpose, is_own: bool, model: &'a str, counts: &CostCounts) {
        let scopes = std::iter::once((CostScope::All, "")).chain(event.attribution.scopes());
        for (scope, name) in scopes {
            let key = CostKey { scope, day: day(event.at), name, purpose, is_own, model };
            self.costs.entry(key).or_default().add(counts);
        }
    }
}

/// Sums of one conversation.
#[derive(Default)]
pub(super) struct ConversationSums {
    pub(super) arm: Option<Arm>,
    pub(super) times: Option<(i64, i64)>,
    pub(super) initial_tools: Option<u64>,
    pub(super) final_tools: Option<u64>,
    pub(super) counts: ConversationCounts,
    pub(super) loads: BTreeMap<LatencyBucket, u64>,
    pub(super) longest_load: Option<Duration>,
}

impl ConversationSums {
    /// The sums by conversation key.
    pub(super) fn of(events: &[SelectionEvent]) -> BTreeMap<[u8; 16], Self> {
        let mut sums: BTreeMap<[u8; 16], Self> = BTreeMap::new();
        for event in events {
            if let Some(name) = name(event) {
                sums.entry(key(&event.principal, &name)).or_default().add(event);
            }
        }
        sums
    }

    fn add(&mut self, event: &SelectionEvent) {
        let at = to_millis(event.at);
        self.times = Some(self.times.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
        match &event.kind {
            SelectionEventKind::Offered { tools, tokens_before, tokens_after, arm, .. } => {
                self.arm = self.arm.or(*arm);
                let bound = tools.tools().len() as u64;
                self.initial_tools = self.initial_tools.or(Some(bound));
                self.final_tools = Some(bound);
                self.counts.selections += 1;
                self.counts.tokens_before += tokens_before;
                self.counts.tokens_after += tokens_after;
            }
            SelectionEventKind::Searched { recovered, .. } => {
                self.counts.searches += 1;
                self.counts.recovered_searches += u64::from(*recovered);
            }
            SelectionEventKind::Called { outcome, .. } => {
                self.counts.calls += 1;
                self.counts.succeeded += u64::from(*outcome == CallOutcome::Success);
                self.counts.tool_errors += u64::from(*outcome == CallOutcome::ToolError);
            }
            SelectionEventKind::Loaded { took, before, bound, .. } => {
                self.counts.loads += 1;
                *self.loads.entry(LatencyBucket::of(*took)).or_default() += 1;
                self.longest_load = self.longest_load.max(Some(*took));
                self.bound(*before, *bound);
            }
            SelectionEventKind::Unloaded { before, bound } => {
                self.counts.unloads += 1;
                self.bound(*before, *bound);
            }
            SelectionEventKind::Listed { bound } => self.bound(*bound, *bound),
            // Costs have sums of their own, without conversations.
            SelectionEventKind::Answered { .. } => {}
        }
    }

    fn bound(&mut self, before: u64, now: u64) {
        self.initial_tools = self.initial_tools.or(Some(before));
        self.final_tools = Some(now);
    }
}

/// The number of whole days since 1970.
pub(super) fn day(time: SystemTime) -> i64 {
    to_millis(time) / DAY
}

/// The time at which a day begins.
pub(super) fn begin(day: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_hours(24) * u32::try_from(day).unwrap_or_default()
}

/// The first day that begins at or after this time.
pub(super) fn end(time: SystemTime) -> i64 {
    let millis = to_millis(time);
    millis / DAY + i64::from(millis % DAY > 0)
}

/// The name of an event's conversation, which for a chat is its id.
fn name(event: &SelectionEvent) -> Option<Cow<'_, str>> {
    match &event.conversation {
        Some(conversation) if conversation.kind != ConversationKind::Chat => {
            Some(format!("{}:{}", conversation.kind.name(), conversation.id).into())
        }
        _ => event.chat.as_deref().map(Cow::Borrowed),
    }
}

/// The key of a conversation: a hash, so that the sums name neither principals nor chats. Long enough to be unique.
fn key(principal: &str, chat: &str) -> [u8; 16] {
    let mut key = [0; 16];
    let hash = Fingerprint::of_text(&format!("{}:{principal}{chat}", principal.len()));
    key.copy_from_slice(&hash.as_bytes()[..16]);
    key
}

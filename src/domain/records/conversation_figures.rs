//! Cost and benefit of conversations, as sums that can be compared.
//!
//! A conversation is a chat, an address session or a session of an MCP client.

use std::time::{Duration, SystemTime};

use crate::domain::records::usage::Latencies;
use crate::domain::selection::experiment::Arm;

/// Selects conversations by the time of their last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversationQuery {
    pub since: SystemTime,
    pub until: SystemTime,
    /// How many conversations to list individually, most recently used first.
    pub limit: usize,
}

/// Sums over one or several conversations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConversationCounts {
    /// Messages with a selection.
    pub selections: u64,
    /// Our tools that the first selection offered, or that were first listed or bound.
    pub initial_tools: u64,
    /// The same for the last selection.
    pub final_tools: u64,
    /// cl100k tokens of our definitions before selection, over all messages.
    pub tokens_before: u64,
    /// The same after selection.
    pub tokens_after: u64,
    pub searches: u64,
    /// Searches whose best tool was missing from the last selection.
    pub recovered_searches: u64,
    pub loads: u64,
    pub unloads: u64,
    pub calls: u64,
    pub succeeded: u64,
    /// Errors returned by tools.
    pub tool_errors: u64,
}

impl ConversationCounts {
    pub fn add(&mut self, other: &Self) {
        self.selections += other.selections;
        self.initial_tools += other.initial_tools;
        self.final_tools += other.final_tools;
        self.tokens_before += other.tokens_before;
        self.tokens_after += other.tokens_after;
        self.searches += other.searches;
        self.recovered_searches += other.recovered_searches;
        self.loads += other.loads;
        self.unloads += other.unloads;
        self.calls += other.calls;
        self.succeeded += other.succeeded;
        self.tool_errors += other.tool_errors;
    }
}

/// All conversations of one arm. Divide the sums by `conversations` for averages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArmFigures {
    /// `None`: conversations outside of any comparison.
    pub arm: Option<Arm>,
    pub conversations: u64,
    pub counts: ConversationCounts,
    pub load_times: Latencies,
}

/// One conversation. Anonymous on purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConversationFigures {
    pub arm: Option<Arm>,
    pub first_at: SystemTime,
    pub last_at: SystemTime,
    pub counts: ConversationCounts,
    /// Over its loads; `None` without any.
    pub longest_load: Option<Duration>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConversationReport {
    /// Only arms with conversations, in no defined order.
    pub arms: Vec<ArmFigures>,
    /// Most recently used first.
    pub latest: Vec<ConversationFigures>,
}

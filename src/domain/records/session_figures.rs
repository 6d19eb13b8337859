//! What sessions cost and brought, as sums that can be compared.
//!
//! A session is what belongs together for whoever asks: a chat, a session's address, or a session of an MCP client.

use std::time::{Duration, SystemTime};

use crate::domain::records::usage::Latencies;
use crate::domain::selection::experiment::Arm;

/// Which sessions are wanted: those that were used last in this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionQuery {
    pub since: SystemTime,
    pub until: SystemTime,
    /// How many of them one by one, the last used first.
    pub limit: usize,
}

/// What happened in a session, or in several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Messages that tools were chosen for.
    pub selections: u64,
    /// Tools of ours that the first selection offered, or that were listed or bound first.
    pub initial_tools: u64,
    /// And the last one.
    pub final_tools: u64,
    /// Tokens of our definitions on offer (cl100k), over all selections.
    pub tokens_before: u64,
    /// The same, of what was offered.
    pub tokens_after: u64,
    pub searches: u64,
    /// Searches whose best tool the last selection had not offered.
    pub recovered_searches: u64,
    pub loads: u64,
    pub unloads: u64,
    pub calls: u64,
    pub succeeded: u64,
    /// Answers that were errors of the tool's own.
    pub tool_errors: u64,
}

impl SessionCounts {
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

/// All sessions of one arm. Sums, to be divided by `sessions`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArmFigures {
    /// `None`: sessions that were not a part of a comparison.
    pub arm: Option<Arm>,
    pub sessions: u64,
    pub counts: SessionCounts,
    pub load_times: Latencies,
}

/// One session. It has no name: whose it was is nobody's business here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionFigures {
    pub arm: Option<Arm>,
    pub first_at: SystemTime,
    pub last_at: SystemTime,
    pub counts: SessionCounts,
    /// Over its loads; `None` without one.
    pub longest_load: Option<Duration>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionReport {
    /// Only arms with sessions, in no defined order.
    pub arms: Vec<ArmFigures>,
    /// The last used first.
    pub latest: Vec<SessionFigures>,
}

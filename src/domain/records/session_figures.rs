//! Cost and benefit of conversations, as sums that can be compared.
//!
//! A session here is a conversation: a chat, an address session or a session of an MCP client.

use std::time::{Duration, SystemTime};

use crate::domain::records::usage::{Latencies, counts};
use crate::domain::selection::experiment::Arm;

/// Selects sessions by the time of their last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionQuery {
    pub since: SystemTime,
    pub until: SystemTime,
    /// How many sessions to list individually, most recently used first.
    pub limit: usize,
}

counts! {
    /// Sums over one or several sessions.
    pub struct SessionCounts {
        /// Messages with a selection.
        pub selections,
        /// Our tools that the first selection offered, or that were first listed or bound.
        pub initial_tools,
        /// The same for the last selection.
        pub final_tools,
        /// cl100k tokens of our definitions before selection, over all messages.
        pub tokens_before,
        /// The same after selection.
        pub tokens_after,
        pub searches,
        /// Searches whose best tool was missing from the last selection.
        pub recovered_searches,
        pub loads,
        pub unloads,
        pub calls,
        pub succeeded,
        /// Errors returned by tools.
        pub tool_errors,
    }
}

/// All sessions of one arm. Divide the sums by `sessions` for averages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArmFigures {
    /// `None`: sessions outside of any comparison.
    pub arm: Option<Arm>,
    pub sessions: u64,
    pub counts: SessionCounts,
    pub load_times: Latencies,
}

/// One session. Anonymous on purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionFigures {
    pub arm: Option<Arm>,
    pub first_at: SystemTime,
    pub last_at: SystemTime,
    pub counts: SessionCounts,
    /// Over its loads; `None` without any.
    pub longest_load: Option<Duration>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionReport {
    /// Only arms with sessions, in no defined order.
    pub arms: Vec<ArmFigures>,
    /// Most recently used first.
    pub latest: Vec<SessionFigures>,
}

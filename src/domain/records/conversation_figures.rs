//! Cost and benefit of conversations, as sums that can be compared.
//!
//! A conversation is a chat, an address session or a session of an MCP client.

use std::time::{Duration, SystemTime};

use crate::domain::records::usage::{Latencies, counts};
use crate::domain::selection::experiment::Arm;

/// Selects conversations by the time of their last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversationQuery {
    pub since: SystemTime,
    pub until: SystemTime,
    /// How many conversations to list individually, most recently used first.
    pub limit: usize,
}

counts! {
    /// Sums over one or several conversations.
    pub struct ConversationCounts {
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

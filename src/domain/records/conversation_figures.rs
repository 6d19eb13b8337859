//! Metrics that compare the cost and benefit of conversations.
//!
//! A conversation is a chat, an address session or an MCP session.

use std::time::{Duration, SystemTime};

use crate::domain::records::usage::{Latencies, counts};
use crate::domain::selection::experiment::Arm;

/// Selects conversations by the time of their last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversationQuery {
    pub since: SystemTime,
    pub until: SystemTime,
    /// Maximum number of conversations listed individually, most recently used first.
    pub limit: usize,
}

counts! {
    /// Sums over one or several conversations.
    pub struct ConversationCounts {
        /// Number of messages for which tools were selected.
        pub selections,
        /// Number of our tools that were offered or bound at the start.
        pub initial_tools,
        /// Number of our tools that were offered or bound at the end.
        pub final_tools,
        /// Tokens (cl100k) of our tool definitions before selection, summed over all messages.
        pub tokens_before,
        /// Tokens (cl100k) of our tool definitions after selection, summed over all messages.
        pub tokens_after,
        pub searches,
        /// Searches whose best result was missing from the last selection.
        pub recovered_searches,
        pub loads,
        pub unloads,
        pub calls,
        pub succeeded,
        /// Calls for which the tool returned an error.
        pub tool_errors,
    }
}

/// The sums of all conversations in one arm of an experiment. Divide by `conversations` for averages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ArmFigures {
    /// The arm; `None` for conversations outside any experiment.
    pub arm: Option<Arm>,
    pub conversations: u64,
    pub counts: ConversationCounts,
    pub load_times: Latencies,
}

/// The metrics of one conversation, deliberately anonymous.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConversationFigures {
    pub arm: Option<Arm>,
    pub first_at: SystemTime,
    pub last_at: SystemTime,
    pub counts: ConversationCounts,
    /// The longest duration of a load; `None` if nothing was loaded.
    pub longest_load: Option<Duration>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConversationReport {
    /// Metrics of each arm that has conversations, in no defined order.
    pub arms: Vec<ArmFigures>,
    /// Single conversations, most recently used first.
    pub latest: Vec<ConversationFigures>,
}

//! What was chosen for a message, and why.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::domain::catalog::tool::{Tool, ToolId};

/// The answer to "which tools matter for this message".
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// Names this selection in signals that follow it.
    pub id: String,
    /// The tool ids to keep, in the order in which they came; `None` when none came.
    pub tool_ids: Option<Vec<String>>,
    /// Whether everything stays, whatever the message says: the static part of a comparison.
    pub keeps_all: bool,
    /// Whether more may fit once all tools are embedded.
    pub is_partial: bool,
    pub tools: Vec<Selected>,
    /// Of [`Selection::tools`] those that were not on offer, where they were asked for.
    pub disclosed: Vec<Disclosed>,
    /// cl100k tokens of our definitions on offer, as far as the caller may use them.
    pub tokens_before: u64,
    /// The same, of those that are kept.
    pub tokens_after: u64,
    pub warnings: Vec<String>,
    pub took: Duration,
}

/// A function that stays on offer.
#[derive(Clone, Debug, PartialEq)]
pub struct Selected {
    pub name: String,
    /// `None` for meta-tools and for functions that are not ours.
    pub id: Option<ToolId>,
    /// 0 to 1, how well it fits the message; `None` where the message was not what decided.
    pub score: Option<f32>,
    pub reason: Reason,
}

impl Selected {
    /// A tool that somebody named.
    #[must_use]
    pub fn named(tool: &Tool) -> Self {
        Self { name: tool.operation_id.to_string(), id: Some(tool.id.clone()), score: None, reason: Reason::Named }
    }
}

/// A tool that is not on offer yet, with all that a model needs to call it.
#[derive(Clone, Debug, PartialEq)]
pub struct Disclosed {
    /// The connection that runs it; `None` where none were named.
    pub tool_id: Option<String>,
    /// See [`Tool::function`].
    pub function: Value,
}

/// Why a function stays on offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It fits the message; its place in the ranking, from 1.
    Relevant { rank: usize },
    /// A language model chose it for the message; its place in the choice, from 1.
    Judged { rank: usize },
    /// The chat was offered it before.
    OfferedBefore,
    /// The chat called it before.
    Called,
    /// The configuration pins it.
    Pinned,
    /// It is always on in the toolset.
    AlwaysOn,
    /// It was asked for.
    Named,
    /// Whoever asked keeps it.
    Kept,
    /// The model searched and found it.
    Found,
    /// It finds the tools that the selection left out.
    SearchTool,
    /// It is how a found tool runs that is not among the functions on offer.
    RunTool,
    /// All stay: the chat is in the static half of a comparison.
    StaticArm,
    /// It is not ours.
    Foreign,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relevant { rank } => write!(formatter, "fits the message (rank {rank})"),
            Self::Judged { rank } => write!(formatter, "chosen by a language model (rank {rank})"),
            Self::OfferedBefore => formatter.write_str("offered earlier in this chat"),
            Self::Called => formatter.write_str("called in this chat"),
            Self::Pinned => formatter.write_str("pinned"),
            Self::AlwaysOn => formatter.write_str("always on in its toolset"),
            Self::Kept => formatter.write_str("kept by the caller"),
            Self::Named => formatter.write_str("asked for"),
            Self::Found => formatter.write_str("found by the model"),
            Self::SearchTool => formatter.write_str("search tool"),
            Self::RunTool => formatter.write_str("runs what was found"),
            Self::StaticArm => formatter.write_str("all tools stay: the chat is in the static part of a comparison"),
            Self::Foreign => formatter.write_str("not ours, kept"),
        }
    }
}

//! The selection for a message, with reasons.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::domain::catalog::tool::{Tool, ToolId};

/// The selected tools for a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// Identifies this selection in later signals.
    pub id: String,
    /// The tool ids to keep, in request order; `None` if the request had none.
    pub tool_ids: Option<Vec<String>>,
    /// Whether all tools stay, whatever the message: the static arm of a comparison.
    pub keeps_all: bool,
    /// Whether more tools may match once all are embedded.
    pub is_partial: bool,
    pub tools: Vec<Selected>,
    /// The selected tools that the request did not offer, if the caller asked for them.
    pub disclosed: Vec<Disclosed>,
    /// cl100k tokens of our definitions in the request that the caller may use.
    pub tokens_before: u64,
    /// The same after selection.
    pub tokens_after: u64,
    pub warnings: Vec<String>,
    pub took: Duration,
}

/// A function that stays offered.
#[derive(Clone, Debug, PartialEq)]
pub struct Selected {
    pub name: String,
    /// `None` for meta-tools and foreign functions.
    pub id: Option<ToolId>,
    /// Match with the message, 0 to 1; `None` if the message did not decide.
    pub score: Option<f32>,
    pub reason: Reason,
}

impl Selected {
    /// A tool that was requested by name.
    pub fn named(tool: &Tool) -> Self {
        Self { name: tool.operation_id.to_string(), id: Some(tool.id.clone()), score: None, reason: Reason::Named }
    }
}

/// A tool that is not offered yet, with its full definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Disclosed {
    /// The connection that runs it; `None` if the request named none.
    pub tool_id: Option<String>,
    /// See [`Tool::function`].
    pub function: Value,
}

/// Why a function stays offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It matches the message; 1-based rank.
    Relevant { rank: usize },
    /// A language model chose it for the message; 1-based position in its answer.
    Judged { rank: usize },
    /// It was offered to the chat before.
    OfferedBefore,
    /// The chat called it before.
    Called,
    /// It is pinned in the configuration.
    Pinned,
    /// It is always on in its toolset.
    AlwaysOn,
    /// It was requested by name.
    Named,
    /// The caller keeps it.
    Kept,
    /// The model found it by a search.
    Found,
    /// It finds the tools that the selection left out.
    SearchTool,
    /// It runs found tools that are not among the offered functions.
    RunTool,
    /// All tools stay: the chat is in the static arm of a comparison.
    StaticArm,
    /// It is foreign.
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
            Self::Named => formatter.write_str("requested by name"),
            Self::Found => formatter.write_str("found by the model"),
            Self::SearchTool => formatter.write_str("search tool"),
            Self::RunTool => formatter.write_str("runs found tools"),
            Self::StaticArm => formatter.write_str("all tools stay: the chat is in the static arm of a comparison"),
            Self::Foreign => formatter.write_str("foreign, kept"),
        }
    }
}

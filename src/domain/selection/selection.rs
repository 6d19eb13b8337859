//! The selection for a message, with the reason for each tool.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::domain::catalog::tool::{Tool, ToolId};

/// The selected tools for a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// Identifies the selection, so that feedback can refer to it.
    pub id: String,
    /// Those `tool_ids` of the request that stay, in request order; `None` if the request had none.
    pub tool_ids: Option<Vec<String>>,
    /// Whether all our tools stay regardless of the message: their definitions are small, the selection is only recorded
    /// (shadow mode), or the caller is in the static arm of an experiment.
    pub keeps_all: bool,
    /// Whether the message may need a tool. Always true if all our tools stay.
    pub needs_tool: bool,
    /// Whether a repeated selection may find more tools, because some are not embedded yet.
    pub is_partial: bool,
    pub tools: Vec<Selected>,
    /// Selected tools that the request did not offer, if the caller wants their definitions.
    pub disclosed: Vec<Disclosed>,
    /// Tokens (cl100k) of our definitions that the request offers and the caller may use.
    pub tokens_before: u64,
    /// Tokens (cl100k) of our definitions after selection.
    pub tokens_after: u64,
    /// In shadow mode, what would have been selected.
    pub shadow: Option<Shadow>,
    pub warnings: Vec<String>,
    pub took: Duration,
}

/// A selection that was only recorded, because all tools stay.
#[derive(Clone, Debug, PartialEq)]
pub struct Shadow {
    pub tools: Vec<Selected>,
    /// Tokens (cl100k) of our definitions among these tools.
    pub tokens_after: u64,
}

/// A selected function, with the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Selected {
    pub name: String,
    /// The tool; `None` for meta-tools and foreign functions.
    pub id: Option<ToolId>,
    /// Match with the message, 0 to 1; `None` if the tool was selected regardless of the message.
    pub score: Option<f32>,
    pub reason: Reason,
}

impl Selected {
    /// Selects a tool that the request named.
    pub fn named(tool: &Tool) -> Self {
        Self { name: tool.operation_id.to_string(), id: Some(tool.id.clone()), score: None, reason: Reason::Named }
    }
}

/// The full definition of a tool that is not offered yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Disclosed {
    /// The id of the connection that runs the tool; `None` if the request named no connection.
    pub tool_id: Option<String>,
    /// The function definition, see [`Tool::function`].
    pub function: Value,
}

/// The reason why a function was selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The tool matches the message; `rank` starts at 1.
    Relevant { rank: usize },
    /// The tool matches the message, and was called after similar ones; `rank` starts at 1.
    Learned { rank: usize, messages: u32 },
    /// The tool was mostly called after another one, which is called or chosen. `chats` is the number of chats in which it was.
    Follows { after: Arc<str>, chats: u32 },
    /// The caller has never used the tool (`learning.explore`).
    Explored,
    /// A language model chose the tool; `rank` is its position in the answer, starting at 1.
    Judged { rank: usize },
    /// The tool was offered to the chat before.
    OfferedBefore,
    /// The chat called the tool before.
    Called,
    /// The tool is pinned in the configuration.
    Pinned,
    /// The tool is always on in its toolset.
    AlwaysOn,
    /// The request named the tool.
    Named,
    /// The function is in the request's `keep` list.
    Kept,
    /// The model found the tool by a search.
    Found,
    /// A meta-tool that finds the tools missing from the selection.
    SearchTool,
    /// A meta-tool that runs found tools that are not offered.
    RunTool,
    /// All our tools stay, because their definitions are small.
    Small,
    /// All tools stay, because the caller or the chat is in the static arm of an experiment.
    StaticArm,
    /// All tools stay, because the selection is only recorded.
    Shadow,
    /// All tools stay, because the caller has switched the selection off for itself.
    SwitchedOff,
    /// One of Open WebUI's own tools, whose family the message may need.
    MayNeed,
    /// The function belongs to another tool server.
    Foreign,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relevant { rank } => write!(formatter, "fits the message (rank {rank})"),
            Self::Learned { rank, messages } => {
                let messages = if *messages == 1 { "1 message".to_owned() } else { format!("{messages} messages") };
                write!(formatter, "used after {messages} like this one (rank {rank})")
            }
            Self::Follows { after, chats } => {
                let chats = if *chats == 1 { "1 chat".to_owned() } else { format!("{chats} chats") };
                write!(formatter, "called after {after} in {chats}")
            }
            Self::Explored => formatter.write_str("near the message, and never used by you before (learning.explore)"),
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
            Self::Small => formatter.write_str("all tools stay: together, they are small (selection.narrow_above_tokens)"),
            Self::StaticArm => formatter.write_str("all tools stay: the caller is in the static arm of a comparison (selection.share)"),
            Self::Shadow => formatter.write_str("all tools stay: the selection is only recorded (selection.mode = \"shadow\")"),
            Self::SwitchedOff => formatter.write_str("all tools stay: this caller has switched the selection off (/ui/me)"),
            Self::MayNeed => formatter.write_str("may be needed for this message"),
            Self::Foreign => formatter.write_str("foreign, kept"),
        }
    }
}

//! Events: selections, calls, and what follows them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::domain::catalog::tool::ToolId;
use crate::domain::records::conversation::Conversation;
use crate::domain::selection::experiment::Arm;
use crate::domain::text::canonical::Fingerprint;
use crate::domain::text::named::named;

/// An event of a selection. Contains no arguments and no results, and a message's text only if the settings want it.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectionEvent {
    pub at: SystemTime,
    /// The selection itself, or the one before this event.
    pub selection: Option<String>,
    pub principal: String,
    pub chat: Option<String>,
    /// The conversation whose usage counts it.
    pub conversation: Option<Conversation>,
    pub kind: SelectionEventKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SelectionEventKind {
    /// Our tools that a selection kept.
    Offered {
        message: EventMessage,
        tools: OfferedTools,
        tokens_before: u64,
        tokens_after: u64,
        /// The arm of a comparison.
        arm: Option<Arm>,
    },
    /// A tool was called. `recovered`: the chat's last selection had not offered it.
    Called { tool: ToolId, outcome: CallOutcome, took: Duration, recovered: bool },
    /// The model searched. `recovered`: the chat's last selection had not offered the best tool found.
    Searched { message: EventMessage, tools: Vec<ToolId>, recovered: bool },
    /// A group was loaded into the conversation. `bound`: tools bound since then, besides the meta-tools.
    Loaded { took: Duration, before: u64, bound: u64 },
    /// A group was unloaded.
    Unloaded { before: u64, bound: u64 },
    /// The conversation fetched its list of tools.
    Listed { bound: u64 },
}

/// The kept tools. If all were kept, one list serves every message, and the store keeps only their number and its fingerprint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferedTools {
    pub(in crate::service) tools: Arc<[ToolId]>,
    /// Fingerprint of a list of all tools; `None` if the list was selected for the message.
    view: Option<Fingerprint>,
}

impl OfferedTools {
    /// All offered tools, in any order.
    pub fn all(mut tools: Vec<ToolId>) -> Self {
        tools.sort_unstable();
        let mut bytes = Vec::new();
        for tool in &tools {
            for text in [tool.server.as_str(), &tool.name] {
                bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
        }
        Self { view: Some(Fingerprint::of_bytes(&bytes)), tools: tools.into() }
    }

    pub fn tools(&self) -> &[ToolId] {
        &self.tools
    }

    pub fn view(&self) -> Option<Fingerprint> {
        self.view
    }
}

impl FromIterator<ToolId> for OfferedTools {
    fn from_iter<I: IntoIterator<Item = ToolId>>(tools: I) -> Self {
        Self { tools: tools.into_iter().collect(), view: None }
    }
}

/// A message as recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventMessage {
    pub text: Option<String>,
}

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum CallOutcome {
        Success = "success",
        /// The tool returned an error (`isError`).
        ToolError = "tool_error",
        /// The caller's mistake: invalid arguments.
        Rejected = "rejected",
        /// Server down, timeout, protocol error.
        Failed = "failed",
        /// The caller disconnected before the response.
        Cancelled = "cancelled",
        /// Rejected by a limit.
        Limited = "limited",
        /// The server asked for input instead of returning a result, and the caller's next request resumes the call. Neither a
        /// failure nor the end of the call; only the audit log records it.
        InputRequired = "input_required",
    }
}

/// How a caller identifies a selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectionName {
    Id(String),
    /// The last selection of this chat.
    Chat(String),
}

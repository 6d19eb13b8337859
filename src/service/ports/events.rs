//! What is noted of selections and calls.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::domain::catalog::tool::ToolId;
use crate::domain::records::conversation::Conversation;
use crate::domain::selection::experiment::Arm;
use crate::domain::text::canonical::Fingerprint;

/// Something that happened to a selection. Holds no arguments and no results, and of a message its text only where the settings
/// want it.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectionEvent {
    pub at: SystemTime,
    /// The selection itself, or the one that the event follows.
    pub selection: Option<String>,
    pub principal: String,
    pub chat: Option<String>,
    /// To whose figures it counts.
    pub conversation: Option<Conversation>,
    pub kind: SelectionEventKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SelectionEventKind {
    /// Tools of ours that a selection left on offer.
    Offered {
        message: EventMessage,
        tools: OfferedTools,
        tokens_before: u64,
        tokens_after: u64,
        /// Of a comparison.
        arm: Option<Arm>,
    },
    /// A tool was called. `recovered`: though the chat's last selection had not offered it.
    Called { tool: ToolId, outcome: CallOutcome, took: Duration, recovered: bool },
    /// The model searched. `recovered`: the best tool that was found is one that the chat's last selection had not offered.
    Searched { message: EventMessage, tools: Vec<ToolId>, recovered: bool },
    /// A group was loaded into the conversation. `bound`: tools that are bound since, beside the meta-tools.
    Loaded { took: Duration, before: u64, bound: u64 },
    /// A group was taken back.
    Unloaded { before: u64, bound: u64 },
    /// The conversation was given its list of tools.
    Listed { bound: u64 },
}

/// The tools that stayed. Where all did, one list serves every message, and the store keeps how many they were and which list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferedTools {
    pub(in crate::service) tools: Arc<[ToolId]>,
    /// Names the list; `None` where it was chosen for the message.
    view: Option<Fingerprint>,
}

impl OfferedTools {
    /// Everything that was on offer, in whatever order.
    #[must_use]
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

    #[must_use]
    pub fn tools(&self) -> &[ToolId] {
        &self.tools
    }

    #[must_use]
    pub fn view(&self) -> Option<Fingerprint> {
        self.view
    }
}

impl FromIterator<ToolId> for OfferedTools {
    fn from_iter<I: IntoIterator<Item = ToolId>>(tools: I) -> Self {
        Self { tools: tools.into_iter().collect(), view: None }
    }
}

/// A message as it is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventMessage {
    pub text: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    Success,
    /// The tool's own error (`isError`).
    ToolError,
    /// The caller's mistake: invalid arguments.
    Rejected,
    /// Server down, timeout, broken protocol.
    Failed,
    /// The caller went away before the answer.
    Cancelled,
    /// Refused by a limit.
    Limited,
    /// The server asked something in place of a result, and the caller's next request brings the answer: neither a failure nor the
    /// end of the call. The audit log alone has it.
    InputRequired,
}

impl CallOutcome {
    const ALL: [Self; 7] =
        [Self::Success, Self::ToolError, Self::Rejected, Self::Failed, Self::Cancelled, Self::Limited, Self::InputRequired];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ToolError => "tool_error",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Limited => "limited",
            Self::InputRequired => "input_required",
        }
    }

    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.name() == name)
    }
}

/// How a caller names a selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectionName {
    Id(String),
    /// The last one of this chat.
    Chat(String),
}

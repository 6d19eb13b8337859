//! Events to record: selections, searches, calls, and changes of loaded tools.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::domain::catalog::tool::ToolId;
use crate::domain::records::conversation::Conversation;
use crate::domain::records::costs::{AnswerTokens, Attribution, Purpose};
use crate::domain::selection::experiment::Arm;
use crate::domain::text::canonical::Fingerprint;
use crate::domain::text::named::named;

/// A recorded event. It contains no arguments and no results, and the text of a message only if the settings allow it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SelectionEvent {
    pub at: SystemTime,
    /// The id of the selection: the event's own, or the last one before the event.
    pub selection: Option<String>,
    pub principal: String,
    /// The id of the named key that authenticated the caller.
    #[serde(default)]
    pub key: Option<String>,
    pub chat: Option<String>,
    /// The conversation to which usage is attributed.
    pub conversation: Option<Conversation>,
    /// The groups and the user whose usage is summed up separately.
    pub attribution: Attribution,
    pub kind: SelectionEventKind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SelectionEventKind {
    /// Tools were selected for a message, or all were kept.
    Offered {
        message: EventMessage,
        /// The same for many events, so batches contain each list once.
        #[serde(skip)]
        tools: OfferedTools,
        tokens_before: u64,
        tokens_after: u64,
        /// Tokens that the selection left out; 0 if all tools stay on offer.
        tokens_saved: u64,
        /// The chat's model, if the request names it.
        model: Option<String>,
        /// The chat's arm in an experiment.
        arm: Option<Arm>,
    },
    /// A tool was called. `recovered`: the chat's last selection did not contain the tool.
    Called { tool: ToolId, outcome: CallOutcome, took: Duration, recovered: bool },
    /// The model searched for tools. `recovered`: the chat's last selection did not contain the best tool found.
    Searched { message: EventMessage, tools: Vec<ToolId>, recovered: bool },
    /// A group of this name was loaded. `before` and `bound` are the numbers of bound tools before and after, without meta-tools.
    Loaded {
        /// Empty in events that an earlier version spooled.
        #[serde(default)]
        group: String,
        took: Duration,
        before: u64,
        bound: u64,
    },
    /// A group was unloaded, with the numbers of bound tools before and after.
    Unloaded { before: u64, bound: u64 },
    /// The client fetched its list of tools: `bound` tools, and the meta-tools.
    Listed { bound: u64 },
    /// A language model answered. `is_own`: the user paid, with a key of their own. Stored only as sums.
    Answered { purpose: Purpose, model: String, is_own: bool, tokens: AnswerTokens },
}

/// The tools that a selection kept. If all were kept, every message shares one list, and the store contains only their number and
/// its fingerprint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferedTools {
    pub(in crate::service) tools: Arc<[ToolId]>,
    /// Fingerprint of a list of all tools; `None` for a list selected for a message.
    view: Option<Fingerprint>,
}

impl OfferedTools {
    /// A list of all offered tools, in any order.
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

/// A message, as recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
        /// The arguments were invalid.
        Rejected = "rejected",
        /// The server was unavailable, timed out or returned a protocol error.
        Failed = "failed",
        /// The caller disconnected before the response.
        Cancelled = "cancelled",
        /// A limit rejected the call.
        Limited = "limited",
        /// The server requested input instead of returning a result. The caller's next request resumes the call, so this is
        /// neither a failure nor the end of the call. Recorded only in the audit log.
        InputRequired = "input_required",
    }
}

impl CallOutcome {
    /// Whether calls with this outcome are recorded as events. The others are recorded only in the audit log.
    pub fn is_event(self) -> bool {
        !matches!(self, Self::Limited | Self::InputRequired)
    }
}

/// A stored event.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEvent {
    /// The sequence number.
    pub id: u64,
    pub at: SystemTime,
    pub selection: Option<String>,
    pub principal: String,
    pub chat: Option<String>,
    /// The text of the message, if the settings let the service store it.
    pub message: Option<String>,
    pub kind: StoredEventKind,
}

/// The kinds of events that are stored one by one, and not only as sums.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredEventKind {
    /// Tools were selected. `all` is the number of tools if all were kept; they are then not listed.
    Offered {
        tools: Vec<ToolId>,
        all: Option<u64>,
    },
    Called {
        tool: ToolId,
        outcome: CallOutcome,
        took: Duration,
        recovered: bool,
    },
    Searched {
        tools: Vec<ToolId>,
        recovered: bool,
    },
}

/// Filters events. `None` matches everything.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    pub principal: Option<String>,
    pub chat: Option<String>,
    /// Only events that contain this tool.
    pub tool: Option<ToolId>,
    pub outcome: Option<CallOutcome>,
    /// Only the selection with this id.
    pub selection: Option<String>,
    /// Only events with smaller sequence numbers.
    pub before: Option<u64>,
    /// Only events with larger sequence numbers.
    pub after: Option<u64>,
    pub limit: usize,
}

/// Identifies a selection in feedback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectionName {
    Id(String),
    /// The last selection of this chat.
    Chat(String),
}

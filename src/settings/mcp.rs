//! Sessions, subscriptions and questions of MCP clients.

use std::time::Duration;

use crate::settings::values::Reader;

/// Section `[mcp]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpSettings {
    /// Whether clients of older protocol versions get sessions.
    pub sessions: bool,
    /// Idle time after which a session is closed.
    pub idle: Duration,
    /// Sessions of one caller at a time.
    pub per_caller: usize,
    /// Sessions of all callers at a time.
    pub total: usize,
    /// Resource subscriptions per client.
    pub subscriptions: usize,
    /// Resource subscriptions per caller.
    pub subscriptions_per_caller: usize,
    /// Whether servers may ask users questions during a call.
    pub elicitation: bool,
    /// Whether servers may send requests to the client's model.
    pub sampling: bool,
    pub waiting: WaitingSettings,
}

/// Calls that wait for an answer from a client without a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingSettings {
    /// How long a question may stay unanswered.
    pub answer: Duration,
    /// Calls of one caller at a time.
    pub per_caller: usize,
    /// Calls of all callers at a time.
    pub total: usize,
}

/// The service drops an unanswered question of a server after this time.
const LONGEST_ANSWER_SECONDS: usize = 600;
const LONGEST_SECONDS: usize = 30 * 24 * 60 * 60;

impl McpSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        Self {
            sessions: reader.switch("mcp.sessions"),
            idle: reader.seconds("mcp.session_idle_seconds", 1..=LONGEST_SECONDS),
            per_caller: reader.whole("mcp.sessions_per_caller", 1..=1_000_000),
            total: reader.whole("mcp.sessions_total", 1..=1_000_000),
            subscriptions: reader.whole("mcp.subscriptions_per_session", 1..=1_000_000),
            subscriptions_per_caller: reader.whole("mcp.subscriptions_per_caller", 1..=1_000_000),
            elicitation: reader.switch("mcp.elicitation"),
            sampling: reader.switch("mcp.sampling"),
            waiting: WaitingSettings {
                answer: reader.seconds("mcp.answer_seconds", 1..=LONGEST_ANSWER_SECONDS),
                per_caller: reader.whole("mcp.waiting_calls_per_caller", 1..=1_000_000),
                total: reader.whole("mcp.waiting_calls_total", 1..=1_000_000),
            },
        }
    }
}

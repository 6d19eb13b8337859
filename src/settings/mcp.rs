//! What the service keeps for MCP clients.

use std::time::Duration;

use crate::settings::values::Reader;

/// Section `[mcp]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpSettings {
    /// Whether clients of the older era get sessions.
    pub sessions: bool,
    /// How long a session is kept that nobody uses.
    pub idle: Duration,
    /// Sessions of one caller at a time.
    pub per_caller: usize,
    /// Sessions of all callers at a time.
    pub total: usize,
    /// Resources that one client may follow.
    pub subscriptions: usize,
    /// Resources that all clients of one caller may follow.
    pub subscriptions_per_caller: usize,
    /// Whether servers may ask users something in the middle of a call.
    pub elicitation: bool,
    /// Whether servers may ask the client's model something.
    pub sampling: bool,
    pub waiting: WaitingSettings,
}

/// Calls that wait for what a client without a session answers to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingSettings {
    /// How long a question is good.
    pub answer: Duration,
    /// Calls of one caller at a time.
    pub per_caller: usize,
    /// Calls of all callers at a time.
    pub total: usize,
}

/// A server's question is given up after that.
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

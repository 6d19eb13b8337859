//! Sessions, subscriptions and questions of MCP clients.

use std::time::Duration;

use crate::settings::values::section;

section! {
    /// Section `[mcp]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct McpSettings = read(reader) {
        /// Whether clients of older protocol versions get sessions.
        pub sessions: bool = reader.switch("mcp.sessions"),
        /// Idle time after which a session is closed.
        pub idle: Duration = reader.seconds("mcp.session_idle_seconds", 1..=LONGEST_SECONDS),
        /// Sessions of one caller at a time.
        pub per_caller: usize = reader.whole("mcp.sessions_per_caller", 1..=1_000_000),
        /// Sessions of all callers at a time.
        pub total: usize = reader.whole("mcp.sessions_total", 1..=1_000_000),
        /// Resource subscriptions per client.
        pub subscriptions: usize = reader.whole("mcp.subscriptions_per_session", 1..=1_000_000),
        /// Resource subscriptions per caller.
        pub subscriptions_per_caller: usize = reader.whole("mcp.subscriptions_per_caller", 1..=1_000_000),
        /// Whether servers may ask users questions during a call.
        pub elicitation: bool = reader.switch("mcp.elicitation"),
        /// Whether servers may send requests to the client's model.
        pub sampling: bool = reader.switch("mcp.sampling"),
        pub waiting: WaitingSettings = WaitingSettings::read(reader),
    }
}

section! {
    /// Calls that wait for an answer from a client without a session.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct WaitingSettings = read(reader) {
        /// How long a question may stay unanswered.
        pub answer: Duration = reader.seconds("mcp.answer_seconds", 1..=LONGEST_ANSWER_SECONDS),
        /// Calls of one caller at a time.
        pub per_caller: usize = reader.whole("mcp.waiting_calls_per_caller", 1..=1_000_000),
        /// Calls of all callers at a time.
        pub total: usize = reader.whole("mcp.waiting_calls_total", 1..=1_000_000),
    }
}

/// The service drops an unanswered question of a server after this time.
const LONGEST_ANSWER_SECONDS: usize = 600;
const LONGEST_SECONDS: usize = 30 * 24 * 60 * 60;

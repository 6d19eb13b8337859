//! Section `[mcp]`: sessions, subscriptions and questions of MCP clients.

use std::time::Duration;

use crate::domain::toolsets::mode::FullList;
use crate::settings::values::{Reader, section};

section! {
    /// The settings in section `[mcp]`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct McpSettings = read(reader) {
        /// The longest list of tools that clients get in full without a named mode.
        pub full_list: FullList = full_list(reader),
        /// Whether clients with protocol versions before 2026-07-28 get sessions.
        pub sessions: bool = reader.switch("mcp.sessions"),
        /// How long a session may be idle before it is closed.
        pub idle: Duration = reader.seconds("mcp.session_idle_seconds", 1..=LONGEST_SECONDS),
        /// Maximum number of sessions per caller.
        pub per_caller: usize = reader.whole("mcp.sessions_per_caller", 1..=1_000_000),
        /// Maximum number of sessions of all callers together.
        pub total: usize = reader.whole("mcp.sessions_total", 1..=1_000_000),
        /// Maximum number of resource subscriptions per client.
        pub subscriptions: usize = reader.whole("mcp.subscriptions_per_session", 1..=1_000_000),
        /// Maximum number of resource subscriptions per caller.
        pub subscriptions_per_caller: usize = reader.whole("mcp.subscriptions_per_caller", 1..=1_000_000),
        /// Whether tools may ask users questions during a call.
        pub elicitation: bool = reader.switch("mcp.elicitation"),
        /// Whether tools may send requests to the client's model.
        pub sampling: bool = reader.switch("mcp.sampling"),
        pub waiting: WaitingSettings = WaitingSettings::read(reader),
    }
}

section! {
    /// Limits for calls that wait for a client's answer in its next request.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct WaitingSettings = read(reader) {
        /// How long a question may remain unanswered.
        pub answer: Duration = reader.seconds("mcp.answer_seconds", 1..=LONGEST_ANSWER_SECONDS),
        /// Maximum number of waiting calls per caller.
        pub per_caller: usize = reader.whole("mcp.waiting_calls_per_caller", 1..=1_000_000),
        /// Maximum number of waiting calls of all callers together.
        pub total: usize = reader.whole("mcp.waiting_calls_total", 1..=1_000_000),
    }
}

fn full_list(reader: &mut Reader<'_>) -> FullList {
    let tools = reader.whole("mcp.full_list_tools", 0..=1_000_000);
    let tokens = reader.whole("mcp.full_list_tokens", 0..=10_000_000) as u64;
    FullList { tools: Some(tools).filter(|most| *most > 0), tokens: Some(tokens).filter(|most| *most > 0) }
}

/// The connection to the server drops unanswered questions after this time.
const LONGEST_ANSWER_SECONDS: usize = 600;
const LONGEST_SECONDS: usize = 30 * 24 * 60 * 60;

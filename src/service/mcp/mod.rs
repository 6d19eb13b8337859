//! State of MCP clients: sessions, subscriptions, prompts, resources, suspended calls.

pub(crate) mod mcp_news;
pub(crate) mod mcp_sessions;
pub(crate) mod waiting_calls;
pub(crate) mod passthrough;
pub(crate) mod subscriptions;

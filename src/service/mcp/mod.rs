//! State of MCP clients: sessions, subscriptions, prompts, resources, suspended calls.

pub mod mcp_news;
pub mod mcp_sessions;
pub mod passthrough;
pub mod subscriptions;
pub mod waiting_calls;

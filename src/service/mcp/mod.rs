//! What clients that speak MCP have beside the rest: sessions, subscriptions, prompts and resources.

pub mod mcp_news;
pub mod mcp_sessions;
pub mod passthrough;
pub mod subscriptions;
pub mod waiting_calls;

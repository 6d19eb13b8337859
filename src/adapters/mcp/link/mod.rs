//! A single connection: handshake, requests, calls, lists, health checks.

pub(in crate::adapters::mcp) mod error;
pub(in crate::adapters::mcp) mod follow;
#[expect(clippy::module_inception, reason = "the room is named after what it is about")]
pub(in crate::adapters::mcp) mod link;
pub(in crate::adapters::mcp) mod asking;
pub(in crate::adapters::mcp) mod call;
pub(in crate::adapters::mcp) mod list;
pub(in crate::adapters::mcp) mod health;
pub(in crate::adapters::mcp) mod connection;
pub(in crate::adapters::mcp) mod attempt;

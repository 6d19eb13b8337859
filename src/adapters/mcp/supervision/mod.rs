//! Keeps a connection to each server, and one per user to servers with per-user credentials.

mod pace;
pub(in crate::adapters::mcp) mod server;
pub(in crate::adapters::mcp) mod per_user;
pub(in crate::adapters::mcp) mod news;
pub(in crate::adapters::mcp) mod supervisor;

//! Keeps a connection for each server, and for each user where a server wants that.

pub(in crate::adapters::mcp) mod server;
pub(in crate::adapters::mcp) mod per_user;
pub(in crate::adapters::mcp) mod news;
pub(in crate::adapters::mcp) mod supervisor;

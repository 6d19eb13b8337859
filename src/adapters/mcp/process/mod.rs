//! The processes of stdio servers.

pub(in crate::adapters::mcp) mod cutoff;
pub(in crate::adapters::mcp) mod stderr;
pub(in crate::adapters::mcp) mod sandbox;
pub(in crate::adapters::mcp) mod spawner;
pub(in crate::adapters::mcp) mod child;

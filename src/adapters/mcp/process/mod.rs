//! The processes of servers over standard streams.

pub(in crate::adapters::mcp) mod cutoff;
pub(in crate::adapters::mcp) mod stderr;
pub(in crate::adapters::mcp) mod sandbox;
pub(in crate::adapters::mcp) mod spawner;
pub(in crate::adapters::mcp) mod child;

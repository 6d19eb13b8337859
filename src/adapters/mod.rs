//! What the ports are made of: MCP servers, the index, the embedder, the store, and clients of other services.

pub mod data_dir;
pub mod embed;
pub mod index;
pub mod mcp;
pub mod openwebui;
pub mod store;
pub mod tokens;

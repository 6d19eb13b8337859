//! Implementations of the ports: MCP servers, index, embedder, store, clients of other services, and system events
//! (signals, changed files).

pub mod files;
pub mod index;
pub mod installation;
pub mod data_dir;
pub mod launch;
pub mod llm;
pub mod embed;
pub mod log;
pub mod mcp;
pub mod openwebui;
pub mod process;
pub mod descriptors;
pub mod signals;
pub mod store;
pub mod tokens;
pub mod watch;

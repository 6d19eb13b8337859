//! What the ports are made of: MCP servers, the index, the embedder, the store, clients of other services, and what the
//! system tells: signals and changed files.

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

//! Implementations of the ports: MCP servers, index, embedder, store, clients of other services
//! and of authorization servers, the desktop, and system events (signals, changed files).

pub(crate) mod log;
pub(crate) mod proxies;
pub(crate) mod addresses;
pub(crate) mod well_known;
pub(crate) mod private_files;
pub(crate) mod files;
pub(crate) mod spool;
pub mod index;
pub(crate) mod installation;
pub mod data_dir;
pub(crate) mod launch;
pub(crate) mod llm;
pub mod embed;
pub mod mcp;
pub(crate) mod authorization;
pub(crate) mod openwebui;
pub(crate) mod process;
pub(crate) mod descriptors;
pub(crate) mod desktop;
pub(crate) mod signals;
pub mod store;
pub(crate) mod telemetry;
pub mod backup;
pub(crate) mod systemd;
pub mod tokens;
pub(crate) mod watch;

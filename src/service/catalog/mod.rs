//! The catalog and the index: synchronisation with the servers, and administration.

pub mod current;
mod log_limit;
pub mod definitions;
pub(crate) mod build;
pub(crate) mod enrich;
pub mod indexing;
mod announce;
pub mod rebuild;
pub mod tool_facts;
pub mod refresh;
pub mod reload;
pub(crate) mod status;
pub(crate) mod tool_admin;

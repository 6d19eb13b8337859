//! The catalog and the index: synchronisation with the servers, and administration.

pub mod build;
pub mod current;
pub mod definitions;
pub mod enrich;
pub mod indexing;
mod announce;
pub mod rebuild;
pub mod tool_facts;
pub mod refresh;
pub mod reload;
pub mod status;
pub mod tool_admin;

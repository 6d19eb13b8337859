//! The catalog and the index: kept up with the servers, and administered.

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

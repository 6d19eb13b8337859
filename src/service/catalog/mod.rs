//! The catalog and the index: kept up with the servers, and administered.

mod announce;
pub mod current;
pub mod definitions;
pub mod enrich;
pub mod indexing;
pub mod rebuild;
pub mod refresh;
pub mod reload;
pub mod status;
pub mod tool_admin;
pub mod tool_facts;

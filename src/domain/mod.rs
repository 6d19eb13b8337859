//! The core: pure and synchronous, without IO, clock or randomness.
//!
//! Everything here is a function of its arguments. It depends on no other module of this crate, and knows nothing of HTTP, MCP's
//! transport or databases.

pub(crate) mod installation;
pub mod text;
pub mod execution;
pub mod catalog;
pub mod access;
pub mod selection;
pub mod learning;
pub mod toolsets;
pub mod publishing;
pub mod records;

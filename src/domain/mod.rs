//! The core: pure and synchronous, without IO, clock or randomness.
//!
//! Everything here is a function of its arguments. It knows neither HTTP nor MCP's transport nor any database, and depends
//! on no other module of this crate.

pub(crate) mod installation;
pub mod text;
pub mod execution;
pub mod catalog;
pub mod access;
pub mod selection;
pub mod toolsets;
pub mod publishing;
pub mod records;

//! The core: pure and synchronous, without IO, clock or randomness.
//!
//! Everything here is a function of its arguments. It knows neither HTTP nor MCP's transport nor any database, and depends
//! on no other module of this crate.

pub mod access;
pub mod catalog;
pub mod execution;
#[doc(hidden)]
pub mod fuzzing;
pub mod installation;
pub mod publishing;
pub mod records;
pub mod selection;
pub mod text;
pub mod toolsets;

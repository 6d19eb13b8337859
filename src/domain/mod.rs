//! The core: pure, synchronous, no IO, no clock, no randomness.
//!
//! Everything here is a function of its arguments. It knows neither HTTP nor MCP's transport nor any database,
//! and depends on nothing else of this crate.

pub mod installation;
pub mod text;
pub mod execution;
pub mod catalog;
pub mod access;
#[doc(hidden)]
pub mod fuzzing;
pub mod selection;
pub mod toolsets;
pub mod publishing;
pub mod records;

//! The core: pure, synchronous, no IO, no clock, no randomness.
//!
//! Everything here is a function of its arguments. It knows neither HTTP nor MCP's transport nor any database,
//! and depends on nothing else of this crate.

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

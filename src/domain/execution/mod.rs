//! Calls: arguments and results.

pub mod arguments;
pub mod outcome;

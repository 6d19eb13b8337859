//! A call: its arguments, and what comes back.

pub mod arguments;
pub mod outcome;

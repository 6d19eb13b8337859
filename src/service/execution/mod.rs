//! Calls of tools.

mod call_rules;
pub mod files;
mod answer;
pub mod execute;

//! Calls of tools.

mod answer;
mod call_rules;
pub mod execute;
pub mod files;

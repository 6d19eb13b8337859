//! Tool calls: validation, limits, results, files behind links.

mod call_rules;
pub mod files;
mod answer;
pub mod execute;

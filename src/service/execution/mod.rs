//! Tool calls: validation, limits, results, files behind links.

mod call_rules;
pub(crate) mod files;
mod answer;
pub(crate) mod execute;

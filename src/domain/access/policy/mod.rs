//! Decides which caller may use which tool: of the ordered rules, the first match decides.
//!
//! Modules: `check` finds contradictions, `compiled` turns rules into visibility classes, `decision` evaluates them one by one to explain
//! a verdict, and `unmatched` finds patterns that match nothing.

mod tool_side;
mod tagging;
mod toolsets;
mod unmatched;
mod view;
mod compiled;
mod check;
mod decision;

pub use check::{MATCHES_NO_TOOL, contradictions, unknown_callers, warnings};
pub use compiled::{Assignment, Policy};
pub use decision::{Decision, Decisions};
pub use tagging::{TagRule, Tagging};
pub use toolsets::CompiledToolsets;
pub use unmatched::Matchable;

#[cfg(test)]
mod tests;

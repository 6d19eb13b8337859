//! Which caller may use which tool: ordered rules, of which the first that fits decides.
//!
//! Rules are read and checked in `rule`, found to contradict each other in `check`, compiled to visibility classes in
//! `compiled`, and asked one by one, for people who want to know why, in `decision`.

mod check;
mod compiled;
mod decision;
mod pattern;
mod rule;
mod tagging;
mod toolsets;
mod view;

pub use check::{contradictions, warnings};
pub use compiled::{Assignment, Policy};
pub use decision::{Decision, Decisions};
pub(crate) use pattern::glob;
pub use rule::{Effect, PlacedRule, Rule, RulePlace, RuleProblem, RuleSource};
pub use tagging::{TagRule, Tagging};
pub use toolsets::Toolsets;

#[cfg(test)]
mod tests;

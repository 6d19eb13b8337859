//! Decides which caller may use which tool: of the ordered rules, the first match decides.
//!
//! Modules: `rule` parses and checks rules, `check` finds contradictions, `compiled` turns rules into visibility classes,
//! `decision` evaluates them one by one to explain a verdict, and `unmatched` finds patterns that match nothing.

mod check;
mod compiled;
mod decision;
mod pattern;
mod rule;
mod tagging;
mod toolsets;
mod unmatched;
mod view;

pub use check::{MATCHES_NO_TOOL, contradictions, unknown_callers, warnings};
pub use compiled::{Assignment, Policy};
pub use decision::{Decision, Decisions};
pub(crate) use pattern::{CallerPatterns, PatternSet, glob, is_plain};
pub use rule::{ConditionProblem, Effect, PlacedRule, Rule, RulePlace, RuleProblem, RuleSource};
pub use tagging::{TagRule, Tagging};
pub use toolsets::CompiledToolsets;
pub use unmatched::Matchable;

#[cfg(test)]
mod tests;

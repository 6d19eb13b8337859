//! `[[policy]]` and `access.default`: which caller may use which tool.

use std::sync::Arc;

use serde_json::Value;

use crate::domain::access::policy::{contradictions, unknown_callers};
use crate::domain::access::rule::{Effect, PlacedRule, Rule, RulePlace, RuleProblem, RuleSource};
use crate::settings::finding::{Findings, Location};
use crate::settings::values::{Reader, Values};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicySettings {
    /// The decision if no rule matches (`access.default`).
    pub default: Effect,
    /// The file or the variable that sets `default`, so that the API can't change it; `None` for the compiled-in default.
    pub default_source: Option<Arc<str>>,
    /// The rules, in the order of the file.
    pub rules: Vec<PlacedRule>,
}

impl PolicySettings {
    pub(super) fn read(values: &mut Values, findings: &mut Findings) -> Self {
        let rules = values.policy.clone();
        let default = default(&mut Reader::new(values, findings));
        let mut settings = Self { default, default_source: values.source_of(DEFAULT).map(Arc::from), rules: Vec::new() };
        for (number, (value, place)) in (1..).zip(&rules) {
            match Rule::read(value) {
                Ok(rule) => {
                    settings.rules.push(PlacedRule { place: RulePlace { source: RuleSource::Settings, number }, rule });
                }
                Err(reason) => findings.problem(place.clone(), format!("rule {number}: {reason}"), REMEDY),
            }
        }
        let place = |problem: &RuleProblem| {
            let rule = rules.get(problem.place.number - 1);
            rule.map_or_else(Location::default, |(_, place)| place.clone())
        };
        for problem in contradictions(&settings.rules) {
            findings.problem(place(&problem), problem.to_string(), "remove one of the two");
        }
        for problem in unknown_callers(&settings.rules) {
            findings.warning(place(&problem), problem.to_string(), REMEDY);
        }
        settings
    }
}

const DEFAULT: &str = "access.default";
const REMEDY: &str = "write a rule as described at [[policy]] in the commented defaults";

fn default(reader: &mut Reader<'_>) -> Effect {
    let name = reader.text(DEFAULT);
    serde_json::from_value(Value::String(name)).unwrap_or_else(|_| {
        reader.problem(DEFAULT, "neither \"allow\" nor \"deny\"", "write one of the two");
        Effect::Allow
    })
}

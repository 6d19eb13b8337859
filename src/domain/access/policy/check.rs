//! Finds contradictions and rules without effect in a policy.

use std::collections::HashMap;

use crate::domain::access::policy::compiled::Policy;
use crate::domain::access::principal::may_match_a_caller;
use crate::domain::access::rule::{Effect, PlacedRule, Rule, RulePlace, RuleProblem};
use crate::domain::catalog::catalog::Catalog;

/// The reason of [`warnings`] about a rule that matches no tool of the catalog.
pub const MATCHES_NO_TOOL: &str = "it matches no current tool";

/// Rules with the same conditions as an earlier rule but the opposite effect. One of each pair is a mistake.
pub fn contradictions(rules: &[PlacedRule]) -> Vec<RuleProblem> {
    same_conditions(rules)
        .filter(|(rule, (_, effect))| rule.rule.effect != *effect)
        .map(|(rule, (first, effect))| RuleProblem {
            place: rule.place,
            reason: format!("it says {}, and {first} says {} under the same conditions", rule.rule.effect.name(), effect.name()),
        })
        .collect()
}

/// Patterns that match no caller, such as a user's id without `user:`, and groups that Open WebUI can't send. A rule with no other
/// pattern never applies to them.
pub fn unknown_callers(rules: &[PlacedRule]) -> Vec<RuleProblem> {
    let of_rule = |rule: &PlacedRule| {
        let unknown = rule.rule.principals.iter().filter(|pattern| !may_match_a_caller(pattern));
        let unknown =
            unknown.map(|pattern| format!("`{pattern}` matches no caller: write key:NAME, user:ID, service-key, admin or anyone"));
        // A comma in braces separates alternatives.
        let split = rule.rule.groups.iter().filter(|group| group.contains(',') && !group.contains('{'));
        let split = split.map(|group| format!("the group `{group}` has a comma, at which the groups that Open WebUI sends are separated"));
        unknown.chain(split).map(|reason| RuleProblem { place: rule.place, reason }).collect::<Vec<RuleProblem>>()
    };
    rules.iter().flat_map(of_rule).collect()
}

/// Rules without effect: they match no tool of the catalog or no caller, or an earlier rule always decides.
pub fn warnings(policy: &Policy, catalog: &Catalog) -> Vec<RuleProblem> {
    let rules = policy.rules();
    let warning = |rule: &PlacedRule, reason: String| RuleProblem { place: rule.place, reason };
    let idle = policy.idle(catalog).into_iter();
    let mut found: Vec<RuleProblem> = idle.map(|rule| warning(rule, MATCHES_NO_TOOL.to_owned())).collect();
    found.extend(unknown_callers(rules));
    found.extend(
        same_conditions(rules)
            .filter(|(rule, (_, effect))| rule.rule.effect == *effect)
            .map(|(rule, (first, _))| warning(rule, format!("{first} says the same"))),
    );
    if let Some(end) = rules.iter().position(|rule| rule.rule.conditions() == Rule::default()) {
        let place = rules[end].place;
        found.extend(rules[end + 1..].iter().map(|rule| warning(rule, format!("it is never reached: {place} matches everything"))));
    }
    found
}

/// Rules with the same conditions as an earlier rule, paired with that rule.
fn same_conditions(rules: &[PlacedRule]) -> impl Iterator<Item = (&PlacedRule, (RulePlace, Effect))> {
    let mut first: HashMap<Rule, (RulePlace, Effect)> = HashMap::new();
    rules.iter().filter_map(move |rule| {
        let here = (rule.place, rule.rule.effect);
        let known = *first.entry(rule.rule.conditions()).or_insert(here);
        (known.0 != rule.place).then_some((rule, known))
    })
}

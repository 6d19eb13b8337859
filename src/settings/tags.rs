//! `[[tag]]`: rules that give tags to tools.

use crate::domain::access::policy::TagRule;
use crate::domain::access::tool_facts;
use crate::settings::finding::Findings;
use crate::settings::values::Values;

const REMEDY: &str = "write a rule as described at [[tag]] in the commented defaults";

pub(super) fn read(values: &Values, findings: &mut Findings) -> Vec<TagRule> {
    let mut rules = Vec::new();
    for (number, (value, place)) in (1..).zip(&values.tags) {
        let rule = TagRule::read(value).and_then(|rule| {
            let tag = tool_facts::tag(&rule.tag).map_err(|problem| problem.to_string())?;
            Ok(TagRule { tag, ..rule })
        });
        match rule {
            Ok(rule) => rules.push(rule),
            Err(reason) => findings.problem(place.clone(), format!("rule {number}: {reason}"), REMEDY),
        }
    }
    rules
}

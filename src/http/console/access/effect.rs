//! The effect of changed rules before they are saved: who would lose or gain which tools. Both sides are checks of the policy.

use std::collections::{BTreeSet, HashSet};

use actix_web::web;
use serde_json::Value;

use super::compiled;
use crate::domain::access::rule::{Effect as Verdict, Rule, RuleProblem, is_plain};
use crate::http::blocking::blocking;
use crate::http::problem::Problem;
use crate::http::routes::admin::policy;
use crate::http::state::State;
use crate::service::access::policies::{Check, CheckPrincipal};

/// Maximum number of callers that are compared. Each costs two checks of all tools.
const CALLERS: usize = 60;
/// A user whose id no rule names.
pub(super) const ANY_USER: &str = "user:?";

pub(super) struct Effect {
    /// The callers for whom something changes.
    pub(super) changes: Vec<CallerChange>,
    /// Number of callers that were compared.
    pub(super) compared: usize,
    /// Number of callers beyond [`CALLERS`].
    pub(super) left_out: usize,
    /// Patterns of changed rules for which no compared caller stands.
    pub(super) unmatched: Vec<String>,
    pub(super) warnings: Vec<RuleProblem>,
}

pub(super) struct CallerChange {
    /// `user:ID`, `key:NAME` or another caller.
    pub(super) caller: String,
    pub(super) group: Option<String>,
    pub(super) model: Option<String>,
    /// Public names of the tools.
    pub(super) loses: Vec<String>,
    pub(super) gains: Vec<String>,
}

/// Compares the rules in effect with a draft.
///
/// # Errors
/// A rule of the draft is invalid.
pub(super) async fn of(state: &web::Data<State>, draft: Value) -> Result<Effect, Problem> {
    let state = state.clone();
    blocking(move || compare(&state, &draft)).await?
}

fn compare(state: &State, draft: &Value) -> Result<Effect, Problem> {
    let view = state.policies.view();
    let drafted: Vec<Rule> = draft["rules"].as_array().into_iter().flatten().filter_map(|rule| Rule::read(rule).ok()).collect();
    let changed = changed(&view.rules, &drafted);
    let rules: Vec<&Rule> = view.settings_rules.iter().map(|rule| &rule.rule).chain(&view.rules).chain(&drafted).collect();
    let known = Known::of(state, &rules);
    let mut callers = known.callers(&changed);
    let left_out = callers.len().saturating_sub(CALLERS);
    callers.truncate(CALLERS);
    let unmatched = unmatched(&changed, &callers);
    let (compared, mut changes, mut warnings) = (callers.len(), Vec::new(), Vec::new());
    for caller in callers {
        let check = |draft: Option<Value>| policy::check(state, &Check { tool: None, principal: Some(caller.clone()), draft });
        let (now, then) = (check(None)?, check(Some(draft.clone()))?);
        let (mut loses, mut gains) = (Vec::new(), Vec::new());
        for (before, after) in now.decisions.iter().zip(then.decisions) {
            match (before.effect, after.effect) {
                (Verdict::Allow, Verdict::Block) => loses.push(after.name),
                (Verdict::Block, Verdict::Allow) => gains.push(after.name),
                _ => {}
            }
        }
        warnings = then.warnings;
        if !(loses.is_empty() && gains.is_empty()) {
            let CheckPrincipal { principal, groups, model, .. } = caller;
            changes.push(CallerChange { caller: principal, group: groups.into_iter().next(), model, loses, gains });
        }
    }
    Ok(Effect { changes, compared, left_out, unmatched, warnings })
}

/// The rules that differ between two lists, of both. A moved rule differs too.
fn changed<'a>(now: &'a [Rule], then: &'a [Rule]) -> Vec<&'a Rule> {
    let same_start = now.iter().zip(then).take_while(|(one, other)| one == other).count();
    let (now, then) = (&now[same_start..], &then[same_start..]);
    let same_end = now.iter().rev().zip(then.iter().rev()).take_while(|(one, other)| one == other).count();
    now[..now.len() - same_end].iter().chain(&then[..then.len() - same_end]).collect()
}

/// The names that rules can tell apart.
#[derive(Default)]
struct Known {
    /// The keys with their groups.
    keys: Vec<(String, Vec<String>)>,
    /// The users that rules name.
    users: BTreeSet<String>,
    groups: BTreeSet<String>,
    /// The models that rules name.
    models: BTreeSet<String>,
}

impl Known {
    fn of(state: &State, rules: &[&Rule]) -> Self {
        let named = |names: fn(&Rule) -> &Vec<String>| -> BTreeSet<String> {
            rules.iter().flat_map(|rule| names(rule)).filter(|name| is_plain(name)).cloned().collect()
        };
        let keys = state.keys.active();
        let keys: Vec<_> = keys.iter().map(|key| (format!("key:{}", key.name), key.groups.iter().cloned().collect::<Vec<_>>())).collect();
        let mut groups = named(|rule| &rule.groups);
        groups.extend(state.admission.groups.load().names().map(str::to_owned));
        groups.extend(keys.iter().flat_map(|(_, groups)| groups.iter().cloned()));
        let mut users = named(|rule| &rule.principals);
        users.retain(|name| is_user(name));
        Self { keys, users, groups, models: named(|rule| &rule.models) }
    }

    /// The callers to compare: first those that changed rules name, then the keys, a user of no group, a user of each known group, and
    /// the users and models that rules name.
    fn callers(&self, changed: &[&Rule]) -> Vec<CheckPrincipal> {
        let mut callers: Vec<CheckPrincipal> = changed.iter().flat_map(|rule| self.named_by(rule)).collect();
        callers.extend(["service-key", "admin", "anyone", ANY_USER].map(|name| caller(name, None, None)));
        callers.extend(self.groups.iter().map(|group| caller(ANY_USER, Some(group), None)));
        callers.extend(self.users.iter().map(|name| caller(name, None, None)));
        callers.extend(self.models.iter().map(|model| caller(ANY_USER, None, Some(model))));
        callers.extend(self.keys.iter().map(|(name, groups)| CheckPrincipal { groups: groups.clone(), ..caller(name, None, None) }));
        let mut seen = HashSet::new();
        callers.retain(|caller| seen.insert((caller.principal.clone(), caller.groups.clone(), caller.model.clone())));
        callers
    }

    /// The callers that a rule names, at most a few more than are compared. None for a rule that names no caller.
    fn named_by(&self, rule: &Rule) -> Vec<CheckPrincipal> {
        let Rule { principals, groups, models, .. } = rule;
        if principals.is_empty() && groups.is_empty() && models.is_empty() {
            return Vec::new();
        }
        // Without a condition, there is nothing to name.
        let each = |patterns: &[String], known: &BTreeSet<String>| -> Vec<Option<String>> {
            if patterns.is_empty() { vec![None] } else { meant(patterns, known).into_iter().map(Some).collect() }
        };
        let (groups_meant, models_meant) = (each(groups, &self.groups), each(models, &self.models));
        let users = match &principals[..] {
            [] => BTreeSet::from([ANY_USER.to_owned()]),
            patterns => meant(patterns, self.users.iter().chain([&ANY_USER.to_owned()])),
        };
        let users = users.iter().filter(|name| is_user(name));
        let of_groups = users.flat_map(|user| groups_meant.iter().map(move |group| (user, group)));
        let of_models = of_groups.flat_map(|(user, group)| models_meant.iter().map(move |model| (user, group, model)));
        let mut callers: Vec<_> =
            of_models.map(|(user, group, model)| caller(user, group.as_ref(), model.as_ref())).take(CALLERS + 1).collect();
        let (of_principals, of_groups) = (compiled(principals), compiled(groups));
        let holds = |name: &str, own: &[String]| {
            (principals.is_empty() || of_principals.is_match(name))
                && (groups.is_empty() || own.iter().any(|group| of_groups.is_match(group)))
        };
        let fixed = ["service-key", "admin", "anyone"].map(|name| (name.to_owned(), Vec::new()));
        // A rule for users of a model alone names no key.
        let others = fixed.iter().chain(&self.keys).filter(|_| !(principals.is_empty() && groups.is_empty()));
        for (name, own) in others.filter(|(name, own)| holds(name, own)).take(CALLERS + 1) {
            let with_model = |model| CheckPrincipal { groups: own.clone(), ..caller(name, None, model) };
            callers.extend(models_meant.iter().map(Option::as_ref).map(with_model).take(CALLERS + 1));
        }
        callers
    }
}

/// The patterns of rules for which no caller stands.
fn unmatched(rules: &[&Rule], callers: &[CheckPrincipal]) -> Vec<String> {
    let mut unmatched = BTreeSet::new();
    for rule in rules {
        let conditions = [&rule.principals, &rule.groups, &rule.models];
        let sets = conditions.map(|patterns| compiled(patterns));
        let mut met = conditions.map(|patterns| vec![false; patterns.len()]);
        for caller in callers {
            let names = [vec![&caller.principal], caller.groups.iter().collect(), caller.model.iter().collect()];
            let matches = [0, 1, 2].map(|place| names[place].iter().flat_map(|name| sets[place].matches(name)).collect::<Vec<usize>>());
            if (0..conditions.len()).all(|place| conditions[place].is_empty() || !matches[place].is_empty()) {
                for (met, matches) in met.iter_mut().zip(matches) {
                    for pattern in matches {
                        met[pattern] = true;
                    }
                }
            }
        }
        let patterns = conditions.into_iter().flatten().zip(met.into_iter().flatten());
        unmatched.extend(patterns.filter(|(_, met)| !met).map(|(pattern, _)| pattern.clone()));
    }
    unmatched.into_iter().collect()
}

fn caller(principal: &str, group: Option<&String>, model: Option<&String>) -> CheckPrincipal {
    CheckPrincipal {
        principal: principal.to_owned(),
        groups: group.cloned().into_iter().collect(),
        model: model.cloned(),
        ..CheckPrincipal::default()
    }
}

/// The names that patterns mean: patterns that are names, and known names that match.
fn meant<'a>(patterns: &'a [String], known: impl IntoIterator<Item = &'a String>) -> BTreeSet<String> {
    let set = compiled(patterns);
    let known = known.into_iter().filter(|name| set.is_match(name));
    patterns.iter().filter(|pattern| is_plain(pattern)).chain(known).cloned().collect()
}

fn is_user(principal: &str) -> bool {
    principal.strip_prefix("user:").is_some_and(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{CALLERS, Known, changed, unmatched};
    use crate::domain::access::rule::Rule;
    use crate::service::access::policies::CheckPrincipal;

    fn rules(rules: &Value) -> Vec<Rule> {
        rules.as_array().unwrap().iter().map(|rule| Rule::read(rule).unwrap()).collect()
    }

    /// The name, the groups and the model of a caller.
    fn words(caller: &CheckPrincipal) -> String {
        let parts = [caller.principal.clone()].into_iter().chain(caller.groups.clone()).chain(caller.model.clone());
        parts.collect::<Vec<_>>().join(" ")
    }

    fn known() -> Known {
        Known {
            keys: vec![("key:ci".to_owned(), vec!["builders".to_owned()])],
            groups: (0..100).map(|number| format!("group {number:02}")).chain(["interns".to_owned()]).collect(),
            ..Known::default()
        }
    }

    #[test]
    fn a_changed_rule_is_one_that_is_new_gone_or_moved() {
        let now = rules(&["a", "b", "c"].map(|tool| json!({"effect": "block", "tools": [tool]})).into());
        let tools = |then: &[Rule]| changed(&now, then).iter().map(|rule| rule.tools.join("")).collect::<String>();
        let [a, b, c] = &now[..] else { panic!("{now:?}") };
        assert_eq!(tools(&now), "");
        assert_eq!(tools(&[a.clone(), c.clone()]), "b");
        assert_eq!(tools(&[a.clone(), b.clone(), b.clone(), c.clone()]), "b");
        assert_eq!(tools(&[b.clone(), a.clone(), c.clone()]), "abba");
    }

    /// Regression test: with many groups, the caller that a rule names was left out.
    #[test]
    fn callers_that_changed_rules_name_come_first() {
        let named = |rule: &Value| -> Vec<String> {
            let rules = rules(&json!([rule]));
            let callers = known().callers(&rules.iter().collect::<Vec<_>>());
            assert!(callers.len() > CALLERS);
            let end = callers.iter().rposition(|caller| caller.principal == "service-key").unwrap();
            callers[..end].iter().map(words).collect()
        };
        assert_eq!(named(&json!({"effect": "block", "tools": ["a"]})), [""; 0]);
        assert_eq!(named(&json!({"effect": "block", "principals": ["user:bob", "key:gone"]})), ["user:bob"]);
        assert_eq!(named(&json!({"effect": "block", "groups": ["builders"]})), ["user:? builders", "key:ci builders"]);
        assert_eq!(named(&json!({"effect": "block", "groups": ["int*"]})), ["user:? interns"]);
        assert_eq!(named(&json!({"effect": "block", "principals": ["key:c*"], "models": ["gpt"]})), ["key:ci builders gpt"]);
        let both = json!({"effect": "block", "principals": ["user:bob"], "groups": ["a", "b"], "models": ["gpt"]});
        assert_eq!(named(&both), ["user:bob a gpt", "user:bob b gpt"]);
    }

    #[test]
    fn patterns_without_a_compared_caller_are_named() {
        let left = |rule: &Value| -> Vec<String> {
            let rules = rules(&json!([rule]));
            let changed: Vec<&Rule> = rules.iter().collect();
            let mut callers = known().callers(&changed);
            callers.truncate(CALLERS);
            unmatched(&changed, &callers)
        };
        assert_eq!(left(&json!({"effect": "block", "principals": ["user:bob*"]})), ["user:bob*"]);
        assert_eq!(left(&json!({"effect": "block", "groups": ["int*", "extern*"]})), ["extern*"]);
        assert_eq!(left(&json!({"effect": "block", "models": ["gpt*"]})), ["gpt*"]);
        for rule in [
            json!({"effect": "block"}),
            json!({"effect": "block", "principals": ["user:*", "key:*"]}),
            json!({"effect": "block", "principals": ["user:bob"], "groups": ["a"], "models": ["gpt"]}),
        ] {
            assert_eq!(left(&rule), [""; 0], "{rule}");
        }
    }
}

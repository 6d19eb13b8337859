//! The effect of changed rules before they are saved: who would lose or gain which tools. Both sides are checks of the policy.

use std::collections::BTreeSet;

use actix_web::web;
use serde_json::Value;

use crate::domain::access::policy::{Effect as Verdict, Rule, RuleProblem};
use crate::http::blocking::blocking;
use crate::http::problem::Problem;
use crate::http::routes::admin::policy;
use crate::http::state::State;
use crate::service::access::policies::{Check, CheckPrincipal};

/// Maximum number of callers that are compared. Each costs two checks of all tools.
const CALLERS: usize = 60;

pub(super) struct Effect {
    /// The callers for whom something changes.
    pub(super) changes: Vec<CallerChange>,
    /// Number of callers that were compared.
    pub(super) compared: usize,
    /// Number of callers beyond [`CALLERS`].
    pub(super) left_out: usize,
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
    let mut callers = callers(state, draft);
    let left_out = callers.len().saturating_sub(CALLERS);
    callers.truncate(CALLERS);
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
    Ok(Effect { changes, compared, left_out, warnings })
}

/// The callers that rules can tell apart: the keys, a user of no group, a user of each known group, and the users and models that
/// rules name.
fn callers(state: &State, draft: &Value) -> Vec<CheckPrincipal> {
    let of = |principal: &str| CheckPrincipal { principal: principal.to_owned(), ..CheckPrincipal::default() };
    let view = state.policies.view();
    let drafted: Vec<Rule> = draft["rules"].as_array().into_iter().flatten().filter_map(|rule| Rule::read(rule).ok()).collect();
    let rules: Vec<&Rule> = view.settings_rules.iter().map(|rule| &rule.rule).chain(&view.rules).chain(&drafted).collect();
    let named = |names: fn(&Rule) -> &Vec<String>| -> BTreeSet<String> {
        let plain = |name: &&String| !name.contains(['*', '?', '[', '{']);
        rules.iter().flat_map(|rule| names(rule)).filter(plain).cloned().collect()
    };
    let keys = state.keys.active();
    let mut groups = named(|rule| &rule.groups);
    groups.extend(state.admission.groups.load().names().map(str::to_owned));
    groups.extend(keys.iter().flat_map(|key| key.groups.iter().cloned()));
    let mut callers: Vec<CheckPrincipal> = ["service-key", "admin", "anyone", "user:?"].map(of).into();
    callers.extend(groups.into_iter().map(|group| CheckPrincipal { groups: vec![group], ..of("user:?") }));
    callers.extend(named(|rule| &rule.principals).iter().filter(|name| name.starts_with("user:")).map(|name| of(name)));
    callers.extend(named(|rule| &rule.models).into_iter().map(|model| CheckPrincipal { model: Some(model), ..of("user:?") }));
    callers.extend(keys.iter().map(|key| of(&format!("key:{}", key.name))));
    callers
}

//! Administration of the policy: the rules in the settings, followed by those set over the API.
//!
//! A change is stored before it is acknowledged, and applies to every later call.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::access::management::{ManagedBy, ManagedInFile};
use crate::domain::access::policy::{Policy, contradictions, warnings};
use crate::domain::access::principal::{GroupTable, Principal, User};
use crate::domain::access::rule::{Effect, PlacedRule, Rule, RulePlace, RuleProblem, RuleSource, is_plain};
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::{OperationId, Tool, ToolId};
use crate::service::access::keys::Keys;
use crate::service::catalog::current::CurrentCatalog;
use crate::service::ports::{PolicyStore, StoreError};
use crate::settings::{LiveSettings, PolicySettings};

/// Maximum number of rules that the API can set.
pub(crate) const MAX_RULES: usize = 1_000;
/// Maximum number of groups of the rules that a check of a tool covers, in addition to the groups in the settings.
const MAX_GROUPS: usize = 100;

#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("this version does not support its format: {0}")]
    Unreadable(String),
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<RuleProblem>),
    #[error(transparent)]
    Malformed(serde_json::Error),
    #[error("at most {MAX_RULES} rules are possible")]
    TooManyRules,
    /// The settings set the default effect.
    #[error(transparent)]
    OfFile(#[from] ManagedInFile),
    #[error("the policy was changed in the meantime: the current version is {0}")]
    Changed(u64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The reason why a check has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error("there is no tool `{0}`: write its published name, or server/tool")]
    UnknownTool(String),
    #[error(
        "nobody may call `{0}`: it is switched off or withheld, or its server no longer lists it. `toolsieve tools show` shows its state"
    )]
    FormerTool(String),
    #[error("there is no principal `{0}`: write key:NAME of an active key, user:ID, service-key, admin or anyone")]
    UnknownPrincipal(String),
    #[error("name a tool, a principal, or both")]
    Nothing,
    #[error(transparent)]
    Draft(#[from] PolicyError),
}

/// The policy set over the API, as sent and stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Body {
    /// The default effect; `None` for the default in the settings, which takes precedence if a file or a variable sets it.
    default: Option<Effect>,
    #[serde(default)]
    rules: Vec<Value>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Given {
    /// The version of the policy; 0 if none was ever set.
    version: u64,
    default: Option<Effect>,
    rules: Vec<PlacedRule>,
}

/// The whole policy, as shown to administrators.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PolicyView {
    /// Version of the policy set over the API; 0 if none was ever set.
    pub version: u64,
    /// The default effect set over the API; `null` if the settings decide.
    pub default: Option<Effect>,
    /// The default effect in force, which applies if no rule matches.
    pub effective_default: Effect,
    /// Rules in the settings file. They come first.
    pub settings_rules: Vec<SettingsRule>,
    pub rules: Vec<Rule>,
    pub warnings: Vec<RuleProblem>,
}

/// A rule in the settings file, which the API can't change.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SettingsRule {
    #[serde(flatten)]
    pub rule: Rule,
    pub managed_by: ManagedBy,
}

/// The principal to check.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckPrincipal {
    /// The principal's id: `key:NAME`, `service-key`, `admin`, `anyone` or `user:ID`.
    pub principal: String,
    /// The e-mail address, if the principal is a user.
    pub email: Option<String>,
    pub groups: Vec<String>,
    pub model: Option<String>,
}

/// The parameters of a check. At least one of `tool` and `principal` is set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Check {
    /// The tool, by published name or as `server/tool`. If absent, all tools are checked.
    pub tool: Option<String>,
    /// The principal. If absent, all known principals are checked.
    pub principal: Option<CheckPrincipal>,
    /// A policy to check in place of the one set over the API.
    pub draft: Option<Value>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CheckAnswer {
    pub decisions: Vec<CheckedDecision>,
    pub warnings: Vec<RuleProblem>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CheckedDecision {
    pub principal: String,
    pub name: String,
    pub server: String,
    pub tool: String,
    pub effect: Effect,
    /// The rule that decided, if any.
    pub rule: Option<RulePlace>,
    pub reason: String,
}

pub(crate) struct Policies {
    current: Arc<CurrentCatalog>,
    store: Arc<dyn PolicyStore>,
    keys: Arc<Keys>,
    parts: RwLock<Parts>,
    /// Ensures that changes run one after another.
    changing: tokio::sync::Mutex<()>,
}

struct Parts {
    settings: PolicySettings,
    groups: GroupTable,
    given: Given,
}

impl Policies {
    /// Loads and applies the policy. Call it before the first request, because until then everything is allowed.
    ///
    /// # Errors
    /// [`PolicyError`] if the policy is unreadable. The service then does not start.
    pub(crate) async fn start(
        current: Arc<CurrentCatalog>,
        store: Arc<dyn PolicyStore>,
        keys: Arc<Keys>,
        live: &LiveSettings,
    ) -> Result<Self, PolicyError> {
        let given = stored(store.as_ref()).await?;
        let parts = Parts { settings: live.policy.clone(), groups: live.groups.clone(), given };
        parts.warn();
        parts.put_in_force(&current);
        Ok(Self { current, store, keys, parts: RwLock::new(parts), changing: tokio::sync::Mutex::default() })
    }

    /// Applies changed settings.
    pub(crate) fn configure(&self, live: &LiveSettings) {
        let mut parts = self.parts.write();
        parts.settings = live.policy.clone();
        parts.groups = live.groups.clone();
        parts.warn();
        parts.put_in_force(&self.current);
    }

    /// Takes over the stored policy, which another service may have changed.
    ///
    /// # Errors
    /// [`PolicyError`]. The policy is then unchanged.
    pub(crate) async fn refresh(&self) -> Result<(), PolicyError> {
        let _one = self.changing.lock().await;
        let given = stored(self.store.as_ref()).await?;
        // Not the version alone: after a failover that lost changes, it may have been given again.
        if self.parts.read().given != given {
            self.take_over(given);
        }
        Ok(())
    }

    pub(crate) fn view(&self) -> PolicyView {
        self.parts.read().view(&self.current)
    }

    /// Replaces the policy set over the API, but only if `expected` (if given) is its current version.
    ///
    /// # Errors
    /// [`PolicyError`]. The policy is then unchanged.
    pub(crate) async fn replace(&self, body: &Value, expected: Option<u64>) -> Result<PolicyView, PolicyError> {
        let given = read(body)?;
        let _one = self.changing.lock().await;
        let version = {
            let parts = self.parts.read();
            parts.check_default(&given)?;
            let problems = contradictions(&parts.rules(&given));
            if !problems.is_empty() {
                return Err(PolicyError::Invalid(problems));
            }
            parts.given.version
        };
        if expected.is_some_and(|expected| expected != version) {
            return Err(PolicyError::Changed(version));
        }
        let stored = Body { default: given.default, rules: given.rules.iter().map(|rule| to_value(&rule.rule)).collect() };
        match self.store.save_policy(version, &to_value(&stored).to_string()).await? {
            Some(version) => Ok(self.take_over(Given { version, ..given })),
            // Another replica was faster. Its policy is the current one, so apply it here too.
            None => Err(PolicyError::Changed(self.take_over(self::stored(self.store.as_ref()).await?).version)),
        }
    }

    fn take_over(&self, given: Given) -> PolicyView {
        let mut parts = self.parts.write();
        parts.given = given;
        parts.put_in_force(&self.current);
        parts.view(&self.current)
    }

    /// Returns which principals may call which tools, and which rules decide.
    pub(crate) fn check(&self, check: &Check) -> Result<CheckAnswer, CheckError> {
        let parts = self.parts.read();
        let draft = match &check.draft {
            Some(body) => read(body)?,
            None => parts.given.clone(),
        };
        if check.draft.is_some() {
            parts.check_default(&draft)?;
        }
        let problems = contradictions(&parts.rules(&draft));
        if check.draft.is_some() && !problems.is_empty() {
            return Err(PolicyError::Invalid(problems).into());
        }
        let policy = parts.policy(&draft).with_toolsets(self.current.toolsets());
        let catalog = self.current.snapshot();
        let tools: Vec<&Arc<Tool>> = match &check.tool {
            None => catalog.tools().iter().collect(),
            Some(name) => {
                let known = |tool: &&Arc<Tool>| tool.operation_id.as_str() == name || tool.id.to_string() == *name;
                let found: Vec<&Arc<Tool>> = catalog.tools().iter().filter(known).collect();
                if found.is_empty() {
                    let published = name.split_once('/').map(|(server, tool)| OperationId::of(&ToolId::new(server, tool)));
                    let is_former = self.current.is_former(published.as_ref().map_or(name, OperationId::as_str));
                    return Err(if is_former { CheckError::FormerTool(name.clone()) } else { CheckError::UnknownTool(name.clone()) });
                }
                found
            }
        };
        let principals = match &check.principal {
            Some(given) => vec![(given.principal.clone(), self.principal(given, &parts.groups)?)],
            None if check.tool.is_none() => return Err(CheckError::Nothing),
            None => self.known_principals(&parts.groups, &parts.rules(&draft)),
        };
        let mut decisions = Vec::with_capacity(tools.len() * principals.len());
        for (name, principal) in &principals {
            let decided = policy.decisions(principal);
            for tool in &tools {
                let decision = decided.on(tool);
                let of_server = principal.servers.contains(&tool.id.server);
                let reached = of_server && policy.reaches(principal, tool);
                let reason = match (reached, decision.rule) {
                    (false, _) if !of_server => format!("the key does not reach {}", tool.id.server),
                    (false, _) => "it is in no toolset that the key reaches or that the service shows".to_owned(),
                    (true, Some(place)) => format!("{place} says {}", decision.effect.name()),
                    (true, None) => format!("no rule matches; the default is {}", decision.effect.name()),
                };
                decisions.push(CheckedDecision {
                    principal: name.clone(),
                    name: tool.operation_id.to_string(),
                    server: tool.id.server.to_string(),
                    tool: visible(&tool.id.name),
                    effect: if reached { decision.effect } else { Effect::Block },
                    rule: decision.rule.filter(|_| reached),
                    reason,
                });
            }
        }
        Ok(CheckAnswer { decisions, warnings: warnings(&policy, &catalog) })
    }

    /// The principal that a caller with these properties has.
    pub(crate) fn principal_of(&self, given: &CheckPrincipal) -> Result<Principal, CheckError> {
        self.principal(given, &self.parts.read().groups)
    }

    fn principal(&self, given: &CheckPrincipal, table: &GroupTable) -> Result<Principal, CheckError> {
        let unknown = || CheckError::UnknownPrincipal(given.principal.clone());
        let principal = match given.principal.split_once(':') {
            Some(("key", name)) => {
                let key = self.keys.active().into_iter().find(|key| key.name == name).ok_or_else(unknown)?;
                Principal::api_key(&key)
            }
            Some(("user", id)) if !id.is_empty() => {
                // Most people are identified by their e-mail address, and rules then use it as their id.
                let email = given.email.clone().or_else(|| id.contains('@').then(|| id.to_owned()));
                let user = User { id: id.to_owned(), email, name: None, groups: given.groups.iter().cloned().collect() };
                Principal::service_key().on_behalf_of(user, table)
            }
            None if given.principal == "service-key" => Principal::service_key(),
            None if given.principal == "admin" => Principal::admin_key(),
            None if given.principal == "anyone" => Principal::anyone(),
            _ => return Err(unknown()),
        };
        Ok(principal.with_model(given.model.clone()))
    }

    /// All keys, a user without groups, and a user of each group in the settings and in the rules.
    fn known_principals(&self, table: &GroupTable, rules: &[PlacedRule]) -> Vec<(String, Principal)> {
        let mut known = vec![
            ("anyone".to_owned(), Principal::anyone()),
            ("service-key".to_owned(), Principal::service_key()),
            ("admin".to_owned(), Principal::admin_key()),
        ];
        known.extend(self.keys.active().iter().map(|key| (format!("key:{}", key.name), Principal::api_key(key))));
        let user = |groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            Principal::service_key().on_behalf_of(User { id: "?".to_owned(), groups, ..User::default() }, &GroupTable::default())
        };
        known.push(("a user of no group".to_owned(), user(&[])));
        let mut groups: BTreeSet<&str> = table.names().collect();
        let in_rules = rules.iter().flat_map(|placed| &placed.rule.groups).map(String::as_str);
        let others: BTreeSet<&str> = in_rules.filter(|group| is_plain(group) && !groups.contains(group)).collect();
        groups.extend(others.into_iter().take(MAX_GROUPS));
        known.extend(groups.into_iter().map(|group| (format!("a user of {group}"), user(&[group]))));
        known
    }
}

impl Parts {
    fn rules(&self, given: &Given) -> Vec<PlacedRule> {
        self.settings.rules.iter().chain(&given.rules).cloned().collect()
    }

    fn warn(&self) {
        for problem in contradictions(&self.rules(&self.given)) {
            tracing::warn!("policy: {problem}; the first one applies");
        }
        if let Some((source, default)) = self.differing(&self.given) {
            let (stored, own) = (default.name(), self.settings.default.name());
            tracing::warn!(
                "policy: the default {stored} was set over the API, and access.default in {source} is {own}: deny is in force. Store the \
                 rules again without a default, so that the settings decide"
            );
        }
    }

    /// The default effect set over the API and the source of the different one in the settings.
    fn differing(&self, given: &Given) -> Option<(&Arc<str>, Effect)> {
        let source = self.settings.default_source.as_ref()?;
        Some((source, given.default.filter(|default| *default != self.settings.default)?))
    }

    fn check_default(&self, given: &Given) -> Result<(), PolicyError> {
        match self.differing(given) {
            Some((source, _)) => Err(ManagedInFile::new("the default decision (`access.default`)", source).into()),
            None => Ok(()),
        }
    }

    /// If an earlier version stored another default effect than the settings have, the stricter one applies.
    fn default(&self, given: &Given) -> Effect {
        match given.default {
            Some(_) if self.differing(given).is_some() => Effect::Block,
            given => given.unwrap_or(self.settings.default),
        }
    }

    fn policy(&self, given: &Given) -> Policy {
        Policy::new(self.default(given), self.rules(given))
    }

    fn put_in_force(&self, current: &CurrentCatalog) {
        current.set_policy(self.policy(&self.given));
    }

    /// The policy, which is in force: very many patterns take seconds to compile.
    fn view(&self, current: &CurrentCatalog) -> PolicyView {
        let given = &self.given;
        let rules = |rules: &[PlacedRule]| rules.iter().map(|rule| rule.rule.clone()).collect::<Vec<Rule>>();
        let of_settings = |rule| SettingsRule { rule, managed_by: ManagedBy::File };
        PolicyView {
            version: given.version,
            default: given.default,
            effective_default: self.default(given),
            settings_rules: rules(&self.settings.rules).into_iter().map(of_settings).collect(),
            rules: rules(&given.rules),
            warnings: warnings(&current.policy(), &current.snapshot()),
        }
    }
}

/// Loads the policy that was set over the API.
async fn stored(store: &dyn PolicyStore) -> Result<Given, PolicyError> {
    let Some(stored) = store.policy().await? else { return Ok(Given::default()) };
    let body = serde_json::from_str(&stored.body).map_err(|error| PolicyError::Unreadable(error.to_string()))?;
    let given = read(&body).map_err(|error| PolicyError::Unreadable(error.to_string()))?;
    Ok(Given { version: stored.version, ..given })
}

/// Parses a policy sent to the API. Reports all invalid rules together.
fn read(body: &Value) -> Result<Given, PolicyError> {
    let Body { default, rules } = Body::deserialize(body).map_err(PolicyError::Malformed)?;
    if rules.len() > MAX_RULES {
        return Err(PolicyError::TooManyRules);
    }
    let (mut given, mut problems) = (Given { default, ..Given::default() }, Vec::new());
    for (number, value) in (1..).zip(&rules) {
        let place = RulePlace { source: RuleSource::Api, number };
        match Rule::read(value) {
            Ok(rule) => given.rules.push(PlacedRule { place, rule }),
            Err(reason) => problems.push(RuleProblem { place, reason }),
        }
    }
    if problems.is_empty() { Ok(given) } else { Err(PolicyError::Invalid(problems)) }
}

fn to_value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CurrentCatalog, GroupTable, Parts, PolicySettings, read};
    use crate::domain::access::policy::Policy;

    /// Regression test: 100,000 patterns were compiled again for the response.
    #[test]
    fn rules_are_compiled_once() {
        let given = read(&json!({"rules": [{"effect": "block", "tools": ["*delete*"]}]})).unwrap();
        let parts = Parts { settings: PolicySettings::default(), groups: GroupTable::default(), given };
        let current = CurrentCatalog::default();
        let before = Policy::compiled_here();
        parts.put_in_force(&current);
        let warnings: Vec<String> = parts.view(&current).warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings, ["rule 1: it matches no current tool"]);
        assert_eq!(Policy::compiled_here() - before, 1);
    }
}
